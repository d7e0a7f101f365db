from __future__ import annotations

import socket
import threading
import time

import psycopg
import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import connect, execute
from support.tcp_proxy import TcpProxy


def test_what_goes_through_arrives(postgres: EmbeddedPostgres) -> None:
    with TcpProxy.before(postgres.url) as proxy:
        with connect(proxy.url(postgres.url)) as connection:
            [(text,)] = execute(connection, "SELECT repeat('x', 3000000)")
        assert len(text) == 3_000_000
        assert proxy.accepted == 1
        assert proxy.forwarded > 3_000_000


def test_a_cut_is_noticed_at_once_and_the_next_connection_works(postgres: EmbeddedPostgres) -> None:
    with TcpProxy.before(postgres.url) as proxy, connect(proxy.url(postgres.url)) as connection:
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            execute(connection, "SELECT 1")
        with connect(proxy.url(postgres.url)) as second:
            assert execute(second, "SELECT 1") == [(1,)]


def test_a_refusing_proxy_lets_nobody_in_until_it_resumes(postgres: EmbeddedPostgres) -> None:
    with TcpProxy.before(postgres.url) as proxy:
        proxy.refuse()
        with pytest.raises(Exception, match="HEADRACE_CONNECTION"):
            connect(proxy.url(postgres.url))
        proxy.resume()
        connect(proxy.url(postgres.url)).close()


def test_a_frozen_connection_hangs_and_nothing_of_it_is_lost(postgres: EmbeddedPostgres) -> None:
    answers: list[object] = []
    with TcpProxy.before(postgres.url) as proxy, connect(proxy.url(postgres.url)) as connection:
        proxy.freeze()
        asking = threading.Thread(target=lambda: answers.extend(execute(connection, "SELECT 7")))
        asking.start()
        asking.join(0.3)
        assert asking.is_alive()
        proxy.resume()
        asking.join(10)
        assert answers == [(7,)]


def test_the_end_of_a_frozen_server_is_not_told(postgres: EmbeddedPostgres) -> None:
    with TcpProxy.before(postgres.url) as proxy, connect(proxy.url(postgres.url)) as connection:
        proxy.freeze()
        with connect(postgres.url) as killer:
            execute(killer, "SELECT pg_terminate_backend($1, 5000)", (connection.info.backend_pid,))
        asking = threading.Thread(target=_ask, args=(connection,))
        asking.start()
        asking.join(0.3)
        assert asking.is_alive()
        proxy.cut()
        asking.join(10)
        assert not asking.is_alive()


def _ask(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")


def test_a_slow_connection_delays_and_throttles(postgres: EmbeddedPostgres) -> None:
    with TcpProxy.before(postgres.url) as proxy, connect(proxy.url(postgres.url)) as connection:
        proxy.slow(delay=0.1)
        began = time.monotonic()
        execute(connection, "SELECT 1")
        assert time.monotonic() - began >= 0.2
        proxy.slow(rate=1_000_000)
        began = time.monotonic()
        execute(connection, "SELECT repeat('x', 300000)")
        assert time.monotonic() - began >= 0.3


def test_a_proxy_ends_without_a_trace_while_connections_are_open_or_still_wait(
    postgres: EmbeddedPostgres, caplog: pytest.LogCaptureFixture
) -> None:
    with TcpProxy.before(postgres.url) as proxy:
        open_ = connect(proxy.url(postgres.url))
        proxy.freeze()
        waiting = socket.create_connection(("127.0.0.1", proxy.port))
        while proxy.accepted < 2:
            time.sleep(0.01)
    open_.close()
    waiting.close()
    assert caplog.records == []
