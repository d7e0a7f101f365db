"""PostgreSQL 16 and later decode on a standby too: the primary is spared, reads wait for the replay."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator

import pytest

from headrace.capture import ChangeStream, Offset, StreamSettings
from headrace.capture.buffer import Limit
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.postgres_files import server_account
from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import parse_lsn
from headrace.model.names import TableName
from headrace.postgres.backlog import BacklogReader
from headrace.postgres.connection import connect, execute
from headrace.postgres.copying import RowSession
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.session import ReadSession, check_same_server
from headrace.postgres.slot import drop_slot
from integration.datasources.killed import BOTH, TABLES, Killed, change_much, check, writers
from support.changes import decode_changes
from support.servers import short_lived_server
from support.slots import ensure_slot
from support.tcp_proxy import TcpProxy

USERS = [TableName("public", "users")]


@pytest.fixture(scope="module")
def primary() -> Iterator[EmbeddedPostgres]:
    with short_lived_server() as server:
        yield server


@pytest.fixture(scope="module")
def standby(primary: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    with connect(primary.url) as connection:
        execute(connection, "CREATE TABLE users (id int PRIMARY KEY, name text)")
        execute(connection, "CREATE PUBLICATION people FOR TABLE users")
    copy = short_lived_server(settings={"hot_standby_feedback": "on"})
    copy._password = primary._password
    account = server_account()
    subprocess.run(
        [
            copy._site.binaries / "pg_basebackup",
            *("--pgdata", copy._site.data, "--dbname", primary.url, "--write-recovery-conf"),
            *("--checkpoint=fast", "--no-sync"),
        ],
        check=True,
        cwd="/",
        user=None if account is None else account.pw_uid,
        group=None if account is None else account.pw_gid,
        extra_groups=None if account is None else [],
        env={**os.environ, "HOME": str(copy._site.folder)},
    )
    try:
        copy.start()
        yield copy
    finally:
        copy.close()


@contextlib.contextmanager
def talking(primary: EmbeddedPostgres) -> Iterator[None]:
    """A slot on a standby needs a word of the primary, which an idle one seldom says by itself."""
    done = threading.Event()

    def talk() -> None:
        with connect(primary.url) as connection:
            while not done.wait(0.2):
                execute(connection, "SELECT pg_log_standby_snapshot()")

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def made_on(standby: EmbeddedPostgres, primary: EmbeddedPostgres, slot: str) -> Offset:
    """A slot on the standby."""
    tables = [TableName("public", "users")]
    with talking(primary):
        return Offset(ensure_slot(standby.url, slot=slot, publication="people", tables=tables, create=True))


def test_changes_flow_from_a_standby_and_reads_wait_for_its_replay(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres
) -> None:
    start = made_on(standby, primary, "there")
    stream = ChangeStream(StreamSettings(url=standby.url, slot="there", publication="people"), start)
    stream.open()
    try:
        with connect(primary.url) as connection:
            execute(connection, "INSERT INTO users VALUES (1, 'Ada'), (2, 'Bo')")
        end = start
        while end.lsn == start.lsn or not (batches := stream.changes(start, end)):
            end = stream.next_offset(start, Limit(1 << 30), 1.0)
        changes = [one for batch in batches for one in decode_changes(batch)]
        assert len(changes) == 2
        with ReadSession(standby.url) as session:
            session.await_replay(end.lsn)
            assert session.query("SELECT id, name FROM public.users ORDER BY 1") == [(1, "Ada"), (2, "Bo")]
    finally:
        stream.close()


def test_a_read_waits_for_a_replay_that_is_held_up(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres
) -> None:
    with connect(primary.url) as writer, connect(standby.url) as other, ReadSession(standby.url) as session:
        execute(other, "SELECT pg_wal_replay_pause()")
        execute(writer, "INSERT INTO users VALUES (9, 'Cy')")
        [(lsn,)] = execute(writer, "SELECT pg_current_wal_flush_lsn()::text")
        waiting = threading.Thread(target=session.await_replay, args=(parse_lsn(lsn),))
        waiting.start()
        waiting.join(0.3)
        held_up = waiting.is_alive()
        execute(other, "SELECT pg_wal_replay_resume()")
        waiting.join(30)
        assert held_up
        assert session.query("SELECT name FROM public.users WHERE id = 9") == [("Cy",)]


def test_nobody_waits_for_a_replay_who_is_ending(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres
) -> None:
    ending = threading.Event()
    with connect(standby.url) as other, ReadSession(standby.url) as session:
        [(lsn,)] = execute(other, "SELECT (pg_last_wal_replay_lsn() + 1000000)::text")
        threading.Timer(0.2, ending.set).start()
        with pytest.raises(HeadraceError, match="the run is ending"):
            session.await_replay(parse_lsn(lsn), ending)


def test_two_servers_are_told_apart_and_one_is_itself_on_both_connections(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres
) -> None:
    with (
        ReadSession(primary.url) as one,
        ReplicationConnection(primary.url) as same,
        ReadSession(standby.url) as other,
    ):
        check_same_server(one.server_mark, same.server_mark, primary.url)
        with pytest.raises(HeadraceError, match="two servers") as caught:
            check_same_server(same.server_mark, other.server_mark, primary.url)
        assert caught.value.kind is Kind.CONNECTION


def test_a_batch_waits_while_its_address_leads_to_another_server(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres
) -> None:
    """A standby would say at once that it is visible, while the primary may still wait for another one."""
    with TcpProxy.before(primary.url) as proxy, connect(primary.url) as writer:
        slot = ensure_slot(primary.url, slot="balanced", publication="people", tables=USERS, create=True)
        stream = ChangeStream(
            StreamSettings(url=proxy.url(primary.url), slot="balanced", publication="people"), Offset(slot)
        )
        stream.open()
        try:
            start = Offset(slot)
            assert until(lambda: stream.origin is not None, 30)
            proxy.lead_to(standby.url, cut=False)
            execute(writer, "INSERT INTO users VALUES (70, 'Di')")
            assert stream.next_offset(start, Limit(1 << 30), 2.0) == start
            proxy.lead_to(primary.url, cut=False)
            assert until(lambda: stream.next_offset(start, Limit(1 << 30), 1.0) != start, 30)
        finally:
            stream.close()
            drop_slot(writer, "balanced", timeout=60)


def test_of_several_hosts_both_connections_find_the_primary(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres
) -> None:
    url = primary.url.replace(
        f"127.0.0.1:{primary.port}", f"127.0.0.1:{standby.port},127.0.0.1:{primary.port}"
    )
    with ReadSession(url) as session, ReplicationConnection(url) as stream, ReadSession(primary.url) as it:
        assert session.server_mark == stream.server_mark == it.server_mark


@pytest.mark.parametrize("where", ["DATABASE postgres", "ROLE ALL"])
def test_a_standby_whose_database_is_serializable_is_read_all_the_same(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres, where: str
) -> None:
    """PostgreSQL has no serializable transaction on a standby: not one statement would run."""
    made_on(standby, primary, "strict")
    with connect(primary.url) as writer:
        execute(writer, f"ALTER {where} SET default_transaction_isolation = serializable")
        [(lsn,)] = execute(writer, "SELECT pg_current_wal_flush_lsn()::text")
        try:
            with ReadSession(primary.url) as session:
                [(usual,)] = session.query(
                    "SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_isolation'"
                )
            assert usual == "serializable"
            with ReadSession(standby.url) as session:
                session.await_replay(parse_lsn(lsn))
            with (
                connect(standby.url) as plain,
                ReadSession(standby.url) as session,
                ReplicationConnection(standby.url) as stream,
                RowSession(standby.url) as rows,
                BacklogReader(standby.url, "strict", ["people"]) as backlog,
            ):
                assert execute(plain, "SELECT 1") == session.query("SELECT 1") == rows.query("SELECT 1")
                assert stream.execute("SELECT 1") == [("1",)]
                assert list(backlog.read(parse_lsn(lsn))) == []
        finally:
            execute(writer, f"ALTER {where} RESET default_transaction_isolation")


@pytest.mark.long
@pytest.mark.parametrize("kill", [("first", "begun"), ("middle", "read")])
def test_first_rows_and_changes_of_a_standby_fit_where_the_reading_begins_again(
    primary: EmbeddedPostgres, standby: EmbeddedPostgres, kill: tuple[str, str]
) -> None:
    """Its own list of open transactions is empty, so what a snapshot shows is told by a slot only."""
    one = Killed(primary.url, **BOTH)
    one.options["url"] = standby.url
    one.sql(*TABLES, f"CREATE PUBLICATION {one.slot} FOR TABLE item, heap")
    one.kill, one.meanwhile = kill, lambda: change_much(one)
    known = "SELECT FROM pg_publication WHERE pubname = $1"
    with connect(standby.url) as connection:
        one.until_true(lambda: len(execute(connection, known, (one.slot,))) == 1)
    try:
        with talking(primary):
            with writers(primary.url):
                one.until(one.is_through)
            check(one)
    finally:
        one.stop()
        with connect(standby.url) as connection:
            drop_slot(connection, one.slot, timeout=60)
        one.sql("DROP TABLE item, heap", f"DROP PUBLICATION {one.slot}")
