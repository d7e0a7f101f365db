"""What the database sets for its users, and what passes by itself, does not end a reading session's work."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind, Retry
from headrace.postgres.connection import connect, query
from headrace.postgres.server_errors import OtherServerError, is_refused_row
from headrace.postgres.session import KeptSession, ReadSession

SETTINGS = {
    "lock_timeout": "50ms",
    "statement_timeout": "50ms",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
}


def test_a_database_that_waits_for_no_lock_is_read_behind_one(database: str) -> None:
    """And each statement sees what is committed, whatever isolation is usual there."""
    with psycopg.connect(database, autocommit=True) as writer:
        writer.execute("CREATE TABLE thing (id int)")
        name = writer.info.dbname
        for setting, value in SETTINGS.items():
            writer.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'".encode())
        with ReadSession(database) as session, ThreadPoolExecutor(1) as thread:
            with writer.transaction():
                writer.execute("LOCK TABLE thing IN ACCESS EXCLUSIVE MODE")
                found = thread.submit(session.query, "SELECT count(*) FROM public.thing")
                time.sleep(0.2)
                writer.execute("INSERT INTO thing VALUES (1)")
            assert found.result(10) == [(1,)]
            assert session.query("SHOW transaction_isolation") == [("read committed",)]


def test_a_statement_that_is_cancelled_may_succeed_later(database: str) -> None:
    """So does a standby end those that are in the way of its replay (SQLSTATE 40001)."""
    cancelling = """SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%'"""
    raising = (
        "DO $$ BEGIN RAISE 'canceling statement due to conflict with recovery' USING ERRCODE = '{}'; END $$"
    )
    with ReadSession(database) as session, psycopg.connect(database, autocommit=True) as other:
        with ThreadPoolExecutor(1) as thread:
            sleeping = thread.submit(session.query, "SELECT pg_sleep(20)")
            while not other.execute(cancelling).fetchall():
                time.sleep(0.05)
            cancelled = sleeping.exception(10)
        assert isinstance(cancelled, HeadraceError)
        assert cancelled.retry is Retry.BACK_OFF
        for state in ("40001", "40P01", "53100"):
            with pytest.raises(HeadraceError, match="conflict with recovery") as caught:
                session.query(raising.format(state))
            assert caught.value.retry is Retry.BACK_OFF


def test_the_servers_hint_is_the_remedy_where_no_value_can_be_in_it(database: str) -> None:
    raising = "DO $$ BEGIN RAISE 'it failed' USING ERRCODE = '{}', HINT = 'Increase max_locks.'; END $$"
    remedies = {}
    with ReadSession(database) as session:
        for state in ("53200", "42P17", "P0001"):
            with pytest.raises(HeadraceError) as caught:
                session.query(raising.format(state))
            remedies[state] = caught.value.remedy
    assert remedies == {"53200": "Increase max_locks.", "42P17": "Increase max_locks.", "P0001": ""}


_ASKED = """
CREATE TABLE wanted (state text); INSERT INTO wanted VALUES ('57014');
CREATE FUNCTION failing(state text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
    RAISE 'cache lookup failed for s3cret' USING ERRCODE = state; END $$;
CREATE VIEW far AS SELECT public.failing(state) AS n FROM public.wanted;
CREATE EXTENSION postgres_fdw;
CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{host}', port '{port}', dbname '{name}');
CREATE USER MAPPING FOR PUBLIC SERVER other OPTIONS (user '{user}', password '{password}');
CREATE FOREIGN TABLE near (n int) SERVER other OPTIONS (schema_name 'public', table_name 'far')
"""


def test_what_fails_now_at_another_server_is_told_from_what_this_one_cannot_do(database: str) -> None:
    """Postgres_fdw passes states on as they are; other wrappers have the class HV."""
    raising = "DO $$ BEGIN RAISE 'Incorrect value: s3cret' USING ERRCODE = '{}'; END $$"
    with psycopg.connect(database, autocommit=True) as writer, ReadSession(database) as session:
        at = writer.info
        asked = _ASKED.format(host=at.host, port=at.port, name=at.dbname, user=at.user, password=at.password)
        writer.execute(asked.encode())
        for state in ("57014", "57P01", "53200", "40001", "55P03", "XX000", "08006"):
            writer.execute("UPDATE wanted SET state = %s", (state,))
            with pytest.raises(OtherServerError, match="a server that the database asks") as waiting:
                session.query("SELECT n FROM public.near")
            assert waiting.value.retry is Retry.BACK_OFF
        for state in ("HV000", "HV00L"):
            with pytest.raises(OtherServerError) as waiting:
                session.query(raising.format(state))
            assert "s3cret" not in str(waiting.value)
            assert "s3cret" in waiting.value.full_cause
        writer.execute("UPDATE wanted SET state = '22012'")
        with pytest.raises(HeadraceError) as caught:
            session.query("SELECT n FROM public.near")
        assert is_refused_row(caught.value)


def test_a_session_that_must_not_wait_for_a_lock_names_its_holder(database: str) -> None:
    with psycopg.connect(database, autocommit=True, application_name="a long alteration") as writer:
        writer.execute("CREATE TABLE thing (id int)")
        with ReadSession(database, lock_seconds=0.2) as session:
            with writer.transaction():
                writer.execute("LOCK TABLE thing IN ACCESS EXCLUSIVE MODE")
                with pytest.raises(HeadraceError, match=r"thing is locked by .*a long alteration") as caught:
                    session.query("EXPLAIN SELECT * FROM public.thing")
            assert caught.value.retry is Retry.BACK_OFF
            assert str(writer.info.backend_pid) in caught.value.cause
            assert session.query("SELECT count(*) FROM public.thing") == [(0,)]


def test_a_session_that_waits_behind_who_waits_for_a_lock_names_that_one(database: str) -> None:
    with (
        psycopg.connect(database) as reader,
        psycopg.connect(database, autocommit=True, application_name="an alteration that waits") as writer,
        ThreadPoolExecutor(1) as thread,
        ReadSession(database, lock_seconds=0.2) as session,
    ):
        writer.execute("CREATE TABLE thing (id int)")
        reader.execute("SELECT * FROM thing")
        altered = thread.submit(writer.execute, "ALTER TABLE thing ADD n int")
        try:
            waiting = "SELECT pid FROM pg_locks WHERE NOT granted AND relation = 'thing'::regclass"
            assert until(lambda: bool(reader.execute(waiting).fetchall()), 20)
            with pytest.raises(HeadraceError, match=r"an alteration that waits.* waits to lock public.thing"):
                session.query("SELECT * FROM public.thing")
        finally:
            reader.rollback()
        altered.result(10)


def test_a_session_that_an_error_left_amid_a_statement_is_not_used_again(url: str) -> None:
    with KeptSession(url) as kept:
        first = kept.get()
        # What a server that dies, or a wait that is given up, may leave behind.
        first._connection.pgconn.send_query(b"SELECT 1")
        with pytest.raises(HeadraceError) as caught:
            first.query("SELECT 2")
        assert caught.value.kind is Kind.CONNECTION
        assert first.closed
        assert kept.get().query("SELECT 3") == [(3,)]


def test_so_is_a_connection_whose_error_is_told_all_the_same(url: str) -> None:
    with connect(url) as connection:
        connection.pgconn.send_query(b"SELECT 1")
        with pytest.raises(HeadraceError) as caught:
            query(connection, "SELECT 2")
        assert caught.value.kind is Kind.CONNECTION
        assert connection.broken
