"""Tell users what a run decides and how its units are: by the log, the status board and `/readyz`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.errors import HeadraceError
from headrace.pipeline.controller import actions
from headrace.pipeline.controller.desired import Desired
from headrace.pipeline.controller.statuses import status_of
from headrace.pipeline.controller.world import Unknown, World
from headrace.state import GenerationState, PipelineState, Unit
from headrace.state.pipeline_state import served_of
from headrace.status.board import IndexPhase, StatusBoard, UnitPhase, UnitStatus
from headrace.status.phases import Phase


@dataclass(eq=False, slots=True)
class RunBoard:
    """Shows one run; used from its thread.

    Attributes:
        board: the status board.
        on_live: called when every index is complete and the stream follows; perhaps more than once.
    """

    board: StatusBoard
    on_live: Callable[[], None]
    _why_built: dict[Unit, str] = field(default_factory=dict, init=False)
    _shown: dict[str, GenerationState] | None = field(default=None, init=False)
    _told: dict[Unit, tuple[UnitPhase, str]] = field(default_factory=dict, init=False)
    _failed: dict[str, str] = field(default_factory=dict, init=False)

    def announce(self, action: actions.Action) -> None:
        """Tell before a step what users must know while it goes on."""
        if isinstance(action, actions.CloseQuery):
            self.board.record_error(action.failure, degrades=not action.charged)
            self.board.mark_following(follows=False)
            if not action.charged:
                # Without its remedy: what the run does by itself, nobody has to do.
                failure = action.failure
                self.board.report.warning(f"starting the stream again after [{failure.code}] {failure.cause}")

    def tell(self, action: actions.Action, failure: HeadraceError | None) -> None:
        """Tell users of a step that is done, or once why it fails where the status of no unit tells that."""
        key = action.key
        if failure is None:
            self._failed.pop(key, None)
            self._tell_done(action)
        elif self._failed.get(key) != failure.cause and not actions.is_step_of_unit(key):
            self._failed[key] = failure.cause
            self.board.report.warning(
                f"{type(action).__name__} has failed and is tried again ({action.why}): {failure}"
            )

    def _tell_done(self, action: actions.Action) -> None:
        """Tell users of a step that is more than housekeeping."""
        report = self.board.report
        match action:
            case actions.CreateGeneration():
                self._why_built[action.unit] = action.why
                if action.cause is not None:
                    self.board.count_rebuild(str(action.unit), action.cause.value)
            case actions.Serve(generation=served) if served.published:
                report.warning(f"{action.unit}: readers are led back to {served.generation}: {action.why}")
            case actions.StopFollowing():
                self._tell_stopped(action)
            case actions.BeginAgain() | actions.DropSlot():
                self._tell_gap(action)
            case actions.TakeUpCatalog():
                for renewed in action.renewed:
                    report.info(f"{renewed.index}: a table has lost rows; every document is assembled again")

    def _tell_stopped(self, action: actions.StopFollowing) -> None:
        failure = action.failure
        if action.generation.published:
            self.board.count_rebuild(str(action.unit), action.cause.value)
        remedy = "" if failure is None or not failure.remedy else f". {failure.remedy}"
        what = f"{action.unit}: {action.generation.generation} is not followed any more"
        self.board.report.warning(f"{what}: {action.why}{remedy}")
        if failure is not None:
            self.board.record_error(failure)

    def _tell_gap(self, action: actions.BeginAgain | actions.DropSlot) -> None:
        if isinstance(action, actions.DropSlot):
            self.board.set_warning("budget", f"{action.why}; everything is backfilled again afterwards")
            return
        self.board.record_gap(_describe_gap(action.why))

    def show(self, world: World, desired: Desired, *, has_begun: bool) -> None:
        """Show how everything is."""
        state = world.state
        if isinstance(state, Unknown) or state is None or desired.units is None:
            return
        statuses = {unit: status_of(unit, world, state, desired) for unit in sorted(desired.units)}
        self._report_changes(state)
        for unit, status in statuses.items():
            self._show_unit(unit, status, state)
        self.board.note(units=tuple(statuses.values()))
        self._show_sinks(world)
        self._show_phase(world, state, statuses, has_begun=has_begun)

    def _show_unit(self, unit: Unit, status: UnitStatus, state: PipelineState) -> None:
        generations = state.of_unit(unit)
        served = served_of(generations)
        filled = [generation.generation for generation in generations if generation.backfilling]
        shown = served or (generations[-1] if generations else None)
        is_live = served is not None and served.followed
        self.board.index(
            unit.index,
            sink=unit.sink,
            phase=IndexPhase.LIVE if is_live else IndexPhase.BACKFILLING,
            generation=None if shown is None else shown.generation,
            building=filled[0] if filled else None,
            error=status.text if status.is_stuck or status.phase is UnitPhase.AWAY else None,
        )
        self._tell_status(unit, status)

    def _tell_status(self, unit: Unit, status: UnitStatus) -> None:
        """Log once that a unit waits or has failed, with its reason, next try and remedy."""
        now = (status.phase, status.why)
        if self._told.get(unit) == now:
            return
        self._told[unit] = now
        if status.is_stuck and status.why and status.why != "no query runs":
            self.board.report.warning(f"{unit} {status.phase.value}: {status.text}")

    def _show_sinks(self, world: World) -> None:
        for name, seen in world.sinks.items():
            if not name:
                continue
            deferred = sum(count for id_, count in world.deferred.items() if id_.startswith(f"{name}/"))
            if isinstance(seen, Unknown):
                self.board.secondary(name, away=str(seen.error), deferred=deferred)

    def _show_phase(
        self, world: World, state: PipelineState, statuses: Mapping[Unit, UnitStatus], *, has_begun: bool
    ) -> None:
        # By the state: a run that was started amid a gap shows it too.
        gap = _find_gap(state)
        self.board.set_warning("gap", None if gap is None else _describe_gap(gap))
        is_open = world.query is not None and world.query.failure is None
        self.board.mark_following(follows=is_open and has_begun)
        if is_open and any(generation.backfilling for generation in state.in_sink("").generations):
            self.board.enter(Phase.BACKFILLING)
        elif not (is_open and has_begun):
            self.board.enter(Phase.STARTING)
        else:
            self.board.enter(Phase.LIVE)
            primary = [status for unit, status in statuses.items() if not unit.sink]
            if gap is None and all(status.serves for status in primary):
                self.on_live()

    def _report_changes(self, state: PipelineState) -> None:
        """Report generations that are new, complete, or served now."""
        before = self._shown
        self._shown = {generation.id: generation for generation in state.generations}
        # What is there when a run begins is no news.
        if before is None:
            return
        for generation in state.generations:
            known = before.get(generation.id)
            unit = generation.unit
            if known is None:
                why = self._why_built.get(unit, "")
                self.board.report.info(f"{unit!s}: builds {generation.generation}: {why}")
            elif generation.published and not known.published:
                former = served_of([other for other in before.values() if other.unit == unit])
                if former is not None:
                    text = f"readers see {generation.generation}, no longer {former.generation}"
                    self.board.report.done(f"{unit!s}: {text}")


def _find_gap(state: PipelineState) -> str | None:
    """Return why readers see documents of a log that does not go on; None where they do not."""
    for served in state.in_sink("").generations:
        is_before = state.phase != "following" or served.joined < state.consistent_point
        if served.published and served.frozen and is_before:
            return served.frozen
    return None


def _describe_gap(why: str) -> str:
    return f"{why}; on_gap = reseed: searches use the present indexes until all are backfilled again"
