"""What becomes of documents that are too many to be written with their batch?"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA
from headrace.model.names import CtidRange
from headrace.pipeline.stream.deferred_work import DeferredWork
from headrace.pipeline.worker import worker
from headrace.pipeline.worker.plan import DocumentsPlan, Work
from headrace.pipeline.worker.task import plan_tasks
from headrace.pipeline.worker.worker import BackfillRange, Worker, WrittenBatch
from headrace.sinks.opensearch import Endpoint
from headrace.sinks.opensearch.documents import documents, refresh
from headrace.spark.session import local_spark
from headrace.state import DeferredKeys, StateKey
from headrace.state.deferred_keys import ALL_KEYS
from integration.documents.indexed_database import IndexedDatabase, documents_plan
from support.http_proxy import HttpProxy, Request

PEOPLE, LIMIT = 60, 20
TABLES = (
    "CREATE TABLE country (id bigint PRIMARY KEY, name text NOT NULL)",
    "CREATE TABLE person (id bigint PRIMARY KEY, country_id bigint NOT NULL)",
    "INSERT INTO country VALUES (1, 'Holland'), (2, 'Elsewhere')",
    f"INSERT INTO person SELECT n, 1 + n / {PEOPLE} FROM generate_series(1, {PEOPLE + 2}) AS n",
)
SCHEMA = """
version: 1
table: person
primary_key: id
fields:
  - belongs_to: country
    table: country
    primary_key: id
    column: country_id
    fields: [{ keyword: name }]
"""
RENAMED = {"schema": "public", "table": "country", "op": "u", "after": [("id", "1"), ("name", "Nederland")]}
EMPTIED = {"schema": "public", "table": "country", "op": "t"}


class World(IndexedDatabase):
    """A database, its documents, and a worker that defers early."""

    def __init__(self, url: str, node: str, folder: Path) -> None:
        super().__init__(url, node, folder, SCHEMA)
        self.generation = self.new_generation()
        key = StateKey(f"s{uuid.uuid4().hex[:8]}", "test_deferred_")
        self.plan = self.plan_of(self.generation, key=key, large_change=LIMIT)
        self.deferred = DeferredKeys(self.client, self.plan.key)
        self.worker = self.workers(self.plan)
        self.worker.backfill(BackfillRange("people", CtidRange(0, None), self.position(), None))

    def workers(self, plan: DocumentsPlan, node: str | None = None) -> Worker:
        connections = self.connections
        if node is not None:
            connections = replace(connections, sink=Endpoint((node,)))
        return Worker(Work(plan, connections))

    def close(self) -> None:
        self.deferred.forget()
        self.worker.close()
        super().close()

    def apply(self, sql: bytes, change: Mapping[str, object], shares: int = 1) -> list[WrittenBatch]:
        """Commit, and let the tasks of a batch with that change do their work."""
        self.writer.execute(sql)
        end = self.position()
        rows = [{"_commit_lsn": end, "_commit_seq": number, **change} for number in range(1000)]
        batch = pa.RecordBatch.from_pylist(rows if shares > 1 else rows[:1], schema=CHANGES_SCHEMA)
        return [self.worker.apply(task) for task in plan_tasks([batch], end, shares)]

    def held(self) -> dict[str, str | None]:
        refresh(self.client, self.generation.index)
        found = documents(self.client, self.generation.index)
        return {one: (body["country"] or {}).get("name") for one, body in found}

    def expected(self) -> dict[str, str | None]:
        """A naive evaluation over plain rows."""
        names: dict[int, str] = dict(self.writer.execute("SELECT * FROM country").fetchall())
        people = self.writer.execute("SELECT * FROM person").fetchall()
        return {str(one): names.get(country) for one, country in people}

    def work_off(self) -> int:
        return self.worker.write_stored([one.id for one in self.deferred.oldest(1_000)]).upserted


@pytest.fixture
def world(
    make_database: Callable[..., str], opensearch: EmbeddedOpenSearch, tmp_path: Path
) -> Iterator[World]:
    one = World(make_database(TABLES), opensearch.url, tmp_path)
    yield one
    one.close()


def test_a_change_of_many_documents_is_deferred_and_worked_off(world: World) -> None:
    assert world.held() == world.expected()
    before, count = world.held(), PEOPLE - 1
    [done] = world.apply(b"UPDATE country SET name = 'Nederland' WHERE id = 1", RENAMED)
    assert done.result.upserted == 0
    assert world.held() == before
    assert world.deferred.count() == count, "a chunk holds one fiftieth of the limit, and one at least"
    assert DeferredKeys(world.client, StateKey("another", world.plan.key.prefix)).count() == 0
    assert world.work_off() == count
    assert (world.deferred.count(), world.held()) == (0, world.expected())


def test_the_documents_of_a_locked_table_wait_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch ends all the same; what has waited for the lock once defers without another wait."""
    moved = {"schema": "public", "table": "person", "op": "u", "after": [("id", "7"), ("country_id", "2")]}
    monkeypatch.setattr(worker, "_REST_SECONDS", 600.0)
    with psycopg.connect(world.connections.database) as holder:
        holder.execute("LOCK TABLE country")
        [done] = world.apply(b"UPDATE person SET country_id = 2 WHERE id = 7", moved)
        assert (done.changes, done.result.upserted) == (1, 0)
        with pytest.raises(HeadraceError, match="country is locked by") as caught:
            world.work_off()
        assert caught.value.kind is Kind.LOCKED
        assert caught.value.units == {"people"}
        monkeypatch.setattr(worker, "_LOCK_SECONDS", 60.0)
        world.worker._drop_session()
        began = time.monotonic()
        world.apply(b"UPDATE person SET country_id = 2 WHERE id = 8", {**moved, "after": [("id", "8")]})
        assert time.monotonic() - began < 30
        assert world.deferred.count() == 2
    assert world.work_off() == 2
    assert world.held() == world.expected()
    monkeypatch.setattr(worker, "_REST_SECONDS", 0.0)
    world.worker._resting["people"] = 0.0
    [done] = world.apply(b"UPDATE person SET country_id = 2 WHERE id = 9", {**moved, "after": [("id", "9")]})
    assert (done.result.upserted, world.deferred.count()) == (1, 0)
    assert world.held() == world.expected()


def test_few_documents_are_not_deferred(world: World) -> None:
    change = {**RENAMED, "after": [("id", "2"), ("name", "Nowhere")]}
    [done] = world.apply(b"UPDATE country SET name = 'Nowhere' WHERE id = 2", change)
    assert (done.result.upserted, world.deferred.count()) == (3, 0)
    assert world.held() == world.expected()


def test_a_truncate_of_a_child_parks_every_document_that_exists(world: World) -> None:
    world.apply(b"TRUNCATE country", EMPTIED)
    assert world.work_off() == PEOPLE + 2
    assert world.held() == world.expected()


def test_all_documents_of_a_large_index_are_deferred_in_chunks(world: World) -> None:
    """Writing them takes longer than a scroll of their ids stays open."""
    end = world.position()
    world.deferred.add("people", [[ALL_KEYS]], end)
    [everything] = world.deferred.oldest(10)
    world.writer.execute("UPDATE country SET name = 'Nederland' WHERE id = 1")
    assert world.worker.write_stored([everything.id]).upserted == 0
    left = world.deferred.oldest(1_000)
    assert sorted(key for batch in left for key in batch.keys) == sorted((id_,) for id_ in world.held())
    assert {batch.version for batch in left} == {end}
    assert world.work_off() == PEOPLE + 2
    assert world.held() == world.expected()


def test_the_tasks_of_a_large_batch_write_each_document_once(world: World) -> None:
    tasks = world.apply(b"UPDATE country SET name = 'Nederland' WHERE id = 1", RENAMED, shares=3)
    written = [one.result.upserted for one in tasks]
    assert sum(written) == PEOPLE - 1
    assert all(written)
    assert [one.changes for one in tasks] == [1_000, 0, 0]
    assert world.held() == world.expected()


def test_a_chunk_that_is_late_replaces_nothing_newer(world: World) -> None:
    world.apply(b"UPDATE country SET name = 'Nederland' WHERE id = 1", RENAMED)
    moved = {"schema": "public", "table": "person", "op": "d", "before": [("id", "7")]}
    world.apply(b"DELETE FROM person WHERE id = 7", moved)
    assert world.work_off() == PEOPLE - 2
    assert world.held() == world.expected()


def test_chunks_of_a_generation_that_has_gone_are_let_go(world: World) -> None:
    before = world.held()
    world.apply(b"UPDATE country SET name = 'Nederland' WHERE id = 1", RENAMED)
    other = world.generations.create("people", "cd", {"settings": {"index": {}}, "mappings": {}})
    specs, targets = {"people_cd": world.plan.specs["people"]}, {"people_cd": other.target}
    worker = world.workers(replace(world.plan, specs=specs, targets=targets))
    try:
        assert worker.write_stored([one.id for one in world.deferred.oldest(1_000)]).upserted == 0
    finally:
        worker.close()
        world.generations.drop(other)
    assert (world.deferred.count(), world.held()) == (0, before)


def test_a_chunk_that_was_read_before_its_table_was_emptied_leaves_nothing(world: World) -> None:
    """The index does not hold the new document yet when the batch of the TRUNCATE lists what it holds."""
    world.apply(
        b"INSERT INTO person VALUES (1000, 1); UPDATE country SET name = 'Nederland' WHERE id = 1", RENAMED
    )
    chunks = [one.id for one in world.deferred.oldest(1_000)]

    def empty(request: Request) -> None:
        if "_bulk" in request.target and b'"1000"' in request.body:
            proxy.spoil = lambda _: None
            world.apply(b"TRUNCATE person", {**EMPTIED, "table": "person"})

    with HttpProxy(world.connections.sink.urls[0], spoil=empty) as proxy:
        late = world.workers(world.plan, proxy.url)
        try:
            late.write_stored(chunks)
        finally:
            late.close()
    world.work_off()
    assert world.held() == world.expected() == {}


def test_a_job_with_the_former_plan_leaves_the_keys_of_a_new_generation_alone(world: World) -> None:
    """The look at what is deferred hangs while the new plan comes, and keys of its generation."""
    further = world.new_generation()
    specs = {"people": world.spec, "further": replace(world.spec, name="further")}
    targets = {"people": world.generation.target, "further": further.target}
    plan = documents_plan(specs, world.catalog, targets, key=world.plan.key, large_change=LIMIT)
    world.deferred.add("people", [[("2",)]], world.position())
    looks, goes_on = threading.Event(), threading.Event()

    def hang(request: Request) -> None:
        if "headrace_deferred/_refresh" in request.target:
            looks.set()
            goes_on.wait(60)

    with (
        local_spark(master="local[2]") as spark,
        HttpProxy(world.connections.sink.urls[0], spoil=hang) as front,
    ):
        endpoints = replace(world.connections, sink=Endpoint((front.url,)))
        with DeferredWork(spark.session, Work(world.plan, endpoints)) as beside:
            assert looks.wait(30)
            beside.change(Work(plan, endpoints))
            world.deferred.add("further", [[("1",)]], world.position())
            goes_on.set()
            assert until(lambda: world.deferred.count() == 0, 60)
            assert beside.failure is None
    refresh(world.client, further.index)
    assert [one for one, _ in documents(world.client, further.index)] == ["1"]


@pytest.mark.long
@pytest.mark.parametrize("forgotten", [True, False])
def test_what_is_deleted_while_its_bulk_hangs_stays_deleted(
    world: World, opensearch: EmbeddedOpenSearch, forgotten: bool
) -> None:
    """Also where the cluster remembers no delete any more, which a node that starts anew does not."""
    world.apply(b"UPDATE country SET name = 'Nederland' WHERE id = 1", RENAMED)
    asked: list[bool] = []

    def delete(request: Request) -> None:
        if "_bulk" not in request.target or b'"_id":"7"' not in request.body or asked:
            return
        asked.append(False)
        row = {"schema": "public", "table": "person", "op": "d", "before": [("id", "7")]}
        world.apply(b"DELETE FROM person WHERE id = 7", row)
        if forgotten:
            settings = f"/{world.generation.index}/_settings"
            world.client.call("PUT", settings, {"index": {"gc_deletes": "0s"}})
            while is_remembered(world):
                pass
        asked[:] = [True]

    with (
        HttpProxy(opensearch.url, spoil=delete) as front,
        contextlib.closing(world.workers(world.plan, front.url)) as worker,
    ):
        worker.write_stored([one.id for one in world.deferred.oldest(1_000)])
    assert asked == [True]
    assert world.held() == world.expected()


def is_remembered(world: World) -> bool:
    """Whether the index would still refuse an older write of a document that is deleted."""
    target, end = f"/{world.generation.index}/_doc/probe?version_type=external_gte&version=", world.position()
    world.client.call("PUT", f"{target}{end}", {})
    world.client.call("DELETE", f"{target}{end}")
    world.client.call("POST", f"/{world.generation.index}/_refresh")
    refused = not world.client.call("PUT", f"{target}{end - 1}", {}, allow=(409,)).ok
    world.client.call("DELETE", f"{target}{end}", allow=(404,))
    return refused


def test_a_worker_that_starts_later_waits_for_the_login_of_the_run(world: World) -> None:
    ending = threading.Event()
    ending.set()  # its first error is raised
    refused = f"postgresql://nobody:wrong@{world.connections.database.rpartition('@')[2]}"
    work = Work(world.plan, replace(world.connections, database=refused))
    with contextlib.closing(Worker(work, ending=ending)) as late, pytest.raises(HeadraceError) as caught:
        late.rewrite(world.generation.index, [("1",)], world.position())
    assert caught.value.kind is Kind.CONNECTION
