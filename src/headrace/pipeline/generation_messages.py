"""Tell the board and the reporter what becomes of a sink's generations."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.errors import HeadraceError
from headrace.model.units import quantity
from headrace.pipeline.sink_target import SinkTarget
from headrace.state import ControlRequest, GenerationState, PipelineState
from headrace.status.board import IndexPhase
from headrace.status.index_board import IndexBoard


class GenerationMessages:
    """Messages about the generations of one sink.

    Args:
        board: shows the indexes of the sink.
        target: the sink.
    """

    def __init__(self, board: IndexBoard, target: SinkTarget) -> None:
        self._board = board
        self._target = target
        self._faults: Mapping[str, str] = {}

    def show(self, index: str, state: PipelineState) -> None:
        """Show the state of an index on the board."""
        served, generations = state.served(index), state.of(index)
        building = next(
            (
                generation.generation
                for generation in generations
                if generation.building and generation.followed
            ),
            None,
        )
        if served is not None:
            phase = IndexPhase.LIVE if served.followed else IndexPhase.BACKFILLING
            error = _stopped(served) if served.frozen else None
            self._board.index(
                index, phase=phase, generation=served.generation, building=building, error=error
            )
        elif generations:
            backfilling = IndexPhase.BACKFILLING
            self._board.index(
                index, phase=backfilling, generation=generations[-1].generation, building=building
            )

    def report_building(self, generation: GenerationState, why: str) -> None:
        """Report that a generation was created and is backfilled."""
        self._board.report.info(f"{self._name(generation.index)}: builds {generation.generation}: {why}")

    def report_served(self, generation: GenerationState) -> None:
        """Report which generation readers see."""
        self._board.report.done(f"{self._name(generation.index)}: readers see {generation.generation}")

    def report_complete(
        self, generation: GenerationState, documents: int, before: GenerationState | None
    ) -> None:
        """Report that a generation is complete and served.

        Args:
            generation: the complete generation.
            documents: how many documents it holds.
            before: what readers saw until now.
        """
        index, target = generation.index, self._target
        self._board.report.done(f"{target.label}{target.prefix}{index}: {quantity(documents, 'document')}")
        if before is not None and before.generation != generation.generation:
            text = f"readers see {generation.generation}, no longer {before.generation}"
            self._board.report.done(f"{self._name(index)}: {text}")

    def clear_backfill(self, index: str, documents: int) -> None:
        """Show that the backfill of an index is over."""
        self._board.index(
            index,
            documents=documents,
            building=None,
            documents_per_second=None,
            seconds_left=None,
            error=None,
        )

    def report_failed(self, request: ControlRequest, error: HeadraceError) -> None:
        """Report a control request that could not be carried out."""
        self._board.report.warning(f"{request.kind} {request.index}: {error}")
        self._board.index(request.index, error=error.cause)

    def report_altered(self, altered: Collection[str]) -> None:
        """Report settings that an operator had altered and that are set right."""
        for what in altered:
            self._board.report.warning(f"{self._target.label}{what}; set right")

    def report_faults(self, faults: Mapping[str, str]) -> None:
        """Report aliases that an operator has altered; the next start sets them right."""
        for index in self._faults.keys() - faults.keys():
            self._board.index(index, error=None)
        for index, fault in faults.items():
            if self._faults.get(index) != fault:
                self._board.report.warning(f"{self._name(index)}: {fault}")
                self._board.index(index, error=fault)
        self._faults = faults

    def warn_of_frozen(self, generation: GenerationState, reason: str) -> None:
        """Warn that a generation is followed no more."""
        what = "is not built" if generation.building else "is stopped"
        self._board.report.warning(
            f"{self._name(generation.index)}: {generation.generation} {what}: {reason}"
        )
        self._board.index(generation.index, building=None, error=reason)

    def warn_of_refused(self, index: str, state: PipelineState, why: str) -> None:
        """Warn that the sink refuses an index's next generation, which is tried again."""
        served = state.served(index)
        shown = "" if served is None else f"; searches use {served.generation} until then"
        stopped = "" if served is None or served.followed else f", which is stopped: {served.frozen}"
        error = f"the next generation is refused, and tried again: {why.rstrip('.; ')}{shown}{stopped}"
        self._board.report.warning(f"{self._name(index)}: {error}")
        self._board.index(index, error=error)

    def warn_of_waiting(self, index: str, why: str) -> None:
        """Warn that an index is not followed before its schema file fits the database."""
        self._board.report.warning(
            f"{self._name(index)}: waits until its schema file fits the database: {why}"
        )
        self._board.index(index, building=None, error=f"waits until its schema file fits the database: {why}")

    def warn_of_rebuilding(self, frozen: Collection[GenerationState]) -> None:
        """Warn why an index that readers see is built again."""
        for generation in frozen:
            if generation.published:
                self._board.report.warning(
                    f"{self._name(generation.index)}: {generation.frozen}; backfilling again"
                )

    def _name(self, index: str) -> str:
        return f"{self._target.label}{index}"


def _stopped(served: GenerationState) -> str:
    return f"{served.generation} is stopped, and searches still use it: {served.frozen}"
