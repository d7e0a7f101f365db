"""An index whose documents a column routes: each is there once, on its shard, whatever happens to the run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from e2e.own_tables import OwnTables
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.postgres.connection import connect, execute
from headrace.sinks.opensearch import Client, Endpoint
from headrace.sinks.opensearch.documents import document, documents, refresh

_NAME = "routed"
_SCHEMA = """
version: 1
table: person
primary_key: id
routing: team
fields:
  - integer: id
  - keyword: name
  - has_many: pets
    table: pet
    foreign_key: person_id
    primary_key: id
    order_by: [{ column: id, direction: asc }]
    fields:
      - keyword: name
"""
_TABLES = (
    "CREATE TABLE person (id int PRIMARY KEY, name text, team text)",
    "CREATE TABLE pet (id int PRIMARY KEY, person_id int, name text)",
    "INSERT INTO person SELECT n, 'p' || n, 't' || nullif(n % 9, 0) FROM generate_series(1, 400) n",
    "INSERT INTO pet SELECT n, n % 400, 'q' || n FROM generate_series(1, 500) n",
)
_MOVES = (
    "UPDATE person SET team = 't' || (id * 7 + {0}) % 11, name = name || '!' WHERE id % 3 = 0",
    "UPDATE person SET team = NULL WHERE id % 10 = {0}",
    "UPDATE pet SET name = name || '?' WHERE id % 4 = 0",
    "DELETE FROM person WHERE id % 19 = {0}",
    "INSERT INTO person SELECT n * 19 + {0}, 'back', 'ü' FROM generate_series(0, 5) n ON CONFLICT DO NOTHING",
)


@pytest.fixture
def pipeline(database: str, opensearch: EmbeddedOpenSearch, tmp_path: Path) -> Iterator[OwnTables]:
    shards = "number_of_shards = 4\n"
    one = OwnTables(tmp_path, _NAME, database, opensearch.url, tables=_TABLES, schema=_SCHEMA, sinks=shards)
    with contextlib.closing(one):
        yield one


@pytest.mark.long
def test_each_document_is_there_once_and_where_its_row_says(
    pipeline: OwnTables, opensearch: EmbeddedOpenSearch
) -> None:
    alias = pipeline.prefix + _NAME
    with closing(Client(Endpoint((opensearch.url,)))) as client:

        def held() -> dict[str, Any]:
            """By id, and by as many names more as there are copies too many."""
            refresh(client, alias)
            found: dict[str, Any] = {}
            for identity, body in documents(client, alias):
                found[f"{identity}, once more" if identity in found else identity] = body
            return found

        def right() -> None:
            pipeline.converges(held)
            with connect(pipeline.url) as connection:
                rows = execute(connection, "SELECT id::text, team FROM person")
            found = held()
            assert found.keys() == {identity for identity, _ in rows}
            for identity, team in rows:
                assert document(client, alias, identity, team or None) == found[identity]

        pipeline.start()
        pipeline.wait_ready()
        right()
        shards = client.read(f"/_cat/shards/{alias}*?format=json").json()
        assert [int(one["docs"]) > 0 for one in shards] == [True] * 4
        for number in range(4):
            pipeline.run(*(one.format(number) for one in _MOVES))
        right()

        for number in range(4, 9):
            pipeline.run(*(one.format(number) for one in _MOVES))
            if number == 6:
                pipeline.kill()
        pipeline.start()
        right()
        pipeline.run(*(one.format(9) for one in _MOVES))
        right()
        pipeline.terminate()

        pipeline.run("UPDATE person SET team = 't1'", "DELETE FROM person WHERE id < 100")
        pipeline.start()
        right()
        pipeline.terminate()
