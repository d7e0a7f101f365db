"""A box keeps connections open and forwards nothing: whoever waits for an answer gives it up."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict

from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.postgres import answer_timeout
from headrace.postgres.backlog import BacklogReader
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.copying import RowSession
from headrace.postgres.locks import SlotLock
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.session import ReadSession
from support.tcp_proxy import TcpProxy

_LONG = 20.0


@pytest.fixture
def proxy(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[TcpProxy]:
    """Before the server; a silence is long after a second."""
    monkeypatch.setattr(answer_timeout, "SILENCE_SECONDS", 1.0)
    monkeypatch.setattr(answer_timeout, "_RECHECK_SECONDS", 0.5)
    with TcpProxy.before(url) as one:
        yield one


def given_up(ask: Callable[[], object]) -> HeadraceError | None:
    """What ended a wait; None where it went on for `_LONG` seconds."""
    found: list[HeadraceError] = []

    def wait() -> None:
        try:
            ask()
        except HeadraceError as error:
            found.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(_LONG)
    return found[0] if found else None


def test_a_reading_session_gives_up_an_answer_that_cannot_come(url: str, proxy: TcpProxy) -> None:
    with ReadSession(proxy.url(url)) as session:
        assert session.query("SELECT 1") == [(1,)]
        proxy.mute()
        error = given_up(lambda: session.query("SELECT 2"))
        assert error is not None
        assert error.kind is Kind.CONNECTION
        assert session.closed


def test_so_does_one_in_the_middle_of_many_rows(url: str, proxy: TcpProxy) -> None:
    with ReadSession(proxy.url(url)) as session:
        rows = session.stream("SELECT repeat('x', 1000) FROM generate_series(1, 100000)")
        next(rows)
        proxy.mute()
        error = given_up(lambda: list(rows))
        assert error is not None
        assert error.kind is Kind.CONNECTION


def test_so_does_a_replication_connection_that_waits_for_a_command(url: str, proxy: TcpProxy) -> None:
    with ReplicationConnection(proxy.url(url)) as stream:
        proxy.mute()
        error = given_up(lambda: stream.execute("IDENTIFY_SYSTEM"))
        assert error is not None
        assert error.kind is Kind.CONNECTION


def test_so_does_one_that_gives_rows_as_columns(url: str, proxy: TcpProxy) -> None:
    with RowSession(proxy.url(url)) as session:
        rows = session.read("SELECT repeat('x', 1000) FROM generate_series(1, 100000)", 1 << 20)
        next(rows)
        proxy.mute()
        error = given_up(lambda: list(rows))
        assert error is not None
        assert error.kind is Kind.CONNECTION


def test_so_does_a_reader_of_the_backlog(url: str, proxy: TcpProxy, connection: Connection) -> None:
    execute(connection, "CREATE TABLE t (n int)")
    execute(connection, "CREATE PUBLICATION p FOR TABLE t")
    execute(connection, "SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    execute(connection, "INSERT INTO t SELECT generate_series(1, 100)")
    [(end,)] = execute(connection, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
    with BacklogReader(proxy.url(url), "s", ("p",)) as reader:
        proxy.mute()
        error = given_up(lambda: list(reader.read(end)))
        assert error is not None
        assert error.kind is Kind.CONNECTION
    copies = "SELECT count(*) FROM pg_replication_slots WHERE temporary"
    proxy.cut()
    assert until(lambda: execute(connection, copies) == [(0,)], 10)


def test_a_lock_whose_session_is_mute_is_taken_again(
    url: str, proxy: TcpProxy, connection: Connection
) -> None:
    with SlotLock(proxy.url(url), "muted") as lock:
        proxy.mute()
        assert given_up(lock.lost_to) is None, "it was its own"
        assert proxy.accepted > 1
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        assert until(lambda: execute(connection, held) == [(1,)], 10)


def test_a_statement_that_the_server_works_on_is_waited_for(url: str, proxy: TcpProxy) -> None:
    with ReadSession(proxy.url(url)) as session:
        before = proxy.accepted
        assert session.query("SELECT 7 FROM pg_sleep(4)") == [(7,)]
        assert proxy.accepted > before, "nobody asked whether the server works"


def test_while_no_password_is_got_a_statement_is_waited_for(
    url: str, proxy: TcpProxy, tmp_path: Path
) -> None:
    given = tmp_path / "password"
    given.write_text(str(conninfo_to_dict(url).get("password") or "none"))
    command = quote(json.dumps(["cat", str(given)]))
    address = proxy.url(url)
    with ReadSession(f"{address}{'&' if '?' in address else '?'}password_command={command}") as session:
        given.unlink()
        before = time.monotonic()
        assert session.query("SELECT 7 FROM pg_sleep(4)") == [(7,)]
        assert time.monotonic() - before > 2 * answer_timeout.SILENCE_SECONDS


def test_a_server_that_has_no_room_for_a_question_is_waited_for(
    url: str, proxy: TcpProxy, connection: Connection
) -> None:
    [(name,)] = execute(connection, "SELECT current_database()")
    quoted = str(name).replace('"', '""')
    with ReadSession(proxy.url(url)) as session, connect(url.rpartition("/")[0] + "/postgres") as other:
        execute(other, f'ALTER DATABASE "{quoted}" ALLOW_CONNECTIONS false')
        try:
            assert session.query("SELECT 7 FROM pg_sleep(5)") == [(7,)]
        finally:
            execute(other, f'ALTER DATABASE "{quoted}" ALLOW_CONNECTIONS true')


def test_a_server_ends_a_session_whose_host_vanished_within_fifteen_seconds(url: str) -> None:
    """The lock and the claims of a run go with its sessions; what the connection string says stands."""
    shown = "SELECT name, setting FROM pg_settings WHERE name ~ '^tcp_keep' ORDER BY name"
    expected = {"tcp_keepalives_count": "2", "tcp_keepalives_idle": "5", "tcp_keepalives_interval": "5"}
    with connect(url) as one, ReadSession(url) as session, ReplicationConnection(url) as stream:
        assert dict(execute(one, shown)) == expected
        assert dict(session.query(shown)) == expected
        assert {row[0]: row[1] for row in stream.execute(shown)} == expected
    mark = "&" if "?" in url else "?"
    with connect(f"{url}{mark}options=-c%20tcp_keepalives_idle%3D60") as other:
        assert dict(execute(other, shown)) == {**expected, "tcp_keepalives_idle": "60"}
