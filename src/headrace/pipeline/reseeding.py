"""Build all indexes again behind a gap in the log, while readers keep the served generations (decision 0062).

Served generations are frozen. Their versions are positions in a log that has ended, so nothing is written to
them any more. Slot and state are created again, and each index gets a new generation. Each step can be
repeated: a start after a kill finds the phase "creating" with frozen generations, and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind
from headrace.model.failpoints import reach
from headrace.model.lsn import Lsn, format_lsn
from headrace.pipeline.continuity import GapError, new_state
from headrace.pipeline.exported_snapshot import HeldSnapshot, wait_for_slot
from headrace.pipeline.secondary_sinks import SecondarySinks
from headrace.pipeline.worker.plan import Endpoints
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
from headrace.state import PipelineState, StateStore
from headrace.status.board import StatusBoard

_BESIDE = "_reseed"
_LONGEST_NAME = 63


class Reseeding:
    """Reseeds a deployment behind a gap.

    Args:
        endpoints: the endpoints of the deployment.
        meta: the run's index of state, which has loaded the state.
        board: shows the gap.
        secondary_sinks: the secondary sinks of the run.
        exported: holds the snapshot that the backfill reads.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        meta: StateStore,
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
        """Freeze every generation, and save that there is no slot.

        The secondary sinks come first: their states name no log, so a later start could not see that they are
        old.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, CONTINUITY.
        """
        self._board.report.warning(
            f"{gap.cause}; on_gap = reseed: what is served stays as it is until it is backfilled again"
        )
        self._board.record_error(gap)
        self._exported.close()
        self._secondary_sinks.freeze(gap.cause)
        state = without_log(state, gap.cause)
        self._meta.save(state)
        self._board.record_gap(f"what is served is not followed, and is backfilled again: {gap.cause}")
        reach("forgotten")
        return state

    def slot(self, connection: Connection, state: PipelineState, *, failover: bool) -> ExportedSlot:
        """Create the slot at a new position; see `create_slot_again`."""
        slot = create_slot_again(connection, self._endpoints.database, state, self._board, failover=failover)
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
        """Save and return the state that goes on from the slot.

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
    """Return the state before the new slot exists; it keeps the old slot's position (see `is_own`)."""
    return replace(state.frozen(reason), phase="creating", ahead=None)


def is_reseeding(state: PipelineState) -> bool:
    """Whether a start was killed between `without_log` and `with_log`; a first start freezes nothing."""
    return state.phase == "creating" and any(generation.frozen for generation in state.generations)


def with_log(state: PipelineState, server: ServerFacts, beginning: Lsn) -> PipelineState:
    """Return the state after the new slot exists: every change behind `beginning` is in the log.

    It keeps only those parts of the former state that are not positions in the log.
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


def create_slot_again(
    connection: Connection, url: str, state: PipelineState, board: StatusBoard, *, failover: bool
) -> ExportedSlot:
    """Create the slot at a new position, with a snapshot of that position.

    A slot that stands where this deployment has confirmed is its own, and is dropped. A slot that another
    user created or moved is kept and advanced; a temporary slot then gives the snapshot.

    Raises:
        HeadraceError: SLOT_IN_USE while a process reads the slot; SLOT_LOST for another user's lost slot;
            SLOT_WAIT, NO_FREE_SLOT, PRIVILEGE, CONNECTION, DATABASE.
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
            f"the slot {slot.name!r} was made or moved by another program, up to "
            f"{format_lsn(slot.confirmed_flush or 0)}, and is lost: {slot.why_lost}",
            BACKFILL_AGAIN,
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
    """Whether the slot stands where this deployment can have confirmed it."""
    return state.consistent_point <= (slot.confirmed_flush or 0) <= state.applied
