"""Say how each unit is, for people and for `/readyz`."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from headrace.errors import HeadraceError
from headrace.pipeline.controller.actions import Serve, StartBackfill, StopFollowing, build_key
from headrace.pipeline.controller.desired import Desired
from headrace.pipeline.controller.generations import UnitView
from headrace.pipeline.controller.world import Unknown, World
from headrace.state import PipelineState, Unit

# Steps whose failure keeps a unit from what it should be.
_OF_UNITS = (Serve.__name__, StartBackfill.__name__, StopFollowing.__name__)


class UnitPhase(enum.Enum):
    """How a unit is."""

    LIVE = "live"
    BACKFILLING = "backfilling"
    WAITING = "waiting"
    AWAY = "away"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """How a unit is, and what is done about it.

    Attributes:
        why: the reason, where it is not live; else empty.
        next_try: when it is tried again (seconds of the run's clock); None where nothing is to be tried.
        error: what has failed, with its remedy.
        serves: whether readers see a complete generation, perhaps an old one.
    """

    phase: UnitPhase
    why: str = ""
    next_try: float | None = None
    error: HeadraceError | None = None
    serves: bool = False


def status_of(unit: Unit, world: World, state: PipelineState, desired: Desired) -> UnitStatus:
    """Return how a unit is."""
    view = UnitView.of(unit, world, state, desired)
    serves = view.served is not None
    sink = world.sinks.get(unit.sink)
    if isinstance(sink, Unknown):
        return UnitStatus(UnitPhase.AWAY, sink.error.cause, error=sink.error, serves=serves)
    if view.definition is not None and view.definition.misfit:
        return UnitStatus(UnitPhase.WAITING, view.definition.misfit, serves=serves)
    definition = "" if view.definition is None else view.definition.hash
    # Failures of what all share are not shown here: the whole run waits then, with its own reason.
    keys = (build_key(unit, definition), *(f"{name} {unit}" for name in _OF_UNITS))
    failed = next((world.failures[key] for key in keys if key in world.failures), None)
    if failed is not None:
        return UnitStatus(UnitPhase.FAILED, failed.error.cause, failed.next_try, failed.error, serves)
    return _status_of_followed(view)


def _status_of_followed(view: UnitView) -> UnitStatus:
    query, served = view.world.query, view.served
    serves = served is not None
    if served is not None and served.followed:
        if query is not None and query.failure is None:
            return UnitStatus(UnitPhase.LIVE, serves=True)
        return UnitStatus(UnitPhase.WAITING, "no query runs", serves=True)
    if any(generation.building for generation in view.followed):
        return UnitStatus(UnitPhase.BACKFILLING, serves=serves)
    return UnitStatus(UnitPhase.BACKFILLING, "its next generation is not created yet", serves=serves)
