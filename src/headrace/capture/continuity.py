"""Check that a connection leads to the log that was read before (decision 0017).

Runs before every connection to the slot. The server itself reports no error: it begins at the slot's position
where that is later, and at another system's position where that is another system.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import BACKFILL_AGAIN, NEW_CHECKPOINT, SAME_SLOT_AGAIN, HeadraceError, Kind, as_clause
from headrace.model.lsn import Lsn, format_lsn, parse_lsn
from headrace.postgres.quoting import literal
from headrace.postgres.replication import ReplicationConnection

# `synced` exists since PostgreSQL 17: through JSON the statement fits every version.
# pg_current_wal_flush_lsn fails in recovery.
_POSITIONS = """
    SELECT (SELECT oid::bigint FROM pg_database WHERE datname = current_database()),
           (SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = {slot}),
           (SELECT (restart_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = {slot}),
           CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_flush_lsn() - '0/0')::bigint END,
           pg_is_in_recovery()::int,
           (SELECT coalesce((to_jsonb(s) ->> 'synced')::boolean, false)::int FROM pg_replication_slots s
            WHERE slot_name = {slot})
"""
_SWITCH = re.compile(r"^\s*(\d+)\s+([0-9A-Fa-f]+/[0-9A-Fa-f]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """The system, timeline and database that a log belongs to; a position is valid only with them.

    Attributes:
        system: the database system's identifier.
        timeline: the log's timeline; a promotion and a point-in-time recovery begin a new one.
        database: the database's oid, which changes when the database is dropped and created again.
        began: where the timeline branched off the one before it (bytes), 0 for the first; None where not
            known. Two promoted standbys give their timelines the same number.
        standby: whether the server was a standby; None where not known.
    """

    system: str
    timeline: int
    database: int
    began: Lsn | None = field(default=None, compare=False)
    standby: bool | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return the fields that a checkpoint stores beside a position."""
        known = {"system": self.system, "timeline": self.timeline, "database": self.database}
        if self.began is not None:
            known["timeline_began"] = format_lsn(self.began)
        if self.standby is not None:
            known["standby"] = self.standby
        return known

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> LogOrigin | None:
        """Read what `to_json` wrote; None for a position that was stored before anything was read."""
        if not {"system", "timeline", "database"} <= stored.keys():
            return None
        system, timeline, database = str(stored["system"]), int(stored["timeline"]), int(stored["database"])
        began = None if (at := stored.get("timeline_began")) is None else parse_lsn(str(at))
        return cls(system, timeline, database, began, stored.get("standby"))


@dataclass(frozen=True, slots=True)
class LogPositions:
    """The positions of a slot and of the server's log (bytes).

    Attributes:
        origin: the system and timeline of the log.
        confirmed: the slot's confirmed_flush_lsn; None where there is no such slot.
        restart: the slot's restart_lsn; None where it has none.
        written: the end of the flushed log; None on a standby.
        switches: where each earlier timeline ended, by its number.
        copied: whether the slot is a synchronized copy on a standby: it cannot be read before a promotion.
    """

    origin: LogOrigin
    confirmed: Lsn | None
    restart: Lsn | None
    written: Lsn | None
    switches: Mapping[int, Lsn] = field(default_factory=dict)
    copied: bool = False

    def left(self, before: LogOrigin | None) -> Lsn | None:
        """Return where the timeline of `before` ended; None where it did not, or that is not known."""
        return None if before is None else self.switches.get(before.timeline)


def read_positions(connection: ReplicationConnection, slot: str) -> LogPositions:
    """Read the positions of the slot and of the log from the server.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    [(system, current, *_)] = connection.execute("IDENTIFY_SYSTEM")
    timeline = int(current or 0)
    # One statement: positions of two moments could not be compared.
    [numbers] = connection.execute(_POSITIONS.format(slot=literal(slot)))
    database, confirmed, restart, written, standby, synced = (
        None if number is None else int(number) for number in numbers
    )
    switches = _read_switches(connection, timeline)
    began = _timeline_start(switches, timeline)
    origin = LogOrigin(str(system), timeline, database or 0, began, standby=bool(standby))
    return LogPositions(origin, confirmed, restart, written, switches, copied=bool(standby and synced))


def _read_switches(connection: ReplicationConnection, timeline: int) -> dict[int, Lsn]:
    """Return where each earlier timeline ended; empty where the server has no history file."""
    if timeline <= 1:
        return {}
    try:
        [(_, history)] = connection.execute(f"TIMELINE_HISTORY {timeline}")
    except HeadraceError as error:
        # A server that was restored without its history files runs, and says that the file is missing.
        if error.kind is not Kind.DATABASE:
            raise
        return {}
    return {int(left): parse_lsn(at) for left, at in _SWITCH.findall(str(history))}


def _timeline_start(switches: Mapping[int, Lsn], timeline: int) -> Lsn | None:
    """Return where a timeline branched off the one before it; None where that is not known."""
    earlier = [left for left in switches if left < timeline]
    if timeline == 1:
        return 0
    return switches[max(earlier)] if earlier else None


def check_continuity(
    now: LogPositions, slot: str, reached: Lsn, before: LogOrigin | None, *, known: Lsn = 0
) -> None:
    """Raise an error unless the log at `now` is the one that was read up to `reached`.

    Args:
        now: the positions that the server reports.
        slot: the slot's name.
        reached: the position that was read last; the slot must not be beyond it.
        before: the origin of the log that was read, if known.
        known: a position that the log is known to have reached; `reached` counts where it is greater.

    Raises:
        HeadraceError: CONTINUITY, OTHER_LOG, SLOT_UNKNOWN, each with its remedy; CONNECTION, which is
            retryable, where a standby answers that is not promoted yet.
    """
    known = max(known, reached)
    # First: on a standby all other comparisons would give a wrong reason.
    _check_promoted(now, slot, before)
    if before is not None:
        _check_origin(now, known, before)
    # A position is given out again after a restore, for other changes.
    if now.written is not None and now.written < known:
        raise HeadraceError(
            Kind.OTHER_LOG,
            f"the server's log ends at {format_lsn(now.written)}, before the position {format_lsn(known)} "
            "that was read already: the database was restored to an earlier time",
            NEW_CHECKPOINT,
        )
    if now.confirmed is None:
        raise _slot_missing(now, slot, reached, before)
    if now.confirmed > reached:
        raise _slot_ahead(now.confirmed, now.restart, slot, reached)


def check_same_timeline(now: LogOrigin, before: LogOrigin) -> None:
    """Raise an error if a standby was promoted, as documents may then hold commits that the new log lacks.

    Documents are read from tables, which can show later commits than the log that was read.

    Raises:
        HeadraceError: CONTINUITY.
    """
    if now.timeline != before.timeline:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the server is on timeline {now.timeline} now ({before.timeline} before): a standby was "
            "promoted, and documents may hold commits that it never got",
            BACKFILL_AGAIN,
        )


def temporary_gone(slot: str, reached: Lsn) -> HeadraceError:
    """Return the error that a temporary slot has ended with the connection that created it."""
    return HeadraceError(
        Kind.SLOT_LOST,
        f"the temporary slot {slot!r} has ended with the query or the connection that made it, and the "
        f"changes after {format_lsn(reached)} are gone with it: its checkpoint cannot be used again",
        "Start with a new checkpoint; or set failOnDataLoss=false, which goes on with a new slot and without "
        "these changes; or leave the option temporarySlot out, for a slot that stays.",
    )


def not_promoted(slot: str) -> HeadraceError:
    """Return the error that a standby answers in place of the primary, as during a failover."""
    return HeadraceError(
        Kind.CONNECTION,
        f"the server is a standby now, and the slot {slot!r} was read on its primary",
        "During a failover wait until the standby is promoted; otherwise give the primary's address.",
    )


def _check_promoted(now: LogPositions, slot: str, before: LogOrigin | None) -> None:
    """Raise an error if the server is a standby without a readable slot of its own by that name."""
    if not now.origin.standby or (before is not None and before.system != now.origin.system):
        return
    was_primary = before is not None and before.standby is False
    if now.copied or (was_primary and now.confirmed is None):
        raise not_promoted(slot)


def _check_origin(now: LogPositions, known: Lsn, before: LogOrigin) -> None:
    origin = now.origin
    if origin.system != before.system:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the connection leads to another database system now ({origin.system}, before {before.system})",
            "Positions of one system mean nothing on another: correct the address. After pg_upgrade see "
            f"docs/guides/upgrading.md. Else: {as_clause(NEW_CHECKPOINT)}",
        )
    if origin.timeline != before.timeline:
        left = now.left(before)
        # The new timeline branched off before what was read: those commits are not in it.
        if left is None or left < known:
            where = "elsewhere" if left is None else f"at {format_lsn(left)}"
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the server is on timeline {origin.timeline} now, which left timeline {before.timeline} "
                f"{where}, and that one was read up to {format_lsn(known)}: a standby was promoted that had "
                "not received all of it, or the database was restored",
                f"What was read and is not in the new log never happened there. {NEW_CHECKPOINT}",
            )
    # Two standbys that are promoted apart both become timeline N + 1.
    began = _timeline_start(now.switches, before.timeline)
    if began is not None and before.began is not None and began != before.began:
        raise HeadraceError(
            Kind.OTHER_LOG,
            f"timeline {before.timeline} begins at {format_lsn(began)} on this server, but at "
            f"{format_lsn(before.began)} on the server that was read up to {format_lsn(known)}: two standbys "
            "were promoted, and this is the other one",
            f"What was read and is not in its log never happened there. {NEW_CHECKPOINT}",
        )
    if origin.database != before.database:
        raise HeadraceError(
            Kind.CONTINUITY,
            "the database was dropped and recreated, or replaced by another one of its name",
            NEW_CHECKPOINT,
        )


def _slot_missing(now: LogPositions, slot: str, reached: Lsn, before: LogOrigin | None) -> HeadraceError:
    if before is not None and before.timeline != now.origin.timeline:
        return HeadraceError(
            Kind.SLOT_UNKNOWN,
            f"a standby was promoted (timeline {now.origin.timeline}, before {before.timeline}) that has no "
            f"replication slot {slot!r}: the changes after {format_lsn(reached)} cannot be read there",
            f"{NEW_CHECKPOINT} To prevent this, use a failover slot and sync_replication_slots (PostgreSQL "
            "17).",
        )
    since = f": it was dropped, and the changes after {format_lsn(reached)} are gone with it"
    return HeadraceError(
        Kind.SLOT_UNKNOWN,
        f"there is no replication slot {slot!r}{'' if before is None else since}",
        f"Correct the name; if it was dropped: {as_clause(NEW_CHECKPOINT)}",
    )


def _slot_ahead(confirmed: Lsn, restart: Lsn | None, slot: str, reached: Lsn) -> HeadraceError:
    """Return the error that the slot is beyond what was read, and name the probable reason.

    A slot that was advanced keeps a restart position before `reached`; one that was recreated has none.
    """
    # A new slot keeps log from its creation on; an old one that was advanced still keeps earlier log for open
    # transactions.
    moved = restart is not None and restart <= reached
    reason = (
        "another program has moved it, or the checkpoint is an old one"
        if moved
        else "it was recreated, or moved by another program"
    )
    return HeadraceError(
        Kind.CONTINUITY,
        f"the slot {slot!r} stands at {format_lsn(confirmed)}, beyond {format_lsn(reached)}, which "
        f"was read last: {reason}, and the changes between are lost",
        f"Let no other program use this slot. {SAME_SLOT_AGAIN}",
    )
