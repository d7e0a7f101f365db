"""The facts of real servers, and why one cannot be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.embedded.postgres import EmbeddedPostgres
from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.replication import replication_connection
from headrace.postgres.server import inspect_server, server_problems
from headrace.postgres.slot import create_slot
from support.servers import as_user


def test_the_facts_agree_with_identify_system(url: str, connection: Connection) -> None:
    facts = inspect_server(connection)
    with replication_connection(url) as replication:
        [(system, timeline, _, database)] = replication.execute("IDENTIFY_SYSTEM")
        assert inspect_server(connection).used_walsenders == facts.used_walsenders + 1
    assert (str(facts.system_identifier), str(facts.timeline), facts.database) == (system, timeline, database)
    [(oid,)] = execute(connection, "SELECT oid::bigint FROM pg_database WHERE datname = current_database()")
    assert facts.database_oid == oid
    assert (facts.max_slots, facts.max_walsenders, facts.wal_level) == (10, 6, "logical")
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
