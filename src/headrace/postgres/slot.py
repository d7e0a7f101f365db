"""Create, read, check, move and drop replication slots."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn, format_lsn, parse_lsn
from headrace.postgres.connection import Closeable, Connection, connect, execute, refused_statement
from headrace.postgres.log_holder import read_log_holders
from headrace.postgres.quoting import identifier
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.server import is_in_recovery, session_text, with_limits
from headrace.postgres.server_errors import slot_in_use_by, slot_lost, sqlstate_error, whole_message
from headrace.postgres.session import ReadSession
from headrace.postgres.sql_files import read_sql

PLUGIN = "pgoutput"
_NAME = re.compile(r"[a-z0-9_]{1,63}")
_POLL_SECONDS = 0.05
_FAILOVER_SINCE = 170000
_MAX_NAMED = 5

_READ = f"""
SELECT s.*, {session_text("s.active_pid")}
FROM ({read_sql(__package__, "slots")}) AS s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
"""  # noqa: S608 - a fixed text
_IS_VISIBLE = read_sql(__package__, "is_visible")
_READ_ONE = f"{_READ} WHERE s.slot_name = $1"
_READ_ALL = f"{_READ} WHERE s.database = current_database() ORDER BY s.slot_name"

_INVALIDATIONS = {
    "wal_removed": "its log is removed (max_slot_wal_keep_size)",
    "rows_removed": "rows of the catalog that it needs are removed",
    "wal_level_insufficient": "wal_level was below logical on the primary",
    "idle_timeout": "it had no reader for idle_replication_slot_timeout",
}


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """A slot as pg_replication_slots shows it, with the log's end at that moment.

    Attributes:
        confirmed_flush: everything before it is confirmed (bytes); None for a slot that is not logical.
        restart: the position from which the log is kept; None where it is lost.
        wal_status: reserved, extended, unreserved or lost.
        safe_wal_size: bytes until the slot may be lost; None without a limit.
        current: the end of the flushed log (on a standby, of the replayed log).
        invalidation: why the server has invalidated the slot (PostgreSQL 17 and later); None where it has
            not.
        failover: whether standbys keep a copy of the slot (17 and later).
        synced: whether it is a standby's copy, which nobody may read before a promotion.
        inactive_seconds: how long the slot has had no reader (17 and later); None while it has one.
        reader_lag: seconds between a flush of the log and its confirmation by the present reader, as the
            server measures it; None without a recent measurement.
        awaits_standbys: whether the server sends nothing now because standbys have not received it
            (synchronized_standby_slots, 17 and later).
        sent: up to where the walsender has decoded the log (bytes); None without one.
        decodes: whether the walsender works right now, and waits for nothing but the disk.
        catalog_xmin: the oldest transaction (raw xid) whose rows of the catalog it may still need.
        reader: the reader's pid, application, user and host, for people; None where there is no reader.
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
    invalidation: str | None = None
    failover: bool = False
    synced: bool = False
    inactive_seconds: float | None = None
    reader_lag: float | None = None
    awaits_standbys: bool = False
    sent: Lsn | None = None
    decodes: bool = False
    catalog_xmin: int | None = None
    reader: str | None = None

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
        gone = self.wal_status == "lost" or self.invalidation is not None
        return gone or (self.kind == "logical" and self.restart is None)

    @property
    def why_lost(self) -> str:
        """Why the slot is lost, for people."""
        known = _INVALIDATIONS.get(self.invalidation or "", self.invalidation)
        return known or f"wal_status is {self.wal_status!r}"


@dataclass(frozen=True, slots=True)
class ExportedSlot(Closeable):
    """A new slot with an exported snapshot, which lives while `connection` does nothing else.

    Attributes:
        consistent_point: where the stream begins (bytes); the snapshot sees exactly what was committed
            before.
        snapshot_name: the name for SET TRANSACTION SNAPSHOT in other sessions.
        temporary: whether the slot ends with `connection`, which alone can stream it.
    """

    name: str
    consistent_point: Lsn
    snapshot_name: str
    connection: ReplicationConnection
    temporary: bool = False

    def close(self) -> None:
        """Release the snapshot; the slot stays, unless it is temporary."""
        self.connection.close()

    def drop(self) -> None:
        """Drop the slot at once, with its snapshot, over its own connection: the server may have no other.

        A temporary slot that is left to the end of its connection stays until the server has noticed that.

        Raises:
            HeadraceError: CONNECTION, DATABASE.
        """
        self.connection.execute(f"DROP_REPLICATION_SLOT {identifier(self.name)}", slot=self.name)


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


def create_slot(
    url: str, name: str, *, time_limit: float = 60.0, temporary: bool = False, failover: bool = False
) -> ExportedSlot:
    """Create a logical slot with an exported snapshot.

    Creation waits for every transaction that has written and is still open, in any database of the server.
    After `time_limit` seconds it is cancelled, nothing is left, and the error names the transactions. When it
    returns, every new snapshot sees all that the slot will not send.

    Args:
        url: the database.
        name: the slot's name.
        time_limit: how long to wait for open transactions (s).
        temporary: whether the slot lives only as long as the connection of the result, which alone may stream
            it.
        failover: whether standbys keep a copy, so that the slot survives a failover (PostgreSQL 17 and
            later).

    Raises:
        HeadraceError: SLOT_WAIT (`time_limit` has passed), CONFIG (the name is taken or invalid, or a
            temporary slot for failover), SERVER_VERSION (failover), NO_FREE_SLOT, PRIVILEGE, WAL_LEVEL,
            CONNECTION.
    """
    check_slot_name(name)
    if temporary and failover:
        raise HeadraceError(
            Kind.CONFIG,
            f"the temporary slot {name!r} cannot outlive a failover",
            "Leave out temporary or failover.",
        )
    # Asked while the command still waits: afterwards the server does not say what it waited for.
    waits: list[str] = []
    # What is made goes also for a stop: a connection that stays would hold its snapshot, and so VACUUM back.
    with ExitStack() as unfinished:
        try:
            replication = unfinished.enter_context(ReplicationConnection(url, f"headrace/{name}"))
            [(_, point, snapshot, _)] = replication.execute(
                _creation_command(name, replication, temporary=temporary, failover=failover),
                slot=name,
                timeout=time_limit,
                on_timeout=lambda: waits.extend(_blockers(url)),
            )
        except TimeoutError as error:
            raise _waited_too_long(name, time_limit, waits) from error
        except HeadraceError as error:
            raise with_limits(error, url) from error
        slot = ExportedSlot(name, parse_lsn(str(point)), str(snapshot), replication, temporary)
        unfinished.callback(slot.drop)
        _await_visible(url, slot, time_limit)
        unfinished.pop_all()
    return slot


def _await_visible(url: str, slot: ExportedSlot, time_limit: float) -> None:
    """Wait until new snapshots see all that the exported one sees.

    A commit is in the log before it is visible, and a synchronous standby can keep it invisible for long.
    What committed before the slot's position in this way is not in the stream: a read that is made without
    the exported snapshot would miss it for ever.

    Raises:
        HeadraceError: SLOT_WAIT: they do not after `time_limit` seconds; the errors of `ReadSession`.
    """
    deadline = time.monotonic() + time_limit
    with ReadSession(url, snapshot=slot.snapshot_name) as session:
        [(snapshot,)] = session.query("SELECT pg_current_snapshot()::text")
    lowest, top, running = snapshot.split(":")
    # Of a slot's snapshot the server may say a lowest id above the top, which it does not read again.
    seen = f"{min(int(lowest), int(top))}:{top}:{running}"
    with ReadSession(url) as session:
        while session.query(_IS_VISIBLE, [seen]) != [(True,)]:
            if time.monotonic() >= deadline:
                raise _waited_too_long(slot.name, time_limit, _blockers(url))
            time.sleep(_POLL_SECONDS)


def _creation_command(
    name: str, replication: ReplicationConnection, *, temporary: bool, failover: bool
) -> str:
    """Return the command; without options in the syntax that PostgreSQL 14 to 18 all accept."""
    command = (
        f"CREATE_REPLICATION_SLOT {identifier(name)}{' TEMPORARY' if temporary else ''} LOGICAL {PLUGIN}"
    )
    if not failover:
        return f"{command} EXPORT_SNAPSHOT"
    [(version, text)] = replication.execute(
        "SELECT current_setting('server_version_num'), current_setting('server_version')"
    )
    if int(version or 0) < _FAILOVER_SINCE:
        raise HeadraceError(
            Kind.SERVER_VERSION,
            f"the slot {name!r} is to outlive a failover, and PostgreSQL {text} has no failover slots",
            "Set failover = false, or use PostgreSQL 17 or later.",
        )
    return f"{command} (SNAPSHOT 'export', FAILOVER)"


def read_slot(connection: Connection, name: str) -> SlotFacts | None:
    """Read the slot called `name`; None where it does not exist.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    rows = _run(connection, _READ_ONE, name)
    return SlotFacts(*rows[0]) if rows else None


def held_back() -> HeadraceError:
    """Return the error of a slot that awaits standbys, see `SlotFacts.awaits_standbys`."""
    return HeadraceError(
        Kind.CONNECTION,
        "the server sends no changes, because a standby that must have them first does not get them",
        "Start the standbys that synchronized_standby_slots names, or take out of it those that are gone "
        "and run SELECT pg_reload_conf().",
    )


def list_slots(connection: Connection) -> tuple[SlotFacts, ...]:
    """Read every slot of the connection's database, by name.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    return tuple(SlotFacts(*row) for row in _run(connection, _READ_ALL))


def slot_problem(facts: SlotFacts, database: str) -> HeadraceError | None:
    """Return why this slot cannot carry Headrace's stream of `database`; None where it can."""
    name = facts.name
    if facts.kind != "logical" or facts.plugin != PLUGIN:
        what = f"is a {facts.kind} slot" + (f" of the plugin {facts.plugin!r}" if facts.plugin else "")
        why = f"{what}; a logical one of {PLUGIN!r} is needed"
    elif facts.database != database:
        why = f"belongs to the database {facts.database!r}, not {database!r}"
    elif facts.two_phase:
        why = "has two_phase on: it would deliver prepared transactions before they are committed"
    elif facts.lost:
        return slot_lost(name, facts.why_lost)
    elif facts.synced:
        return HeadraceError(
            Kind.CONFIG,
            f"the replication slot {name!r} is this standby's copy of the primary's: it cannot be read "
            "before a promotion",
            "Read from the primary, or name a slot of this standby's own.",
        )
    else:
        return None
    return HeadraceError(
        Kind.CONFIG, f"the replication slot {name!r} {why}", "Name another slot, or drop this one."
    )


def drop_slot(connection: Connection, name: str, *, timeout: float = 5.0) -> bool:
    """Drop the slot; return whether it existed.

    A reader's connection releases its slot a moment after it is closed. So a slot in use is tried again for
    `timeout` seconds.

    Raises:
        HeadraceError: SLOT_IN_USE with the reader's pid, application and client; PRIVILEGE, CONNECTION,
            DATABASE.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            _run(connection, "SELECT pg_drop_replication_slot($1)", name)
        except HeadraceError as error:
            if error.kind is Kind.SLOT_UNKNOWN:
                return False
            if error.kind is not Kind.SLOT_IN_USE:
                raise
            if time.monotonic() >= deadline:
                facts = read_slot(connection, name)
                raise error if facts is None else slot_in_use(facts) from error
            time.sleep(_POLL_SECONDS)
        else:
            return True


def advance_slot(connection: Connection, name: str, lsn: Lsn) -> Lsn:
    """Confirm everything before `lsn`, never backwards; return the confirmed position.

    Raises:
        HeadraceError: SLOT_UNKNOWN, SLOT_IN_USE, SLOT_LOST, PRIVILEGE, CONNECTION, DATABASE.
    """
    facts = read_slot(connection, name)
    confirmed = facts.confirmed_flush if facts is not None else None
    # The server refuses to move a slot backwards.
    if confirmed is not None and lsn <= confirmed:
        return confirmed
    sql = "SELECT (end_lsn - '0/0')::bigint FROM pg_replication_slot_advance($1, $2::pg_lsn)"
    [(end,)] = _run(connection, sql, name, format_lsn(lsn))
    return int(end)


def slot_in_use(facts: SlotFacts) -> HeadraceError:
    """Return the error that names the reader of the slot."""
    return slot_in_use_by(facts.reader, facts.name)


def _run(connection: Connection, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    try:
        return execute(connection, sql, parameters)
    except psycopg.Error as error:
        info = connection.info
        # read_only_sql_transaction: the server is a standby, or the role's sessions are read-only.
        if error.sqlstate == "25006":
            raise refused_statement(connection, error) from error
        raise sqlstate_error(
            error.sqlstate,
            whole_message(error),
            place=f"{info.host}:{info.port}/{info.dbname}",
            slot=str(next(iter(parameters), "")),
            role=identifier(info.user),
        ) from error


def _blockers(url: str) -> list[str]:
    """Return what a slot that is being made waits for, for people: the oldest transactions first."""
    with connect(url, application_name="headrace look") as connection:
        if is_in_recovery(connection):
            return [
                "a word of the primary about its open transactions: SELECT pg_log_standby_snapshot() there"
            ]
        return [transaction.holder for transaction in read_log_holders(connection, _MAX_NAMED)]


def _waited_too_long(name: str, limit: float, waits: list[str]) -> HeadraceError:
    who = "; ".join(waits) or "a transaction that this role cannot see"
    return HeadraceError(
        Kind.SLOT_WAIT,
        f"the slot {name!r} could not be created within {limit:g} s: the server waits for open transactions "
        f"({who})",
        "End them (SELECT pg_terminate_backend(PID), ROLLBACK PREPARED 'NAME') and try again.",
    )
