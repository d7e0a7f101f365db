"""With `--log-format json` every line of every process of a run is a JSON object."""

from __future__ import annotations

import json
import re

import pytest

from e2e.conftest import Deploy
from support.tcp_proxy import TcpProxy


@pytest.mark.long
def test_every_line_of_every_process_is_a_json_object(deploy: Deploy) -> None:
    """Of the driver, of Java, of the process that reads the log, and of the workers."""
    with deploy() as pipeline, TcpProxy.before(pipeline.shop.url) as database:
        text = pipeline.config.read_text().replace(pipeline.shop.url, database.url(pipeline.shop.url))
        pipeline.config.write_text(text)
        pipeline.arguments = ("--log-level", "debug", "--log-format", "json")
        pipeline.start()
        pipeline.wait_ready()
        database.cut()
        pipeline.shop.run("UPDATE users SET name = name || '!' WHERE id = 1")
        pipeline.converges()
        pipeline.terminate()
        lines = [json.loads(line) for line in pipeline.output.read_text().splitlines()]
    assert {line["level"] for line in lines} <= {"DEBUG", "INFO", "WARNING", "ERROR"}
    assert all({"time", "component", "message"} <= line.keys() for line in lines)
    components = {line["component"] for line in lines}
    assert {"headrace.run", "headrace.capture.reading"} <= components
    assert any(component.startswith("spark.") for component in components)
    assert {line["slot"] for line in lines if line["component"] != "headrace.run"} == {pipeline.name}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_long_range_shows_its_documents_before_it_is_finished(deploy: Deploy) -> None:
    """On the board, and in a line of the log every ten seconds."""
    with deploy(users=600) as pipeline:
        text = pipeline.config.read_text()
        pipeline.config.write_text(f"{text}\n[backfill]\nrows_per_second = 20\nconnections = 1\n")
        pipeline.start()

        progress = re.compile(r"[1-9][\d,]* documents?, 0 of \d+ ranges?, \d+/s")

        def unfinished() -> list[tuple[int, int]]:
            indexes = pipeline.status().get("indexes", [])
            return [(index["documents"], index["ranges_done"]) for index in indexes if index["building"]]

        pipeline.wait_until(
            lambda: any(documents and not ranges for documents, ranges in unfinished()),
            "showed no documents of a range that it reads",
            120,
        )
        pipeline.wait_until(
            lambda: progress.search(pipeline.output.read_text()) is not None, "logged no progress", 60
        )
        pipeline.kill()
