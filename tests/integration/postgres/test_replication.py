"""The replication connection against a real server: the stream, and each refusal."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.lsn import Lsn
from headrace.pgoutput.frames import Frames
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.replication import ReplicationConnection
from support.frames import messages_of
from support.servers import as_user
from support.slots import drop_slots

PUBLICATION = 'Pub "x", y'


def feedback(lsn: Lsn) -> bytes:
    return b"r" + struct.pack(">QQQQB", lsn, lsn, lsn, 0, 0)


def read_until(stream: ReplicationConnection, tag: bytes, seconds: float = 30.0) -> list[bytes]:
    """The pgoutput messages up to the first that begins with `tag`."""
    found: list[bytes] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        frames = Frames()
        if not stream.receive(frames, 1):
            stream.wait(0.2)
        for data in messages_of(frames):
            if data[:1] == b"w":
                found.append(data[25:])
                if found[-1][:1] == tag:
                    return found
    raise AssertionError(f"no {tag!r} in {found}")


def prepare(connection: Connection, slot: str) -> None:
    execute(connection, 'CREATE TABLE "Ta ble" (id int PRIMARY KEY, "when" timestamptz)')
    execute(connection, 'CREATE PUBLICATION "Pub ""x"", y" FOR TABLE "Ta ble"')
    execute(connection, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", (slot,))


def test_the_stream_carries_rows_with_pinned_text_and_takes_feedback(
    url: str, connection: Connection
) -> None:
    prepare(connection, "s_stream")
    execute(connection, "ALTER ROLE postgres SET timezone = 'Asia/Tokyo'")
    try:
        with ReplicationConnection(url) as stream:
            stream.start("s_stream", 0, [PUBLICATION])
            execute(connection, """INSERT INTO "Ta ble" VALUES (1, '2020-01-01 00:00:00+00')""")
            [*_, row] = read_until(stream, b"I")  # before 15 the ALTER ROLE comes first, without a change
            assert b"2020-01-01 00:00:00+00" in row
            [*_, commit] = read_until(stream, b"C")
            end = struct.unpack(">Q", commit[10:18])[0]
            stream.put_copy_data(feedback(end))
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                [(confirmed,)] = execute(
                    connection,
                    "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots "
                    "WHERE slot_name = $1",
                    ("s_stream",),
                )
                if confirmed >= end:
                    break
                time.sleep(0.02)
            assert confirmed >= end
    finally:
        execute(connection, "ALTER ROLE postgres RESET timezone")


def test_silence_gives_nothing_after_the_timeout(url: str, connection: Connection) -> None:
    prepare(connection, "s_silent")
    with ReplicationConnection(url) as stream:
        stream.start("s_silent", 0, [PUBLICATION])
        before = time.monotonic()
        while stream.receive(Frames(), 1) or stream.wait(0.3):  # the server itself writes now and then
            before = time.monotonic()
        assert time.monotonic() - before > 0.25


def test_a_text_that_has_no_form_in_utf_8_is_told_with_its_position(server: EmbeddedPostgres) -> None:
    """WIN1252 has five bytes that mean nothing; the server stores them, and cannot send them."""
    with connect(server.url) as admin:
        execute(admin, "CREATE DATABASE western ENCODING 'WIN1252' LOCALE 'C' TEMPLATE template0")
    url = server.database_url("western")
    try:
        with connect(url) as writer, ReplicationConnection(url) as stream:
            prepare(writer, "s_western")
            execute(writer, 'ALTER TABLE "Ta ble" ADD COLUMN t text')
            execute(writer, """INSERT INTO "Ta ble" VALUES (1, NULL, chr(129))""")
            stream.start("s_western", 0, [PUBLICATION])
            told = r"'s_western' .* at LSN [0-9A-F]+/[0-9A-F]+ .*22P05"
            with pytest.raises(HeadraceError, match=told) as found:
                read_until(stream, b"C")
        assert "leave the column out" in found.value.remedy
        assert found.value.retry is Retry.NEVER
        drop_slots(url)
    finally:
        server.drop_database("western")


def test_a_slot_in_use_names_the_reader(url: str, connection: Connection) -> None:
    prepare(connection, "s_busy")
    with ReplicationConnection(url) as first, ReplicationConnection(url) as second:
        first.start("s_busy", 0, [PUBLICATION])
        with pytest.raises(HeadraceError, match=str(first.pid)) as caught:
            second.start("s_busy", 0, [PUBLICATION])
        assert caught.value.kind is Kind.SLOT_IN_USE


def test_an_unknown_slot(url: str) -> None:
    with ReplicationConnection(url) as stream, pytest.raises(HeadraceError, match="nowhere") as caught:
        stream.start("nowhere", 0, ["p"])
    assert caught.value.kind is Kind.SLOT_UNKNOWN


def test_a_missing_publication_is_named_where_the_server_reports_it(url: str, connection: Connection) -> None:
    prepare(connection, "s_nopub")
    with ReplicationConnection(url) as stream:
        stream.start("s_nopub", 0, ["absent"])
        execute(connection, 'INSERT INTO "Ta ble" VALUES (1)')
        with pytest.raises(HeadraceError, match="absent") as caught:
            read_until(stream, b"C")
    assert caught.value.kind is Kind.PUBLICATION


def test_a_server_that_waits_for_a_standby_is_not_taken_for_one_without_the_publication(
    make_server: Callable[..., EmbeddedPostgres],
) -> None:
    """Of a standby that is away it warns with the same state."""
    url = make_server(wal_level="logical").database_url("postgres")
    with connect(url) as connection:
        if connection.info.server_version < 170000:
            pytest.skip("synchronized_standby_slots is of PostgreSQL 17")
        execute(connection, "SELECT pg_create_physical_replication_slot('standby', true)")
        execute(connection, "ALTER SYSTEM SET synchronized_standby_slots = 'standby'")
        execute(connection, "SELECT pg_reload_conf()")
        execute(connection, "CREATE TABLE t (id int PRIMARY KEY)")
        execute(connection, "CREATE PUBLICATION p FOR TABLE t")
        failover = "SELECT pg_create_logical_replication_slot('s', 'pgoutput', failover => true)"
        execute(connection, failover)
        with ReplicationConnection(url) as stream:
            warnings: list[str] = []
            stream._connection.add_notice_handler(lambda notice: warnings.append(str(notice.message_primary)))
            stream.start("s", 0, ["p"])
            execute(connection, "INSERT INTO t VALUES (1)")
            found = Frames()
            assert until(lambda: stream.receive(found, 1 << 20) >= 0 and bool(warnings), 10)
            execute(connection, "ALTER SYSTEM RESET synchronized_standby_slots")
            execute(connection, "SELECT pg_reload_conf()")
            read_until(stream, b"C")
    assert "does not have active_pid" in warnings[0]


def test_the_reason_of_an_end_is_told_also_behind_data(url: str, connection: Connection) -> None:
    """What came right before it is handed over first; the end is asked for then."""
    prepare(connection, "s_end")
    with ReplicationConnection(url) as stream:
        stream.start("s_end", 0, [PUBLICATION])
        execute(connection, 'INSERT INTO "Ta ble" VALUES (1)')
        [(end,)] = execute(connection, "SELECT pg_current_wal_insert_lsn()")
        sent = "SELECT sent_lsn >= $2::pg_lsn FROM pg_stat_replication WHERE pid = $1"
        assert until(lambda: execute(connection, sent, (stream.pid, str(end))) == [(True,)], 10)
        execute(connection, "SELECT pg_terminate_backend($1, 5000)", (stream.pid,))
        found = Frames()
        assert stream.receive(found, 1 << 20) > 0
        with pytest.raises(HeadraceError, match="administrator command"):
            stream.receive(found, 1 << 20)
    assert any(frame[25:26] == b"C" for frame in messages_of(found))


def test_a_server_notices_soon_that_a_reader_has_vanished(url: str) -> None:
    """A claim and a copy of a slot would be kept for two hours; nothing is streamed that it could miss."""
    with ReplicationConnection(url) as stream:
        assert stream.execute("SHOW tcp_keepalives_idle") == [("5",)]
        assert stream.execute("SHOW tcp_keepalives_count") == [("2",)]


def test_a_stream_that_the_server_ends_is_a_lost_connection(url: str, connection: Connection) -> None:
    prepare(connection, "s_killed")
    with ReplicationConnection(url) as stream:
        stream.start("s_killed", 0, [PUBLICATION])
        execute(connection, "SELECT pg_terminate_backend($1)", (stream.pid,))
        with pytest.raises(HeadraceError) as caught:
            read_until(stream, b"C")
    assert caught.value.kind is Kind.CONNECTION


def test_a_closed_stream_is_a_lost_connection(url: str, connection: Connection) -> None:
    prepare(connection, "s_closed")
    stream = ReplicationConnection(url)
    stream.start("s_closed", 0, [PUBLICATION])
    stream.close()
    for action in (
        lambda: stream.wait(0),
        lambda: stream.receive(Frames(), 1),
        lambda: stream.put_copy_data(feedback(0)),
    ):
        with pytest.raises(HeadraceError) as caught:
            action()
        assert caught.value.kind is Kind.CONNECTION


def test_a_wrong_password_and_an_unreachable_server(server: EmbeddedPostgres) -> None:
    with pytest.raises(HeadraceError) as caught:
        ReplicationConnection(as_user(server.url, "postgres", "wrong"))
    assert caught.value.kind is Kind.AUTHENTICATION
    assert "wrong" not in str(caught.value)
    with pytest.raises(HeadraceError) as caught:
        ReplicationConnection("postgresql://u:pw@127.0.0.1:1/db")
    assert caught.value.kind is Kind.CONNECTION


def test_a_role_without_the_right_is_told_the_grant(server: EmbeddedPostgres, connection: Connection) -> None:
    execute(connection, """CREATE ROLE "Plain ""Joe" LOGIN PASSWORD 'secret'""")
    try:
        with pytest.raises(HeadraceError) as caught:
            ReplicationConnection(as_user(server.url, 'Plain "Joe', "secret"))
    finally:
        execute(connection, 'DROP ROLE "Plain ""Joe"')
    assert caught.value.kind is Kind.PRIVILEGE
    for word in ('ALTER ROLE "Plain ""Joe" REPLICATION', "rds_replication", "Cloud SQL", "azure_pg_admin"):
        assert word in str(caught.value)


def test_a_command_that_waits_is_cancelled_on_the_server(url: str) -> None:
    with ReplicationConnection(url) as stream:
        with pytest.raises(TimeoutError):
            stream.execute("SELECT pg_sleep(30)", timeout=0.2)
        assert stream.execute("SELECT 1, NULL") == [("1", None)]
