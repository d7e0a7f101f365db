"""A secondary sink that fails holds up nobody, and gets what it lacks when it is back."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA, Key, Op
from headrace.model.names import CtidRange
from headrace.pipeline.deferred_documents import DeferredDocuments
from headrace.pipeline.stream.deferred_work import CatchUp
from headrace.pipeline.worker import failure_policy
from headrace.pipeline.worker.plan import Endpoints, Work
from headrace.pipeline.worker.task import Task
from headrace.pipeline.worker.worker import BackfillRange
from headrace.pipeline.worker.workers import AllSinks, open_worker
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import Endpoint, Generation
from headrace.sinks.opensearch.documents import documents, refresh
from headrace.state import DeferredKeys, GenerationState, PipelineState, StateKey, StateStore
from headrace.state.deferred_keys import ALL_KEYS
from headrace.state.sink_notes import SecondarySinkNotes
from headrace.testing.memory_sink import MemorySink
from integration.documents.indexed_database import IndexedDatabase
from support.http_proxy import Answer, HttpProxy, Request
from support.soak.memory_worker import MemoryWorker

SCHEMA = """
version: 1
table: person
primary_key: id
fields:
  - integer: id
  - keyword: name
  - belongs_to: town
    table: town
    primary_key: id
    column: town_id
    fields: [{ keyword: name }]
"""
TABLES = (
    "CREATE TABLE town (id int PRIMARY KEY, name text)",
    "INSERT INTO town VALUES (1, 'here')",
    "CREATE TABLE person (id int PRIMARY KEY, name text, town_id int DEFAULT 1)",
    "INSERT INTO person SELECT n, 'p' || n FROM generate_series(1, 30) AS n",
)
LIMIT = 100
PREFIX = "test_further_"


class World(IndexedDatabase):
    """A database and its documents in two sinks, of which the second is behind a proxy."""

    def __init__(self, url: str, node: str, front: HttpProxy, folder: Path) -> None:
        super().__init__(url, node, folder, SCHEMA)
        self.front = front
        key = StateKey(f"s{uuid.uuid4().hex[:8]}", PREFIX)
        self.one, self.other = self.new_generation(), self.new_generation()
        primary = Work(self.plan_of(self.one, key=key, large_change=LIMIT), self.connections)
        self.work = Work(
            self.plan_of(self.other, key=key.of_sink("other"), large_change=LIMIT),
            Endpoints(url, Endpoint((front.url,)), Endpoint((node,))),
        )
        self.notes = SecondarySinkNotes(self.client, self.work.plan.key)
        self.backlog = self.notes.deferred
        first, second = open_worker(primary), open_worker(self.work)
        for worker in (first, second):
            worker.backfill(BackfillRange("people", CtidRange(0, None), self.position(), None))
        second.close()
        self.sinks = AllSinks(first, {"other": self.work})

    def close(self) -> None:
        self.sinks.close()
        self.notes.forget()
        super().close()

    def run(self, sql: str, op: Op, *changed: int, table: str = "person") -> float:
        """Commit, and apply the batch; how many seconds that took."""
        self.writer.execute(sql.encode())
        end, began = self.position(), time.monotonic()
        about: dict[str, object] = {
            "_commit_lsn": end,
            "_commit_seq": 0,
            "op": op.value,
            "schema": "public",
            "table": table,
        }
        keys = [[("id", str(one))] for one in changed]
        rows = [{**about, "before": key, "after": None if op is Op.DELETE else key} for key in keys] or [
            about
        ]
        self.sinks.apply(Task(pa.Table.from_pylist(rows, schema=CHANGES_SCHEMA), end))
        return time.monotonic() - began

    def spec_of(self, _: GenerationState) -> IndexSpec:
        return self.spec

    def rows(self) -> dict[str, str]:
        return {str(one): name for one, name in self.writer.execute("SELECT id, name FROM person").fetchall()}

    def held(self, generation: Generation) -> dict[str, str]:
        refresh(self.client, generation.index)
        return {one: body["name"] for one, body in documents(self.client, generation.index)}


@pytest.fixture
def world(
    make_database: Callable[..., str],
    opensearch: EmbeddedOpenSearch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    monkeypatch.setattr(failure_policy, "LIMIT_SECONDS", 1.0)
    with HttpProxy(opensearch.url) as front:
        one = World(make_database(TABLES), opensearch.url, front, tmp_path)
        yield one
        one.close()


def keys_of(deferred: DeferredKeys) -> set[Key]:
    return {key for batch in deferred.oldest(10) for key in batch.keys}


@pytest.mark.long
def test_what_a_sink_lacks_is_kept_once_and_written_when_it_is_back(world: World) -> None:
    world.run("UPDATE person SET name = 'both' WHERE id = 1", Op.UPDATE, 1)
    assert world.held(world.one) == world.held(world.other) == world.rows()
    assert world.backlog.count() == 0

    world.front.spoil = lambda _: Answer(503)
    assert world.run("UPDATE person SET name = 'a' WHERE id < 3", Op.UPDATE, 1, 2) < 10
    for name in "bcd":  # nobody waits for it again
        assert world.run(f"UPDATE person SET name = '{name}' WHERE id = 1", Op.UPDATE, 1) < 1
    world.run("DELETE FROM person WHERE id = 3", Op.DELETE, 3)
    assert world.held(world.one) == world.rows() != world.held(world.other)
    assert keys_of(world.backlog) == {("1",), ("2",), ("3",)}
    assert "503" in (world.notes.why_away() or "")

    told: list[tuple[int, str | None]] = []
    with CatchUp(world.work, lambda *one: told.append(one)):
        assert until(lambda: any(why for _, why in told), 20), "it says why it waits"
        world.front.heal()
        assert until(lambda: told[-1] == (0, None), 30)
    assert world.held(world.other) == world.rows()
    assert (world.backlog.count(), world.notes.why_away()) == (0, None)
    time.sleep(1.1)
    world.run("UPDATE person SET name = 'again' WHERE id = 2", Op.UPDATE, 2)
    assert world.held(world.other) == world.rows()


def test_a_table_that_is_emptied_while_a_sink_is_away_is_emptied_there_too(world: World) -> None:
    world.front.spoil = lambda _: Answer(503)
    world.run("TRUNCATE person", Op.TRUNCATE)
    world.run("INSERT INTO person VALUES (7, 'new')", Op.INSERT, 7)
    assert world.held(world.one) == {"7": "new"}
    assert len(world.held(world.other)) == 30
    assert ALL_KEYS in keys_of(world.backlog)
    world.front.heal()
    with CatchUp(world.work, lambda *_: None):
        assert until(lambda: world.backlog.count() == 0, 30)
    assert world.held(world.other) == {"7": "new"}


def test_a_large_index_that_is_emptied_holds_up_no_batch(world: World) -> None:
    """The sink is well, and still it lists its documents beside the stream."""
    heard: list[str] = []
    world.front.spoil = lambda request: heard.append(request.target)
    world.run("TRUNCATE person", Op.TRUNCATE)
    assert world.held(world.one) == {}
    assert [target for target in heard if "_search" in target] == []
    assert [batch.keys for batch in world.backlog.oldest(10)] == [(ALL_KEYS,)]
    with CatchUp(world.work, lambda *_: None):
        assert until(lambda: world.backlog.count() == 0, 30)
    assert world.held(world.other) == {}


def test_a_sink_that_lists_nothing_loses_the_rows_of_a_detached_partition(world: World) -> None:
    """The primary, where its documents are listed, may have deleted them before that sink's turn."""
    key, joined = world.work.plan.key, world.position()
    made = (world.one.index, "1", "ab")
    generation = GenerationState("people", *made, joined=joined)
    state = PipelineState("7", 1, 5, "s", "p", "following", joined, joined, (generation,))
    plain = replace(generation, generation="people", sink="other")
    store = StateStore(world.client, key)
    store.load()
    store.save(state.changed(plain))
    renewal = DeferredDocuments(world.client, key.of_pipeline(), store, ["other"], ["other"], world.spec_of)
    sink = MemorySink()
    with contextlib.closing(MemoryWorker(world.work, sink)) as worker:
        worker.backfill(BackfillRange("people", CtidRange(0, None), joined))
        world.writer.execute("DELETE FROM person WHERE id > 7")  # no batch tells of it
        renewal.renew(generation, world.position())
        world.sinks.primary.rewrite_all("people", world.position())
        assert world.held(world.one) == world.rows()
        worker.write_deferred(world.backlog.oldest(100))
    assert sink.documents("people").keys() == world.rows().keys()
    store.delete()


def test_the_keys_of_a_large_change_are_stored_in_chunks(world: World) -> None:
    """One entry for each key would hold up all sinks, and count towards what makes an index be given up."""
    world.writer.execute("INSERT INTO person SELECT n, 'p' || n FROM generate_series(31, 200) AS n")
    world.run("UPDATE town SET name = 'there'", Op.UPDATE, 1, table="town")
    assert world.backlog.count() == 100, "a chunk holds one fiftieth of the limit"
    with CatchUp(world.work, lambda *_: None):
        assert until(lambda: world.backlog.count() == 0, 60)
    refresh(world.client, world.other.index)
    found = dict(documents(world.client, world.other.index))
    assert len(found) == 200
    assert {body["town"]["name"] for body in found.values()} == {"there"}


def answering_bulks(status: bytes, error: bytes) -> Callable[[Request], Answer | None]:
    """A cluster that answers each document with this status and error."""
    item = b'{"index":{"status":' + status + b',"error":' + error + b"}}"

    def answer(request: Request) -> Answer | None:
        is_bulk = request.target.startswith("/_bulk")
        return Answer(200, b'{"errors":true,"items":[' + item + b"]}") if is_bulk else None

    return answer


def test_a_document_that_a_sink_refuses_is_no_failure_of_the_sink(world: World) -> None:
    why = b'{"type":"mapper_parsing_exception","reason":"failed to parse field [name] of type [x]: odd"}'
    world.front.spoil = answering_bulks(b"400", why)
    world.run("UPDATE person SET name = 'x' WHERE id = 1", Op.UPDATE, 1)
    assert world.notes.why_away() is None
    [waiting] = world.backlog.oldest(10)
    with (
        contextlib.closing(open_worker(world.work)) as beside,
        pytest.raises(HeadraceError, match="failed to parse field") as stopped,
    ):
        beside.write_deferred([waiting])
    assert stopped.value.kind is Kind.SINK_REJECTED
    assert "odd" not in str(stopped.value)
    assert "odd" in stopped.value.full_cause


def test_a_document_that_a_sink_fails_at_waits_alone(world: World) -> None:
    """The sink takes those of its other indexes, and is not away."""
    why = b'{"type":"null_pointer_exception","reason":"Cannot invoke \\"odd\\""}'
    world.front.spoil = answering_bulks(b"500", why)
    world.run("UPDATE person SET name = 'x' WHERE id = 1", Op.UPDATE, 1)
    assert world.notes.why_away() is None
    assert world.backlog.count() == 1
    with CatchUp(world.work, lambda *_: None) as beside:
        assert until(lambda: bool(beside.held.errors), 60)
        [error] = beside.held.errors.values()
        assert error.kind is Kind.LOCKED
        assert "null_pointer_exception" in error.cause
        assert "odd" not in str(error)
        world.front.heal()
        assert until(lambda: world.backlog.count() == 0, 60)
    assert world.held(world.other)["1"] == "x"
