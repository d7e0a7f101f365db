"""Say how each unit is, for people and for `/readyz`."""

from __future__ import annotations

from headrace.errors import HeadraceError
from headrace.pipeline.controller.actions import Serve, StartBackfill, StopFollowing, build_key
from headrace.pipeline.controller.desired import Desired
from headrace.pipeline.controller.generations import UnitView
from headrace.pipeline.controller.world import Unknown, World
from headrace.state import PipelineState, Unit
from headrace.status.board import UnitPhase, UnitStatus

# Steps whose failure keeps a unit from what it should be.
_OF_UNITS = (Serve.__name__, StartBackfill.__name__, StopFollowing.__name__)


def status_of(unit: Unit, world: World, state: PipelineState, desired: Desired) -> UnitStatus:
    """Return how a unit is."""
    view = UnitView.of(unit, world, state, desired)
    sink = world.sinks.get(unit.sink)
    if isinstance(sink, Unknown):
        return _status(view, UnitPhase.AWAY, error=sink.error)
    if view.definition is not None and view.definition.misfit:
        return _status(view, UnitPhase.WAITING, view.definition.misfit)
    definition = "" if view.definition is None else view.definition.hash
    # Failures of what all share are not shown here: the whole run waits then, with its own reason.
    keys = (build_key(unit, definition), *(f"{name} {unit}" for name in _OF_UNITS))
    failed = next((world.failures[key] for key in keys if key in world.failures), None)
    if failed is not None:
        next_try = max(0.0, failed.next_try - world.now)
        return _status(view, UnitPhase.FAILED, error=failed.error, next_try=next_try)
    return _status_of_followed(view)


def _status_of_followed(view: UnitView) -> UnitStatus:
    query = view.world.query
    is_served = view.served is not None and view.served.followed
    if is_served and (query is None or query.failure is not None):
        return _status(view, UnitPhase.WAITING, "no query runs")
    if (waits_for := _find_wait(view)) is not None:
        return _status(view, UnitPhase.WAITING, error=waits_for)
    if is_served:
        return _status(view, UnitPhase.LIVE)
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
