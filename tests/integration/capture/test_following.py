"""A slot followed over hours, in short: large transactions, lost connections, restarts, confirmations."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.capture import ChangeStream, Offset
from headrace.capture.buffer import Limit
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.quoting import identifier
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import drop_slot
from headrace.postgres.wal_position import end_of_commits
from integration.capture.following import EVERYTHING, Source, eventually, next_batch, table
from support.servers import short_lived_server

ROWS = 200_000
ROW_TABLE = "CREATE TABLE t (id int PRIMARY KEY, n text)"
SMALL = {"buffer_bytes": 2 << 20, "chunk_bytes": 256 << 10}


def insert(source: Source, first: int, last: int) -> None:
    source.sql(f"INSERT INTO t SELECT g, 'row ' || g FROM generate_series({first}, {last}) g")


def ids(read: pa.Table) -> list[int]:
    return [int(number) for number in pc.map_lookup(read["after"], pa.scalar("id"), "first").to_pylist()]


@pytest.fixture
def start(source: Source) -> Offset:
    source.sql(ROW_TABLE)
    return source.publish()


@pytest.fixture
def own() -> Iterator[EmbeddedPostgres]:
    """A server of this test's own, to be stopped and killed."""
    with short_lived_server() as server:
        yield server


def read_all(stream: ChangeStream, start: Offset, rows: int, limit: Limit) -> tuple[list[int], list[Offset]]:
    """Ids of all rows and the offsets between the batches; confirms as it goes."""
    found: list[int] = []
    ends: list[Offset] = []
    while len(found) < rows:
        stream.confirm(start)
        end = next_batch(stream, start, limit)
        found += ids(table(stream, start, end))
        ends.append(end)
        start = end
    return found, ends


def test_a_large_transaction_comes_in_pieces_through_a_small_buffer(source: Source, start: Offset) -> None:
    insert(source, 1, ROWS)
    stream = source.stream(start, **SMALL)
    found, ends = read_all(stream, start, ROWS, Limit(1 << 20))
    assert found == list(range(1, ROWS + 1))
    assert len(ends) > 10
    assert all(end.transaction is not None and end.lsn == ends[0].lsn for end in ends[:-1])
    assert ends[-1].transaction is None


def test_a_batch_within_its_limit_ends_behind_a_commit(source: Source, start: Offset) -> None:
    for first in range(1, 2001, 100):
        insert(source, first, first + 99)
    stream = source.stream(start)
    found, ends = read_all(stream, start, 2000, Limit(1 << 30, rows=250))
    assert found == list(range(1, 2001))
    assert all(end.transaction is None for end in ends)
    assert len(ends) >= 10


def test_the_reader_waits_while_the_buffer_is_full_and_memory_stays(source: Source, start: Offset) -> None:
    """Debezium's users, airbyte 20873: a large transaction takes all memory."""
    insert(source, 1, ROWS)
    stream = source.stream(start, **SMALL)
    eventually(lambda: not stream._buffer.wait_for_room(0))
    held = stream._buffer._memory
    time.sleep(1)
    assert stream._buffer._memory == held < (2 << 20) + (2 << 20)


def test_a_full_buffer_of_small_transactions_is_bounded_too(source: Source, start: Offset) -> None:
    stream = source.stream(start, buffer_bytes=50_000)
    for first in range(1, 20_001, 500):
        insert(source, first, first + 499)
        time.sleep(0.01)
    eventually(lambda: not stream._buffer.wait_for_room(0))
    assert stream._buffer._memory < 2_000_000
    found, _ = read_all(stream, start, 20_000, EVERYTHING)
    assert found == list(range(1, 20_001))


@pytest.mark.long
def test_the_server_keeps_a_reader_whose_buffer_is_full(source: Source, start: Offset) -> None:
    source.sql("ALTER SYSTEM SET wal_sender_timeout = '4s'", "SELECT pg_reload_conf()")
    try:
        insert(source, 1, ROWS)
        stream = source.stream(start, **SMALL)
        eventually(lambda: not stream._buffer.wait_for_room(0))
        pid = source.walsender()
        time.sleep(9)
        assert source.walsender() == pid
    finally:
        source.sql("ALTER SYSTEM RESET wal_sender_timeout", "SELECT pg_reload_conf()")


@pytest.mark.long
def test_a_connection_lost_inside_a_transaction_loses_and_repeats_nothing(
    source: Source, start: Offset
) -> None:
    insert(source, 1, ROWS)
    stream = source.stream(start, **SMALL)
    found: list[int] = []
    at = start
    for _ in range(3):
        end = next_batch(stream, at, Limit(1 << 20))
        found += ids(table(stream, at, end))
        at = end
        stream.confirm(at)
        source.kill_walsender()
    assert at.transaction is not None
    rest, _ = read_all(stream, at, ROWS - len(found), Limit(1 << 20))
    assert found + rest == list(range(1, ROWS + 1))


def test_a_stream_outlives_stops_and_crashes_of_the_server(own: EmbeddedPostgres) -> None:
    source = Source(own.create_database("followed"))
    source.sql(ROW_TABLE)
    start = source.publish()
    stream = source.stream(start)
    insert(source, 1, 10)
    began = time.monotonic()
    own.stop()
    assert time.monotonic() - began < 50  # a server waits for readers that have not confirmed
    own.start()
    insert(source, 11, 20)
    found, ends = read_all(stream, start, 20, EVERYTHING)
    own.kill()
    assert stream.next_offset(ends[-1], EVERYTHING, 0.5) == ends[-1]
    own.start()
    insert(source, 21, 30)
    rest, _ = read_all(stream, ends[-1], 10, EVERYTHING)
    assert found + rest == list(range(1, 31))
    source.close()


def test_confirming_moves_the_slot_to_the_end_of_the_commit_and_no_further(
    source: Source, start: Offset
) -> None:
    """Flusso's hole 1: confirming the first change of a transaction moves the slot past all of it.

    Debezium 4152: the position of a transaction's beginning is confirmed.
    """
    insert(source, 1, 1)
    stream = source.stream(start)
    first = next_batch(stream, start)
    insert(source, 2, 2)
    second = next_batch(stream, first)
    assert source.confirmed() == start.lsn
    stream.confirm(first)
    eventually(lambda: source.confirmed() == first.lsn)
    stream.close()
    assert source.confirmed() == first.lsn
    again = source.stream(Offset(source.confirmed()))
    found, ends = read_all(again, first, 1, EVERYTHING)
    assert (found, ends) == ([2], [second])


def test_a_place_inside_a_transaction_confirms_the_commit_before_it(source: Source, start: Offset) -> None:
    """Flusso's hole 1: confirming the first change of a transaction moves the slot past all of it."""
    insert(source, 1, ROWS)
    stream = source.stream(start, **SMALL)
    end = next_batch(stream, start, Limit(1 << 20))
    assert end.transaction is not None
    stream.confirm(end)
    stream.close()
    assert source.confirmed() == end.lsn <= start.lsn


def test_what_was_not_confirmed_comes_again_whole(source: Source, start: Offset) -> None:
    insert(source, 1, 1000)
    one = source.stream(start)
    first = table(one, start, end := next_batch(one, start))
    one.close()
    assert source.confirmed() == start.lsn
    other = source.stream(start)
    assert next_batch(other, start) == end
    assert table(other, start, end).equals(first)


def test_a_range_inside_a_transaction_is_the_same_for_whoever_reads_it(source: Source, start: Offset) -> None:
    """Debezium 7531: events that share a position are lost."""
    insert(source, 1, ROWS)
    one = source.stream(start, **SMALL)
    first = next_batch(one, start, Limit(1 << 20))
    second = next_batch(one, first, Limit(1 << 20))
    expected = table(one, first, second)
    one.close()
    stored = [Offset.from_json(offset.to_json()) for offset in (first, second)]
    other = source.stream(stored[0], chunk_bytes=100_000, buffer_bytes=300_000)
    again = table(other, *stored)
    assert again.combine_chunks().equals(expected.combine_chunks())
    other.confirm(second)
    rest, _ = read_all(other, second, ROWS - ids(expected)[-1], Limit(4 << 20))
    assert rest[-1] == ROWS


@pytest.mark.long
def test_a_range_larger_than_the_buffer_is_replayed(source: Source, start: Offset) -> None:
    insert(source, 1, ROWS)
    one = source.stream(start)
    end = next_batch(one, start)
    one.close()
    other = source.stream(start, **SMALL)
    assert ids(table(other, start, end)) == list(range(1, ROWS + 1))


def test_a_quiet_time_ends_in_a_position_without_changes(source: Source, start: Offset) -> None:
    """Flusso's hole 20: idle published tables do not advance the slot; drasi's hole 3.

    Debezium 1082: the log grows while nothing happens.
    """
    stream = source.stream(start, idle_seconds=0.2)
    source.sql("CREATE TABLE elsewhere (id int)", "DROP TABLE elsewhere")
    end = next_batch(stream, start)
    assert end.transaction is None
    assert table(stream, start, end).num_rows == 0
    stream.confirm(end)
    eventually(lambda: source.confirmed() == end.lsn)
    stream.close()
    other = source.stream(Offset(source.confirmed()))
    insert(source, 1, 1)
    assert read_all(other, end, 1, EVERYTHING)[0] == [1]


def test_a_quiet_position_is_replayed_by_another_reader(source: Source, start: Offset) -> None:
    one = source.stream(start, idle_seconds=0.2)
    source.sql("CREATE TABLE elsewhere (id int)", "DROP TABLE elsewhere")
    end = next_batch(one, start)
    one.close()
    assert table(source.stream(start), start, end).num_rows == 0


def test_a_place_inside_a_transaction_behind_a_quiet_position_is_one_to_go_on_from(
    source: Source, start: Offset
) -> None:
    """The slot stands at the quiet position, which is no commit: nobody else has moved it there."""
    stream = source.stream(start, idle_seconds=0.1, **SMALL)
    source.sql("CREATE TABLE other (id int)")
    quiet = next_batch(stream, start)
    insert(source, 1, 30_000)
    inside = next_batch(stream, quiet, Limit(200_000))
    while inside.transaction is None:  # others write to the same server: quiet more than once
        quiet, inside = inside, next_batch(stream, inside, Limit(200_000))
    stream.confirm(quiet)
    eventually(lambda: source.confirmed() == quiet.lsn)
    assert inside.lsn == quiet.lsn
    first = ids(table(stream, quiet, inside))
    stream.confirm(inside)
    stream.close()
    again = source.stream(Offset.from_json(inside.to_json()))
    rest, _ = read_all(again, inside, 30_000 - len(first), EVERYTHING)
    assert first + rest == list(range(1, 30_001))


def test_a_transaction_of_other_tables_makes_no_batch_of_its_own(source: Source, start: Offset) -> None:
    """Drasi's hole 7: `tables` never filters."""
    source.sql("CREATE TABLE other (id int PRIMARY KEY)")
    stream = source.stream(start, tables=frozenset({TableName("public", "t")}))
    source.sql("INSERT INTO other VALUES (1)")
    assert stream.next_offset(start, EVERYTHING, 1.5) == start
    insert(source, 1, 1)
    assert read_all(stream, start, 1, EVERYTHING)[0] == [1]


@pytest.mark.long
@pytest.mark.parametrize("is_described", [True, False])
def test_nothing_is_told_before_everyone_can_see_it(
    own: EmbeddedPostgres,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_described: bool,
) -> None:
    """A synchronous standby that does not answer holds a commit back; the log carries it already.

    What a table's description means is asked of the catalog, which must show that transaction too.

    Flusso's hole 21: a change read before its transaction is visible rebuilds the old state; drasi's hole 1.
    """
    monkeypatch.setattr("headrace.capture.stream._LOOK_SECONDS", 0.1)
    source = Source(own.create_database(f"held_{is_described}"))
    source.sql(ROW_TABLE)
    start = source.publish()
    stream = source.stream(start)
    if is_described:
        insert(source, 5, 5)
        start = next_batch(stream, start)
    there = source.number("SELECT count(*) FROM t")
    with ThreadPoolExecutor(1) as pool, source.commits_held_back():
        committing = pool.submit(insert, source, 1, 1)
        eventually(lambda: source.query("SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
        if is_described:
            eventually(lambda: stream._buffer.cut(start, EVERYTHING))
        assert source.number("SELECT count(*) FROM t") == there
        began = time.monotonic()
        assert stream.next_offset(start, EVERYTHING, 1.0) == start
        assert 0.9 < time.monotonic() - began < 5
        said = "a synchronous standby has not confirmed them"
        eventually(lambda: stream.next_offset(start, EVERYTHING, 0.2) != start or said in caplog.text)
        stream.next_offset(start, EVERYTHING, 0.5)
        assert caplog.text.count(said) == 1
    committing.result()
    end = next_batch(stream, start)
    assert source.number("SELECT count(*) FROM t") == there + 1
    assert ids(table(stream, start, end)) == [1]
    source.close()


@pytest.mark.long
def test_what_comes_again_waits_for_a_later_commit_that_nobody_can_see(own: EmbeddedPostgres) -> None:
    """The later one describes a table, and is read together with what comes again."""
    source = Source(own.create_database("held_later"))
    source.sql(ROW_TABLE, "CREATE TABLE later (id int)")
    start = source.publish()
    insert(source, 1, 1)
    first = source.stream(start)
    end = next_batch(first, start)
    first.close()
    with ThreadPoolExecutor(2) as pool:
        with source.commits_held_back():
            committing = pool.submit(source.sql, "INSERT INTO later VALUES (1)")
            eventually(lambda: source.query("SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
            repeated = pool.submit(source.stream(start).changes, start, end, 1.0)
            wait([repeated], timeout=3)
        committing.result()
        assert ids(pa.Table.from_batches(repeated.result())) == [1]
    source.close()


@pytest.mark.long
def test_a_standby_that_must_have_the_changes_first_is_named(
    own: EmbeddedPostgres, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.capture.stream._LOOK_SECONDS", 0.1)
    source = Source(own.create_database("behind_standby"))
    if source.number("SELECT current_setting('server_version_num')") < 170000:
        pytest.skip("synchronized_standby_slots is of PostgreSQL 17")
    source.sql(ROW_TABLE, f"CREATE PUBLICATION {source.publication} FOR ALL TABLES")
    source.query(
        "SELECT pg_create_logical_replication_slot($1, 'pgoutput', failover => true),"
        " pg_create_physical_replication_slot('standby')",
        source.slot,
    )
    source.sql("ALTER SYSTEM SET synchronized_standby_slots = 'standby'", "SELECT pg_reload_conf()")
    start = Offset(source.confirmed())
    insert(source, 1, 1)
    stream = source.stream(start)
    eventually(lambda: stream.next_offset(start, EVERYTHING, 0.1) != start or "a standby" in caplog.text)
    assert "synchronized_standby_slots" in caplog.text
    source.sql("ALTER SYSTEM RESET synchronized_standby_slots", "SELECT pg_reload_conf()")
    next_batch(stream, start)
    source.close()


@contextmanager
def shut_out(postgres: EmbeddedPostgres, source: Source) -> Iterator[Connection]:
    """No reader can connect to the database meanwhile; the connection that is given was there before."""
    database = identifier(source.url.rsplit("/", 1)[1])
    with connect(source.url) as inside, connect(postgres.url) as outside:
        execute(outside, f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        execute(inside, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
        drop_slot(inside, source.slot, timeout=60)
        yield inside
        execute(outside, f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")


def test_a_slot_that_is_gone_is_an_error_for_whoever_asks(
    postgres: EmbeddedPostgres, source: Source, start: Offset
) -> None:
    stream = source.stream(start)
    eventually(source.walsender)
    with shut_out(postgres, source):
        assert stream.next_offset(start, EVERYTHING, 0.3) == start
    with pytest.raises(HeadraceError) as raised:
        next_batch(stream, start)
    assert raised.value.kind is Kind.SLOT_UNKNOWN
    with pytest.raises(HeadraceError):
        stream.changes(start, Offset(start.lsn + (1 << 30)))


def test_a_slot_that_was_recreated_is_no_continuation(
    postgres: EmbeddedPostgres, source: Source, start: Offset
) -> None:
    """The server would begin at the new slot's position without a word; the changes between are lost.

    Flusso's hole 6: what was made of a slot is not tied to it; drasi's hole 2.
    Debezium 3970: a slot that was recreated is taken for the old one.
    """
    stream = source.stream(start)
    eventually(source.walsender)
    with shut_out(postgres, source) as connection:
        execute(connection, "INSERT INTO t VALUES (1, 'lost')")
        execute(connection, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", (source.slot,))
    with pytest.raises(HeadraceError, match="the changes between are lost") as raised:
        next_batch(stream, start)
    assert raised.value.kind is Kind.CONTINUITY


def test_a_checkpoint_older_than_the_slot_is_refused(source: Source, start: Offset) -> None:
    """Drasi's hole 2: the server forwards to the slot's confirmed position, a silent gap."""
    insert(source, 1, 1)
    source.query("SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", source.slot)
    with pytest.raises(HeadraceError, match="the changes between are lost") as raised:
        next_batch(source.stream(start), start)
    assert raised.value.kind is Kind.CONTINUITY


def test_a_position_beyond_the_log_is_refused(source: Source, start: Offset) -> None:
    beyond = Offset(start.lsn + (1 << 40))
    with pytest.raises(HeadraceError, match="restored to an earlier time") as raised:
        next_batch(source.stream(beyond), beyond)
    assert raised.value.kind is Kind.OTHER_LOG


@pytest.mark.parametrize("busy", [False, True])
def test_closing_gives_the_slot_back_at_once(source: Source, start: Offset, *, busy: bool) -> None:
    if busy:
        insert(source, 1, ROWS)
    stream = source.stream(start, **SMALL)
    eventually(source.walsender)
    if busy:
        eventually(lambda: not stream._buffer.wait_for_room(0))
    began = time.monotonic()
    stream.close()
    eventually(lambda: source.walsender() is None)
    assert time.monotonic() - began < 20  # it would be given back after 30 s in any case
    assert not stream._reader._thread.is_alive()
    stream.close()


def test_an_idle_stream_costs_next_to_nothing(source: Source, start: Offset) -> None:
    """Less than 3 % of a core, its caller's polling included; what else runs here costs more now and then."""
    stream = source.stream(start)
    eventually(source.walsender)

    def share() -> float:
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        while time.monotonic() - began < 4:
            stream.next_offset(start, EVERYTHING, 0.25)
        after = resource.getrusage(resource.RUSAGE_SELF)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return used / (time.monotonic() - began)

    assert any(share() < 0.03 for _ in range(5))


def test_closing_ends_every_wait(source: Source, start: Offset) -> None:
    """Whoever waits for a range that will not come any more would wait for ever; twice is as good as once."""
    stream = source.stream(start)
    eventually(source.walsender)
    with ThreadPoolExecutor(2) as pool:
        waits: list[Future[Any]] = [
            pool.submit(stream.changes, start, Offset(start.lsn + 100_000_000)),
            pool.submit(stream.next_offset, start, EVERYTHING, 600),
        ]
        stream.close()
        stream.close()
        for one in waits:
            with pytest.raises(HeadraceError, match="closed"):
                one.result(timeout=10)


def test_the_end_of_a_log_that_ends_in_the_middle_of_a_record_is_reached_soon(
    source: Source, start: Offset
) -> None:
    """An open transaction fills pages, put on disk whole: with half a record at the end."""
    stream = source.stream(start)
    with connect(source.url, autocommit=False) as writer, ReadSession(source.url) as session:

        def cut() -> bool:
            execute(writer, "SELECT pg_logical_emit_message(true, 'large', repeat('x', 30000))")
            time.sleep(0.7)  # the WAL writer has done all that it does by itself
            [(flushed, left)] = execute(
                writer,
                "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint,"
                " (pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn())::bigint",
            )
            return bool(flushed % 8192 == 0 and left)

        def seconds_to_the_end(start: Offset, number: int) -> tuple[float, Offset]:
            insert(source, number, number)
            eventually(cut)
            end = end_of_commits(session.query)
            begun = time.monotonic()
            behind = next_batch(stream, start)
            assert ids(table(stream, start, behind)) == [number]
            eventually(lambda: stream.is_empty(Offset(end), end))
            return time.monotonic() - begun, behind

        for number in (1, 2, 3):  # a busy machine may halt now and then
            took, start = seconds_to_the_end(start, number)
            if took < 3:
                return
    pytest.fail(f"only after {took:.1f} s")
