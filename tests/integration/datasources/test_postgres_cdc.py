"""Does `postgres_cdc` by itself, in a plain session and with a durable checkpoint, give what it promises?"""

from __future__ import annotations

import itertools
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.datasources.options import read_options
from headrace.datasources.postgres_cdc import CdcReader
from headrace.datasources.read_limits import ReadAllAvailable
from headrace.datasources.source_options import CdcOptions
from headrace.errors import HeadraceError
from headrace.model.lsn import parse_lsn
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from support.clients import process_of
from support.servers import short_lived_server

_WITHIN = 60.0
_PLAIN = {"envelope": "changes", "startingOffsets": "earliest"}
_numbers = itertools.count(1)


class Source:
    """A database with a table, and queries that follow it into a list."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.url = url
        self.checkpoint = folder / "checkpoint"
        self.slot = f"spark_{next(_numbers)}"
        self.batches: dict[int, list[list[Row]]] = {}
        self._query: StreamingQuery | None = None
        self._spark = spark
        self.run("CREATE TABLE item (id int PRIMARY KEY, name text)")

    @property
    def query(self) -> StreamingQuery:
        """The query that was started last."""
        assert self._query is not None
        return self._query

    def run(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with connect(self.url, autocommit=False) as connection:
            for statement in statements:
                execute(connection, statement)

    def load(self, **options: str) -> DataFrame:
        reader = self._spark.readStream.format("postgres_cdc").option("url", self.url)
        given = {"slot": self.slot, "publication": self.slot, "tables": "public.item"}
        return reader.options(**{**given, **_PLAIN, **options}).load()

    def start(self, after: Callable[[int], None] = lambda _: None, **options: str) -> StreamingQuery:
        """Follow into `batches`; `after` is called with the number of each batch that was noted there."""

        def note(rows: DataFrame, number: int) -> None:
            if found := rows.collect():
                self.batches.setdefault(number, []).append(found)
                after(number)

        writer = self.load(**options).writeStream.foreachBatch(note)
        writer = writer.option("checkpointLocation", self.checkpoint.as_uri())
        for _ in range(5):
            self._query = writer.start()
            self.until(lambda: self.slot_is_active() or not self.query.isActive)
            # Spark gives a Python process ten seconds to start, which a busy machine may need longer for.
            if not (self.query.exception() and "failed to connect back" in str(self.query.exception())):
                break
        return self.query

    def stop(self) -> None:
        if self._query is not None:
            self.query.stop()
            self.until(lambda: not self.slot_is_active())

    def rows(self) -> list[Row]:
        """All rows in order, as a sink has them that knows a batch's number when it is repeated."""
        assert all(one == rows[0] for rows in self.batches.values() for one in rows), "not repeated exactly"
        return [row for number in sorted(self.batches) for row in self.batches[number][0]]

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + _WITHIN
        while not condition():
            assert time.monotonic() < end, (self.rows(), self._query and self._query.exception())
            time.sleep(0.05)

    def slot_is_active(self) -> bool:
        with connect(self.url) as connection:
            # A slot that is still being made is active too, but has no position.
            sql = (
                "SELECT active AND confirmed_flush_lsn IS NOT NULL FROM pg_replication_slots "
                "WHERE slot_name = $1"
            )
            return execute(connection, sql, (self.slot,)) == [(True,)]

    def reader(self) -> int:
        """The process of this machine that streams the slot."""
        sql = """
            SELECT client_port FROM pg_stat_replication JOIN pg_replication_slots ON active_pid = pid
            WHERE slot_name = $1
        """
        with connect(self.url) as connection:
            [(port,)] = execute(connection, sql, (self.slot,))
        return process_of(port)

    def close(self) -> None:
        self.stop()
        with connect(self.url) as connection:
            sql = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1"
            execute(connection, sql, (self.slot,))


@pytest.fixture
def source(spark: SparkSession, database: str, tmp_path: Path) -> Iterator[Source]:
    one = Source(spark, database, tmp_path)
    yield one
    one.close()


@pytest.mark.long
def test_every_kind_of_change_is_a_row(source: Source) -> None:
    """Found by its name, with nothing registered; slot and publication are created by the first start."""
    source.start()
    source.run("INSERT INTO item VALUES (1, 'one'), (2, NULL)")
    source.run("UPDATE item SET name = 'eins' WHERE id = 1", "UPDATE item SET id = 3 WHERE id = 2")
    source.run("DELETE FROM item WHERE id = 3")
    source.run("TRUNCATE item")
    source.until(lambda: len(source.rows()) >= 6)
    found = source.rows()
    assert [(row.op, row.before, row.after) for row in found] == [
        ("c", None, {"id": "1", "name": "one"}),
        ("c", None, {"id": "2", "name": None}),
        ("u", None, {"id": "1", "name": "eins"}),
        ("u", {"id": "2"}, {"id": "3", "name": None}),
        ("d", {"id": "3"}, None),
        ("t", None, None),
    ]
    assert {(row.table, row.source.schema, row.source.table) for row in found} == {("item", "public", "item")}
    positions = [(row.source.commit_lsn, row.source.commit_seq) for row in found]
    assert positions == sorted(set(positions))
    assert len({row.source.xid for row in found}) == 4
    assert all(row.source.commit_timestamp is not None for row in found)


def test_a_restart_goes_on_where_the_checkpoint_stands(source: Source) -> None:
    source.start()
    source.run("INSERT INTO item VALUES (1, 'one')")
    source.until(lambda: len(source.rows()) == 1)
    assert "/pandas/" not in Path(f"/proc/{source.reader()}/maps").read_text(), "it takes long to load"
    source.stop()
    source.run("INSERT INTO item VALUES (2, 'two')")
    source.start()
    source.run("INSERT INTO item VALUES (3, 'three')")
    source.until(lambda: len(source.rows()) >= 3)
    source.stop()
    assert [row.after["id"] for row in source.rows()] == ["1", "2", "3"]


@pytest.mark.long
def test_what_is_available_now_is_all_read_however_long_it_takes(source: Source) -> None:
    """A large transaction takes longer than one look at the log: the query ended without it, each time."""
    source.run(f"CREATE PUBLICATION {source.slot} FOR TABLE item")
    source.run(f"SELECT pg_create_logical_replication_slot('{source.slot}', 'pgoutput')")
    source.run("INSERT INTO item SELECT g, 'n' FROM generate_series(1, 60000) g", "DELETE FROM item")
    counted: list[int] = []
    query = source.load().writeStream.foreachBatch(lambda batch, _: counted.append(batch.count()))
    query = query.option("checkpointLocation", source.checkpoint.as_uri())
    assert query.trigger(availableNow=True).start().awaitTermination(60)
    source.until(lambda: not source.slot_is_active())
    assert sum(counted) == 120_000


def test_a_batch_that_failed_is_repeated_exactly(source: Source) -> None:
    """More has been written meanwhile, but the batch's end stands in the checkpoint."""

    def fail(_number: int) -> None:
        raise ValueError("the sink fails after its write")

    source.start(after=fail)
    source.run("INSERT INTO item SELECT i, 'x' FROM generate_series(1, 50) i")
    source.until(lambda: not source.query.isActive)
    source.run("INSERT INTO item SELECT i, 'y' FROM generate_series(51, 60) i")
    [(number, [first])] = source.batches.items()
    source.start()
    source.until(lambda: len(source.rows()) >= 60)
    assert source.batches[number][:2] == [first, first]
    later = [
        row.after["id"] for one in sorted(source.batches) if one != number for row in source.batches[one][0]
    ]
    assert [row.after["id"] for row in first] + later == [str(i) for i in range(1, 61)]


@pytest.mark.long
@pytest.mark.parametrize("committed", [True, False])
def test_a_checkpoint_that_the_slot_has_left_behind_is_refused(
    source: Source, tmp_path: Path, committed: bool
) -> None:
    """Its first batch may be one that must be repeated, and Spark has not kept where it began."""
    source.start()
    source.run("INSERT INTO item VALUES (1, 'one')")
    source.until(lambda: len(source.rows()) == 1)
    source.stop()
    old = tmp_path / "old"
    shutil.copytree(source.checkpoint, old)
    if not committed:
        shutil.rmtree(old / "commits")
    source.start()
    source.run("INSERT INTO item VALUES (2, 'two')")
    source.until(lambda: len(source.rows()) == 2)
    source.run("INSERT INTO item VALUES (3, 'three')")
    source.until(lambda: len(source.rows()) == 3)
    source.stop()
    source.checkpoint = old
    source.start()
    source.until(lambda: not source.query.isActive)
    said = str(source.query.exception())
    assert "[HEADRACE_CONTINUITY]" in said
    assert "start with a new checkpoint" in said.lower()


def test_a_checkpoint_of_another_server_is_refused(database: str) -> None:
    """Its slot has the same name and stands before the checkpoint's position: only the checkpoint tells."""
    with connect(database) as connection:  # far beyond the other one
        execute(connection, "SELECT pg_logical_emit_message(false, '', repeat('x', 20000000))")
    with short_lived_server() as other:
        offsets = []
        for url in (database, other.url):
            with connect(url) as connection:
                execute(connection, "CREATE TABLE item (id int PRIMARY KEY, name text)")
            with reading({"url": url, "slot": "same", "tables": "item"}) as reader:
                start = reader.initialOffset()
                with connect(url) as connection:
                    execute(connection, "INSERT INTO item VALUES (1, 'one')")
                offsets.append((start, next_end(reader, start)))
        (start, end), (_, there) = offsets
        assert parse_lsn(end["lsn"]) > parse_lsn(there["lsn"])
        options = {"url": other.url, "slot": "same", "tables": "item"}
        with reading(options) as reader, pytest.raises(HeadraceError, match="another database system"):
            next_end(reader, end)
        with reading(options) as reader, pytest.raises(HeadraceError, match="another database system"):
            reader.partitions(start, end)
    with connect(database) as connection:
        drop_slot(connection, "same", timeout=60)


def next_end(reader: CdcReader, start: dict[str, Any]) -> dict[str, Any]:
    """Where the next batch ends, once there is something to read."""
    while (end := reader.latestOffset(start, ReadAllAvailable())) == start:
        pass
    return end


@contextmanager
def reading(options: dict[str, str]) -> Iterator[CdcReader]:
    """The driver's part of the source, in this process."""
    kept = signal.getsignal(signal.SIGTERM)
    reader = CdcReader(read_options(CdcOptions, {**_PLAIN, **options}, "postgres_cdc"))
    try:
        yield reader
    finally:
        signal.signal(signal.SIGTERM, kept)
        reader.stop()


@pytest.mark.long
def test_a_source_process_that_is_killed_under_load_loses_and_repeats_nothing(source: Source) -> None:
    """Spark ends the query; the restart repeats the logged batch exactly."""
    source.start(maxRowsPerTrigger="50")
    ending = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not ending.wait(0.01):
            source.run(f"INSERT INTO item SELECT i, 'x' FROM generate_series({written}, {written + 9}) i")
            written += 10

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        source.until(lambda: len(source.rows()) > 100)
        psutil.Process(source.reader()).kill()
        source.until(lambda: not source.query.isActive)
        source.until(lambda: not source.slot_is_active())
        source.start(maxRowsPerTrigger="1000")
        seen = len(source.rows())
        source.until(lambda: len(source.rows()) > seen)
        ending.set()
        writing.result(30)
    source.until(lambda: len(source.rows()) >= written)
    assert [row.after["id"] for row in source.rows()] == [str(number) for number in range(written)]


@pytest.mark.long
def test_unpublished_traffic_does_not_pin_the_log(source: Source) -> None:
    """Drasi's hole 3, flusso's hole 20: idle tables pin WAL."""
    source.start()
    source.run("INSERT INTO item VALUES (1, 'one')")
    source.until(lambda: len(source.rows()) == 1)
    source.run("CREATE TABLE unpublished AS SELECT repeat('x', 1000) AS n FROM generate_series(1, 20000)")
    with connect(source.url) as connection:
        [(end,)] = execute(connection, "SELECT pg_current_wal_flush_lsn()::text")
        sql = "SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2"
        source.until(lambda: execute(connection, sql, (end, source.slot)) == [(True,)])
    assert len(source.rows()) == 1


@pytest.mark.long
def test_rows_per_batch_are_bounded_where_transactions_allow_it(source: Source) -> None:
    source.start(maxRowsPerTrigger="10")
    source.stop()
    for first in range(0, 40, 4):
        source.run(f"INSERT INTO item SELECT i, 'x' FROM generate_series({first}, {first + 3}) i")
    source.start(maxRowsPerTrigger="10")
    source.until(lambda: len(source.rows()) >= 40)
    sizes = [len(one[0]) for one in source.batches.values()]
    assert sizes == [8, 8, 8, 8, 8]


def test_the_password_stands_neither_in_the_plan_nor_in_the_checkpoint(
    source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    password = source.url.partition("://")[2].partition(":")[2].partition("@")[0]
    source.start()
    source.run("INSERT INTO item VALUES (1, 'one')")
    source.until(lambda: len(source.rows()) == 1)
    source.load().explain(extended=True)
    source.query.explain(extended=True)
    assert len(password) > 8
    assert password not in capsys.readouterr().out
    files = [one for one in source.checkpoint.rglob("*") if one.is_file()]
    assert files
    assert [one for one in files if password.encode() in one.read_bytes()] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slott": "x"}, "has no option 'slott'. Did you mean 'slot'?"),
        ({"maxRowsPerTrigger": "0"}, "option maxRowsPerTrigger of postgres_cdc"),
        ({"maxBytesPerTrigger": "much"}, "option maxBytesPerTrigger of postgres_cdc"),
        ({"tables": "a.b.c"}, "names more than a schema"),
    ],
)
def test_a_wrong_option_is_one_line(source: Source, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match="HEADRACE_USAGE") as caught:
        source.load(**options)
    assert said in str(caught.value)
    check_is_last_line(str(caught.value))


def check_is_last_line(text: str) -> None:
    """Our error is the last line of Python's one trace; after it stands only Spark's own."""
    trace, _, behind = text.partition("headrace.errors.HeadraceError: ")
    assert trace.count("Traceback") == 1
    assert "another exception" not in text
    assert "direct cause" not in text
    first, *rest = behind.splitlines()
    assert first.startswith("[HEADRACE_")
    assert rest[0].lstrip().startswith("SQLSTATE")


def test_a_slot_that_must_not_be_created_is_named(source: Source) -> None:
    source.run(f"CREATE PUBLICATION {source.slot} FOR TABLE item")
    source.start(createSlot="false")
    source.until(lambda: not source.query.isActive)
    said = str(source.query.exception())
    assert "[HEADRACE_SLOT_UNKNOWN]" in said
    assert source.url not in said
    check_is_last_line(said)


def test_the_signal_to_end_waits_for_no_lock(source: Source) -> None:
    """It comes together with the end of the socket, so it may come while the reader is being stopped."""
    options = {"url": source.url, "slot": source.slot, "publication": source.slot, "tables": "item"}
    kept = signal.getsignal(signal.SIGTERM)
    reader = CdcReader(read_options(CdcOptions, {**_PLAIN, **options}, "postgres_cdc"))
    try:
        start = reader.initialOffset()
        reader.latestOffset(start, ReadAllAvailable())
        stream = reader._planner.stream
        lock = stream._reader._closing._cond  # type: ignore[attr-defined]  # that of Event.set
        with lock, pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, kept)
        reader.stop()
    source.until(lambda: not source.slot_is_active())
