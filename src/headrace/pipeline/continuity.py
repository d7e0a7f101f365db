"""Check that database, slot and documents still belong together (decision 0017), from outside a run.

What proves what is decided in `controller/log`.
"""

from __future__ import annotations

from headrace.capture.continuity import not_promoted
from headrace.errors import HeadraceError
from headrace.model.lsn import Lsn
from headrace.pipeline.controller.log import (
    GapError,
    awaits_promotion,
    find_gaps,
    unknown_slot,
    why_another_server,
)
from headrace.pipeline.controller.world import ServerSeen, SlotSeen
from headrace.postgres.server import ServerFacts
from headrace.postgres.slot import SlotFacts
from headrace.state import PipelineState

__all__ = ["GapError", "check_continuity", "check_database", "check_origin", "see_server", "see_slot"]


def see_server(facts: ServerFacts, current: Lsn) -> ServerSeen:
    """Return what a decision needs of a server whose log ends at `current`."""
    return ServerSeen(
        str(facts.system_identifier), facts.timeline, facts.database_oid, current, facts.in_recovery
    )


def see_slot(facts: SlotFacts) -> SlotSeen:
    """Return what a decision needs of a slot."""
    return SlotSeen(facts.name, facts.confirmed_flush or 0, facts.why_lost if facts.lost else "")


def check_origin(state: PipelineState | None, server: ServerFacts, slot: SlotFacts | None) -> None:
    """Refuse a slot that the saved state does not know, or does not match any more.

    Raises:
        HeadraceError: SLOT_UNKNOWN, CONTINUITY or SLOT_LOST.
    """
    if state is None and slot is not None:
        raise unknown_slot(slot.name)
    if state is not None and state.phase == "following":
        check_continuity(state, server, slot)
    elif state is not None and state.generations:
        check_database(state, server)


def check_continuity(state: PipelineState, server: ServerFacts, slot: SlotFacts | None) -> None:
    """Refuse to follow a slot where documents could become wrong unnoticed.

    Raises:
        HeadraceError: CONTINUITY or SLOT_LOST, with the reason; CONNECTION: a standby waits for its promotion
            in a failover. What it lacks is not a gap.
    """
    check_database(state, server)
    seen = None if slot is None else see_slot(slot)
    gap = next(find_gaps(state, see_server(server, server.current_lsn), seen), None)
    if gap is not None:
        raise gap


def check_database(state: PipelineState, server: ServerFacts) -> None:
    """Check that the database is the one that the documents come from.

    Another database is never a gap: with a wrong address a reseed would replace all documents.

    Raises:
        HeadraceError: CONTINUITY; CONNECTION, as `check_continuity`.
    """
    seen = see_server(server, server.current_lsn)
    another = why_another_server(state, seen)
    if another is not None:
        raise another
    if awaits_promotion(state, seen):
        raise waits_for_promotion(state.slot)


def waits_for_promotion(slot: str) -> HeadraceError:
    """Return the error of a standby that a failover has not promoted yet."""
    error = not_promoted(slot)
    again = "To follow the standby instead: `headrace teardown` on the primary, then `headrace run`."
    return HeadraceError(error.kind, error.cause, f"{error.remedy} {again}")
