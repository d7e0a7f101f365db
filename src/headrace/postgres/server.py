"""Read the facts of a server, and check whether changes can be read from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import psycopg

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.postgres.connection import Connection, connect, execute, query, refused_statement
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.server_errors import no_free_slot
from headrace.postgres.sql_files import read_sql

# PostgreSQL 16 is the first whose standbys decode.
_STANDBY_DECODES = 160000
_WITHOUT_DEFAULTS = ((150000, 150006), (160000, 160002))
"""Versions that show NULL in old rows for the default of a column that was added later, and who mended it."""

WAL_LEVEL_REMEDY = (
    "Plain PostgreSQL: ALTER SYSTEM SET wal_level = logical, then restart the server; RDS and Aurora: "
    "rds.logical_replication = 1 in the parameter group, then reboot; Cloud SQL: the flag "
    "cloudsql.logical_decoding = on; Azure: wal_level = logical in the server parameters, then restart."
)


def session_text(pid: str) -> str:
    """Return SQL for a session as a text for people: pid, application, user and host.

    Args:
        pid: an SQL expression; the session's row of pg_stat_activity, if it is visible, is called `a`.
    """
    return (
        f"'pid ' || {pid} || coalesce(', ' || nullif(a.application_name, ''), '') "
        "|| coalesce(' of ' || a.usename, '') || coalesce(', from ' || host(a.client_addr), '')"
    )


SINCE = "to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC'"
"""SQL for a time as a text for people; the expression of the time is to be put in."""
IN_TRANSACTION = (
    "coalesce(', ' || a.state, '') "
    f"|| coalesce(', in a transaction since ' || {SINCE.format('a.xact_start')}, '')"
)
"""SQL for what a session does, behind `session_text`."""

_FACTS = read_sql(__package__, "server_facts")
_AT_WORK = read_sql(__package__, "is_at_work")
_IDENTIFIER = "SELECT system_identifier FROM pg_control_system()"
# A standby refuses pg_walfile_name, whose first eight hexadecimal digits are the timeline.
_TIMELINE = """
SELECT CASE WHEN NOT pg_is_in_recovery()
            THEN ('x' || left(pg_walfile_name(pg_current_wal_flush_lsn()), 8))::bit(32)::int END
"""
_CHECKPOINTED = "SELECT timeline_id FROM pg_control_checkpoint()"
_NOT_GIVEN = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.FeatureNotSupported,
    psycopg.errors.ObjectNotInPrerequisiteState,
    psycopg.errors.UndefinedFunction,
)
"""How servers refuse a function that is only evidence; Aurora and others lack some of them."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server and the one database that is read.

    Attributes:
        version: server_version_num, `150004` for 15.4.
        system_identifier: the cluster's identifier, unsigned 64 bits; it differs after initdb and a logical
            restore.
        timeline: the timeline of the log that is written now, or replayed by a standby.
        current_lsn: how far the log is flushed to disk (bytes); on a standby, replayed.
        max_slot_wal_keep_size: bytes of log that a slot may hold back; None is without limit.
        encoding: the database's.
        synchronous_standbys: the setting `synchronous_standby_names`.
    """

    version: int
    version_text: str
    wal_level: str
    in_recovery: bool
    database_oid: int
    database: str
    current_lsn: Lsn
    max_slots: int
    used_slots: int
    max_slot_wal_keep_size: int | None
    system_identifier: int
    timeline: int
    encoding: str = "UTF8"
    synchronous_standbys: str = ""

    @property
    def loses_defaults(self) -> bool:
        """Whether old rows in the log lack the default of a column that was added to the table later."""
        return any(first <= self.version < mended for first, mended in _WITHOUT_DEFAULTS)


def inspect_server(connection: Connection, url: str | None = None) -> ServerFacts:
    """Read the facts of the server that `connection` leads to.

    Args:
        connection: an ordinary connection.
        url: where the same server accepts a replication connection, which is asked for the identifier where
            the role may not call pg_control_system, and on a standby for the timeline.

    Raises:
        HeadraceError: WAL_LEVEL, where the server gives no identifier and the level
            explains it; PRIVILEGE, CONNECTION, DATABASE.
    """
    [row] = query(connection, _FACTS)
    identifier, timeline = _identity(connection, url, wal_level=row[2])
    *facts, encoding, standbys = row
    return ServerFacts(*(*facts, identifier, timeline, encoding, standbys))


def is_in_recovery(connection: Connection) -> bool:
    """Whether the server is a standby.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    [(found,)] = query(connection, "SELECT pg_is_in_recovery()")
    return bool(found)


def server_problems(facts: ServerFacts) -> tuple[HeadraceError, ...]:
    """Return why changes cannot be read from this server; empty where they can."""
    problems = []
    if facts.in_recovery and facts.version < _STANDBY_DECODES:
        problems.append(
            HeadraceError(
                Kind.SERVER_VERSION,
                f"the server is a standby, and PostgreSQL {facts.version // 10000} decodes on a primary only",
                "Point the connection URL at the primary, or use PostgreSQL 16 or later.",
            )
        )
    if facts.wal_level != "logical":
        problems.append(_wal_level_problem(facts.wal_level))
    return tuple(problems)


def server_warnings(facts: ServerFacts, old_rows: Iterable[TableName]) -> tuple[str, ...]:
    """Return what makes some changes or values of this server late, wrong or unreadable.

    Args:
        old_rows: the tables whose whole old rows are read (REPLICA IDENTITY FULL).
    """
    found = []
    # There the server converts nothing, and sends bytes of any encoding.
    if facts.encoding == "SQL_ASCII":
        found.append(
            f"the database {facts.database} has the encoding SQL_ASCII: PostgreSQL checks no text there, and "
            "a value that is not UTF-8 cannot be read; find such values first, or convert the database"
        )
    # Any walsender counts, also one that decodes: it confirms only what it has been able to see.
    if "*" in facts.synchronous_standbys:
        found.append(
            f"synchronous_standby_names = {facts.synchronous_standbys!r} takes the stream for a synchronous "
            "standby: commits can wait for the stream, which waits until they are visible; name the standbys"
        )
    names = ", ".join(sorted(map(str, set(old_rows)))) if facts.loses_defaults else ""
    if names:
        found.append(
            f"PostgreSQL {facts.version_text} leaves the default of a column that was added later out of the "
            f"old rows of {names}: what is found by such a column can go stale; upgrade to 15.6 or 16.2"
        )
    return tuple(found)


def _wal_level_problem(wal_level: str) -> HeadraceError:
    return HeadraceError(
        Kind.WAL_LEVEL,
        f"wal_level is {wal_level!r}, but only 'logical' writes the changes of rows into the log",
        WAL_LEVEL_REMEDY,
    )


def read_identifier(connection: Connection) -> int | None:
    """Return the cluster's identifier; None where the server, or the role's rights, do not give it.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    signed = _evidence(connection, _IDENTIFIER)
    # SQL has no unsigned type, and IDENTIFY_SYSTEM prints an unsigned number.
    return None if signed is None else signed % 2**64


def _identity(connection: Connection, url: str | None, *, wal_level: str) -> tuple[int, int]:
    identifier, timeline = read_identifier(connection), _evidence(connection, _TIMELINE)
    if timeline is None and url is None:
        # A checkpoint may be older than a promotion: the last resort, without a replication connection.
        timeline = _evidence(connection, _CHECKPOINTED)
    if identifier is not None and timeline is not None:
        return identifier, timeline
    if wal_level != "logical":
        raise _wal_level_problem(wal_level)
    if url is None:
        raise HeadraceError(
            Kind.PRIVILEGE,
            "the role may not read the server's identifier",
            "GRANT EXECUTE ON FUNCTION pg_control_system(), pg_control_checkpoint() TO the role.",
        )
    with ReplicationConnection(url, "headrace identify") as replication:
        [(system, current, *_)] = replication.execute("IDENTIFY_SYSTEM")
    return int(system or 0), int(current or 0)


def _evidence(connection: Connection, sql: str) -> int | None:
    """Return a value that other evidence replaces; None where the server does not give it."""
    try:
        [(value,)] = execute(connection, sql)
    except _NOT_GIVEN:
        return None
    except psycopg.Error as error:
        raise refused_statement(connection, error) from error
    return None if value is None else int(value)


def reader_problems(url: str, server: ServerFacts, *, new_slot: bool) -> tuple[HeadraceError, ...]:
    """Return why this role could not read changes now: no right to replicate, no walsender, no slot.

    Args:
        url: the database; a replication connection to it is opened and closed again.
        server: the server's current facts.
        new_slot: whether a slot is still to be created.

    Raises:
        HeadraceError: CONNECTION.
    """
    try:
        with ReplicationConnection(url, "headrace look"):
            pass
    except HeadraceError as error:
        if error.kind is Kind.CONNECTION:
            raise
        return (with_limits(error, url),)
    if new_slot and server.used_slots >= server.max_slots:
        return (with_limits(no_free_slot("all slots are taken"), url),)
    return ()


def with_limits(error: HeadraceError, url: str) -> HeadraceError:
    """Return the error; where no slot or walsender is free, with the server's limits and slots."""
    if error.kind is not Kind.NO_FREE_SLOT:
        return error
    sql = """
        SELECT current_setting('max_replication_slots'), current_setting('max_wal_senders'),
               (SELECT string_agg(slot_name || CASE WHEN active THEN ' (active)' ELSE ' (idle)' END, ', '
                                  ORDER BY active, slot_name) FROM pg_replication_slots)
    """
    with connect(url, application_name="headrace look") as connection:
        [(slots, senders, names)] = execute(connection, sql)
    return no_free_slot(
        f"max_replication_slots is {slots}, max_wal_senders is {senders}; slots: {names or 'none'}"
    )


def is_at_work(connection: Connection, application_name: str) -> bool:
    """Return whether the server executes a statement of another session with that application name.

    A session that waits for a lock, or for its client to take rows, is not at work.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    [(active,)] = query(connection, _AT_WORK, (application_name,))
    return bool(active)
