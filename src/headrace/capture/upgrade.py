"""Go on with a server that pg_upgrade has made: the same tables, on a system with another identifier.

A position means nothing on another system, so a reader refuses one. pg_upgrade is the exception: it moves a
logical slot (from PostgreSQL 17 on) only where the slot has confirmed the whole log, makes it again on the
new system before anybody can write there, and lets the new log begin behind the old one. So nothing is
missing between what was read and that slot. That pg_upgrade made the server is for its operator to say; the
rest is checked here (decision 0194).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from headrace.capture.continuity import LogOrigin, LogPositions
from headrace.capture.offset import Offset
from headrace.catalog.moved import is_since
from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn, format_lsn
from headrace.postgres.connection import Connection
from headrace.postgres.publication import read_last_alteration
from headrace.postgres.slot import SlotFacts, read_slot, slot_in_use


@dataclass(frozen=True, slots=True)
class PlannedAdoption:
    """A server that was checked and can be gone on with.

    Attributes:
        before: the identifier of the system that was read.
        reached: up to where (bytes) it was read.
        system: the identifier of the system that goes on.
        confirmed: where (bytes) its slot stands.
        apply: stores it; durable when it returns.
    """

    before: str
    reached: Lsn
    system: str
    confirmed: Lsn
    apply: Callable[[], None]


def check_upgraded(
    connection: Connection,
    now: LogPositions,
    slot: str,
    reached: Offset,
    before: LogOrigin,
    *,
    publication: str,
    differences: Callable[[int], Iterable[str]],
    start_over: str,
) -> Lsn:
    """Return where (bytes) the slot stands, on a server that can be what pg_upgrade has made of another.

    Args:
        connection: to that server.
        now: the positions that the server reports.
        slot: the slot's name.
        reached: what was read of the log of the server before.
        before: the origin of that log.
        publication: the publication that is read.
        differences: how the catalog is another one than it was, by the transaction from which on the slot
            knows it; they are looked at last.
        start_over: the remedy where the server was made in another way.

    Raises:
        HeadraceError: USAGE where it is the same system; CONTINUITY where it is another server;
            SLOT_IN_USE; what reading the differences raises.
    """
    if now.origin.system == before.system:
        raise HeadraceError(
            Kind.USAGE, "the server is the one that was read: there is nothing to adopt", "Start as usual."
        )
    facts = read_slot(connection, slot)
    why = next(_obstacles(now, facts, reached, before), None)
    if why is None:
        assert facts is not None, "a missing slot is an obstacle"
        assert facts.confirmed_flush is not None, "a logical slot that is not lost has been confirmed"
        assert facts.catalog_xmin is not None, "it keeps the catalog that it decodes with"
        if facts.active_pid is not None:
            raise slot_in_use(facts)
        altered = read_last_alteration(connection, publication)
        if altered is not None and is_since(altered, facts.catalog_xmin):
            why = f"the publication {publication!r} was altered, or made, after the upgrade"
        elif (why := next(iter(differences(facts.catalog_xmin)), None)) is None:
            return facts.confirmed_flush
    raise HeadraceError(
        Kind.CONTINUITY,
        f"this server is not what pg_upgrade makes of the one that was read: {why}",
        f"Lead the address to the upgraded server. If it was made in another way: {start_over}",
    )


def _obstacles(
    now: LogPositions, slot: SlotFacts | None, reached: Offset, before: LogOrigin
) -> Iterator[str]:
    if now.origin.database != before.database:
        yield "the database has another oid, and pg_upgrade keeps it"
    if now.origin.standby:
        yield "it is a standby, and the slot is on its primary"
    if slot is None or slot.lost or slot.confirmed_flush is None:
        yield "its slot is missing or lost; pg_upgrade moves slots from PostgreSQL 17 on"
    elif reached.transaction is not None:
        # pg_upgrade would have refused to move the slot, which was not confirmed up to its end.
        yield f"a transaction was read in part, up to {format_lsn(reached.transaction)}"
    elif slot.confirmed_flush < reached.lsn:
        yield (
            f"its slot {slot.name!r} stands at {format_lsn(slot.confirmed_flush)}, before the position "
            f"{format_lsn(reached.lsn)} that was read"
        )
