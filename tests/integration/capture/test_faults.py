"""Networks, servers and slots that fail under load: nothing is lost, nothing comes twice, or it is said."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.capture import ChangeStream, Offset
from headrace.capture.buffer import Limit
from headrace.capture.reading import give_back_after
from headrace.capture.signals import SignalFiles
from headrace.embedded.postgres import EmbeddedPostgres, StopMode
from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect, execute
from headrace.postgres.replication import ReplicationConnection
from integration.capture.following import Source, eventually, next_batch, table
from support.tcp_proxy import TcpProxy

LIMIT = Limit(1 << 20)
QUICK = {"silence_seconds": 2.0}


@pytest.fixture
def start(source: Source) -> Offset:
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n text)")
    return source.publish()


class Writer:
    """Commits rows with rising ids, some in large transactions, for as long as the context lasts."""

    def __init__(self, source: Source, *, patient: bool = False) -> None:
        self._source = source
        self._patient = patient
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.written = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _write(self) -> None:
        number = 0
        while not self._ending.is_set():
            number += 1
            rows = 5000 if number % 7 == 0 else 5
            first, last = self.written + 1, self.written + rows
            try:
                # A commit whose answer was lost with the server is made once all the same.
                rows_again = f"SELECT g, 'n' FROM generate_series({first}, {last}) g"
                self._source.sql(f"INSERT INTO t {rows_again} ON CONFLICT DO NOTHING")
                self.written = last
            except (HeadraceError, psycopg.OperationalError):
                assert self._patient, "the server is not to be away"
                time.sleep(0.05)
            time.sleep(0.02)


def ids(read: pa.Table) -> list[int]:
    return [int(number) for number in pc.map_lookup(read["after"], pa.scalar("id"), "first").to_pylist()]


@contextmanager
def following(stream: ChangeStream, start: Offset) -> Iterator[list[int]]:
    """The ids that a consumer, which confirms as it goes, has seen so far."""
    seen: list[int] = []
    ending = threading.Event()

    def follow() -> None:
        position = start
        while not ending.is_set():
            stream.confirm(position)
            behind = stream.next_offset(position, LIMIT, 0.1)
            if behind != position:
                seen.extend(ids(table(stream, position, behind)))
                position = behind

    consumer = threading.Thread(target=follow)
    consumer.start()
    try:
        yield seen
    finally:
        ending.set()
        consumer.join()


def through(source: Source, proxy: TcpProxy, start: Offset, **settings: Any) -> ChangeStream:
    """A stream of the source behind a proxy; everything else of the test goes around it."""
    around, source.url = source.url, proxy.url(source.url)
    try:
        return source.stream(start, **settings)
    finally:
        source.url = around


def test_a_network_that_is_cut_again_and_again(source: Source, start: Offset) -> None:
    """Flusso's hole 19: any error of the source ends it; drasi's hole 9: the first failed reconnect does."""
    with TcpProxy.before(source.url) as proxy, Writer(source) as writer:
        stream = through(source, proxy, start)
        with following(stream, start) as seen:
            for _ in range(5):
                before = len(seen)
                eventually(lambda: len(seen) > before)  # noqa: B023 (called at once)
                proxy.cut()
            writer.__exit__()
            eventually(lambda: len(seen) >= writer.written)
    assert seen == list(range(1, writer.written + 1))


def test_a_connection_that_is_half_open_is_given_up(source: Source, start: Offset) -> None:
    """Neither side is told; only the silence tells."""
    [(name,)] = source.query("SELECT current_database()")
    source.sql(f"ALTER DATABASE {name} SET wal_sender_timeout = '2s'")
    with TcpProxy.before(source.url) as proxy, Writer(source) as writer:
        stream = through(source, proxy, start, **QUICK)
        with following(stream, start) as seen:
            eventually(lambda: len(seen) > 10)
            proxy.freeze()
            accepted = proxy.accepted
            eventually(lambda: proxy.accepted > accepted)
            proxy.cut()
            proxy.resume()
            writer.__exit__()
            eventually(lambda: len(seen) >= writer.written)
    assert seen == list(range(1, writer.written + 1))


def test_a_quiet_server_is_not_taken_for_a_lost_one(source: Source, start: Offset) -> None:
    stream = source.stream(start, **QUICK)
    pid = eventually(source.walsender)
    with following(stream, start):
        time.sleep(3)
        assert source.walsender() == pid


def test_a_server_that_decodes_for_long_is_not_taken_for_a_lost_one(source: Source) -> None:
    """It answers again when half of its wal_sender_timeout has passed, a minute here."""
    source.sql(
        "CREATE TABLE t (id int PRIMARY KEY, n text)",
        "CREATE TABLE slow (n text)",
        "CREATE PUBLICATION headrace FOR TABLE t, slow WHERE (md5(repeat(n, 5000000)) = n) "
        "WITH (publish = 'insert')",
    )
    start = source.create_slot()
    stream = source.stream(start, silence_seconds=1.0)
    pid = eventually(source.walsender)
    source.transaction("INSERT INTO slow SELECT i FROM generate_series(1, 30) i", "INSERT INTO t VALUES (1)")
    end = next_batch(stream, start)
    assert source.walsender() == pid
    # Nor is what it repeats for lost.
    stream.close()
    again = source.stream(start)
    assert ids(pa.Table.from_batches(again.changes(start, end, timeout=0.5))) == [1]


@pytest.mark.parametrize("how", ["terminate", "cancel"])
def test_walsenders_that_are_killed_again_and_again(source: Source, start: Offset, how: str) -> None:
    with Writer(source) as writer:
        stream = source.stream(start)
        with following(stream, start) as seen:
            for _ in range(5):
                before = len(seen)
                eventually(lambda: len(seen) > before)  # noqa: B023 (called at once)
                source.query(f"SELECT pg_{how}_backend($1)", eventually(source.walsender))
            writer.__exit__()
            eventually(lambda: len(seen) >= writer.written)
    assert seen == list(range(1, writer.written + 1))


def told_of(signals: SignalFiles, word: str) -> HeadraceError | None:
    """What the reader waits for, once that has the word in it."""
    found = signals.reader_error()
    return found if found is not None and word in str(found) else None


def test_a_stranger_who_took_the_slot_is_named_and_waited_for(
    source: Source, start: Offset, tmp_path: Path
) -> None:
    """Also where he has only his name; who shows the state of the run reads it in a file."""
    signals = SignalFiles(tmp_path)
    signals.report_error(HeadraceError(Kind.CONNECTION, "left by a process that was killed"))
    with TcpProxy.before(source.url) as proxy, Writer(source) as writer:
        stream = source.stream(start, proxy.url(source.url), signals=signals)
        with following(stream, start) as seen:
            eventually(lambda: len(seen) > 10)
            assert signals.reader_error() is None
            proxy.refuse()
            eventually(lambda: source.walsender() is None)
            told = eventually(signals.reader_error)
            assert told.kind is Kind.CONNECTION
            with ReplicationConnection(source.url, "nightly export") as stranger:
                stranger.start(source.slot, 0, (source.publication,))
                proxy.resume()
                told = eventually(lambda: told_of(signals, "nightly"))
                assert told.kind is Kind.SLOT_IN_USE
                assert f"(pid {stranger.pid}, nightly export of postgres, from 127.0.0.1)" in str(told)
            writer.__exit__()
            eventually(lambda: len(seen) >= writer.written)
            eventually(lambda: signals.reader_error() is None)
    assert seen == list(range(1, writer.written + 1))


def test_what_is_not_published_does_not_pin_the_log(source: Source, postgres: EmbeddedPostgres) -> None:
    """Drasi's hole 3, flusso's hole 20; traffic of this database and of another one."""
    source.sql("CREATE TABLE published (id int PRIMARY KEY)", "CREATE TABLE quiet (id int PRIMARY KEY)")
    source.sql("CREATE PUBLICATION headrace FOR TABLE published")
    start = source.create_slot()
    stream = source.stream(start, idle_seconds=0.1)
    with following(stream, start) as seen:
        for url, statement in {
            source.url: "INSERT INTO quiet SELECT generate_series(1, 1000)",
            postgres.url: "SELECT pg_logical_emit_message(true, 'elsewhere', 'x')",
        }.items():
            with connect(url) as connection:
                execute(connection, statement)
            end = source.number("SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint")
            eventually(lambda: source.confirmed() >= end)  # noqa: B023 (called at once)
    assert seen == []


Make = Callable[..., EmbeddedPostgres]


def taken_place(source: Source) -> ReplicationConnection | None:
    """The only walsender; None while a former one, which has no slot any more, has not ended."""
    try:
        return ReplicationConnection(source.url, "another")
    except HeadraceError as error:
        if error.kind is not Kind.NO_FREE_SLOT:
            raise
        return None


def test_a_walsender_that_others_took_is_waited_for(make_server: Make, tmp_path: Path) -> None:
    """As after a restart, when every reader connects again at once."""
    server = make_server(max_wal_senders="1")
    source = Source(server.create_database("shop"))
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n text)")
    start = source.publish()
    signals = SignalFiles(tmp_path)
    with TcpProxy.before(source.url) as proxy, Writer(source) as writer:
        stream = source.stream(start, proxy.url(source.url), signals=signals)
        with following(stream, start) as seen:
            eventually(lambda: len(seen) > 10)
            proxy.refuse()
            eventually(lambda: source.walsender() is None)
            with eventually(lambda: taken_place(source)):
                proxy.resume()
                told = eventually(lambda: told_of(signals, "no free slot"))
                assert told.kind is Kind.NO_FREE_SLOT
            writer.__exit__()
            eventually(lambda: len(seen) >= writer.written)
    assert seen == list(range(1, writer.written + 1))
    source.close()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_restarts_under_load(make_server: Make, mode: StopMode) -> None:
    """Flusso's hole 19: any error of the source ends it; drasi's hole 9: the first failed reconnect does."""
    server = make_server()
    source = Source(server.create_database("load"))
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n text)")
    start = source.publish()
    with Writer(source, patient=True) as writer:
        stream = source.stream(start)
        with following(stream, start) as seen:
            for _ in range(2):
                before = len(seen)
                eventually(lambda: len(seen) > before + 100)  # noqa: B023 (called at once)
                server.stop(mode)
                server.start()
            writer.__exit__()
            last = source.number("SELECT max(id) FROM t")
            eventually(lambda: len(seen) >= last)
    assert seen == list(range(1, last + 1))
    source.close()


def test_the_deeper_in_a_transaction_the_later_the_connection_is_given_back() -> None:
    assert give_back_after(30, 0) == give_back_after(30, 500_000) == 30
    assert 60 < give_back_after(30, 10_000_000) < 600


@pytest.mark.long
@pytest.mark.parametrize("rows", [1000, 20_000])
def test_a_server_stops_although_nobody_takes_what_was_read(make_server: Make, rows: int) -> None:
    """It waits until its readers have everything, so the reader gives the connection back.

    Also inside one large transaction.
    """
    server = make_server()
    source = Source(server.create_database("full"))
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n text)")
    start = source.publish()
    for first in range(1, 20_001, rows):
        source.sql(f"INSERT INTO t SELECT g, 'n' FROM generate_series({first}, {first + rows - 1}) g")
    stream = source.stream(start, buffer_bytes=100_000, chunk_bytes=30_000, give_back_seconds=1.0)
    eventually(lambda: not stream._buffer.wait_for_room(0))
    began = time.monotonic()
    server.stop("fast")
    assert time.monotonic() - began < 15
    server.start()
    with following(stream, start) as seen:
        eventually(lambda: len(seen) >= 20_000)
    assert seen == list(range(1, 20_001))
    source.close()


def test_a_server_restarts_while_nobody_takes_what_was_read_of_a_backlog(make_server: Make) -> None:
    """No changes are given until reads and the log come from one server, so the full buffer must not wait."""
    server = make_server()
    source = Source(server.create_database("full"))
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n text)")
    start = source.publish()
    for first in range(1, 20_001, 1000):
        source.sql(f"INSERT INTO t SELECT g, 'n' FROM generate_series({first}, {first + 999}) g")
    stream = source.stream(
        start, buffer_bytes=100_000, chunk_bytes=30_000, backlog_bytes=1, backlog_window=300_000
    )
    eventually(lambda: not stream._buffer.wait_for_room(0))
    server.stop("fast")
    server.start()
    with following(stream, start) as seen:
        eventually(lambda: len(seen) >= 20_000)
    assert seen == list(range(1, 20_001))
    source.close()


def test_a_slot_that_the_server_gave_up_is_lost(make_server: Make) -> None:
    """Flusso's hole 6: a lost slot silently serves stale data."""
    server = make_server(max_slot_wal_keep_size="16MB", min_wal_size="32MB", max_wal_size="32MB")
    source = Source(server.create_database("lost"))
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n text)")
    start = source.publish()
    with TcpProxy.before(source.url) as proxy:
        stream = through(source, proxy, start)
        eventually(source.walsender)
        proxy.refuse()
        eventually(lambda: source.walsender() is None)
        for _ in range(6):
            source.sql(
                "SELECT pg_logical_emit_message(false, 'x', repeat('y', 16000000))", "SELECT pg_switch_wal()"
            )
            source.sql("CHECKPOINT")
        proxy.resume()
        with pytest.raises(HeadraceError) as raised:
            next_batch(stream, start)
    assert raised.value.kind is Kind.SLOT_LOST
    assert "headrace teardown" in raised.value.remedy
    stream.close()
