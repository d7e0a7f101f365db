"""How does a run begin anew behind a gap in the log, while readers keep what they have? (decision 0062)

What is served is frozen: its versions are places in a log that does not go on, so nothing is written to it
any more. Slot and state begin anew, and each index gets its next generation. Each step can be repeated: a
start after a kill finds the phase "creating", with frozen generations, and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.errors import SEED_AGAIN, HeadraceError, Kind
from headrace.model import Lsn, format_lsn
from headrace.model.failpoints import reach
from headrace.pipeline.continuity import GapError, new_state
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.project import Endpoints
from headrace.pipeline.secondary_sinks import SecondarySinks
from headrace.pipeline.slot_wait import wait_for_slot
from headrace.postgres.connection import Connection
from headrace.postgres.server import ServerFacts
from headrace.postgres.slot import (
    ExportedSlot,
    SlotFacts,
    advance_slot,
    drop_slot,
    read_slot,
    slot_in_use,
)
from headrace.sinks.opensearch import MetaIndex, PipelineState
from headrace.status.board import StatusBoard

_BESIDE = "_reseed"
_LONGEST_NAME = 63


class Reseeding:
    """What a run does behind a gap.

    Args:
        meta: of the run; it has loaded the state.
        exported: the snapshot that indexes are filled from.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        meta: MetaIndex,
        board: StatusBoard,
        secondary_sinks: SecondarySinks,
        exported: HeldSnapshot,
    ) -> None:
        self._endpoints = endpoints
        self._meta = meta
        self._board = board
        self._secondary_sinks = secondary_sinks
        self._exported = exported

    def forget(self, gap: GapError, state: PipelineState) -> PipelineState:
        """Follow nothing of what there is any more, and note that there is no slot.

        The secondary sinks come first: their lists name no log, so nobody could tell later that they are old.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, CONTINUITY.
        """
        self._board.report.warning(
            f"{gap.cause}; on_gap = reseed: what is served stays as it is until it is seeded anew"
        )
        self._board.failed(gap)
        self._exported.close()
        self._secondary_sinks.freeze(gap.cause)
        state = without_log(state, gap.cause)
        self._meta.save(state)
        self._board.gap_found(f"what is served is not followed, and is seeded anew: {gap.cause}")
        reach("forgotten")
        return state

    def slot(self, connection: Connection, state: PipelineState, *, failover: bool) -> ExportedSlot:
        """The slot at a new place, see `make_slot_anew`."""
        slot = make_slot_anew(connection, self._endpoints.database, state, self._board, failover=failover)
        reach("slot")
        return slot

    def begin(
        self,
        slot: ExportedSlot,
        state: PipelineState,
        server: ServerFacts,
        published: Mapping[str, int],
        catalog: str,
    ) -> PipelineState:
        """The state that goes on from the slot; `published` and `catalog` as it keeps them.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, CONTINUITY.
        """
        self._board.report.done(f"slot {state.slot} at {format_lsn(slot.consistent_point)}")
        self._meta.forget_log()
        state = with_log(state, server, slot.consistent_point)
        state = replace(state, published=published, catalog=catalog)
        self._meta.save(state)
        self._exported.hold(slot)
        return state


def without_log(state: PipelineState, reason: str) -> PipelineState:
    """The state before the new slot is made; where the old one was is kept, to know it by (`is_own`)."""
    return replace(state.frozen(reason), phase="creating", ahead=None)


def is_begun_anew(state: PipelineState) -> bool:
    """Whether a start was killed between `without_log` and `with_log`; a first start froze nothing."""
    return state.phase == "creating" and any(generation.frozen for generation in state.generations)


def with_log(state: PipelineState, server: ServerFacts, beginning: Lsn) -> PipelineState:
    """A new state, once there is a slot: every change behind `beginning` is in the log.

    Of the former one only stays what is no place in a log.
    """
    return replace(
        new_state(server, state.slot, state.publication),
        phase="following",
        consistent_point=beginning,
        applied=beginning,
        generations=state.generations,
        identities_before=state.identities_before,
        counters=state.counters,
    )


def make_slot_anew(
    connection: Connection, url: str, state: PipelineState, board: StatusBoard, *, failover: bool
) -> ExportedSlot:
    """The slot at a new place, with a snapshot of that place.

    A slot that stands where this deployment has confirmed is its own, and is dropped. One that somebody else
    made or moved is kept, and advanced: a temporary slot beside it gives the snapshot.

    Raises:
        HeadraceError: SLOT_IN_USE while somebody reads it; SLOT_LOST where it is somebody else's and of no
            use; SLOT_WAIT, NO_FREE_SLOT, PRIVILEGE, CONNECTION, DATABASE.
    """
    slot = read_slot(connection, state.slot)
    if slot is None:
        return wait_for_slot(url, state.slot, board, failover=failover)
    if slot.active_pid is not None:
        raise slot_in_use(slot)
    if is_own(slot, state):
        drop_slot(connection, state.slot)
        return wait_for_slot(url, state.slot, board, failover=failover)
    if slot.lost:
        raise HeadraceError(
            Kind.SLOT_LOST,
            f"the slot {slot.name!r} was made or moved by somebody else, up to "
            f"{format_lsn(slot.confirmed_flush or 0)}, and is lost: {slot.why_lost}",
            SEED_AGAIN,
        )
    name = state.slot[: _LONGEST_NAME - len(_BESIDE)] + _BESIDE
    beside = wait_for_slot(url, name, board, temporary=True)
    try:
        advance_slot(connection, state.slot, beside.consistent_point)
    except BaseException:
        beside.close()
        raise
    return beside


def is_own(slot: SlotFacts, state: PipelineState) -> bool:
    """Whether it stands where this deployment can have confirmed it: nobody else has made or moved it."""
    return state.consistent_point <= (slot.confirmed_flush or 0) <= state.applied
