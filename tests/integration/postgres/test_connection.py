from __future__ import annotations

import json
import logging
import os
import pickle
import re
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.postgres_files import server_account
from headrace.embedded.processes import GuardedProcess, free_port, port_is_free, until
from headrace.errors import HeadraceError, Kind, Retry
from headrace.postgres.address import for_slot
from headrace.postgres.connection import connect, execute
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.session import ReadSession
from support.means import PGBOUNCER, needs
from support.refusing_server import RefusingServer

SECRET = "s3cr3t-7f1e"
ODD = "x' host=evil \\ %@:/?#"
Opening = Callable[..., Any]
OPENERS: list[Opening] = [connect, ReadSession, ReplicationConnection]


def other_user(server: EmbeddedPostgres, user: str, password: str) -> str:
    return f"postgresql://{user}:{quote(password, safe='')}@127.0.0.1:{server.port}/postgres"


@pytest.fixture(scope="module")
def odd(postgres: EmbeddedPostgres) -> Iterator[str]:
    """The URL of a role whose password has every character that was ever forgotten to be quoted."""
    with connect(postgres.url) as connection:
        quoted = ODD.replace("'", "''")
        execute(connection, f"CREATE ROLE odd LOGIN REPLICATION PASSWORD '{quoted}'")
    yield other_user(postgres, "odd", ODD)
    with connect(postgres.url) as connection:
        execute(connection, "DROP ROLE odd")


@pytest.mark.parametrize("opening", OPENERS)
def test_a_percent_encoded_password_is_decoded_and_injects_nothing(odd: str, opening: Opening) -> None:
    """Flusso hole 17 and drasi hole 8, on each kind of connection."""
    opening(odd).close()
    opening(for_slot(odd, "mine")).close()


@pytest.mark.parametrize("opening", OPENERS)
def test_of_several_hosts_each_must_refuse_for_good(postgres: EmbeddedPostgres, opening: Opening) -> None:
    for other, kind in ((free_port(), Kind.CONNECTION), (postgres.port, Kind.AUTHENTICATION)):
        hosts = f"127.0.0.1:{other},127.0.0.1:{postgres.port}"
        with pytest.raises(HeadraceError) as caught:
            opening(f"postgresql://nobody:wrong@{hosts}/postgres")
        assert caught.value.kind is kind
        assert hosts in caught.value.cause


@pytest.mark.parametrize("opening", OPENERS)
def test_the_password_is_asked_for_at_each_connect(
    odd: str, postgres: EmbeddedPostgres, opening: Opening, tmp_path: Path
) -> None:
    script = f"open({str(tmp_path / 'asked')!r}, 'a').write('x'); print({ODD!r})"
    bare = f"postgresql://odd@127.0.0.1:{postgres.port}/postgres"
    url = for_slot(bare, "mine", [sys.executable, "-c", script])
    opening(url).close()
    opening(url).close()
    assert (tmp_path / "asked").read_text() == "xx"


def test_a_jdbc_url_leads_to_the_same_database(postgres: EmbeddedPostgres) -> None:
    parts = urlsplit(postgres.url)
    url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres?user={parts.username}&password={parts.password}"
    with ReadSession(url) as session, ReplicationConnection(url) as stream:
        assert session.server_mark == stream.server_mark


def test_every_connection_of_a_deployment_carries_its_slots_name(postgres: EmbeddedPostgres) -> None:
    url = for_slot(postgres.url, "orders")
    with connect(url) as one, ReadSession(url), ReplicationConnection(url):
        sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'headrace/orders'"
        assert execute(one, sql) == [(3,)]


def test_both_connections_pin_the_same_settings(postgres: EmbeddedPostgres) -> None:
    names = "{DateStyle,IntervalStyle,TimeZone,row_security,statement_timeout}"
    sql = f"SELECT name || '=' || setting FROM pg_settings WHERE name = ANY ('{names}')"
    with ReadSession(postgres.url) as session, ReplicationConnection(postgres.url) as stream:
        assert sorted(session.query(sql)) == sorted(stream.execute(sql))
        assert session.query("SHOW TimeZone") == stream.execute("SHOW TimeZone") == [("UTC",)]


@pytest.mark.skipif(sys.platform != "linux", reason="the socket options are Linux' own")
@pytest.mark.parametrize("opening", [ReadSession, ReplicationConnection])
def test_a_host_that_vanishes_is_noticed_within_thirty_seconds(
    postgres: EmbeddedPostgres, opening: Opening
) -> None:
    with opening(postgres.url) as session, socket.socket(fileno=os.dup(session._connection.fileno())) as wire:
        tcp = socket.IPPROTO_TCP
        idle, pause, count = (
            wire.getsockopt(tcp, getattr(socket, f"TCP_KEEP{name}")) for name in ("IDLE", "INTVL", "CNT")
        )
        assert idle + pause * count <= 30
        assert 0 < wire.getsockopt(tcp, socket.TCP_USER_TIMEOUT) <= 30_000


def test_no_secret_is_told_by_anything_that_fails(
    postgres: EmbeddedPostgres, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Drasi hole 8: passwords stood in debug logs."""
    caplog.set_level(logging.DEBUG)
    at = f"127.0.0.1:{postgres.port}/postgres"
    command = quote(
        json.dumps([sys.executable, "-c", "import os, sys; print(os.environ['PW']); sys.exit(3)"])
    )
    urls = [
        f"postgresql://postgres:{SECRET}@{at}",
        f"postgresql://postgres:{SECRET}@127.0.0.1:1/db",
        f"postgresql://postgres:a@{SECRET}@{at}",
        f"postgresql://postgres:a/{SECRET}@{at}",
        f"postgresql://postgres:a%{SECRET}@{at}",
        f"postgresql://postgres:{SECRET}@{at}?sslmode=require",
        f"postgresql://postgres:{SECRET}@{at}?sslmode=bogus",
        f"postgresql://postgres:{SECRET}@127.0.0.1:{postgres.port}/none",
        f"host=127.0.0.1 password={SECRET} port=x",
        f"host=127.0.0.1 password='{SECRET}",
        f"jdbc:postgresql://{at}?user=postgres&password={SECRET}",
        f"jdbc:postgresql://{at}?user=postgres&passwrd={SECRET}",
        f"postgresql://postgres@{at}?password_command={command}",
    ]
    os.environ["PW"] = SECRET
    try:
        for url in urls:
            for opening in OPENERS:
                with pytest.raises(HeadraceError) as caught:
                    opening(url)
                error = caught.value
                told = [
                    str(error),
                    repr(error),
                    *traceback.format_exception(error),
                    repr(pickle.dumps(error)),
                ]
                told += [
                    repr(one)
                    for one in (error.__cause__, error.__context__)
                    if not error.__suppress_context__
                ]
                code = [line for text in told for line in text.splitlines() if "SECRET" not in line]
                assert SECRET not in "\n".join(code), url
    finally:
        del os.environ["PW"]
    assert SECRET not in caplog.text


def test_an_open_connection_does_not_show_its_password(odd: str) -> None:
    with ReadSession(odd) as session, ReplicationConnection(odd) as stream, connect(odd) as plain:
        told = f"{session!r}{stream!r}{plain!r}{plain.info.dsn}"
        assert "evil" not in told
        with pytest.raises(HeadraceError) as caught:
            session.query("SELECT nothing")
        assert "evil" not in f"{caught.value!r}{caught.value.__cause__!r}"


@pytest.mark.parametrize("opening", OPENERS)
def test_a_login_that_the_server_took_before_is_waited_for(
    postgres: EmbeddedPostgres, opening: Opening
) -> None:
    """As while a password is changed: the server knows the next one, and Headrace the former one."""
    url = other_user(postgres, "rotated", "former")
    with connect(postgres.url) as admin:
        execute(admin, "CREATE ROLE rotated LOGIN REPLICATION PASSWORD 'former'")
        try:
            opening(url).close()
            execute(admin, "ALTER ROLE rotated PASSWORD 'next'")
            with pytest.raises(HeadraceError, match="took this login before") as passing:
                opening(url)
            with pytest.raises(HeadraceError) as wrong:
                opening(f"{url}?connect_timeout=9")
        finally:
            execute(admin, "DROP ROLE rotated")
    assert passing.value.retry is Retry.BACK_OFF
    assert wrong.value.kind is Kind.AUTHENTICATION, "nobody has logged in so"
    assert "rds.iam_auth_for_replication" in wrong.value.remedy


@pytest.mark.parametrize("opening", OPENERS)
def test_a_server_that_is_too_old_is_told_so_before_it_refuses_a_setting(
    postgres: EmbeddedPostgres, opening: Opening
) -> None:
    with RefusingServer(postgres.url) as old:
        old.version = "13.23"
        old.refuse(
            "idle_session_timeout",
            "42704",
            'unrecognized configuration parameter "idle_session_timeout"',
            times=None,
        )
        with pytest.raises(HeadraceError, match="PostgreSQL 13; Headrace reads 14") as caught:
            opening(old.url)
    assert caught.value.kind is Kind.SERVER_VERSION


@needs(PGBOUNCER)
def test_a_pooler_is_recognised_on_every_kind_of_connection(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    assert PGBOUNCER.path is not None
    port, account = free_port(), server_account()
    folder = postgres._site.folder / "pooler"
    folder.mkdir()
    parts = urlsplit(postgres.url)
    (folder / "users").write_text(f'"postgres" "{parts.password}"\n')
    (folder / "ini").write_text(
        f"[databases]\npostgres = host=127.0.0.1 port={postgres.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {folder}/users\n"
        "pool_mode = transaction\n"
    )
    if account is not None:
        for path in (folder, folder / "users", folder / "ini"):
            os.chown(path, account.pw_uid, account.pw_gid)
    url = postgres.url.replace(f":{postgres.port}/", f":{port}/")
    process = GuardedProcess([PGBOUNCER.path, str(folder / "ini")], log=tmp_path / "log", account=account)
    try:
        assert until(lambda: not port_is_free(port), 10)
        for opening in OPENERS:
            with pytest.raises(HeadraceError) as caught:
                opening(url)
            assert caught.value.kind is Kind.POOLER
            assert "address of the server itself" in caught.value.remedy
        with connect(f"{url}?session_proxy=true") as connection:
            assert execute(connection, "SELECT 1") == [(1,)]
    finally:
        process.kill()


def test_a_server_that_never_answers_is_given_up(postgres: EmbeddedPostgres) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        with pytest.raises(HeadraceError) as caught:
            connect(f"postgresql://u:{SECRET}@127.0.0.1:{mute.getsockname()[1]}/db?connect_timeout=2")
        assert caught.value.kind is Kind.CONNECTION
    assert issubclass(type(caught.value.__cause__), psycopg.Error)


def test_the_sql_of_the_page_on_connections_runs(postgres: EmbeddedPostgres) -> None:
    text = (Path(__file__).parents[3] / "docs/guides/connections.md").read_text()
    blocks = re.findall(r"^```sql\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    with connect(postgres.url) as connection:
        execute(connection, "CREATE ROLE headrace LOGIN")
        try:
            for block in blocks:
                since = re.match(r"-- PostgreSQL (\d+) and later\n", block)
                if since and connection.info.server_version < int(since[1]) * 10000:
                    continue
                for statement in filter(str.strip, block.split(";")):
                    execute(connection, statement)
        finally:
            execute(connection, "ALTER SYSTEM RESET password_encryption")
            execute(connection, "DROP ROLE headrace")
    assert len(blocks) == 1
