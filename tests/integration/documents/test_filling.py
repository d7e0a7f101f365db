"""A generation is filled beside the stream: what meets it there, and what is compared at its end."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headrace.assembly.digests import Identities, buckets_of
from headrace.catalog import read_catalog
from headrace.catalog.table import Table
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA, DocumentOperation, key_of_id
from headrace.model.lsn import Lsn, parse_lsn
from headrace.pipeline.reconciliation import reconcile
from headrace.pipeline.worker.plan import Endpoints, Work
from headrace.pipeline.worker.task import plan_tasks
from headrace.pipeline.worker.worker import BackfillRange, Worker
from headrace.postgres.session import ReadSession
from headrace.schema.load import load_schema
from headrace.schema.tree import IndexSpec
from headrace.sinks.activity import BackfillCounter
from headrace.sinks.opensearch import (
    Client,
    Endpoint,
    Generation,
    Generations,
    IndexOptions,
    OpenSearchWriter,
    WriterOptions,
    mapping,
)
from headrace.sinks.opensearch.client import path
from headrace.sinks.opensearch.documents import documents, ids, refresh
from headrace.snapshot.planning import plan_ranges
from headrace.state import StateKey
from integration.documents.indexed_database import documents_plan
from support.http_proxy import HttpProxy, Request

PEOPLE = 40
TABLES = (
    "CREATE TABLE person (family text, number int, PRIMARY KEY (family, number))",
    "CREATE TABLE visit (id bigint PRIMARY KEY, family text, number int, place text)",
    "CREATE INDEX ON visit (family, number)",
    f"INSERT INTO person SELECT (ARRAY['a:%ü', 'b'])[1 + n % 2], n FROM generate_series(1, {PEOPLE}) n",
    "INSERT INTO visit SELECT number, family, number, 'there' FROM person",
)
SCHEMA = """
version: 1
table: person
primary_key: [family, number]
fields:
  - count: visits
    table: visit
    primary_key: id
    foreign_key: [family, number]
"""
SECOND = SCHEMA + "  - constant: version\n    value: 2\n"


class World:
    """A database, two generations of one index from two schemas, and a worker that writes both."""

    def __init__(self, url: str, node: str, folder: Path) -> None:
        self.url = url
        self.writer = psycopg.connect(url, autocommit=True)
        self.client = Client(Endpoint((node,)))
        self.generations = Generations(self.client, f"f{uuid.uuid4().hex[:8]}_")
        self.first, first = self._make(folder / "one.yml", SCHEMA)
        self.second, second = self._make(folder / "two.yml", SECOND)
        specs = {self.first.index: first, self.second.index: second}
        with ReadSession(url) as session:
            catalog = read_catalog(session, first.tables())
        self.plan = documents_plan(
            specs,
            catalog,
            {one.index: one.target for one in (self.first, self.second)},
            key=StateKey("none", "test_filling_"),
            large_change=1000,
            indexes=dict.fromkeys(specs, "people"),
        )
        self.worker = Worker(Work(self.plan, Endpoints(url, Endpoint((node,)))))

    def _make(self, file: Path, text: str) -> tuple[Generation, IndexSpec]:
        file.write_text(text)
        spec = load_schema(file, "people")
        made = self.generations.create("people", spec.hash, mapping(spec, IndexOptions()))
        return made, replace(spec, name=made.index)

    def close(self) -> None:
        self.worker.close()
        for one in (self.first, self.second):
            self.generations.drop(one)
        self.client.close()
        self.writer.close()

    def position(self) -> Lsn:
        [(text,)] = self.writer.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
        return parse_lsn(text)

    def root(self) -> Table:
        """The table that both are made of."""
        return self.plan.catalog[self.plan.specs[self.first.index].table]

    def fill(self, one: Generation, counter: Truncating | None = None) -> None:
        with ReadSession(self.url) as session:
            ranges = plan_ranges(session, self.root(), 8 << 20)
        for part in ranges:
            self.worker.backfill(BackfillRange(one.index, part, self.position(), None), counter)

    def held(self, one: Generation) -> Mapping[str, object]:
        refresh(self.client, one.index)
        return dict(documents(self.client, one.index))

    def expected(self, **more: object) -> Mapping[str, object]:
        """A naive evaluation over plain rows."""
        people = self.writer.execute("SELECT * FROM person").fetchall()
        visits = self.writer.execute("SELECT family, number FROM visit").fetchall()
        ids_ = {one: f"{one[0].replace('%', '%25').replace(':', '%3A')}:{one[1]}" for one in people}
        return {ids_[one]: {"visits": visits.count(one), **more} for one in people}


@pytest.fixture
def world(
    make_database: Callable[..., str], opensearch: EmbeddedOpenSearch, tmp_path: Path
) -> Iterator[World]:
    one = World(make_database(TABLES), opensearch.url, tmp_path)
    yield one
    one.close()


def test_one_batch_writes_two_generations_of_an_index(world: World) -> None:
    """Each from its own schema."""
    world.fill(world.first)
    world.fill(world.second)
    world.writer.execute("INSERT INTO visit VALUES (1000, 'b', 1, 'again')")
    end = world.position()
    after = [("id", "1000"), ("family", "b"), ("number", "1"), ("place", "again")]
    row = {
        "_commit_lsn": end,
        "schema": "public",
        "table": "visit",
        "op": "i",
        "after": after,
        "_commit_seq": 0,
    }
    batch = pa.RecordBatch.from_pylist([row], schema=CHANGES_SCHEMA)
    [task] = plan_tasks([batch], end, 1)
    assert world.worker.apply(task).result.upserted == 2
    assert world.held(world.first) == world.expected()
    assert world.held(world.second) == world.expected(version=2)


class Counting:
    """Holds each bulk for a moment, and counts how many there are at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = self.most = self.bulks = 0

    def __call__(self, request: Request) -> None:
        if "_bulk" not in request.target:
            return
        with self._lock:
            self._now += 1
            self.bulks += 1
            self.most = max(self.most, self._now)
        time.sleep(0.1)
        with self._lock:
            self._now -= 1


@pytest.mark.parametrize(("throttled", "at_once"), [(True, 1), (False, 2)])
def test_beside_a_stream_with_readers_one_bulk_is_under_way(
    world: World, opensearch: EmbeddedOpenSearch, throttled: bool, at_once: int
) -> None:
    with ReadSession(world.url) as session:
        [part] = plan_ranges(session, world.root(), 8 << 20)
    counting = Counting()
    with HttpProxy(opensearch.url, spoil=counting) as front:
        plan = replace(world.plan, writer=WriterOptions(max_count=PEOPLE // 8))
        work = Work(plan, Endpoints(world.url, Endpoint((front.url,))))
        with closing(Worker(work)) as worker:
            result = worker.backfill(
                BackfillRange(world.first.index, part, world.position(), None, throttled=throttled)
            )
    assert (result.upserted, counting.bulks, counting.most) == (PEOPLE, 8, at_once)
    assert world.held(world.first) == world.expected()


def test_a_truncate_leaves_what_is_nobodys(world: World) -> None:
    """A document that somebody has put there by hand, under an id that no row can have."""
    world.fill(world.first)
    strays = ("stray", "a:b:c", "a:b")
    for one in strays:
        world.client.call("PUT", path(world.first.index, "_doc", one), {"visits": 7})
    world.writer.execute("TRUNCATE visit")
    end = world.position()
    row = {"_commit_lsn": end, "_commit_seq": 0, "schema": "public", "table": "visit", "op": "t"}
    [task] = plan_tasks([pa.RecordBatch.from_pylist([row], schema=CHANGES_SCHEMA)], end, 1)
    world.worker.apply(task)
    assert world.held(world.first) == {**world.expected(), **{one: {"visits": 7} for one in strays}}


class Truncating(BackfillCounter):
    """Empties a table once, when the first document of a range is read and none is written."""

    def __init__(self, world: World, table: str) -> None:
        super().__init__(None, "job", 0)
        self._world, self._table, self._is_done = world, table, False

    def count(self, generation: str, operations: Iterable[Any]) -> Iterator[Any]:
        for operation in super().count(generation, operations):
            if not self._is_done:
                self._is_done = True
                self._world.writer.execute(f"TRUNCATE {self._table}".encode())
            yield operation


def test_a_range_whose_children_are_truncated_meanwhile_is_read_again(world: World) -> None:
    """The stream renews what it finds written; this was on its way."""
    world.fill(world.first, Truncating(world, "visit"))
    assert world.writer.execute("SELECT count(*) FROM visit").fetchall() == [(0,)]
    assert world.held(world.first) == world.expected()


def test_a_range_whose_own_table_is_truncated_meanwhile_is_no_range_any_more(world: World) -> None:
    """And what it has written is found by the sweep."""
    with pytest.raises(HeadraceError, match="was rewritten") as refused:
        world.fill(world.first, Truncating(world, "person"))
    assert refused.value.kind is Kind.CONTINUITY
    assert len(world.held(world.first)) == PEOPLE
    assert swept(world) == PEOPLE
    assert world.held(world.first) == {}


def test_the_sweep_finds_orphans_and_what_is_missing(world: World) -> None:
    world.fill(world.first)
    assert swept(world) == 0
    with ReadSession(world.url) as session:
        identities = Identities(session, world.plan.specs[world.first.index], world.plan.catalog)
        assert identities.buckets() == buckets_of(world.expected())
    orphan = DocumentOperation("x", "b:4711", 1, b'{"visits":1}')
    writer = OpenSearchWriter(world.client, {"x": world.first.target})
    writer.write([orphan, replace(orphan, id="b:1", version=world.position(), body=None)])
    writer.close()
    assert world.held(world.first) != world.expected()
    assert swept(world) == 2
    assert world.held(world.first) == world.expected()


def swept(world: World) -> int:
    index = world.first.index
    refresh(world.client, index)
    with ReadSession(world.url) as session:
        identities = Identities(session, world.plan.specs[index], world.plan.catalog)

        def mend(found: list[str]) -> None:
            # As the pipeline does it behind a later commit.
            world.writer.execute("SELECT pg_logical_emit_message(false, '', 'x')")
            world.worker.rewrite(index, [key_of_id(one, 2) for one in found], world.position())

        return reconcile(identities, lambda: ids(world.client, index), mend)


def test_nothing_of_it_reaches_an_index_that_is_gone(world: World) -> None:
    """A generation that was dropped is never recreated by a late write, which fails for this one alone."""
    world.generations.drop(world.second)
    with pytest.raises(HeadraceError, match="does not exist any more") as caught:
        world.fill(world.second)
    assert caught.value.units == {world.second.index}
    with closing(world.client):
        assert [one.index for one in world.generations.existing("people")] == [world.first.index]


def test_a_range_whose_snapshot_has_gone_reads_what_is_there(world: World) -> None:
    """It was given up so that VACUUM can go on; the version is the same, for what is there is no older."""
    with ReadSession(world.url) as session:
        [part] = plan_ranges(session, world.root(), 8 << 20)
    position = world.position()
    world.writer.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    [(snapshot,)] = world.writer.execute("SELECT pg_export_snapshot()").fetchall()
    with psycopg.connect(world.url, autocommit=True) as other:
        other.execute("INSERT INTO visit VALUES (1000, 'b', 1, 'again')")
    world.worker.backfill(BackfillRange(world.first.index, part, position, snapshot))
    as_of = world.expected()
    assert world.held(world.first) == as_of
    world.writer.execute("COMMIT")
    world.worker.backfill(BackfillRange(world.first.index, part, position, snapshot))
    assert world.held(world.first) == world.expected() != as_of
