"""Decide which generations of an index are built, served, retained and dropped.

The decisions are pure functions, one index at a time: from the saved generations and the schema files to the
next step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.errors import HeadraceError, Kind
from headrace.state import ControlRequest, GenerationState


@dataclass(frozen=True, slots=True)
class Next:
    """The next step for the generations of one index.

    Attributes:
        make: whether a new generation is built.
        serve: the complete generation that readers see next; None changes nothing.
        drop: generations that are not needed.
        request: number of the control request that the new or served generation answers; empty for none.
    """

    make: bool = False
    serve: GenerationState | None = None
    drop: tuple[GenerationState, ...] = ()
    request: str = ""


def plan_from_files(generations: Sequence[GenerationState], wanted_hash: str) -> Next:
    """Decide the next step that the schema files require.

    Args:
        generations: the generations that exist, oldest first.
        wanted_hash: the hash of the schema files' definition.
    """
    served = _served(generations)
    if served is not None and served.followed and served.pinned == wanted_hash:
        return Next(drop=_building(generations))
    fitting = [
        generation for generation in generations if generation.hash == wanted_hash and generation.followed
    ]
    if served in fitting:
        again = [
            generation for generation in fitting if generation.building and generation.request
        ]  # a requested reindex goes on
        return Next(
            drop=tuple(generation for generation in _building(generations) if generation not in again)
        )
    backfilled = [generation for generation in fitting if not generation.building]
    if backfilled:
        return Next(serve=replace(backfilled[-1], pinned=""), drop=_building(generations))
    building = fitting[-1:]
    drop = tuple(generation for generation in _building(generations) if generation not in building)
    return Next(make=not building, drop=drop)


def unpinned(generations: Sequence[GenerationState], wanted_hash: str) -> list[GenerationState]:
    """Return, without their pins, the generations that a rollback has pinned against other files than these.

    The files have changed since the rollback, so they are followed again, also once they are changed back.
    """
    return [
        replace(generation, pinned="")
        for generation in generations
        if generation.pinned not in ("", wanted_hash)
    ]


def apply_request(generations: Sequence[GenerationState], wanted_hash: str, request: ControlRequest) -> Next:
    """Decide the next step for a control request; an empty step where the request is done already.

    Raises:
        HeadraceError: USAGE: there is no generation to roll back to.
    """
    if any(generation.request == request.number for generation in generations):
        return Next()
    if request.kind == "reindex":
        return Next(make=True, drop=_building(generations), request=request.number)
    retained = [
        generation
        for generation in generations
        if not generation.building and generation.followed and not generation.published
    ]
    if not retained:
        raise HeadraceError(
            Kind.USAGE, why_no_way_back(request.index, generations), "`headrace indexes` lists them."
        )
    back = replace(retained[-1], pinned=wanted_hash, request=request.number)
    return Next(serve=back, drop=_building(generations), request=request.number)


def why_no_way_back(index: str, generations: Sequence[GenerationState]) -> str:
    """Return why a rollback is not possible."""
    frozen = [
        generation
        for generation in generations
        if generation.frozen and not generation.building and not generation.published
    ]
    if frozen:
        return f"{frozen[-1].generation}, the generation before, is stopped: {frozen[-1].frozen}"
    return f"no generation of {index} is kept beside the one that is served"


def why_built(generations: Sequence[GenerationState], request: str) -> str:
    """Return why another generation is built.

    Args:
        generations: the generations that exist.
        request: the number of the control request; empty for none.
    """
    served = _served(generations)
    if request:
        return "a reindex was asked for"
    if not generations:
        return "this deployment did not follow it until now"
    if served is None:
        return "none is complete yet"
    if served.frozen:
        return f"{served.generation} is stopped: {served.frozen}; searches use it until then"
    return f"its schema file, its settings or the types of its columns changed since {served.generation}"


def superseded(
    generations: Sequence[GenerationState], before: str | None, keep: int
) -> list[GenerationState]:
    """Return the complete generations that are dropped after another one is served.

    Args:
        generations: the generations of the index, oldest first.
        before: the name of the generation that was served until now; it is retained first.
        keep: how many are retained; frozen ones never are.
    """
    others = [
        generation for generation in generations if not generation.building and not generation.published
    ]
    usable = [generation for generation in reversed(others) if generation.followed]
    usable.sort(key=lambda generation: generation.generation != before)
    retained = usable[:keep]
    return [generation for generation in others if generation not in retained]


def _served(generations: Sequence[GenerationState]) -> GenerationState | None:
    return next((generation for generation in generations if generation.published), None)


def _building(generations: Sequence[GenerationState]) -> tuple[GenerationState, ...]:
    return tuple(generation for generation in generations if generation.building)
