"""A batch whose writes arrive late never replaces what a later batch has written; its version says so.

A worker that hangs in the network is given up and its batch runs again elsewhere. What it sent is still on
its way, and arrives after newer documents.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import until
from headrace.errors import unexpected
from headrace.model.changes import CHANGES_SCHEMA, Op
from headrace.model.lsn import Lsn
from headrace.model.names import CtidRange
from headrace.pipeline.stream import early_writes
from headrace.pipeline.stream.early_writes import MOST_CHANGES, EarlyWriter
from headrace.pipeline.worker.plan import DocumentsPlan, Endpoints, Work
from headrace.pipeline.worker.task import Task
from headrace.pipeline.worker.worker import BackfillRange, Worker
from headrace.sinks.activity import ReportTo
from headrace.sinks.base import WriteResult
from headrace.sinks.opensearch import Endpoint, WriterOptions
from headrace.sinks.opensearch.documents import documents, refresh
from headrace.state import Quarantine, Quarantined
from headrace.status.sinks import SHOWN_AFTER_SECONDS, ReportsPort, SinkReports, first_error
from integration.documents.indexed_database import IndexedDatabase
from support.tcp_proxy import TcpProxy

SCHEMA = """
version: 1
table: person
primary_key: id
fields:
  - integer: id
  - keyword: name
  - has_many: badges
    table: badge
    foreign_key: person_id
    primary_key: id
    fields: [{ integer: points }]
"""
TABLES = (
    "CREATE TABLE person (id int PRIMARY KEY, name text)",
    "CREATE TABLE badge (id int PRIMARY KEY, person_id int, points int)",
    "INSERT INTO person VALUES (1, 'Ada'), (2, 'Bob')",
    "INSERT INTO badge VALUES (1, 1, 10)",
)
COLUMNS = {"person": ("id", "name"), "badge": ("id", "person_id", "points")}

Values = tuple[object, ...]


@dataclass(frozen=True)
class Change:
    """One statement and what the log would carry of it."""

    sql: str
    table: str
    before: Values | None
    after: Values | None

    def row(self) -> dict[str, object]:
        op = Op.INSERT if self.before is None else Op.DELETE if self.after is None else Op.UPDATE
        return {
            "schema": "public",
            "table": self.table,
            "op": op.value,
            "before": self._texts(self.before),
            "after": self._texts(self.after),
        }

    def _texts(self, values: Values | None) -> list[tuple[str, str]] | None:
        if values is None:
            return None
        return [(name, str(one)) for name, one in zip(COLUMNS[self.table], values, strict=True)]


RENAMED = Change("UPDATE person SET name = 'Eve' WHERE id = 1", "person", (1, "Ada"), (1, "Eve"))
AGAIN = Change("UPDATE person SET name = 'Fay' WHERE id = 1", "person", (1, "Eve"), (1, "Fay"))
GONE = Change("DELETE FROM person WHERE id = 1", "person", (1, "Eve"), None)
LEFT = Change("DELETE FROM person WHERE id = 1", "person", (1, "Ada"), None)
BACK = Change("INSERT INTO person VALUES (1, 'Gil')", "person", None, (1, "Gil"))
MOVED = Change("UPDATE badge SET person_id = 2 WHERE id = 1", "badge", (1, 1, 10), (1, 2, 10))
RAISED = Change("UPDATE badge SET points = 11 WHERE id = 1", "badge", (1, 1, 10), (1, 1, 11))

RACES = {
    "a newer update": (RENAMED, AGAIN),
    "a delete": (RENAMED, GONE),
    "an insert after the delete": (LEFT, BACK),
    "a child that has moved away": (RAISED, replace(MOVED, before=(1, 1, 11), after=(1, 2, 11))),
}
"""What the late batch carries, by what has happened since."""


class World(IndexedDatabase):
    """A database, its documents in OpenSearch, and two workers: one writes through a proxy."""

    def __init__(self, url: str, node: str, proxy: TcpProxy, folder: Path) -> None:
        super().__init__(url, node, folder, SCHEMA)
        self.proxy = proxy
        self.generation = self.new_generation()
        plan = self.plan_of(self.generation)
        self.late = Worker(Work(plan, Endpoints(url, Endpoint((proxy.url(node),)))))
        self.prompt = Worker(Work(plan, self.connections))
        self.prompt.backfill(BackfillRange("people", CtidRange(0, None), self.position(), None))

    def close(self) -> None:
        self.late.close()
        self.prompt.close()
        super().close()

    def run(self, change: Change) -> Lsn:
        """Commit the change; where a batch that ends with it ends."""
        self.writer.execute(change.sql.encode())
        return self.position()

    def race(self, first: Change, second: Change, *, versions: Callable[[Lsn], Lsn]) -> WriteResult:
        """Two batches, of which the first is written last; what became of the first."""
        end = self.run(first)
        self.proxy.freeze()
        with ThreadPoolExecutor(1) as thread:
            try:
                late = thread.submit(self.late.apply, batch(first, end, versions(end)))
                assert until(lambda: self.proxy.accepted > 0, 20)  # assembled, and on its way
                end = self.run(second)
                self.prompt.apply(batch(second, end, versions(end)))
            finally:
                self.proxy.resume()
            return late.result(30).result

    def held(self) -> dict[str, object]:
        refresh(self.client, self.generation.index)
        return dict(documents(self.client, self.generation.index))

    def expected(self) -> dict[str, object]:
        """A naive evaluation over plain rows."""
        people = self.writer.execute("SELECT * FROM person").fetchall()
        badges = sorted(self.writer.execute("SELECT * FROM badge").fetchall())
        return {
            str(identity): {
                "id": identity,
                "name": name,
                "badges": [{"points": points} for _, owner, points in badges if owner == identity],
            }
            for identity, name in people
        }


def batch(change: Change, end: Lsn, version: Lsn, times: int = 1) -> Task:
    """As the source gives it."""
    rows = [{"_commit_lsn": end, "_commit_seq": 0, **change.row()}] * times
    return Task(pa.Table.from_pylist(rows, schema=CHANGES_SCHEMA), version)


@pytest.fixture
def world(
    make_database: Callable[..., str], opensearch: EmbeddedOpenSearch, tmp_path: Path
) -> Iterator[World]:
    with TcpProxy.before(opensearch.url) as proxy:
        one = World(make_database(TABLES), opensearch.url, proxy, tmp_path)
        yield one
        one.close()


def batch_end(end: Lsn) -> Lsn:
    return end


def no_fence(_end: Lsn) -> Lsn:
    """The same version for all, higher than the backfill's."""
    return 1 << 62


@pytest.mark.parametrize("race", RACES.values(), ids=RACES.keys())
def test_a_late_write_replaces_nothing_newer(world: World, race: tuple[Change, Change]) -> None:
    assert world.held() == world.expected()
    result = world.race(*race, versions=batch_end)
    assert result.fenced == 1
    assert world.held() == world.expected()


@pytest.mark.parametrize("race", RACES.values(), ids=RACES.keys())
def test_the_oracle_sees_a_missing_version(world: World, race: tuple[Change, Change]) -> None:
    """Where versions do not grow with the log, a document goes stale, and the comparison shows it."""
    assert world.held() == world.expected()
    result = world.race(*race, versions=no_fence)
    assert result.fenced == 0
    assert world.held() != world.expected()


def test_a_bug_in_the_documents_of_one_index_names_it(world: World) -> None:
    plan = world.plan_of(world.generation)
    specs = {name: replace(spec, transform=cast("Any", 7)) for name, spec in plan.specs.items()}
    with closing(Worker(Work(replace(plan, specs=specs), world.connections))) as worker:
        end = world.run(RENAMED)
        with pytest.raises(TypeError) as caught:
            worker.apply(batch(RENAMED, end, end))
    assert unexpected("a bug", caught.value).units == {plan.unit_of(world.generation.name)}


@contextmanager
def early_writer(
    world: World, opensearch: EmbeddedOpenSearch, report: ReportTo | None = None
) -> Iterator[EarlyWriter]:
    """Writes through the proxy, as the process that reads the log does."""
    through = Endpoints(world.url, Endpoint((world.proxy.url(opensearch.url),)))
    plan = world.plan_of(world.generation)
    plan = replace(plan, writer=replace(plan.writer, report=report))
    writer = EarlyWriter(Work(plan, through).to_options())
    try:
        assert until(lambda: not writer.is_writing, 20)
        yield writer
    finally:
        writer.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An early write is not given up because the machine is slow."""
    monkeypatch.setattr(early_writes, "_PATIENCE_SECONDS", 60.0)


@pytest.fixture
def early(world: World, opensearch: EmbeddedOpenSearch) -> Iterator[EarlyWriter]:
    with early_writer(world, opensearch) as writer:
        yield writer


@pytest.mark.usefixtures("patient")
def test_a_small_batch_is_written_early(world: World, early: EarlyWriter) -> None:
    end = world.run(RENAMED)
    done = early.write(batch(RENAMED, end, end))
    assert done is not None
    assert (done.changes, done.result.upserted) == (1, 1)
    assert world.held() == world.expected()


@pytest.mark.parametrize("race", RACES.values(), ids=RACES.keys())
def test_an_early_write_that_is_given_up_replaces_nothing(
    world: World, early: EarlyWriter, race: tuple[Change, Change]
) -> None:
    """Its batch is repeated by a task, a later one is written, and then it arrives."""
    first, second = race
    end = world.run(first)
    world.proxy.freeze()
    try:
        assert early.write(batch(first, end, end)) is None
        world.prompt.apply(batch(first, end, end))
        end = world.run(second)
        assert early.is_writing
        assert early.write(batch(second, end, end)) is None
        world.prompt.apply(batch(second, end, end))
    finally:
        world.proxy.resume()
    assert until(lambda: not early.is_writing, 20)
    assert world.held() == world.expected()


def test_a_request_without_an_answer_ends_soon(
    world: World, opensearch: EmbeddedOpenSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is under way, no plan is taken. It is no failure of the sink: the batch's task tries again."""
    monkeypatch.setattr(early_writes, "_REQUEST_SECONDS", 0.5)
    ahead = 0.0
    reports = SinkReports(clock=lambda: time.monotonic() + ahead)
    with ReportsPort(reports) as port, early_writer(world, opensearch, report=port.to("primary")) as early:
        end = world.run(RENAMED)
        world.proxy.freeze()
        try:
            assert early.write(batch(RENAMED, end, end)) is None
            assert until(lambda: not early.is_writing, 10)
        finally:
            world.proxy.resume()
    ahead = 2 * SHOWN_AFTER_SECONDS
    assert first_error(reports.view()) is None


@pytest.mark.parametrize(
    ("transform", "writer"),
    [("sys:exit", WriterOptions()), (None, WriterOptions(max_document_bytes=1))],
    ids=["a transform that exits", "a refused document"],
)
def test_what_must_be_reported_is_left_to_its_task(
    world: World, transform: str | None, writer: WriterOptions
) -> None:
    plan = world.plan_of(world.generation)
    specs = {name: replace(spec, transform=transform) for name, spec in plan.specs.items()}
    plan = replace(plan, specs=specs, writer=writer, skip_rejected=frozenset({"people"}))
    early = EarlyWriter(Work(plan, world.connections).to_options())
    try:
        assert until(lambda: not early.is_writing, 20)
        end = world.run(RENAMED)
        assert early.write(batch(RENAMED, end, end)) is None
        assert until(lambda: not early.is_writing, 20)
    finally:
        early.close()


@pytest.mark.usefixtures("patient")
def test_the_quarantine_is_left_to_tasks(world: World) -> None:
    """Without entries a small batch is written early; whatever makes an entry, or takes one away, is not."""
    plan = replace(world.plan_of(world.generation), quarantine={"people": "keep"})
    refusing = replace(plan, writer=WriterOptions(max_document_bytes=1))
    quarantine = Quarantine(world.client, plan.key)
    entry = Quarantined.now("people", "1", "too large", 1, world.generation.name)
    try:
        assert written_early(world, plan)
        assert not written_early(world, refusing)
        assert quarantine.entries() == []
        quarantine.put([entry])
        assert not written_early(world, plan)
        assert [left.id for left in quarantine.entries()] == ["1"]
        quarantine.drop(entry.generation, {entry.id: entry.position})
        assert written_early(world, plan)
    finally:
        quarantine.forget()


def written_early(world: World, plan: DocumentsPlan) -> bool:
    """Whether one change is written early by a plan."""
    early = EarlyWriter(Work(plan, world.connections).to_options())
    try:
        assert until(lambda: not early.is_writing, 20)
        end = world.run(RENAMED)
        found = early.write(batch(RENAMED, end, end))
        assert until(lambda: not early.is_writing, 20)
    finally:
        early.close()
    return found is not None


def test_what_is_large_is_not_written_early(world: World, early: EarlyWriter) -> None:
    """Neither a batch of many changes, nor one that touches more documents than a task writes at once."""
    end = world.run(RENAMED)
    assert early.write(batch(RENAMED, end, end, times=MOST_CHANGES + 1)) is None
    world.writer.execute("INSERT INTO person SELECT i, 'x' FROM generate_series(3, 3000) i")
    world.prompt.backfill(BackfillRange("people", CtidRange(0, None), world.position(), None))
    emptied = Change("TRUNCATE badge", "badge", None, None)
    end = world.run(emptied)
    truncated = batch(emptied, end, end).rows.set_column(
        *_column("op", pa.array([Op.TRUNCATE.value], CHANGES_SCHEMA.field("op").type))
    )
    assert early.write(Task(truncated, end)) is None
    assert until(lambda: not early.is_writing, 20)
    assert world.held() != world.expected()
    assert world.prompt.apply(Task(truncated, end)).result.upserted > MOST_CHANGES
    assert world.held() == world.expected()


def _column(name: str, values: pa.Array) -> tuple[int, pa.Field, pa.Array]:
    index = CHANGES_SCHEMA.get_field_index(name)
    return index, CHANGES_SCHEMA.field(index), values
