"""The documents' source, driven without Spark: where it begins, and what it gives to tasks."""

from __future__ import annotations

import pickle
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headrace.capture.columns import KeptColumns
from headrace.capture.signals import OfferedPlan, SignalFiles
from headrace.catalog.needs import ColumnNeed, TableNeeds
from headrace.catalog.table import Catalog
from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn, parse_lsn
from headrace.model.names import TableName
from headrace.pipeline.stream import documents_reader, early_writes
from headrace.pipeline.stream.documents_reader import (
    DocumentsPartition,
    DocumentsReader,
    Following,
    SourceSettings,
    WrittenPartition,
)
from headrace.pipeline.stream.documents_source import SETTINGS_OPTION
from headrace.pipeline.stream.early_writes import EarlyWriter
from headrace.pipeline.worker.plan import PLAN_OPTION, DocumentsPlan, Endpoints, Work, pack
from headrace.pipeline.worker.task import LEAST_ROWS, Task, TaskShare
from headrace.pipeline.worker.worker import WrittenBatch
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from headrace.resolution import ResolutionPlan
from headrace.sinks.opensearch import Endpoint, WriterOptions
from headrace.state import StateKey
from support.slots import ensure_slot

SLOT = "documents_source"
ITEM = TableName("public", "item")
_NONE: Mapping[str, str] = {}
ID, NAME = ColumnNeed(23, -1, "integer", 0), ColumnNeed(25, -1, "text", 0)


class Log:
    """A database with a table, a slot, and what a documents query follows of it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.signals = url, SignalFiles(folder)
        start = ensure_slot(url, slot=SLOT, publication=SLOT, tables=[ITEM], create=True)
        with connect(url) as connection:
            [(oid,)] = execute(connection, "SELECT 'item'::regclass::oid::bigint")
            [(system, timeline, database)] = execute(
                connection,
                "SELECT system_identifier::text, (SELECT timeline_id FROM pg_control_checkpoint()), "
                "(SELECT oid::bigint FROM pg_database WHERE datname = current_database()) "
                "FROM pg_control_system()",
            )
        needs = {ITEM: TableNeeds(int(oid), {"id": ID})}
        self.origin = {"system": str(system), "timeline": int(timeline), "database": int(database)}
        # No batch ends for idleness alone, however slow the machine is.
        self.following = Following(
            SLOT, SLOT, needs, {**self.origin, "lsn": "0/0"}, start, idle_seconds=600.0
        )
        self.following = self.continuing(lsn=f"0/{start:X}")

    def run(self, sql: str) -> None:
        with connect(self.url) as connection:
            execute(connection, sql)

    def position(self) -> Lsn:
        """Where the log ends now."""
        with connect(self.url) as connection:
            [(text,)] = execute(connection, "SELECT pg_current_wal_insert_lsn()::text")
        return parse_lsn(str(text))

    def continuing(self, **place: str | int) -> Following:
        """The same, behind documents of this place."""
        return replace(self.following, continues={**self.following.continues, **place})

    @contextmanager
    def reading(
        self, following: Following | None = None, *, early: bool = False, code: Mapping[str, str] = _NONE
    ) -> Iterator[DocumentsReader]:
        """The driver's part of the source, in this process."""
        settings = SourceSettings(
            following or self.following,
            {ITEM: KeptColumns(frozenset({"id"}))},
            max_tasks=2,
            signals=self.signals,
            early=early,
        )
        self.signals.set_confirm_limit(self.following.applied)
        plan = DocumentsPlan(
            {},
            Catalog({}),
            ResolutionPlan({}),
            {},
            WriterOptions(),
            StateKey(SLOT, ""),
            frozenset(),
            large_change=1,
            code=code,
        )
        work = Work(plan, Endpoints(self.url, Endpoint(("http://127.0.0.1:1",))))
        kept = signal.getsignal(signal.SIGTERM)
        reader = DocumentsReader({**work.to_options(), SETTINGS_OPTION: pack(settings)})
        try:
            yield reader
        finally:
            signal.signal(signal.SIGTERM, kept)
            reader.stop()


@pytest.fixture
def log(make_database: Callable[..., str], tmp_path: Path) -> Iterator[Log]:
    url = make_database(["CREATE TABLE item (id int PRIMARY KEY, name text)"])
    yield Log(url, tmp_path)
    with connect(url) as connection:
        drop_slot(connection, SLOT, timeout=60)


def next_batch(
    reader: DocumentsReader, start: dict[str, Any]
) -> tuple[dict[str, Any], list[DocumentsPartition]]:
    """The end of the next batch, once there is something to read, and its partitions as tasks get them."""
    while True:
        end = reader.latestOffset(start, ReadAllAvailable())
        partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
        if any(one.task().rows.num_rows for one in partitions):
            return end, partitions
        start = end


@pytest.mark.parametrize(("count", "tasks"), [(5, 1), (LEAST_ROWS, 2)])
def test_a_task_knows_its_batch_and_its_share(log: Log, count: int, tasks: int) -> None:
    with log.reading() as reader:
        start = reader.initialOffset()
        log.run(f"INSERT INTO item SELECT i, 'x' FROM generate_series(1, {count}) i")
        end, partitions = next_batch(reader, start)
    found = [one.task() for one in partitions]
    position: Lsn = parse_lsn(end["lsn"])
    assert [one.share for one in found] == [TaskShare(number, tasks) for number in range(tasks)]
    assert {(one.version, one.rows.num_rows) for one in found} == {(position, count)}
    assert dict(found[0].rows.column("after")[0].as_py()) == {"id": "1"}, "the other columns are left out"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("another database system", {"system": "1"}),
        ("dropped and recreated", {"database": 1}),
        ("timeline", {"timeline": 7}),
        ("restored to an earlier time", {"lsn": "F/0"}),
    ],
)
def test_documents_of_another_log_end_the_query(log: Log, words: str, place: dict[str, str | int]) -> None:
    """The documents' own position and origin are compared where their query begins (decision 0017)."""
    with log.reading(log.continuing(**place)) as reader, pytest.raises(HeadraceError, match=words):
        next_batch(reader, reader.initialOffset())


def test_a_slot_beyond_the_documents_ends_the_query(log: Log) -> None:
    with (
        log.reading(log.continuing(lsn="0/1")) as reader,
        pytest.raises(HeadraceError, match="the changes between are lost"),
    ):
        reader.initialOffset()


def test_a_start_behind_deferred_documents_leaves_out_what_was_read(log: Log) -> None:
    with log.reading() as reader:
        start = reader.initialOffset()
        log.run("INSERT INTO item VALUES (1, 'one')")
        end, _ = next_batch(reader, start)
    log.run("INSERT INTO item VALUES (2, 'two')")
    with log.reading(replace(log.continuing(lsn=end["lsn"]), deferred=True)) as reader:
        start = reader.initialOffset()
        assert start["lsn"] == end["lsn"]
        _, [partition] = next_batch(reader, start)
    assert [dict(row) for row in partition.task().rows.column("after").to_pylist()] == [{"id": "2"}]


def test_a_plan_that_reads_other_columns_opens_the_log_again(log: Log) -> None:
    """The changes that the reader has decoded ahead are read once more, with the column."""
    with log.reading() as reader:
        start = reader.initialOffset()
        log.run("INSERT INTO item VALUES (1, 'one')")
        end, _ = next_batch(reader, start)
        log.run("INSERT INTO item VALUES (2, 'two')")
        needs = {ITEM: replace(log.following.needs[ITEM], columns={"id": ID, "name": NAME})}
        more = SourceSettings(
            replace(log.following, needs=needs),
            {ITEM: KeptColumns(frozenset({"id", "name"}))},
            max_tasks=2,
            signals=log.signals,
        )
        log.signals.offer_plan(1, OfferedPlan("with names", pack(more)))
        _, [partition] = next_batch(reader, end)
    assert (partition.plan, log.signals.accepted_plan()) == ("with names", (1, parse_lsn(end["lsn"])))
    rows = [dict(row) for row in partition.task().rows.column("after").to_pylist()]
    assert rows == [{"id": "2", "name": "two"}]


def test_a_plan_is_accepted_between_two_batches(log: Log) -> None:
    """Of several the newest, and once; whoever offered it learns from where on it holds."""
    with log.reading() as reader:
        start = reader.initialOffset()
        log.run("INSERT INTO item VALUES (1, 'one')")
        end, [partition] = next_batch(reader, start)
        assert (partition.plan, log.signals.accepted_plan()) == (None, None)
        log.signals.offer_plan(1, OfferedPlan("first"))
        log.signals.offer_plan(3, OfferedPlan("third"))
        log.run("INSERT INTO item VALUES (2, 'two')")
        later, [partition] = next_batch(reader, end)
        assert (partition.plan, log.signals.accepted_plan()) == ("third", (3, parse_lsn(end["lsn"])))
        log.signals.offer_plan(2, OfferedPlan("second"))
        log.run("INSERT INTO item VALUES (3, 'three')")
        _, [partition] = next_batch(reader, later)
        assert (partition.plan, log.signals.accepted_plan()) == ("third", (3, parse_lsn(end["lsn"])))


def test_a_batch_is_reported_once_spark_asks_for_what_follows_it(log: Log) -> None:
    with log.reading() as reader:
        start = reader.initialOffset()
        # It is `start`, or later where the server has noted something.
        reader.latestOffset(start, ReadAllAvailable())
        log.run("INSERT INTO item VALUES (1, 'one')")
        end, _ = next_batch(reader, start)
        assert log.signals.batch_end() is None, "its tasks may run yet"
        reader.latestOffset(end, ReadAllAvailable())
        assert log.signals.batch_end() == end


def test_while_paused_what_is_durable_is_confirmed_and_no_batch_is_planned(log: Log) -> None:
    with log.reading() as reader:
        start = reader.initialOffset()
        log.run("INSERT INTO item VALUES (1, 'one')")
        end, _ = next_batch(reader, start)
        log.signals.set_confirm_limit(parse_lsn(end["lsn"]))
        log.signals.set_paused(paused=True)
        log.run("INSERT INTO item VALUES (2, 'two')")
        log.signals.offer_plan(1, OfferedPlan("new"))
        for _ in range(5):
            assert reader.latestOffset(end, ReadAllAvailable()) == end
        assert log.signals.accepted_plan() == (1, parse_lsn(end["lsn"]))  # a reindex goes on
        log.signals.set_paused(paused=False)
        _, [partition] = next_batch(reader, end)
    assert [dict(row) for row in partition.task().rows.column("after").to_pylist()] == [{"id": "2"}]


Partitions = list[DocumentsPartition | WrittenPartition]


def _follow(reader: DocumentsReader, start: dict[str, Any]) -> tuple[dict[str, Any], Partitions]:
    """The end of the next batch with changes, and its partitions as tasks get them."""
    while True:
        end = reader.latestOffset(start, ReadAllAvailable())
        partitions: Partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
        if any(isinstance(one, WrittenPartition) or one.task().rows.num_rows for one in partitions):
            return end, partitions
        start = end


def _warm(log: Log, reader: DocumentsReader, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Follow changes until the first batch is written early, however long it takes; return its end."""
    monkeypatch.setattr(early_writes, "_PATIENCE_SECONDS", 60.0)
    end = reader.initialOffset()
    for number in range(10_000, 11_000):
        log.run(f"INSERT INTO item VALUES ({number}, 'warm')")
        end, partitions = _follow(reader, end)
        if isinstance(partitions[0], WrittenPartition):
            break
    return end


def _written_early(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Return what is set once another batch is written early."""
    written, write = Event(), EarlyWriter.write

    def noted(self: EarlyWriter, task: Task) -> WrittenBatch | None:
        done = write(self, task)
        if done is not None:
            written.set()
        return done

    monkeypatch.setattr(EarlyWriter, "write", noted)
    return written


def _sums(reader: DocumentsReader, partitions: Partitions) -> tuple[int, list[str]]:
    """The changes and the texts of the changes by table in the rows of a batch's tasks."""
    rows = [row for one in partitions for batch in reader.read(one) for row in batch.to_pylist()]
    return sum(row["changes"] for row in rows), [row["tables"] for row in rows if row["tables"]]


def test_what_is_written_early_is_held_back_until_a_client_waits(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    with log.reading(early=True) as reader:
        start = _warm(log, reader, monkeypatch)
        written_early = _written_early(monkeypatch)
        monkeypatch.setattr(documents_reader, "_HOLD_SECONDS", 600.0)

        def commit() -> None:
            log.run("INSERT INTO item VALUES (1, 'one')")
            log.run("INSERT INTO item VALUES (2, 'two')")
            assert written_early.wait(60)
            log.run("INSERT INTO item VALUES (3, 'three')")
            log.signals.request_lsn(log.position())

        writing = Thread(target=commit)
        writing.start()
        _, partitions = _follow(reader, start)
        writing.join()
        [written] = partitions
        assert isinstance(written, WrittenPartition)
        assert len(written.done) > 1
        assert _sums(reader, partitions) == (3, ['{"public.item": 3}'])


def test_an_early_write_that_hangs_ends_the_query_once_a_plan_waits_for_it(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process begins with that plan; without one nothing waits, and tasks write."""
    monkeypatch.setattr(early_writes, "_HANGS_SECONDS", 0.5)
    ended = tmp_path / "ended"
    (tmp_path / "transform_that_hangs.py").write_text(
        f"import pathlib, time\nwhile not pathlib.Path({str(ended)!r}).exists():\n    time.sleep(0.01)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with log.reading(early=True, code={"transform_that_hangs:f": ""}) as reader:
        start = reader.initialOffset()
        log.run("INSERT INTO item VALUES (1, 'one')")
        end, _ = next_batch(reader, start)
        time.sleep(0.6)
        reader.latestOffset(end, ReadAllAvailable())
        log.signals.offer_plan(1, OfferedPlan(reader._work[PLAN_OPTION]))
        with pytest.raises(HeadraceError, match="a new plan waits") as caught:
            reader.latestOffset(end, ReadAllAvailable())
        assert (caught.value.kind, log.signals.accepted_plan()) == (Kind.WORKER_LOST, None)
        ended.touch()
        early = reader._early
        assert early is not None
        assert until(lambda: not early.is_writing, 10)
        reader.latestOffset(end, ReadAllAvailable())
        assert log.signals.accepted_plan() == (1, parse_lsn(end["lsn"]))


def test_what_is_too_large_to_be_written_early_is_a_batch_of_its_own(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the hold, and what was written before it is planned first."""
    with log.reading(early=True) as reader:
        start = _warm(log, reader, monkeypatch)
        written_early = _written_early(monkeypatch)
        monkeypatch.setattr(documents_reader, "_HOLD_SECONDS", 600.0)

        def commit() -> None:
            log.run("INSERT INTO item VALUES (1, 'one')")
            assert written_early.wait(60)
            log.run(f"INSERT INTO item SELECT i, 'x' FROM generate_series(2, {LEAST_ROWS + 1}) i")

        writing = Thread(target=commit)
        writing.start()
        end, written = _follow(reader, start)
        writing.join()
        _, left = _follow(reader, end)
        assert _sums(reader, written) == (1, ['{"public.item": 1}'])
        assert [one.task().rows.num_rows for one in left if isinstance(one, DocumentsPartition)] == [
            LEAST_ROWS
        ] * 2


def test_another_reader_of_the_batch_leaves_it_to_tasks(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the planning process was lost its successor does not know what was written."""
    with log.reading(early=True) as reader:
        start = _warm(log, reader, monkeypatch)
        log.run("INSERT INTO item VALUES (1, 'one')")
        end, [written] = _follow(reader, start)
    assert isinstance(written, WrittenPartition)
    with log.reading(early=True) as successor:
        successor.initialOffset()
        [left] = successor.partitions(start, end)
        assert isinstance(left, DocumentsPartition)
        assert left.task().rows.num_rows == 1
