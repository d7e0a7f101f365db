"""A sink of somebody's own beside the cluster: the one that docs/guides/sinks.md shows."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from e2e.own_tables import OwnTables
from headrace.embedded.opensearch import EmbeddedOpenSearch
from integration.sinks.documented_sink import deployed, install
from support.shop_oracle import actual_documents

_NAME = "ownsink"
_SCHEMA = """
version: 1
table: thing
primary_key: id
fields:
  - integer: n
    column: amount
  - has_many: s
    table: part
    foreign_key: thing_id
    primary_key: id
    order_by: [{ column: id, direction: asc }]
    fields:
      - keyword: label
"""
_TABLES = (
    "CREATE TABLE thing (id int PRIMARY KEY, amount int)",
    "CREATE TABLE part (id int PRIMARY KEY, thing_id int, label text)",
    "INSERT INTO thing SELECT n, n % 9 FROM generate_series(1, 3000) n",
    "INSERT INTO part SELECT n, n % 2500, 'p' || n FROM generate_series(1, 6000) n",
)
_CHANGES = (
    "INSERT INTO thing SELECT n, 0 FROM generate_series({0}, {0} + 40) n",
    "INSERT INTO part SELECT n, n % 70, 'é\"' || n FROM generate_series({0}, {0} + 200) n",
    "UPDATE thing SET amount = nullif(amount, 3) + 1 WHERE id % 7 = 0",
    "UPDATE part SET thing_id = thing_id + 1 WHERE id % 50 = 0",
    "DELETE FROM part WHERE id % 61 = 0",
    "DELETE FROM thing WHERE id % 13 = {0} % 13",
)


@pytest.fixture
def pipeline(
    database: str, opensearch: EmbeddedOpenSearch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OwnTables]:
    packages = tmp_path / "packages"
    packages.mkdir()
    install(packages)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    sinks = deployed(tmp_path / "documents.db")
    one = OwnTables(tmp_path, _NAME, database, opensearch.url, tables=_TABLES, schema=_SCHEMA, sinks=sinks)
    with contextlib.closing(one):
        yield one


@pytest.mark.long
def test_a_sink_of_ones_own_has_the_documents_through_kills_and_while_it_is_busy(
    pipeline: OwnTables, opensearch: EmbeddedOpenSearch, tmp_path: Path
) -> None:
    file = tmp_path / "documents.db"

    def held() -> dict[str, Any]:
        with contextlib.closing(sqlite3.connect(file)) as connection:
            rows = connection.execute("SELECT id, body FROM documents WHERE body NOTNULL").fetchall()
        return {identity: json.loads(body, parse_float=Decimal) for identity, body in rows}

    def primary() -> dict[str, Any]:
        return actual_documents(opensearch.url, pipeline.prefix + _NAME)

    def both() -> None:
        pipeline.converges(primary)
        pipeline.converges(held)

    def live() -> bool:
        return bool(pipeline.status().get("sinks", {}).get("documents", {}).get("phase") == "live")

    pipeline.start()
    pipeline.wait_ready()
    pipeline.wait_until(live, "had not filled it", 60)
    both()
    assert len(held()) == 3000
    pipeline.run(*(one.format(10_000) for one in _CHANGES))
    both()

    pipeline.run(*(one.format(20_000) for one in _CHANGES))
    pipeline.kill()
    pipeline.run(*(one.format(30_000) for one in _CHANGES))
    pipeline.start()
    both()
    pipeline.terminate()

    pipeline.run("DELETE FROM thing WHERE id % 17 = 0")
    pipeline.start()
    both()
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        pipeline.run(*(one.format(40_000) for one in _CHANGES))
        pipeline.wait_until(
            lambda: pipeline.status()["sinks"]["documents"]["deferred"] > 0, "has deferred nothing", 60
        )
        pipeline.converges(primary)
        pipeline.kill()
        pipeline.run(*(one.format(50_000) for one in _CHANGES))
        pipeline.start()
        pipeline.converges(primary)
    both()
    pipeline.wait_until(live, "did not say that it is back", 60)

    pipeline.run("TRUNCATE part", "DELETE FROM thing WHERE id > 100")
    both()
    pipeline.run("TRUNCATE thing")
    both()
    assert held() == {}
    pipeline.terminate()
