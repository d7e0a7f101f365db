"""How far is the slot, is it ours to use, and how is it made, moved and dropped?"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import psycopg

from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn, format_lsn, parse_lsn
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.quoting import identifier
from headrace.postgres.refusal import refusal, slot_lost
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.room import with_limits

PLUGIN = "pgoutput"
_NAME = re.compile(r"[a-z0-9_]{1,63}")
_LOCK_CLASS = 0x48_52_41_43  # "HRAC": the first key of Headrace's advisory locks
_POLL_SECONDS = 0.05

_READ = """
SELECT slot_name::text, plugin::text, slot_type, coalesce(database::text, ''), two_phase, temporary,
       active_pid, (confirmed_flush_lsn - '0/0')::bigint, (restart_lsn - '0/0')::bigint,
       wal_status, safe_wal_size,
       (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
        - '0/0')::bigint
FROM pg_replication_slots WHERE slot_name = $1
"""


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """A slot as pg_replication_slots shows it, with the log's end at that moment.

    Attributes:
        confirmed_flush: everything before it is confirmed (bytes); None for a slot that is not logical.
        restart: the log is kept from here on; None where it is lost.
        wal_status: reserved, extended, unreserved or lost.
        safe_wal_size: bytes until the slot may be lost; None without a limit.
        current: the end of the flushed log (on a standby: of the replayed).
    """

    name: str
    plugin: str | None
    kind: str
    database: str
    two_phase: bool
    temporary: bool
    active_pid: int | None
    confirmed_flush: Lsn | None
    restart: Lsn | None
    wal_status: str | None
    safe_wal_size: int | None
    current: Lsn

    @property
    def lag(self) -> int:
        """Bytes of log that are not confirmed; never negative."""
        return max(0, self.current - (self.confirmed_flush or self.current))

    @property
    def retained(self) -> int:
        """Bytes of log that the server keeps for this slot; never negative."""
        return max(0, self.current - (self.restart or self.current))

    @property
    def lost(self) -> bool:
        """Whether the server has removed log that the slot needs."""
        return self.wal_status == "lost" or (self.kind == "logical" and self.restart is None)


@dataclass(frozen=True, slots=True)
class ExportedSlot:
    """A slot that was made a moment ago; its snapshot lives while `connection` does nothing else.

    Attributes:
        consistent_point: the stream begins here; the snapshot sees exactly what was committed before.
        snapshot_name: for SET TRANSACTION SNAPSHOT in other sessions.
    """

    name: str
    consistent_point: Lsn
    snapshot_name: str
    connection: ReplicationConnection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the snapshot go; the slot stays."""
        self.connection.close()


def check_slot_name(name: str) -> None:
    """Refuse a name that PostgreSQL would refuse.

    Raises:
        HeadraceError: CONFIG.
    """
    if not _NAME.fullmatch(name):
        raise HeadraceError(
            Kind.CONFIG,
            f"{name!r} cannot be the name of a replication slot",
            "Use 1 to 63 lower-case letters, digits and underscores.",
        )


def create_slot(url: str, name: str, *, time_limit: float = 60.0) -> ExportedSlot:
    """Make a permanent logical slot with an exported snapshot.

    Creation waits for every transaction that has written and is still open, in any database of the
    server; after `time_limit` seconds it is cancelled, nothing is left, and the error names them.

    Raises:
        HeadraceError: SLOT_WAIT (waited too long), CONFIG (the name is taken, or no name), NO_FREE_SLOT,
            PRIVILEGE, WAL_LEVEL, CONNECTION.
    """
    check_slot_name(name)
    waits: list[str] = []
    try:
        replication = ReplicationConnection(url, f"headrace/{name}")
    except HeadraceError as error:
        raise with_limits(error, url) from error
    try:
        # The form without parentheses is the one that PostgreSQL 14 to 18 all know.
        [(_, point, snapshot, _)] = replication.execute(
            f"CREATE_REPLICATION_SLOT {identifier(name)} LOGICAL {PLUGIN} EXPORT_SNAPSHOT",
            slot=name,
            timeout=time_limit,
            on_timeout=lambda: waits.extend(_obstacles(url, replication.pid)),
        )
        return ExportedSlot(name, parse_lsn(str(point)), str(snapshot), replication)
    except TimeoutError as error:
        replication.close()
        raise _waited(name, time_limit, waits) from error
    except HeadraceError as error:
        replication.close()
        raise with_limits(error, url) from error
    except BaseException:
        replication.close()
        raise


def read_slot(connection: Connection, name: str) -> SlotFacts | None:
    """The slot called `name`, or None.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    rows = _run(connection, _READ, name)
    return SlotFacts(*rows[0]) if rows else None


def slot_problem(facts: SlotFacts, database: str) -> HeadraceError | None:
    """Why this slot cannot carry Headrace's stream of `database`; None where it can."""
    name = facts.name
    if facts.kind != "logical" or facts.plugin != PLUGIN:
        what = f"is a {facts.kind} slot" + (f" of the plugin {facts.plugin!r}" if facts.plugin else "")
        why = f"{what}; a logical one of {PLUGIN!r} is needed"
    elif facts.database != database:
        why = f"belongs to the database {facts.database!r}, not {database!r}"
    elif facts.two_phase:
        why = "has two_phase on: it would deliver prepared transactions before they are committed"
    elif facts.lost:
        return slot_lost(name, f"wal_status is {facts.wal_status!r}")
    else:
        return None
    return HeadraceError(
        Kind.CONFIG, f"the replication slot {name!r} {why}", "Name another slot, or drop this one."
    )


def drop_slot(connection: Connection, name: str, *, patience: float = 5.0) -> bool:
    """Drop the slot; False where there was none.

    A reader's connection lets go of its slot a moment after it is closed, so a slot in use is tried again
    for `patience` seconds.

    Raises:
        HeadraceError: SLOT_IN_USE with the reader's pid, PRIVILEGE, CONNECTION, DATABASE.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            _run(connection, "SELECT pg_drop_replication_slot($1)", name)
        except HeadraceError as error:
            if error.kind is Kind.SLOT_UNKNOWN:
                return False
            if error.kind is not Kind.SLOT_IN_USE or time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return True


def advance_slot(connection: Connection, name: str, lsn: Lsn) -> Lsn:
    """Confirm everything before `lsn`; the slot never goes back. Returns where it stands now.

    Raises:
        HeadraceError: SLOT_UNKNOWN, SLOT_IN_USE, SLOT_LOST, PRIVILEGE, CONNECTION, DATABASE.
    """
    facts = read_slot(connection, name)
    confirmed = facts.confirmed_flush if facts is not None else None
    if confirmed is not None and lsn <= confirmed:
        return confirmed
    sql = "SELECT (end_lsn - '0/0')::bigint FROM pg_replication_slot_advance($1, $2::pg_lsn)"
    [(end,)] = _run(connection, sql, name, format_lsn(lsn))
    return int(end)


@contextmanager
def advisory_lock(connection: Connection, slot: str) -> Iterator[None]:
    """Keep a second Headrace away from `slot`, also while no stream is open.

    The lock lives in the session of `connection`: it goes with it. Advisory locks belong to a database,
    and so does a logical slot.

    Raises:
        HeadraceError: SLOT_IN_USE with the pid of the session that holds it; CONNECTION, DATABASE.
    """
    keys = (_LOCK_CLASS, zlib.crc32(slot.encode()) - 2**31)
    [(taken,)] = _run(connection, "SELECT pg_try_advisory_lock($1::int, $2::int)", *keys, slot=slot)
    if not taken:
        raise HeadraceError(
            Kind.SLOT_IN_USE,
            f"another Headrace works with the slot {slot!r} ({_holder(connection, keys)})",
            "Stop it first, or give this deployment a slot of its own.",
        )
    try:
        yield
    finally:
        if not connection.closed:
            with suppress(HeadraceError):  # a session that was lost has let go of it
                _run(connection, "SELECT pg_advisory_unlock($1::int, $2::int)", *keys, slot=slot)


def _holder(connection: Connection, keys: tuple[int, int]) -> str:
    sql = """
        SELECT 'pid ' || l.pid || coalesce(', ' || nullif(a.application_name, ''), '')
               || coalesce(', from ' || a.client_addr, '')
        FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND l.classid = $1::bigint::oid AND l.objid = $2::bigint::oid
    """
    rows = _run(connection, sql, keys[0], keys[1] % 2**32)
    return str(rows[0][0]) if rows else "which has just ended"


def _run(connection: Connection, sql: str, *parameters: Any, slot: str = "") -> list[tuple[Any, ...]]:
    try:
        return execute(connection, sql, parameters)
    except psycopg.Error as error:
        info = connection.info
        raise refusal(
            error.sqlstate,
            "; ".join(filter(None, (error.diag.message_primary, error.diag.message_detail))) or str(error),
            place=f"{info.host}:{info.port}/{info.dbname}",
            slot=slot or str(parameters[0]),
            role=identifier(info.user),
        ) from error


def _obstacles(url: str, pid: int) -> list[str]:
    """Who keeps the server process `pid` waiting, oldest first, for people."""
    sql = """
        SELECT 'pid ' || a.pid || coalesce(' of ' || a.usename, '') || coalesce(' in ' || a.datname, '')
               || coalesce(', open since ' || date_trunc('second', a.xact_start), '')
               || coalesce(', ' || a.state, '')
        FROM pg_stat_activity a
        WHERE a.pid <> $1 AND (a.pid = ANY (pg_blocking_pids($1)) OR a.backend_xid IS NOT NULL)
        ORDER BY a.pid = ANY (pg_blocking_pids($1)) DESC, a.xact_start
    """
    prepared = """
        SELECT 'prepared transaction ' || quote_literal(gid) || ' in ' || database
        FROM pg_prepared_xacts ORDER BY prepared
    """
    standby = """
        SELECT 'a word of the primary about its open transactions: SELECT pg_log_standby_snapshot() there'
        WHERE pg_is_in_recovery()
    """
    with connect(url, application_name="headrace look") as connection:
        asked = (_query_of(connection, query, pid) for query in (standby, sql, prepared))
        return [str(text) for rows in asked for (text,) in rows]


def _query_of(connection: Connection, sql: str, pid: int) -> list[tuple[Any, ...]]:
    return execute(connection, sql, (pid,) if "$1" in sql else ())


def _waited(name: str, limit: float, waits: list[str]) -> HeadraceError:
    who = "; ".join(waits) or "a transaction that this role cannot see"
    return HeadraceError(
        Kind.SLOT_WAIT,
        f"the slot {name!r} could not be made within {limit:g} s: the server waits for open transactions "
        f"({who})",
        "End them (SELECT pg_terminate_backend(PID), ROLLBACK PREPARED 'NAME') and try again.",
    )
