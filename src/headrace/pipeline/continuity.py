"""Check that database, slot and documents still belong together (decision 0017).

Pure functions: they compare the saved state with the server's facts before every connection to the slot.
"""

from __future__ import annotations

from headrace.capture.continuity import not_promoted
from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind
from headrace.model.lsn import format_lsn
from headrace.postgres.server import ServerFacts
from headrace.postgres.slot import SlotFacts
from headrace.state import PipelineState


class GapError(HeadraceError):
    """Changes between the documents and the slot are lost, on the server that the documents come from.

    With `on_gap = "reseed"` a run builds everything again. Another server or database is never a gap.
    """

    def __init__(self, kind: Kind, cause: str, remedy: str = "", detail: str = "") -> None:
        by_itself = f'{BACKFILL_AGAIN} With on_gap = "reseed" a run does it by itself.'
        super().__init__(kind, cause, remedy or by_itself, detail)


def new_state(server: ServerFacts, slot: str, publication: str) -> PipelineState:
    """Return the first state of a pipeline on this server, before anything else exists."""
    return PipelineState(
        system_identifier=str(server.system_identifier),
        timeline=server.timeline,
        database_oid=server.database_oid,
        slot=slot,
        publication=publication,
        phase="creating",
        consistent_point=0,
        applied=0,
        standby=server.in_recovery,
    )


def check_origin(state: PipelineState | None, server: ServerFacts, slot: SlotFacts | None) -> None:
    """Refuse to start from a slot that the saved state does not know, or does not match any more.

    A state whose first start was not complete is accepted: the start begins again with a new slot.

    Raises:
        HeadraceError: SLOT_UNKNOWN, CONTINUITY or SLOT_LOST.
    """
    if state is None and slot is not None:
        raise HeadraceError(
            Kind.SLOT_UNKNOWN,
            f"the slot {slot.name!r} exists, but this cluster knows nothing of it",
            "If it belongs to another program, name another slot with --slot. If the cluster has lost the "
            f"state of this deployment: {BACKFILL_AGAIN}",
        )
    if state is not None and state.phase == "following":
        check_continuity(state, server, slot)
    elif state is not None and state.generations:
        check_database(state, server)
        check_promoted(state, server)


def is_made_by(slot: SlotFacts, state: PipelineState) -> bool:
    """Whether a slot is certainly the one that an incomplete start created and noted."""
    return state.consistent_point > 0 and slot.confirmed_flush == state.consistent_point


def check_begun(state: PipelineState, slot: SlotFacts | None) -> None:
    """Check, after a start that ended while it created its slot, that an existing slot is that one.

    A slot that may belong to another user must not be dropped.

    Raises:
        HeadraceError: SLOT_UNKNOWN.
    """
    if slot is not None and not is_made_by(slot, state):
        reader = "" if slot.reader is None else f", and read by {slot.reader}"
        raise HeadraceError(
            Kind.SLOT_UNKNOWN,
            f"the last start ended while it made its slot, and nobody can tell whether {slot.name!r} is that "
            f"one: it stands at {format_lsn(slot.confirmed_flush or 0)}{reader}",
            f"If nothing else uses it, run SELECT pg_drop_replication_slot('{slot.name}') in the database, "
            "then start again; else name another slot with --slot.",
        )


def check_continuity(state: PipelineState, server: ServerFacts, slot: SlotFacts | None) -> None:
    """Refuse to follow a slot where documents could become wrong unnoticed.

    Raises:
        HeadraceError: CONTINUITY or SLOT_LOST, with the reason; CONNECTION, see `check_promoted`.
    """
    check_database(state, server)
    check_promoted(state, server)
    if server.timeline < state.timeline:
        raise _former(state, server)
    if server.timeline != state.timeline:
        raise _promoted(state, server, slot)
    if slot is None:
        raise GapError(
            Kind.SLOT_LOST,
            f"the replication slot {state.slot!r} is gone, and with it the changes since "
            f"{format_lsn(state.applied)}",
        )
    if slot.lost:
        raise GapError(
            Kind.SLOT_LOST,
            f"the replication slot {state.slot!r} is lost, and with it the changes since "
            f"{format_lsn(state.applied)}: {slot.why_lost}",
        )
    if server.current_lsn < state.applied:
        raise GapError(
            Kind.CONTINUITY,
            f"the database stands at {format_lsn(server.current_lsn)}, before the position "
            f"{format_lsn(state.applied)} that the documents have: it was restored",
        )
    if (slot.confirmed_flush or 0) > state.applied:
        raise GapError(
            Kind.CONTINUITY,
            f"the slot {state.slot!r} stands at {format_lsn(slot.confirmed_flush or 0)}, beyond the position "
            f"{format_lsn(state.applied)} that the documents have: "
            "it was recreated, or read by someone else, or the search cluster was restored from a snapshot",
        )


def check_database(state: PipelineState, server: ServerFacts) -> None:
    """Check that the database is the one that the documents come from.

    Another database is never a gap: with a wrong address a reseed would replace all documents.

    Raises:
        HeadraceError: CONTINUITY.
    """
    if state.system_identifier != str(server.system_identifier):
        raise _foreign(state, "the database is on another system than the one that the documents come from")
    if state.database_oid != server.database_oid:
        raise _foreign(state, "this is another database than the one that the documents come from")


def check_promoted(state: PipelineState, server: ServerFacts) -> None:
    """Check that the server is not a standby that waits for its promotion in a failover.

    What such a standby lacks is not a gap.

    Raises:
        HeadraceError: CONNECTION, which is retryable.
    """
    if server.in_recovery and state.standby is False:
        error = not_promoted(state.slot)
        again = "To follow the standby instead: `headrace teardown` on the primary, then `headrace run`."
        raise HeadraceError(error.kind, error.cause, f"{error.remedy} {again}")


def _promoted(state: PipelineState, server: ServerFacts, slot: SlotFacts | None) -> GapError:
    """Return the error of a new timeline, which explains a missing or moved slot and a shorter log."""
    lost = "documents may hold commits that it never got"
    if slot is None:
        lost = f"it has no replication slot {state.slot!r}, and {lost}"
    return GapError(
        Kind.CONTINUITY,
        f"the server is on timeline {server.timeline} now ({state.timeline} before): a standby was promoted, "
        f"or the database was restored to an earlier time; {lost}",
    )


def _former(state: PipelineState, server: ServerFacts) -> HeadraceError:
    """Return the error of an earlier timeline; never a gap, because a former primary has only older data."""
    return HeadraceError(
        Kind.CONTINUITY,
        f"the server is on timeline {server.timeline}, and the documents come from the later timeline "
        f"{state.timeline}: the primary of before a promotion is back, or storage was put back to that time",
        "Lead the address to the primary of today and start again: nothing is lost there. Only where the "
        f"storage was put back: {BACKFILL_AGAIN[0].lower()}{BACKFILL_AGAIN[1:]}",
    )


def _foreign(state: PipelineState, cause: str) -> HeadraceError:
    """Return the error of another database; the state may belong to another deployment that still runs."""
    return HeadraceError(
        Kind.CONTINUITY,
        f"{cause}, or another deployment of this cluster uses the slot name {state.slot!r}",
        "Correct the address, or name another slot with --slot or in the file. Only where the database of "
        "this deployment was moved or recreated: run `headrace teardown --moved`, then `headrace run`.",
    )
