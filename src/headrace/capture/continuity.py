"""Does the connection still lead to the log that was read before? (decision 0017)

Asked before every connection to the slot. The server itself would not complain: it begins at the slot's
position where that is later, and at another system's position where that is another system.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import SEED_AGAIN, HeadraceError, Kind
from headrace.model import Lsn, format_lsn, parse_lsn
from headrace.postgres.quoting import literal
from headrace.postgres.replication import ReplicationConnection

_POSITIONS = """
    SELECT (SELECT oid::bigint FROM pg_database WHERE datname = current_database()),
           (SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = {slot}),
           (SELECT (restart_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = {slot}),
           CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_flush_lsn() - '0/0')::bigint END,
           (SELECT oid::bigint FROM pg_publication WHERE pubname = {publication}),
           pg_is_in_recovery()::int,
           (SELECT coalesce((to_jsonb(s) ->> 'synced')::boolean, false)::int FROM pg_replication_slots s
            WHERE slot_name = {slot})
"""
_SWITCH = re.compile(r"^\s*(\d+)\s+([0-9A-Fa-f]+/[0-9A-Fa-f]+)", re.MULTILINE)
_ANEW = "Start with a new slot and a new checkpoint, and seed again what was read from here."


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """Whose log it is; a position means nothing without that.

    Attributes:
        system: the database system's identifier.
        timeline: of its log; a promotion and a restore to a point in time begin a new one.
        database: the oid, which a database that was dropped and made again does not have.
        publication: the oid of the one that the log was read with first; None where it is not known.
        began: where the timeline left the one before it (bytes), 0 for the first; None where it is not known.
            Two standbys that are promoted both call their timeline by the next number.
        standby: whether the server was a standby; None where it is not known.
    """

    system: str
    timeline: int
    database: int
    publication: int | None = field(default=None, compare=False)
    began: Lsn | None = field(default=None, compare=False)
    standby: bool | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """What stands beside a position in a checkpoint."""
        known = {"system": self.system, "timeline": self.timeline, "database": self.database}
        if self.publication is not None:
            known["publication"] = self.publication
        if self.began is not None:
            known["timeline_began"] = format_lsn(self.began)
        if self.standby is not None:
            known["standby"] = self.standby
        return known

    def following(self, before: LogOrigin | None) -> LogOrigin:
        """The same log; its publication is the one that `before` knows, if it knows one."""
        if before is None or before.publication is None:
            return self
        return replace(self, publication=before.publication)

    def has_publication_of(self, before: LogOrigin | None) -> bool:
        """Whether the publication is still the one that `before` knows; also where it knows none."""
        return before is None or before.publication in {None, self.publication}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> LogOrigin | None:
        """What `to_json` wrote; None for a position that was noted before anything had been read."""
        if not {"system", "timeline", "database"} <= stored.keys():
            return None
        publication, began = stored.get("publication"), stored.get("timeline_began")
        return cls(
            str(stored["system"]),
            int(stored["timeline"]),
            int(stored["database"]),
            None if publication is None else int(publication),
            None if began is None else parse_lsn(str(began)),
            stored.get("standby"),
        )


@dataclass(frozen=True, slots=True)
class LogPositions:
    """Where a slot and the server's log stand (bytes).

    Attributes:
        origin: whose log it is.
        confirmed: what the slot may forget; None where there is no such slot.
        restart: where decoding begins again; None where the slot has none.
        written: the end of the flushed log; None on a standby.
        switches: where each earlier timeline was left for the next.
        copied: whether the slot is a standby's copy of the primary's: nobody can read it before a promotion.
    """

    origin: LogOrigin
    confirmed: Lsn | None
    restart: Lsn | None
    written: Lsn | None
    switches: Mapping[int, Lsn] = field(default_factory=dict)
    copied: bool = False

    def left(self, before: LogOrigin | None) -> Lsn | None:
        """Where the timeline of `before` was left; None where it was not, or that is not known."""
        return None if before is None else self.switches.get(before.timeline)


def read_positions(connection: ReplicationConnection, slot: str, publication: str = "") -> LogPositions:
    """Ask the server behind `connection`.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    [(system, timeline, *_)] = connection.execute("IDENTIFY_SYSTEM")
    asked = _POSITIONS.format(slot=literal(slot), publication=literal(publication))
    [numbers] = connection.execute(asked)
    database, confirmed, restart, written, published, standby, synced = (
        None if number is None else int(number) for number in numbers
    )
    switches = _read_switches(connection, int(timeline or 0))
    origin = LogOrigin(
        str(system),
        int(timeline or 0),
        database or 0,
        published,
        _began(switches, int(timeline or 0)),
        standby=bool(standby),
    )
    return LogPositions(origin, confirmed, restart, written, switches, copied=bool(standby and synced))


def _read_switches(connection: ReplicationConnection, timeline: int) -> dict[int, Lsn]:
    """Where each timeline before this one was left; empty where the server has no such file."""
    if timeline <= 1:
        return {}
    try:
        [(_, history)] = connection.execute(f"TIMELINE_HISTORY {timeline}")
    except HeadraceError as error:
        if error.kind is not Kind.DATABASE:
            raise
        return {}
    return {int(left): parse_lsn(at) for left, at in _SWITCH.findall(str(history))}


def _began(switches: Mapping[int, Lsn], timeline: int) -> Lsn | None:
    """Where a timeline left the one before it; None where that is not known."""
    earlier = [left for left in switches if left < timeline]
    if timeline == 1:
        return 0
    return switches[max(earlier)] if earlier else None


def check_continuity(
    now: LogPositions, slot: str, reached: Lsn, before: LogOrigin | None, *, known: Lsn = 0
) -> None:
    """The log at `now` must be the one in which everything up to `reached` was read.

    Args:
        now: what the server says.
        slot: the slot's name.
        reached: what was read last; the slot must not be further.
        before: whose log that was, if it is known.
        known: where the log is known to have been; at least `reached`.

    Raises:
        HeadraceError: CONTINUITY, SLOT_UNKNOWN, each case with its remedy; CONNECTION, which waiting cures,
            where a standby answers that is not promoted yet.
    """
    known = max(known, reached)
    _check_promoted(now, slot, before)
    if before is not None:
        _check_origin(now, known, before)
    if now.written is not None and now.written < known:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the server's log ends at {format_lsn(now.written)}, before the position {format_lsn(known)} "
            "that was read already: the database was restored to an earlier time",
            _ANEW,
        )
    if now.confirmed is None:
        raise _missing(now, slot, reached, before)
    if now.confirmed > reached:
        raise _beyond(now.confirmed, now.restart, slot, reached)


def check_same_timeline(now: LogOrigin, before: LogOrigin) -> None:
    """For documents: rows are read as of later than the log was followed, perhaps what the new log never got.

    Raises:
        HeadraceError: CONTINUITY.
    """
    if now.timeline != before.timeline:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the server is on timeline {now.timeline} now ({before.timeline} before): a standby was "
            "promoted, and documents may hold commits that it never got",
            SEED_AGAIN,
        )


def temporary_gone(slot: str, reached: Lsn) -> HeadraceError:
    """A temporary slot ends with the connection that made it: nobody can go on behind `reached`."""
    return HeadraceError(
        Kind.SLOT_LOST,
        f"the temporary slot {slot!r} has ended with the query or the connection that made it, and the "
        f"changes behind {format_lsn(reached)} are gone with it: its checkpoint cannot be gone on from",
        "Start with a new checkpoint; or set failOnDataLoss=false, which goes on with a new slot and without "
        "these changes; or leave the option temporarySlot out, for a slot that stays.",
    )


def not_promoted(slot: str) -> HeadraceError:
    """A standby answers in the primary's place, as in a failover: what it lacks is no gap."""
    return HeadraceError(
        Kind.CONNECTION,
        f"the server is a standby now, and the slot {slot!r} was read on its primary",
        "While a failover goes on, it passes when the standby is promoted; else give the primary's address.",
    )


def _check_promoted(now: LogPositions, slot: str, before: LogOrigin | None) -> None:
    """A standby that has a slot of its own by that name may be followed in its primary's place."""
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
            f"Positions of one system mean nothing on another: correct the address. {_ANEW}",
        )
    if origin.timeline != before.timeline:
        left = now.left(before)
        if left is None or left < known:
            where = "elsewhere" if left is None else f"at {format_lsn(left)}"
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the server is on timeline {origin.timeline} now, which left timeline {before.timeline} "
                f"{where}, and up to {format_lsn(known)} was read there: a standby was promoted that had not "
                "received all of it, or the database was restored",
                f"What was read and is not in the new log never happened there. {_ANEW}",
            )
    began = _began(now.switches, before.timeline)
    if began is not None and before.began is not None and began != before.began:
        raise HeadraceError(
            Kind.OTHER_LOG,
            f"timeline {before.timeline} begins at {format_lsn(began)} on this server, and at "
            f"{format_lsn(before.began)} where up to {format_lsn(known)} was read: of two standbys that were "
            "promoted this is the other one",
            f"What was read and is not in its log never happened there. {_ANEW}",
        )
    if origin.database != before.database:
        raise HeadraceError(
            Kind.CONTINUITY,
            "the database was dropped and made again, or replaced by another one of its name",
            _ANEW,
        )


def _missing(now: LogPositions, slot: str, reached: Lsn, before: LogOrigin | None) -> HeadraceError:
    if before is not None and before.timeline != now.origin.timeline:
        return HeadraceError(
            Kind.SLOT_UNKNOWN,
            f"a standby was promoted (timeline {now.origin.timeline}, before {before.timeline}) that has no "
            f"replication slot {slot!r}: the changes behind {format_lsn(reached)} cannot be read there",
            f"{_ANEW} For the next time: a failover slot and sync_replication_slots (PostgreSQL 17).",
        )
    since = f": it was dropped, and the changes behind {format_lsn(reached)} are gone with it"
    return HeadraceError(
        Kind.SLOT_UNKNOWN,
        f"there is no replication slot {slot!r}{'' if before is None else since}",
        f"Correct the name; if it was dropped: {_ANEW[0].lower()}{_ANEW[1:]}",
    )


def _beyond(confirmed: Lsn, restart: Lsn | None, slot: str, reached: Lsn) -> HeadraceError:
    """Whoever moves a slot a little leaves its restart position; one that was made anew has no older one."""
    moved = restart is not None and restart <= reached
    who = (
        "somebody else has moved it, or the checkpoint is an old one"
        if moved
        else "it was made anew, or moved by somebody else"
    )
    return HeadraceError(
        Kind.CONTINUITY,
        f"the slot {slot!r} stands at {format_lsn(confirmed)}, beyond {format_lsn(reached)}, which "
        f"was read last: {who}, and what lies between is lost",
        "Let nobody else use this slot. Start with a new checkpoint, and seed again what was read from here.",
    )
