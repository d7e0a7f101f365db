"""Rows that move from one routing to another take their documents along: each is there once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.model.changes import CHANGES_SCHEMA, Op
from headrace.model.names import CtidRange
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.task import Task
from headrace.pipeline.worker.worker import BackfillRange, Worker
from headrace.sinks.opensearch import IndexOptions
from headrace.sinks.opensearch.documents import document, documents, ids, refresh
from integration.documents.indexed_database import IndexedDatabase

SCHEMA = """
version: 1
table: person
primary_key: id
routing: team
fields:
  - integer: id
  - keyword: name
"""
TABLES = (
    "CREATE TABLE person (id int PRIMARY KEY, name text, team text)",
    "INSERT INTO person SELECT n, 'p' || n, 't' || nullif(n % 4, 0) FROM generate_series(1, 40) AS n",
)
TEAMS = (None, "", "t1", "t2", "t3", "ü,x")


class World(IndexedDatabase):
    """A database and its documents, on several shards."""

    def __init__(self, url: str, node: str, folder: Path) -> None:
        super().__init__(url, node, folder, SCHEMA)
        self.generation = self.new_generation(IndexOptions(number_of_shards=3))
        self.worker = Worker(Work(self.plan_of(self.generation), self.connections))

    def close(self) -> None:
        self.worker.close()
        super().close()

    def run(self, sql: str, *parameters: object) -> pa.Table:
        """Commit a change of one row; the batch that carries it."""
        identity = parameters[-1]
        self.writer.execute(sql.encode(), parameters)
        end, kind = self.position(), Op.DELETE if sql.startswith("DELETE") else Op.UPDATE
        rows = [
            {
                "_commit_lsn": end,
                "_commit_seq": 0,
                "op": kind.value,
                "schema": "public",
                "table": "person",
                "before": [("id", str(identity))],
                "after": None if kind is Op.DELETE else [("id", str(identity))],
            }
        ]
        return Task(pa.Table.from_pylist(rows, schema=CHANGES_SCHEMA), end)

    def assert_right(self) -> None:
        """Each row's document is there once, and where its column says."""
        refresh(self.client, self.generation.index)
        rows = self.writer.execute("SELECT id, name, team FROM person").fetchall()
        found = sorted(ids(self.client, self.generation.index))
        assert found == sorted(str(identity) for identity, _, _ in rows)
        held = dict(documents(self.client, self.generation.index))
        assert held == {str(identity): {"id": identity, "name": name} for identity, name, _ in rows}
        for identity, name, team in rows:
            one = document(self.client, self.generation.index, str(identity), team or None)
            assert one == {"id": identity, "name": name}


@pytest.fixture
def world(
    make_database: Callable[..., str], opensearch: EmbeddedOpenSearch, tmp_path: Path
) -> Iterator[World]:
    one = World(make_database(TABLES), opensearch.url, tmp_path)
    yield one
    one.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_after_moves_that_are_applied_in_another_order_each_document_is_there_once(
    world: World, seed: int
) -> None:
    chance = random.Random(seed)
    backfilled = world.position()
    late = world.worker.backfill(BackfillRange("people", CtidRange(0, None), backfilled, None))
    assert late.upserted == 40
    world.assert_right()
    batches = []
    for number in range(120):
        identity = chance.randrange(1, 41)
        match chance.randrange(5):
            case 0:
                batches.append(world.run("DELETE FROM person WHERE id = %s", identity))
            case 1:
                sql = "INSERT INTO person (name, team, id) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
                batches.append(world.run(sql, f"n{number}", chance.choice(TEAMS), identity))
            case _:
                sql = "UPDATE person SET team = %s WHERE id = %s"
                batches.append(world.run(sql, chance.choice(TEAMS), identity))
        if chance.random() < 0.5:  # the others are late, and come in any order
            world.worker.apply(batches.pop())
    world.worker.backfill(BackfillRange("people", CtidRange(0, None), backfilled, None))
    chance.shuffle(batches)
    for one in [*batches, *batches[:20]]:
        world.worker.apply(one)
    world.assert_right()
