"""Slots on a real server: made, read, moved, locked, lost, dropped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.postgres import slot as slot_module
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.locks import SlotLock, advisory_lock, claim_slot, with_reader
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import (
    ExportedSlot,
    advance_slot,
    create_slot,
    drop_slot,
    list_slots,
    read_slot,
    slot_in_use,
    slot_problem,
)
from support.servers import as_user
from support.slots import KEEPS_LITTLE, lose_slots


def database(connection: Connection) -> str:
    return connection.info.dbname


def test_the_exported_snapshot_sees_what_was_before_the_consistent_point(
    url: str, connection: Connection
) -> None:
    """Flusso's hole 2, drasi's hole 1: a slot that is made after the snapshot loses what lies between."""
    execute(connection, "CREATE TABLE t (id int PRIMARY KEY)")
    execute(connection, "INSERT INTO t VALUES (1)")
    with create_slot(url, "s_export") as slot:
        execute(connection, "INSERT INTO t VALUES (2)")
        with ReadSession(url, snapshot=slot.snapshot_name) as session:
            assert session.query("SELECT id FROM public.t") == [(1,)]
        facts = read_slot(connection, "s_export")
        assert facts is not None
        assert facts.confirmed_flush == slot.consistent_point
        assert (facts.database, facts.plugin, facts.two_phase, facts.lost) == (
            database(connection),
            "pgoutput",
            False,
            False,
        )
        assert facts.lag > 0
        assert slot_problem(facts, database(connection)) is None
    assert read_slot(connection, "s_export") is not None, "the slot outlives its snapshot"
    assert until(lambda: _is_gone(url, slot.snapshot_name), 30), "the snapshot ends with its connection"


def _is_gone(url: str, snapshot: str) -> bool:
    try:
        ReadSession(url, snapshot=snapshot).close()
    except HeadraceError:
        return True
    return False


def test_creation_that_waits_names_the_transaction_and_leaves_nothing(
    url: str, connection: Connection
) -> None:
    execute(connection, "CREATE TABLE t (id int PRIMARY KEY)")
    with connect(url, application_name="old one", autocommit=False) as writer:
        execute(writer, "INSERT INTO t VALUES (1)")
        pid = writer.info.backend_pid
        expected = rf"pid {pid}, old one of postgres, from 127.0.0.1, in .*, idle in transaction.* since 20"
        with pytest.raises(HeadraceError, match=expected) as caught:
            create_slot(url, "s_wait", time_limit=0.5)
        assert caught.value.kind is Kind.SLOT_WAIT
    time.sleep(0.3)
    assert read_slot(connection, "s_wait") is None


def test_a_role_that_may_not_see_sessions_learns_whom_it_waits_for(
    server: EmbeddedPostgres, url: str, connection: Connection
) -> None:
    """Managed services have no superuser; pid, application and transaction are for everyone."""
    execute(connection, "CREATE ROLE bare LOGIN REPLICATION PASSWORD 'pw'")
    execute(connection, "CREATE TABLE t (id int PRIMARY KEY)")
    try:
        with connect(url, application_name="old one", autocommit=False) as writer:
            execute(writer, "INSERT INTO t VALUES (1)")
            expected = rf"pid {writer.info.backend_pid}, old one of postgres, "
            with pytest.raises(HeadraceError, match=expected):
                create_slot(as_user(url, "bare", "pw"), "s_bare_wait", time_limit=0.5)
    finally:
        execute(connection, "DROP ROLE bare")


def test_a_name_that_is_taken_and_a_name_that_is_none(url: str) -> None:
    create_slot(url, "s_twice").close()
    for name in ("s_twice", "S", "", 'a"b'):
        with pytest.raises(HeadraceError) as caught:
            create_slot(url, name)
        assert caught.value.kind is Kind.CONFIG


def test_no_free_slot_lists_the_slots_and_the_limits(make_server: Callable[..., EmbeddedPostgres]) -> None:
    server = make_server(max_replication_slots="1", max_wal_senders="1")
    create_slot(server.url, "only").close()
    with pytest.raises(HeadraceError, match=r"max_replication_slots is 1.*only \(idle\)") as caught:
        create_slot(server.url, "second")
    assert caught.value.kind is Kind.NO_FREE_SLOT
    with connect(server.url) as connection:  # the server ends the refused walsender a moment later
        assert until(lambda: not execute(connection, "SELECT 1 FROM pg_stat_replication"), 30)
    with ReplicationConnection(server.url), pytest.raises(HeadraceError, match="max_wal_senders") as caught:
        create_slot(server.url, "second")
    assert caught.value.kind is Kind.NO_FREE_SLOT


def test_a_slot_moves_forward_and_never_back(url: str, connection: Connection) -> None:
    with create_slot(url, "s_advance") as slot:
        point = slot.consistent_point
    execute(connection, "CREATE TABLE t (id int PRIMARY KEY)")
    facts = read_slot(connection, "s_advance")
    assert facts is not None
    end = advance_slot(connection, "s_advance", facts.current)
    assert point < end <= facts.current
    assert advance_slot(connection, "s_advance", point) == end
    with pytest.raises(HeadraceError) as caught:
        advance_slot(connection, "absent", end)
    assert caught.value.kind is Kind.SLOT_UNKNOWN


def test_dropping_waits_a_moment_for_the_reader(url: str, connection: Connection) -> None:
    create_slot(url, "s_drop").close()
    stream = ReplicationConnection(url)
    stream.start("s_drop", 0, ["p"])
    with pytest.raises(HeadraceError, match=rf"pid {stream.pid}, headrace of postgres, from 127") as caught:
        drop_slot(connection, "s_drop", timeout=0.2)
    assert caught.value.kind is Kind.SLOT_IN_USE
    threading.Timer(0.3, stream.close).start()
    assert drop_slot(connection, "s_drop")
    assert not drop_slot(connection, "s_drop")


def test_a_second_headrace_is_told_the_pid_of_the_first(url: str, connection: Connection) -> None:
    with connect(url) as second:
        with advisory_lock(connection, "s"):
            with advisory_lock(second, "another"):
                pass
            with (
                pytest.raises(HeadraceError, match=f"pid {connection.info.backend_pid}") as caught,
                advisory_lock(second, "s"),
            ):
                pass
            assert caught.value.kind is Kind.SLOT_IN_USE
        with advisory_lock(second, "s"):
            pass


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT pg_create_logical_replication_slot('s_odd', 'test_decoding')", "test_decoding"),
        ("SELECT pg_create_logical_replication_slot('s_odd', 'pgoutput', false, true)", "two_phase"),
        ("SELECT pg_create_physical_replication_slot('s_odd')", "physical"),
    ],
)
def test_a_slot_of_another_make_is_refused(connection: Connection, sql: str, words: str) -> None:
    execute(connection, sql)
    try:
        facts = read_slot(connection, "s_odd")
        assert facts is not None
        problem = slot_problem(facts, database(connection))
    finally:
        drop_slot(connection, "s_odd")
    assert problem is not None
    assert words in str(problem)


def test_a_slot_of_another_database_is_refused(url: str, connection: Connection) -> None:
    create_slot(url, "s_other").close()
    facts = read_slot(connection, "s_other")
    assert facts is not None
    problem = slot_problem(facts, "elsewhere")
    assert problem is not None
    assert "elsewhere" in str(problem)


def test_a_lost_slot_is_named_by_its_facts_and_by_the_stream(
    make_server: Callable[..., EmbeddedPostgres],
) -> None:
    server = make_server(**KEEPS_LITTLE)
    create_slot(server.url, "s_lost").close()
    lose_slots(server.url)
    with connect(server.url) as connection:
        facts = read_slot(connection, "s_lost")
        assert facts is not None
        assert facts.lost
        assert ("max_slot_wal_keep_size" in facts.why_lost) == (connection.info.server_version >= 170000)
        problem = slot_problem(facts, "postgres")
        assert problem is not None
        assert problem.kind is Kind.SLOT_LOST
        with ReplicationConnection(server.url) as stream, pytest.raises(HeadraceError) as caught:
            stream.start("s_lost", 0, ["p"])
        assert caught.value.kind is Kind.SLOT_LOST
        with pytest.raises(HeadraceError) as caught:
            advance_slot(connection, "s_lost", facts.current)
        assert caught.value.kind is Kind.SLOT_LOST


def test_a_role_without_the_right_learns_the_grant_from_sql_functions(
    server: EmbeddedPostgres, url: str, connection: Connection
) -> None:
    execute(connection, "CREATE ROLE bare LOGIN PASSWORD 'pw'")
    create_slot(url, "s_bare").close()
    try:
        with (
            connect(as_user(url, "bare", "pw")) as bare,
            pytest.raises(HeadraceError, match='ALTER ROLE "bare" REPLICATION') as caught,
        ):
            drop_slot(bare, "s_bare")
    finally:
        execute(connection, "DROP ROLE bare")
    assert caught.value.kind is Kind.PRIVILEGE


def test_the_lock_is_held_again_after_a_restart_of_the_server(
    make_server: Callable[..., EmbeddedPostgres],
) -> None:
    """Its session dies with the server, and then a second Headrace could come in."""
    server = make_server()
    with SlotLock(server.url, "s") as lock:
        server.stop("immediate")
        with pytest.raises(HeadraceError) as caught:
            lock.lost_to()
        assert caught.value.kind is Kind.CONNECTION
        server.start()
        with connect(server.url) as other, advisory_lock(other, "s"):
            pass
        assert lock.lost_to() is None
        with (
            connect(server.url) as other,
            pytest.raises(HeadraceError, match="headrace lock s") as caught,
            advisory_lock(other, "s"),
        ):
            pass
        assert caught.value.kind is Kind.SLOT_IN_USE
        assert lock.lost_to() is None


def test_a_lock_that_a_stranger_took_meanwhile_is_not_taken_from_him(
    url: str, connection: Connection
) -> None:
    with SlotLock(url, "s") as lock:
        ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = $1"
        assert execute(connection, ended, ("headrace lock s",)) == [(True,)]
        with advisory_lock(connection, "s"):
            stranger = lock.lost_to()
            assert stranger is not None
            assert f"pid {connection.info.backend_pid}" in str(stranger)
        assert lock.lost_to() is None


def test_an_own_session_that_was_cut_off_is_no_stranger(url: str, connection: Connection) -> None:
    """The server may take minutes to notice that a network is gone; the lock must not wait for that."""
    with SlotLock(url, "s") as lock:
        assert lock._connection is not None
        cut, lock._connection = lock._connection, None
        assert lock.lost_to() is None
        with pytest.raises(psycopg.OperationalError):
            cut.execute(b"SELECT 1")


def test_a_temporary_slot_is_streamed_by_its_own_connection_and_goes_with_it(
    url: str, connection: Connection
) -> None:
    execute(connection, "CREATE TABLE t (id int PRIMARY KEY)")
    execute(connection, "CREATE PUBLICATION p FOR TABLE t")
    with create_slot(url, "s_temporary", temporary=True) as slot:
        facts = read_slot(connection, "s_temporary")
        assert facts is not None
        assert facts.temporary
        assert facts.reader is not None
        assert f"pid {slot.connection.pid}, headrace/s_temporary of postgres, from 127.0.0.1" == facts.reader
        slot.connection.start("s_temporary", 0, ["p"])
    deadline = time.monotonic() + 5
    while read_slot(connection, "s_temporary") is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_failover_slot_where_the_server_has_them(url: str, connection: Connection) -> None:
    if connection.info.server_version < 170000:
        with pytest.raises(HeadraceError, match="17 or later") as caught:
            create_slot(url, "s_failover", failover=True)
        assert caught.value.kind is Kind.SERVER_VERSION
        assert list_slots(connection) == ()
        return
    create_slot(url, "s_failover", failover=True).close()
    [facts] = list_slots(connection)
    assert (facts.name, facts.failover, facts.synced) == ("s_failover", True, False)
    assert facts.inactive_seconds is not None
    with pytest.raises(HeadraceError) as caught:
        create_slot(url, "s_both", failover=True, temporary=True)
    assert caught.value.kind is Kind.CONFIG


@pytest.mark.parametrize("style", ["German", "SQL, DMY", "Postgres"])
def test_a_slot_is_read_whatever_dates_look_like(style: str, url: str, connection: Connection) -> None:
    create_slot(url, "s_dates").close()
    execute(connection, f"SET DateStyle = '{style}'")
    facts = read_slot(connection, "s_dates")
    assert facts is not None
    if connection.info.server_version >= 170000:
        assert facts.inactive_seconds is not None
        assert 0 <= facts.inactive_seconds < 60


def test_the_slots_of_the_database_are_listed_with_their_readers(
    server: EmbeddedPostgres, url: str, connection: Connection
) -> None:
    create_slot(url, "s_one").close()
    create_slot(url, "s_two").close()
    create_slot(server.url, "s_elsewhere").close()
    try:
        with ReplicationConnection(url, "someone's reader") as stream:
            stream.start("s_two", 0, ["p"])
            with ReplicationConnection(url) as second:
                with pytest.raises(HeadraceError) as caught:
                    second.start("s_two", 0, ["p"])
                assert "someone's reader" in str(with_reader(second, "s_two", caught.value))
            reader = f"pid {stream.pid}, someone's reader of postgres, from 127.0.0.1"
            found = {facts.name: facts for facts in list_slots(connection)}
    finally:
        with connect(server.url) as elsewhere:
            drop_slot(elsewhere, "s_elsewhere")
    assert set(found) == {"s_one", "s_two"}
    assert found["s_one"].reader is None
    assert found["s_two"].reader == reader
    assert str(slot_in_use(found["s_two"])).count("someone's reader") == 1


def test_a_second_reader_of_headrace_is_told_who_the_first_is(url: str) -> None:
    with ReplicationConnection(url, "the first") as first, ReplicationConnection(url) as second:
        claim_slot(first, "s")
        claim_slot(second, "another")
        expected = f"pid {first.pid}, the first of postgres, from 127.0.0.1"
        with pytest.raises(HeadraceError, match=expected) as caught:
            claim_slot(second, "s")
        assert caught.value.kind is Kind.SLOT_IN_USE


def test_a_slot_is_claimed_only_while_the_drivers_own_session_has_the_lock(url: str) -> None:
    with SlotLock(url, "s") as lock, ReplicationConnection(url) as reader:
        own = lock.session
        assert own is not None
        claim_slot(reader, "s", own)
        with ReplicationConnection(url) as late, connect(url) as other:
            execute(other, "SELECT pg_terminate_backend($1, 5000)", (own.pid,))
            for expected in ("is lost", "is held by pid"):
                with pytest.raises(HeadraceError, match=expected) as caught:
                    claim_slot(late, "s", own)
                assert caught.value.kind is Kind.SLOT_IN_USE
                assert lock.lost_to() is None
            assert lock.session not in {None, own}
            execute(other, "SELECT pg_terminate_backend($1, 5000)", (reader.pid,))
            claim_slot(late, "s", lock.session)


@contextmanager
def transaction_of(url: str, row: int) -> Iterator[tuple[Connection, object]]:
    """Give a session that has written a row and not committed it, and its transaction's id."""
    with connect(url, autocommit=False) as writer:
        execute(writer, "SET LOCAL synchronous_commit = local")
        execute(writer, f"INSERT INTO t VALUES ({row})")
        yield writer, execute(writer, "SELECT pg_current_xact_id()::text")[0][0]


@contextmanager
def held_commit(url: str) -> Iterator[list[int]]:
    """Commit rows until a commit waits for a synchronous standby; give the rows, the last of which waits."""
    rows, found = [10], threading.Event()

    def write() -> None:
        with connect(url) as writer:
            execute(writer, "SET synchronous_commit = on")
            while not found.is_set():  # commits wait only once the checkpointer has read the setting too
                execute(writer, f"INSERT INTO t VALUES ({rows[-1]})")
                if not found.is_set():
                    rows.append(rows[-1] + 1)

    with connect(url) as admin:
        execute(admin, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        execute(admin, "SELECT pg_reload_conf()")
        thread = threading.Thread(target=write)
        thread.start()
        waiting = "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        try:
            assert until(lambda: bool(execute(admin, waiting)), 20)
            found.set()
            yield rows
        finally:
            found.set()
            execute(admin, "ALTER SYSTEM RESET synchronous_standby_names")
            execute(admin, "SELECT pg_reload_conf()")
            thread.join()


def awaited(connection: Connection, transaction: object) -> Callable[[], bool]:
    """Return whether a session waits for the end of a transaction."""
    sql = "SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND transactionid::text = $1"
    return lambda: bool(execute(connection, sql, (transaction,)))


@pytest.mark.parametrize("time_limit", [60.0, 0.5])
def test_what_a_slot_does_not_send_is_visible_once_it_is_made(
    url: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, time_limit: float
) -> None:
    """A commit before the slot's position may wait for a synchronous standby still, so that nobody sees it.

    The server itself waits for the transactions that were open when it began, and then for those that were
    open at that time. One that begins later and commits meanwhile is not waited for.
    """
    await_visible, made = slot_module._await_visible, threading.Event()

    def noted(url: str, slot: ExportedSlot, _: float) -> None:
        made.set()
        await_visible(url, slot, time_limit)

    monkeypatch.setattr(slot_module, "_await_visible", noted)
    execute(connection, "CREATE TABLE t (id int PRIMARY KEY)")
    with ThreadPoolExecutor(1) as pool, transaction_of(url, 1) as (first, first_id):
        making = pool.submit(create_slot, url, "s_visible")
        assert until(awaited(connection, first_id), 30)
        with transaction_of(url, 2) as (second, second_id):
            first.commit()
            assert until(awaited(connection, second_id), 30)
            with held_commit(url) as rows:
                second.commit()
                assert made.wait(30)
                if time_limit < 10:
                    with pytest.raises(HeadraceError, match="s_visible") as caught:
                        making.result(30)
                    assert caught.value.kind is Kind.SLOT_WAIT
                    assert read_slot(connection, "s_visible") is None
                    return
                time.sleep(1)
                assert not making.done()
                assert (rows[-1],) not in execute(connection, "SELECT id FROM t")
        with making.result(30) as slot, ReadSession(url, snapshot=slot.snapshot_name) as session:
            seen = session.query("SELECT id FROM public.t ORDER BY id")
            assert seen == execute(connection, "SELECT id FROM t ORDER BY id")
            assert (rows[-1],) in seen


def test_a_slot_that_cannot_be_looked_at_does_not_stay(url: str, connection: Connection) -> None:
    """The server has room for the connection that makes it, and for no other one."""
    execute(connection, "CREATE ROLE limited LOGIN REPLICATION PASSWORD 'x' CONNECTION LIMIT 0")
    with pytest.raises(HeadraceError) as caught:
        create_slot(as_user(url, "limited", "x"), "s_limited")
    assert caught.value.kind is Kind.CONNECTION
    assert read_slot(connection, "s_limited") is None
    execute(connection, "DROP ROLE limited")
