"""Large transactions are taken while they run: what they say and where it stands is as after their end."""

from __future__ import annotations

import logging
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.capture import ChangeStream, Offset
from headrace.capture.buffer import Limit
from headrace.postgres.connection import connect, execute
from headrace.postgres.quoting import identifier
from integration.capture.following import Source, eventually, next_batch, table
from integration.capture.test_backlog import TABLES, finish, read_until_last, work

PIECES = {"backlog_bytes": None, "chunk_bytes": 100_000}
WHOLE = {"backlog_bytes": None, "unfinished": False}
ROW = "INSERT INTO t SELECT g, 'n' || g, repeat('x', 200) FROM generate_series({}, {}) g"


@pytest.fixture
def start(source: Source) -> Offset:
    """Where a slot begins whose server sends a transaction as soon as it is larger than 64 kB."""
    [(name,)] = source.query("SELECT current_database()")
    source.sql(*TABLES, f"ALTER DATABASE {identifier(name)} SET logical_decoding_work_mem = '64kB'")
    return source.publish()


@pytest.fixture
def other(source: Source, start: Offset) -> Iterator[Source]:
    """A second slot of the same publication, whose server sends transactions at their end."""
    other = Source(source.url)
    other.slot = f"{source.slot}_whole"
    assert other.create_slot().lsn >= start.lsn
    yield other
    other.close()


def large(source: Source, first: int, *between: str, end: str = "COMMIT") -> None:
    """A transaction of 3000 rows that are changed, and `between` them."""
    with connect(source.url) as connection:
        for statement in (
            "BEGIN",
            ROW.format(first, first + 1999),
            *between,
            "SAVEPOINT s",
            ROW.format(first + 5000, first + 5999),
            "ROLLBACK TO s",
            f"UPDATE t SET n = 'changed' WHERE id BETWEEN {first} AND {first + 999}",
            end,
        ):
            execute(connection, statement)


def whole(source: Source) -> pa.Table:
    """Everything up to the last change, read from `source` after the transactions' ends."""
    start = Offset(source.confirmed())
    return read_until_last(source.stream(start, **WHOLE), start)


def streamed(source: Source) -> int:
    """How many times the server has sent a piece of an unfinished transaction."""
    return source.number(
        "SELECT stream_count FROM pg_stat_replication_slots WHERE slot_name = $1", source.slot
    )


def test_pieces_among_other_transactions_are_what_whole_ones_say(
    source: Source, other: Source, start: Offset
) -> None:
    """With savepoints, rollbacks, truncates and shapes that change inside, while others write."""
    stream = source.stream(start, **PIECES)
    writers = [
        threading.Thread(target=work, args=(source, 1_000_000, 60)),
        threading.Thread(target=large, args=(source, 300_000_000, "ALTER TABLE whole ADD late int")),
        threading.Thread(target=large, args=(source, 310_000_000), kwargs={"end": "ROLLBACK"}),
        threading.Thread(target=large, args=(source, 320_000_000, "TRUNCATE whole")),
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    finish(source)
    found = read_until_last(stream, start, Limit(300_000))
    assert found.equals(whole(other))
    eventually(lambda: streamed(source) > 3)


def test_a_transaction_is_read_while_it_runs_and_seen_only_at_its_end(source: Source, start: Offset) -> None:
    stream = source.stream(start, **PIECES)
    with connect(source.url, autocommit=False) as connection:
        execute(connection, ROW.format(1, 3000))
        eventually(lambda: streamed(source) > 1)
        source.sql("INSERT INTO t VALUES (-5, 'meanwhile', NULL)")
        end = next_batch(stream, start)
        assert [dict(row)["n"] for row in table(stream, start, end)["after"].to_pylist()] == ["meanwhile"]
    behind = next_batch(stream, end)
    assert table(stream, end, behind).num_rows == 3000


@pytest.mark.long
@pytest.mark.parametrize("moment", ["open", "replayed"])
def test_a_connection_lost_while_one_waits_or_is_told_loses_and_repeats_nothing(
    source: Source, other: Source, start: Offset, moment: str
) -> None:
    stream = source.stream(start, **PIECES, buffer_bytes=50_000)
    place, parts = start, []
    with connect(source.url, autocommit=False) as connection:
        execute(connection, ROW.format(1, 3000))
        eventually(lambda: streamed(source) > 1)
        if moment == "open":
            source.kill_walsender()
        execute(connection, ROW.format(3001, 25_000))
    for number in range(4):
        end = next_batch(stream, place, Limit(60_000))
        parts.append(table(stream, place, end))
        place = end
        stream.confirm(place)
        if moment == "replayed" and number % 2:
            assert place.transaction is not None, "it was told at once"
            source.kill_walsender()
    finish(source)
    parts.append(read_until_last(stream, place))
    assert pa.concat_tables(parts).equals(whole(other))


@pytest.mark.parametrize("settings", [PIECES, WHOLE], ids=["pieces", "whole"])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_what_was_rolled_back_before_it_was_read_is_no_broken_stream(
    source: Source, start: Offset, settings: dict[str, Any], end: str
) -> None:
    """PostgreSQL 18 says of it that it was aborted, although it never sent a piece of it."""
    with connect(source.url) as connection:
        for statement in (
            "BEGIN",
            ROW.format(1, 3),
            "SAVEPOINT s",
            ROW.format(5000, 8000),
            "ROLLBACK TO s",
            ROW.format(4, 5),
            end,
        ):
            execute(connection, statement)
    finish(source)
    found = read_until_last(source.stream(start, **settings), start)
    assert found.num_rows == (6 if end == "COMMIT" else 1)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses to write files of ours that are larger, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("why", ["limit", "disk"])
def test_where_the_spool_has_no_room_the_server_keeps_the_transaction(
    source: Source, other: Source, start: Offset, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    room = 300_000 if why == "limit" else 1 << 30
    stream = source.stream(start, **PIECES, spool_bytes=room)
    with connect(source.url, autocommit=False) as connection, files_of_at_most(1_500_000):
        execute(connection, ROW.format(1, 9000))
        eventually(lambda: "HEADRACE_DISK" in caplog.text)
        execute(connection, ROW.format(9001, 10000))
    finish(source)
    found = read_until_last(stream, start, Limit(300_000))
    assert found.equals(whole(other))
    said = [record.message for record in caplog.records if "HEADRACE_DISK" in record.message]
    assert len(said) == 1, said
    assert ("limit" if why == "limit" else "File too large") in said[0]
    assert "TMPDIR" in said[0]


def test_what_waits_is_nobody_elses_to_read(
    source: Source, start: Offset, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    stream = source.stream(start, **PIECES, spool_folder=folder)
    with connect(source.url, autocommit=False) as connection:
        execute(connection, ROW.format(1, 20_000))
        eventually(lambda: open_bytes(folder.name) > 2_000_000)
        assert list(folder.iterdir()) == []
    end = next_batch(stream, start)
    assert table(stream, start, end).num_rows > 0
    stream.confirm(end)
    close_and_see_none(stream, folder.name)


def open_bytes(folder: str) -> int:
    """The bytes of the files in `folder` that this process has open, named or not."""
    total = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if f"/{folder}/" in str(descriptor.readlink()):
                total += descriptor.stat().st_size
    return total


def close_and_see_none(stream: ChangeStream, folder: str) -> None:
    stream.close()
    assert open_bytes(folder) == 0
