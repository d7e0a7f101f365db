"""Compare what is with what should be, and return the actions that lead there: the only place that decides.

Pure, total and deterministic: the same world and the same wishes give the same actions, and a world that is
as it should be gives none.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import Kind
from headrace.pipeline.controller.actions import Action, EndRun
from headrace.pipeline.controller.desired import Desired
from headrace.pipeline.controller.generations import decide_drops, decide_forgetting, decide_units
from headrace.pipeline.controller.log import decide_log, decide_release
from headrace.pipeline.controller.orders import decide_orders
from headrace.pipeline.controller.stream import decide_backfills, decide_query
from headrace.pipeline.controller.world import Unknown, World
from headrace.state import PipelineState


def reconcile(world: World, desired: Desired) -> tuple[Action, ...]:
    """Return what leads there, in this order; some of it may not be due yet."""
    return tuple(_decide(world, desired))


def is_due(world: World, action: Action) -> bool:
    """Whether no failure puts the action off: what somebody orders is tried at once, and then as all else."""
    failed = world.failures.get(action.key)
    if failed is None or world.now >= failed.next_try:
        return True
    return bool(action.order_id) and action.order_id != failed.order


def _decide(world: World, desired: Desired) -> Iterator[Action]:
    # Before all else: another run may write already, and each action here would be a second hand.
    if world.lost_lock is not None:
        yield EndRun(world.lost_lock.cause, world.lost_lock)
        return
    if desired.stopping:
        yield EndRun("it was asked to end")
        return
    state = world.state
    if isinstance(state, Unknown):
        yield from decide_release(world, desired)
        if state.error.kind is Kind.CONTINUITY:  # it was read, and no other try reads it otherwise
            yield EndRun(state.error.cause, state.error)
        return  # whatever else is decided is stored first
    log = decide_log(world, desired)
    yield from log.actions
    # What units need is decided from a state that names a log: the next round has it.
    if log.actions or not log.has_begun:
        return
    assert state is not None, "the log has begun, so a state names it"
    yield from _decide_followed(world, desired, state, goes_on=log.goes_on)


def _decide_followed(
    world: World, desired: Desired, state: PipelineState, *, goes_on: bool
) -> Iterator[Action]:
    # First: an order that a newer one replaces must not be carried out in the same round.
    yield from decide_orders(world, state, desired)
    if desired.units is None:
        return  # a unit that is not known yet is no unit that was removed
    yield from decide_units(world, state, desired)
    # After the units: the plan has what they are given in this round. Before there is a catalog, they are
    # given nothing.
    yield from decide_query(world, state, goes_on=goes_on and bool(state.catalog))
    yield from decide_backfills(world, state)
    yield from decide_forgetting(world, state)
    # Last: what the actions before have stopped writing is dropped in a later round, when the world shows it.
    yield from decide_drops(world, state)
