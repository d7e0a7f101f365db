"""Does the connection still lead to the log that was read before? (decision 14)

The server itself would not complain: it begins at the slot's position where that is later, and at another
system's position where that is another system.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn, format_lsn
from headrace.postgres.quoting import literal
from headrace.postgres.replication import ReplicationConnection

_POSITIONS = """
    SELECT (SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = {slot}),
           (SELECT (restart_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = {slot}),
           CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_flush_lsn() - '0/0')::bigint END
"""


@dataclass(frozen=True, slots=True)
class LogPositions:
    """Where a slot and the server's log stand (bytes).

    Attributes:
        system: the database system's identifier.
        confirmed: what the slot may forget; None where there is no such slot.
        restart: where decoding begins again; None where the slot has none.
        written: the end of the flushed log; None on a standby.
    """

    system: str
    confirmed: Lsn | None
    restart: Lsn | None
    written: Lsn | None


def read_positions(connection: ReplicationConnection, slot: str) -> LogPositions:
    """Ask the server behind `connection`.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    [(system, *_)] = connection.execute("IDENTIFY_SYSTEM")
    [numbers] = connection.execute(_POSITIONS.format(slot=literal(slot)))
    confirmed, restart, written = (None if number is None else int(number) for number in numbers)
    return LogPositions(str(system), confirmed, restart, written)


def check_continuity(now: LogPositions, slot: str, reached: Lsn, system: str | None) -> None:
    """The log at `now` must be the one in which `reached` was read, of the system `system` if that is known.

    Raises:
        HeadraceError: CONTINUITY, each case with its remedy.
    """
    if system is not None and now.system != system:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the connection leads to another database system now ({now.system}, before {system})",
            "Positions of one system mean nothing on another: seed new generations.",
        )
    if now.confirmed is not None and now.confirmed > reached:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the slot {slot!r} stands at {format_lsn(now.confirmed)}, beyond {format_lsn(reached)}, which "
            "was read last: what lies between is lost",
            "It was recreated or moved by someone else: start with a new checkpoint and seed again.",
        )
    if now.written is not None and now.written < reached:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the server's log ends at {format_lsn(now.written)}, before the position {format_lsn(reached)} "
            "that was read already",
            "The database was restored to an earlier time: start with a new checkpoint and seed again.",
        )
