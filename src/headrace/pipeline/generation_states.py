"""Which generation of an index is built, served, kept and dropped?

Pure: from what the pipeline remembers and what the files ask for now to what is to be done, index by index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import ControlRequest, GenerationState


@dataclass(frozen=True, slots=True)
class Next:
    """What is to be done with the generations of one index.

    Attributes:
        make: whether a new one is to be built.
        serve: the seeded one that readers are to see; None changes nothing.
        drop: those that nobody needs.
        order: what the new one, or the one that is served, is made for.
    """

    make: bool = False
    serve: GenerationState | None = None
    drop: tuple[GenerationState, ...] = ()
    order: str = ""


def succeed(found: Sequence[GenerationState], wanted: str) -> Next:
    """What the files ask for.

    Args:
        found: the generations that are there, oldest first.
        wanted: the hash of what the files say.
    """
    served = _served(found)
    if served is not None and served.followed and served.pinned == wanted:
        return Next(drop=_building(found))
    fitting = [one for one in found if one.hash == wanted and one.followed]
    if served in fitting:
        again = [one for one in fitting if one.building and one.order]  # a reindex that goes on
        return Next(drop=tuple(one for one in _building(found) if one not in again))
    seeded = [one for one in fitting if not one.building]
    if seeded:
        return Next(serve=replace(seeded[-1], pinned=""), drop=_building(found))
    building = fitting[-1:]
    drop = tuple(one for one in _building(found) if one not in building)
    return Next(make=not building, drop=drop)


def obey(found: Sequence[GenerationState], wanted: str, order: ControlRequest) -> Next:
    """What somebody asks for; nothing where it is done already.

    Raises:
        HeadraceError: USAGE, where there is nothing to go back to.
    """
    if any(one.order == order.number for one in found):
        return Next()
    if order.what == "reindex":
        return Next(make=True, drop=_building(found), order=order.number)
    kept = [one for one in found if not one.building and one.followed and not one.published]
    if not kept:
        raise HeadraceError(Kind.USAGE, why_no_way_back(order.index, found), "`headrace indexes` lists them.")
    back = replace(kept[-1], pinned=wanted, order=order.number)
    return Next(serve=back, drop=_building(found), order=order.number)


def why_no_way_back(index: str, found: Sequence[GenerationState]) -> str:
    """Why a rollback is not possible."""
    frozen = [one for one in found if one.frozen and not one.building and not one.published]
    if frozen:
        return f"the generation before {index}'s is frozen and not right any more: {frozen[-1].frozen}"
    return f"no generation of {index} is kept beside the one that is served"


def why_made(found: Sequence[GenerationState], order: str) -> str:
    """Why another generation is built.

    Args:
        found: those that are there.
        order: the number of what somebody asks for; empty for nothing.
    """
    served = _served(found)
    if order:
        return "a reindex was asked for"
    if served is None:
        return "none is complete yet"
    if served.frozen:
        return f"the served one is not right any more: {served.frozen}"
    return "its schema file, its settings or the types of its columns have changed since the served one"


def superseded(found: Sequence[GenerationState], before: str | None, keep: int) -> list[GenerationState]:
    """Which seeded generations are dropped, now that another is served.

    Args:
        before: the concrete name of the one that was served until now: it is kept first.
        keep: how many are kept; one that is frozen is not.
    """
    others = [one for one in found if not one.building and not one.published]
    usable = [one for one in reversed(others) if one.followed]
    usable.sort(key=lambda one: one.generation != before)
    kept = usable[:keep]
    return [one for one in others if one not in kept]


def _served(found: Sequence[GenerationState]) -> GenerationState | None:
    return next((one for one in found if one.published), None)


def _building(found: Sequence[GenerationState]) -> tuple[GenerationState, ...]:
    return tuple(one for one in found if one.building)
