"""The facts of real servers, and why one cannot be read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from headrace.capture import LogOrigin
from headrace.datasources.publication_membership import read_published
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import Connection, connect, execute, query
from headrace.postgres.quoting import identifier
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.server import inspect_server, server_problems
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import create_slot
from support.servers import as_user

SESSION_LIMITS = {
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
    "statement_timeout",
    "transaction_timeout",
}


def test_the_facts_agree_with_identify_system(url: str, connection: Connection) -> None:
    facts = inspect_server(connection)
    with ReplicationConnection(url) as replication:
        [(system, timeline, _, database)] = replication.execute("IDENTIFY_SYSTEM")
    assert (str(facts.system_identifier), str(facts.timeline), facts.database) == (system, timeline, database)
    [(oid,)] = execute(connection, "SELECT oid::bigint FROM pg_database WHERE datname = current_database()")
    assert facts.database_oid == oid
    assert (facts.max_slots, facts.wal_level) == (10, "logical")
    assert facts.max_slot_wal_keep_size is None
    assert not facts.in_recovery
    assert facts.current_lsn > 0
    assert server_problems(facts) == ()


def test_the_identifier_is_found_without_the_right_to_call_pg_control_system(
    server: EmbeddedPostgres, url: str, connection: Connection
) -> None:
    wanted = inspect_server(connection).system_identifier
    execute(connection, "CREATE ROLE bare LOGIN REPLICATION PASSWORD 'pw'")
    execute(connection, "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    bare = as_user(url, "bare", "pw")
    try:
        with connect(bare) as opened:
            assert inspect_server(opened, bare).system_identifier == wanted
            with pytest.raises(HeadraceError) as caught:
                inspect_server(opened)
    finally:
        execute(connection, "GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
        execute(connection, "DROP ROLE bare")
    assert caught.value.kind is Kind.PRIVILEGE


_LACKING = """
SET allow_system_table_mods = on;
ALTER FUNCTION pg_control_system() RENAME TO former_control_system;
ALTER FUNCTION pg_walfile_name(pg_lsn) RENAME TO former_walfile_name;
CREATE FUNCTION pg_catalog.pg_control_system(
    OUT pg_control_version int, OUT catalog_version_no int, OUT system_identifier bigint,
    OUT pg_control_last_modified timestamptz
) LANGUAGE plpgsql AS $$ BEGIN RAISE 'pg_control_system() is not supported' USING ERRCODE = '{state}'; END $$;
CREATE FUNCTION pg_catalog.pg_walfile_name(pg_lsn) RETURNS text
LANGUAGE plpgsql AS $$ BEGIN RAISE 'pg_walfile_name() is not supported' USING ERRCODE = '{state}'; END $$
"""
"""What Aurora and others answer to functions on files; in this database alone."""


@pytest.mark.parametrize("state", ["0A000", "55000"])
def test_a_server_without_functions_on_its_files_is_identified_all_the_same(
    url: str, connection: Connection, state: str
) -> None:
    before = inspect_server(connection)
    published = read_published(connection, "headrace", [])
    for statement in _LACKING.format(state=state).split(";\n"):
        execute(connection, statement)
    with pytest.raises(HeadraceError, match="may not read the server's identifier"):
        inspect_server(connection)
    now = inspect_server(connection, url)
    assert (now.system_identifier, now.timeline) == (before.system_identifier, before.timeline)
    assert server_problems(now) == ()
    origin = LogOrigin(str(now.system_identifier), now.timeline, now.database_oid)
    assert not read_published(connection, "headrace", []).is_elsewhere(origin)
    assert published.is_elsewhere(replace(origin, system="1"))


def test_a_server_that_gives_no_identifier_for_want_of_logical_wal_is_told_of_the_level(
    make_server: Callable[..., EmbeddedPostgres],
) -> None:
    url = make_server(wal_level="replica").create_database("shop")
    with connect(url) as connection:
        for statement in _LACKING.format(state="55000").split(";\n"):
            execute(connection, statement)
        with pytest.raises(HeadraceError) as caught:
            inspect_server(connection, url)
    assert caught.value.kind is Kind.WAL_LEVEL


def test_a_refused_write_says_whether_the_role_or_the_server_is_read_only(
    url: str, connection: Connection
) -> None:
    execute(
        connection,
        f"ALTER DATABASE {identifier(connection.info.dbname)} SET default_transaction_read_only = on",
    )
    with connect(url) as read_only, pytest.raises(HeadraceError) as caught:
        query(read_only, "CREATE TABLE t (id int)")
    assert caught.value.kind is Kind.PRIVILEGE
    assert "default_transaction_read_only" in caught.value.cause


def test_limits_that_a_role_sets_for_people_are_off_in_every_session(
    url: str, connection: Connection
) -> None:
    """An idle session of ours waits for Spark to start, and a slot is made after other transactions."""
    limits = [
        name
        for (name,) in execute(
            connection, "SELECT name FROM pg_settings WHERE name LIKE '%\\_timeout' ORDER BY 1"
        )
        if name in SESSION_LIMITS
    ]
    database = identifier(connection.info.dbname)
    for name in limits:
        execute(connection, f"ALTER DATABASE {database} SET {name} = '1s'")
    with connect(url) as plain, ReadSession(url) as reading, ReplicationConnection(url) as stream:
        for name in limits:
            assert execute(plain, f"SHOW {name}") == reading.query(f"SHOW {name}") == [("0",)]
            assert stream.execute(f"SHOW {name}") == [("0",)]
        time.sleep(1.5)
        assert execute(plain, "SELECT 1") == reading.query("SELECT 1") == [(1,)]


def test_a_server_without_logical_wal_is_named_with_every_remedy(
    make_server: Callable[..., EmbeddedPostgres],
) -> None:
    server = make_server(wal_level="replica", max_slot_wal_keep_size="64MB")
    with connect(server.url) as connection:
        facts = inspect_server(connection)
    [problem] = server_problems(facts)
    assert problem.kind is Kind.WAL_LEVEL
    for word in (
        "ALTER SYSTEM",
        "rds.logical_replication",
        "cloudsql.logical_decoding",
        "Azure",
        "'replica'",
    ):
        assert word in str(problem)
    assert facts.max_slot_wal_keep_size == 64 << 20
    with pytest.raises(HeadraceError) as caught:
        create_slot(server.url, "s")
    assert caught.value.kind is Kind.WAL_LEVEL
