"""Say how each unit is, and what all of them wait for, for people and for `/readyz`."""

from __future__ import annotations

from headrace.errors import HeadraceError
from headrace.pipeline.continuity import waits_for_promotion
from headrace.pipeline.controller.actions import UNIT_STEPS, CreateState, SetUp, StopFollowing, build_key
from headrace.pipeline.controller.desired import Desired
from headrace.pipeline.controller.generations import UnitView, find_hindrance
from headrace.pipeline.controller.log import awaits_promotion
from headrace.pipeline.controller.world import Failures, ServerSeen, SlotSeen, Unknown, World
from headrace.postgres.server_errors import slot_in_use_by
from headrace.state import PipelineState, Unit
from headrace.status.board import UnitPhase, UnitStatus

# How the keys of steps begin without which nothing goes on; what a slot waits for the source tells by itself.
_BEFORE_THE_SLOT = (CreateState.__name__, SetUp.__name__)
_BEFORE_A_QUERY = (f"{StopFollowing.__name__} ",)


def why_waiting(world: World) -> HeadraceError | None:
    """Return what the whole run waits for, as an error that users are shown; None for nothing."""
    for seen in (world.server, world.slot, world.state, world.catalog):
        if isinstance(seen, Unknown):
            return seen.error
    server, slot, state = world.server, world.slot, world.state
    assert isinstance(server, ServerSeen), "what is unknown has been returned"
    if isinstance(state, PipelineState) and awaits_promotion(state, server):
        return waits_for_promotion(state.slot)
    if isinstance(slot, SlotSeen) and slot.reader:
        return slot_in_use_by(slot.reader, slot.name)
    if world.query is None:
        has_begun = isinstance(state, PipelineState) and state.phase == "following"
        steps = _BEFORE_A_QUERY if has_begun else _BEFORE_THE_SLOT
        for key, failed in world.failures.items():
            if key.startswith(steps):
                return failed.error
    primary = world.sinks.get("")
    return primary.error if isinstance(primary, Unknown) else None


def status_of(unit: Unit, world: World, state: PipelineState, desired: Desired) -> UnitStatus:
    """Return how a unit is."""
    view = UnitView.of(unit, world, state, desired)
    sink = world.sinks.get(unit.sink)
    if isinstance(sink, Unknown):
        return _status(view, UnitPhase.AWAY, error=sink.error)
    if view.definition is not None and view.definition.misfit:
        return _status(view, UnitPhase.WAITING, view.definition.misfit)
    if (failed := _find_failure(view)) is not None:
        next_try = max(0.0, failed.next_try - world.now)
        return _status(view, UnitPhase.FAILED, error=failed.error, next_try=next_try)
    return _status_of_followed(view)


def _find_failure(view: UnitView) -> Failures | None:
    """Return what keeps a unit from what it should be; the run itself tells what all units wait for."""
    unit, failures = view.unit, view.world.failures
    built = None if view.definition is None else failures.get(build_key(unit, view.definition.hash))
    # Where readers see what they should, a build that failed keeps only the order waiting that it answers.
    if built is not None and (not view.is_right or (view.order is not None and view.order.id == built.order)):
        return built
    if (hindrance := find_hindrance(view)) is not None:
        return hindrance
    return next((failures[f"{step}{unit}"] for step in UNIT_STEPS if f"{step}{unit}" in failures), None)


def _status_of_followed(view: UnitView) -> UnitStatus:
    query = view.world.query
    is_served = view.served is not None and view.served.followed
    if is_served and (query is None or query.failure is not None):
        return _status(view, UnitPhase.WAITING, "no query runs")
    if (waits_for := _find_wait(view)) is not None:
        return _status(view, UnitPhase.WAITING, error=waits_for)
    if is_served:
        return _status(view, UnitPhase.LIVE, error=view.refused)
    is_built = any(generation.building for generation in view.followed)
    return _status(view, UnitPhase.BACKFILLING, "" if is_built else "its next generation is not created yet")


def _find_wait(view: UnitView) -> HeadraceError | None:
    """Return what documents of a followed generation wait for; None where none do."""
    query = view.world.query
    for generation in view.followed:
        backfill = view.world.backfills.get(generation.id)
        if backfill is not None and backfill.locked is not None:
            return backfill.locked
        if query is not None and generation.id in query.held:
            return query.held[generation.id]
    return None


def _status(
    view: UnitView,
    phase: UnitPhase,
    why: str = "",
    *,
    error: HeadraceError | None = None,
    next_try: float | None = None,
) -> UnitStatus:
    remedy = ""
    if error is not None:
        why, remedy = error.cause, error.remedy
    return UnitStatus(
        view.unit.sink, view.unit.index, phase, why, next_try, remedy, serves=view.served is not None
    )
