"""With `--log-format json` every line of every process of a run is a JSON object."""

from __future__ import annotations

import json

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
