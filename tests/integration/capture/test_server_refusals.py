"""What real servers have answered a reader of their log, and what then becomes of it.

The errors are given in the middle of a real server's stream: they come of broken disks, of other products,
and of moments in a failover that no test can hit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from headrace.capture import ChangeStream, Offset
from headrace.capture.signals import SignalFiles
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect, execute
from headrace.postgres.quoting import identifier
from integration.capture.following import Source, eventually, next_batch, take
from support.refusing_server import RefusingServer

_PASSING = [
    ("58P01", 'could not open file "pg_logical/snapshots/0-16B3748.snap.57.tmp": No such file or directory'),
    ("XX000", 'could not rename file "pg_replslot/s/state.tmp" to "pg_replslot/s/state": Success'),
    ("XX000", "could not read from reorderbuffer spill file: read only 0 instead of 4 bytes"),
    ("XX000", 'could not stat file "base/5/1259": Stale file handle'),
    ("XX000", "Internal error encountered during logical decoding"),
    ("XX000", "could not find record while sending logically-decoded data: missing contrecord at 0/2000000"),
    ("XX000", "unrecognized SI message ID: 66"),
    ("XX000", "pfree called with invalid pointer 0x55d (header 0x1)"),
    ("XX000", 'could not extend file "pg_replslot/s/xid-1.spill": Disk quota exceeded'),
    ("XX000", "could not read block 7 from page server"),
    ("XX000", "could not open relation with OID 16399"),
    ("XX000", "cache lookup failed for relation 16399"),
    ("XX001", "invalid page in block 7 of relation base/5/1259"),
    ("42501", 'could not open file "pg_replslot/s/state.tmp": Read-only file system'),
    ("53000", "out of file descriptors: Too many open files in system; release and retry"),
    ("55000", 'slot "b" specified in parameter "synchronized_standby_slots" does not have active_pid'),
    ("57014", "canceling statement due to user request"),
    ("57P01", "terminating connection due to administrator command"),
    ("58P01", "requested WAL segment 000000010000000000000001 has already been removed"),
    ("XX000", "requested WAL segment 000000010000000000000001 has already been removed"),
    ("55000", "replication slots cannot be used on RO (Read Only) node"),
    ("XX000", "Logical replication slots have to be used from the writer node instead"),
    ("25006", "cannot execute START_REPLICATION during recovery"),
    ("0A000", "logical decoding cannot be used while in recovery"),
    ("57P05", "terminating connection due to idle-session timeout"),
    ("25P03", "terminating connection due to idle-in-transaction timeout"),
    ("25P04", "terminating connection due to transaction timeout"),
    ("40001", "terminating connection due to conflict with recovery"),
]

_REMOVED = "requested WAL segment 000000010000000000000001 has already been removed"


@pytest.fixture
def start(source: Source) -> Offset:
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n text)")
    return source.publish()


@pytest.fixture
def refusing(source: Source) -> Iterator[RefusingServer]:
    """The source's server, which refuses what a test names."""
    with RefusingServer(source.url) as refusing:
        yield refusing


def read_on(stream: ChangeStream, position: Offset) -> NoReturn:
    """Read until the stream fails."""
    while True:
        position = next_batch(stream, position)


@pytest.mark.long
@pytest.mark.parametrize("error", _PASSING, ids=lambda error: f"{error[0]} {error[1][:40]}")
@pytest.mark.parametrize("after", [0, 1])
def test_an_error_that_comes_once_costs_nothing(
    source: Source, start: Offset, refusing: RefusingServer, error: tuple[str, str], after: int
) -> None:
    """In answer to START_REPLICATION, and after data that it sent already."""
    refusal = refusing.refuse("START_REPLICATION", *error, after=after)
    source.sql("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
    stream = source.stream(start, refusing.url)
    changes, _ = take(stream, start, 2)
    assert [change.after["id"] for change in changes if change.after] == ["1", "2"]
    assert refusal.refused == 1


@pytest.mark.parametrize("statement", ["pg_try_advisory_lock", "IDENTIFY_SYSTEM", "confirmed_flush_lsn"])
def test_an_error_that_comes_once_before_the_stream_costs_nothing(
    source: Source, start: Offset, refusing: RefusingServer, statement: str
) -> None:
    refusal = refusing.refuse(statement, "XX000", "could not stat file: Stale file handle")
    source.sql("INSERT INTO t VALUES (1, 'a')")
    take(source.stream(start, refusing.url), start, 1)
    assert refusal.refused == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "statement",
    ["pg_copy_logical_replication_slot", "pg_logical_slot_get_binary_changes", "pg_replication_slot_advance"],
)
def test_an_error_that_comes_once_while_a_backlog_is_read_costs_nothing(
    source: Source, start: Offset, refusing: RefusingServer, statement: str
) -> None:
    """The backlog is read through SQL once more: streaming it would be several times as slow."""
    refusal = refusing.refuse(statement, "XX000", "could not stat file: Stale file handle")
    for number in range(20):
        source.sql(f"INSERT INTO t SELECT g, 'n' FROM generate_series({number * 9}, {number * 9 + 8}) g")
    stream = source.stream(start, refusing.url, backlog_bytes=1, backlog_window=4000)
    take(stream, start, 180)
    assert refusal.refused == 1
    assert not stream._reader._streams_only


def test_log_that_stays_removed_is_found_behind_a_backlog_too(
    source: Source, start: Offset, refusing: RefusingServer
) -> None:
    refusing.refuse("START_REPLICATION|pg_logical_slot_get", "58P01", _REMOVED, times=None)
    source.sql("INSERT INTO t VALUES (1, 'a')")
    stream = source.stream(start, refusing.url, backlog_bytes=1, removed_tries=4)
    with pytest.raises(HeadraceError) as raised:
        read_on(stream, start)
    assert raised.value.kind is Kind.SLOT_LOST


@pytest.mark.parametrize("backlog_bytes", [1, None])
def test_a_role_that_is_read_only_by_default_reads_the_log(
    source: Source, start: Offset, backlog_bytes: int | None
) -> None:
    """Reading moves the slot and copies it, which is no write."""
    source.sql("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
    with connect(source.url) as connection:
        name = connection.info.dbname
    source.sql(f"ALTER DATABASE {identifier(name)} SET default_transaction_read_only = on")
    stream = source.stream(start, backlog_bytes=backlog_bytes)
    _, end = take(stream, start, 2)
    stream.confirm(end)
    eventually(lambda: source.confirmed() >= end.lsn)


def test_an_error_behind_data_is_shown_as_the_server_says_it(
    source: Source, start: Offset, refusing: RefusingServer, tmp_path: Path
) -> None:
    """The reader reports a position after each chunk, which must not hide the error that came with it."""
    signals = SignalFiles(tmp_path)
    message = "Internal error encountered during logical decoding"
    refusing.refuse("START_REPLICATION", "XX000", message, times=None, after=1)
    source.sql("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
    source.stream(start, refusing.url, signals=signals)
    shown = set[str]()

    def is_shown() -> bool:
        error = signals.reader_error()
        shown.update(() if error is None else (error.cause,))
        return any(message in cause for cause in shown)

    eventually(is_shown)
    assert not [cause for cause in shown if "no COPY in progress" in cause]


@pytest.mark.long
def test_an_error_that_lasts_is_shown_until_the_log_is_read_again(
    source: Source, start: Offset, refusing: RefusingServer, tmp_path: Path
) -> None:
    """START_REPLICATION succeeds each time, so its success alone must not count as reading."""
    signals = SignalFiles(tmp_path)
    refusal = refusing.refuse("START_REPLICATION", "XX000", "could not read", times=None, after=1)
    source.sql("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
    stream = source.stream(start, refusing.url, signals=signals)
    eventually(signals.reader_error)
    refused = refusal.refused
    while refusal.refused < refused + 4:
        assert signals.reader_error() is not None
    refusing.refusals.clear()
    eventually(lambda: signals.reader_error() is None)
    take(stream, start, 2)


@pytest.mark.long
@pytest.mark.parametrize("after", [0, 1])
def test_log_that_stays_removed_is_a_lost_slot(
    source: Source, start: Offset, refusing: RefusingServer, after: int
) -> None:
    refusing.refuse("START_REPLICATION", "58P01", _REMOVED, times=None, after=after)
    source.sql("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
    stream = source.stream(start, refusing.url, removed_tries=4)
    with pytest.raises(HeadraceError) as raised:
        read_on(stream, start)
    assert raised.value.kind is Kind.SLOT_LOST
    assert "000000010000000000000001" in raised.value.cause


def test_a_real_segment_that_was_removed_is_a_lost_slot(make_server: Callable[..., EmbeddedPostgres]) -> None:
    """The server shows the slot as sound: only reading tells."""
    server = make_server()
    source = Source(server.create_database("removed"))
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n text)")
    start = source.publish()
    source.sql("INSERT INTO t VALUES (1, 'a')", "SELECT pg_switch_wal()")
    [(removed, data)] = source.query(
        "SELECT pg_walfile_name(pg_current_wal_lsn()), current_setting('data_directory')"
    )
    source.sql("INSERT INTO t VALUES (2, 'b')", "SELECT pg_switch_wal()", "INSERT INTO t VALUES (3, 'c')")
    (Path(data) / "pg_wal" / removed).unlink()
    stream = source.stream(start, removed_tries=4)
    with pytest.raises(HeadraceError) as raised:
        read_on(stream, start)
    with connect(source.url) as connection:
        [(status,)] = execute(connection, "SELECT wal_status FROM pg_replication_slots")
    assert (status, raised.value.kind) == ("reserved", Kind.SLOT_LOST)
    assert removed in raised.value.cause
    source.close()
