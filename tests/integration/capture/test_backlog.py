"""A backlog is read through SQL and the rest is streamed: nobody can tell where one ended."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.capture import ChangeStream, Offset
from headrace.capture.buffer import Limit
from headrace.postgres.connection import connect, execute
from headrace.postgres.quoting import identifier
from integration.capture.following import EVERYTHING, Source, eventually, next_batch, table
from support.servers import short_lived_server

BACKLOG = {"backlog_bytes": 1, "backlog_window": 300_000}
STREAM = {"backlog_bytes": None}
TABLES = (
    "CREATE TABLE t (id int PRIMARY KEY, n text, long text)",
    "CREATE TABLE whole (id int, n text)",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
)


@pytest.fixture
def start(source: Source) -> Offset:
    source.sql(*TABLES)
    return source.publish()


def work(source: Source, first: int, transactions: int) -> None:
    """Transactions of all kinds and sizes; some are rolled back, some change no table of ours."""
    with connect(source.url) as connection:
        execute(connection, "CREATE TEMP TABLE IF NOT EXISTS unseen (id int)")
        for number in range(first, first + transactions):
            execute(connection, "BEGIN")
            for statement in statements(number):
                execute(connection, statement)
            execute(connection, "ROLLBACK" if number % 9 == 5 else "COMMIT")


def statements(number: int) -> list[str]:
    low, many = number * 1000, 400 if number % 7 == 3 else 3
    long = "CASE WHEN g % 5 = 0 THEN repeat(md5(g::text), 300) END"
    made = [
        f"INSERT INTO t SELECT g, 'n' || g, {long} FROM generate_series({low}, {low + many}) g",
        f"INSERT INTO whole SELECT g, 'w' FROM generate_series({low}, {low + 2}) g",
    ]
    if number % 3 == 0:
        made += [
            f"UPDATE t SET n = 'changed' WHERE id BETWEEN {low} AND {low + 1}",
            f"UPDATE t SET id = id + 500000000 WHERE id = {low + 2}",
            f"UPDATE whole SET n = 'x' WHERE id = {low}",
            f"DELETE FROM t WHERE id = {low + 3}",
        ]
    if number % 11 == 8:
        made += ["SAVEPOINT s", "TRUNCATE whole", "ROLLBACK TO s" if number % 2 else "RELEASE s"]
    if number % 13 == 0:
        made = ["INSERT INTO unseen VALUES (1)"]
    return made


def read_until_last(stream: ChangeStream, start: Offset, limit: Limit = EVERYTHING) -> pa.Table:
    """Everything up to the last change, which `finish` writes; confirms as it goes."""
    parts: list[pa.Table] = []
    while not parts or not has_last(parts[-1]):
        stream.confirm(start)
        behind = next_batch(stream, start, limit)
        parts.append(table(stream, start, behind))
        start = behind
    stream.confirm(start)
    return upto_last(pa.concat_tables(parts).combine_chunks())


KILL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE query LIKE '%headrace_copy%' AND pid <> pg_backend_pid() AND datname = current_database()
"""
LAST = [("id", "-1"), ("n", "last"), ("long", None)]


def finish(source: Source) -> None:
    source.sql("INSERT INTO t VALUES (-1, 'last', NULL)")


def has_last(read: pa.Table) -> bool:
    return LAST in read["after"].to_pylist()


def upto_last(read: pa.Table) -> pa.Table:
    return read.slice(0, read["after"].to_pylist().index(LAST) + 1)


@pytest.fixture
def streamed(source: Source, start: Offset) -> Iterator[Source]:
    """A second slot of the same publication, whose stream is the truth to compare with."""
    other = Source(source.url)
    other.slot = f"{source.slot}_streamed"
    assert other.create_slot().lsn >= start.lsn
    yield other
    other.close()


def test_the_backlog_then_the_stream_are_what_the_stream_alone_says(
    source: Source, streamed: Source, start: Offset
) -> None:
    """Writers go on meanwhile, and the windows are small: no boundary may lose or repeat anything."""
    work(source, 1, 120)
    stream = source.stream(start, **BACKLOG)

    def write() -> None:
        work(source, 1000, 60)
        finish(source)

    writing = threading.Thread(target=write)
    writing.start()
    found = read_until_last(stream, start, Limit(200_000))
    writing.join()
    eventually(source.walsender)  # by now it streams
    begin = Offset(streamed.confirmed())
    truth = read_until_last(streamed.stream(begin, **STREAM), begin)
    assert found.num_rows > 5000
    assert found.equals(truth)


def test_a_place_inside_a_transaction_is_the_same_for_both_readers(
    source: Source, streamed: Source, start: Offset
) -> None:
    work(source, 1, 12)
    source.sql("INSERT INTO t SELECT g, 'large', NULL FROM generate_series(-9000, -2) g")
    work(source, 20, 12)
    finish(source)
    first = source.stream(start, **STREAM, chunk_bytes=32 << 10, buffer_bytes=64 << 10)
    place, parts = start, []
    while place.transaction is None:
        first.confirm(place)
        behind = next_batch(first, place, Limit(10_000))
        parts.append(table(first, place, behind))
        place = behind
    first.close()
    rest = read_until_last(source.stream(place, **BACKLOG), place)
    begin = Offset(streamed.confirmed())
    truth = read_until_last(streamed.stream(begin, **STREAM), begin)
    assert pa.concat_tables([*parts, rest]).combine_chunks().equals(truth)


def test_the_slot_moves_only_to_what_was_confirmed(source: Source, start: Offset) -> None:
    """The copies run ahead; the slot itself waits for its reader."""
    work(source, 1, 60)
    finish(source)
    stream = source.stream(start, **BACKLOG, buffer_bytes=1, chunk_bytes=1)
    behind = next_batch(stream, start, Limit(1))
    assert source.confirmed() == start.lsn
    stream.close()
    assert source.confirmed() == start.lsn
    again = source.stream(start, **BACKLOG)
    again.confirm(start)
    assert table(again, start, behind).num_rows > 0
    rest = read_until_last(again, start)
    assert rest.num_rows > 100
    eventually(lambda: source.confirmed() > start.lsn)


def test_sessions_that_are_lost_lose_and_repeat_nothing(
    source: Source, streamed: Source, start: Offset
) -> None:
    work(source, 1, 200)
    finish(source)
    stream = source.stream(start, **BACKLOG, buffer_bytes=100_000)
    place, parts, killed = start, [], 0
    for _ in range(3):
        stream.confirm(place)
        behind = next_batch(stream, place, Limit(50_000))
        parts.append(table(stream, place, behind))
        place = behind
        killed += len(source.query(KILL))
    assert killed
    rest = read_until_last(stream, place)
    begin = Offset(streamed.confirmed())
    truth = read_until_last(streamed.stream(begin, **STREAM), begin)
    assert pa.concat_tables([*parts, rest]).combine_chunks().equals(truth)


def test_a_second_reader_is_kept_out_while_no_stream_shows_the_first(
    source: Source, start: Offset, caplog: pytest.LogCaptureFixture
) -> None:
    work(source, 1, 60)
    first = source.stream(start, **BACKLOG, buffer_bytes=1)
    next_batch(first, start, Limit(1))
    assert source.walsender() is None
    second = source.stream(start, **STREAM)
    said = re.compile(r"another reader of Headrace has the slot .* \(pid \d+, headrace")
    eventually(lambda: said.search(caplog.text))
    assert second.next_offset(start, EVERYTHING, 0.1) == start
    first.close()
    assert next_batch(second, start).lsn > start.lsn


def test_a_server_without_room_for_a_copy_streams_the_backlog() -> None:
    with short_lived_server(settings={"max_replication_slots": "1"}) as server:
        source = Source(server.create_database("full"))
        source.sql(*TABLES)
        begin = source.publish()
        work(source, 1, 30)
        finish(source)
        assert read_until_last(source.stream(begin, **BACKLOG), begin).num_rows > 100
        source.close()


def test_a_backlog_that_the_server_cannot_collect_is_streamed(source: Source, start: Offset) -> None:
    """A window's result waits on the server's disk; a transaction may be larger than what may be there."""
    [(name,)] = source.query("SELECT current_database()")
    source.sql(f"ALTER DATABASE {identifier(name)} SET temp_file_limit = '1MB'")
    source.sql("ALTER TABLE t ALTER long SET STORAGE EXTERNAL")
    source.sql("INSERT INTO t SELECT g, 'n', repeat('x', 1000000) FROM generate_series(1, 70) g")
    finish(source)
    stream = source.stream(start, backlog_bytes=1)
    assert read_until_last(stream, start, Limit(1 << 22)).num_rows == 71
