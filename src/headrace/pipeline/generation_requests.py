"""Request that a running pipeline builds an index again, or serves the former generation."""

from __future__ import annotations

import time
from dataclasses import dataclass

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.applied_position import AppliedPosition
from headrace.pipeline.generation_states import why_no_way_back
from headrace.pipeline.project import Project, find_index
from headrace.sinks.opensearch import ControlRequests, PipelineState
from headrace.sinks.opensearch.control_requests import RequestKind

_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request that was given to the pipeline.

    Attributes:
        index: the name of the index.
        what: what was requested.
        number: the generation that answers the request bears this number.
        is_heard: whether a run exists that carries it out; else the next run begins with it.
    """

    index: str
    what: RequestKind
    number: str
    is_heard: bool


def request_generation(
    applied: AppliedPosition, project: Project, index: str, what: RequestKind
) -> GenerationRequest:
    """Request a reindex or a rollback; a running pipeline reads requests once a second.

    Raises:
        HeadraceError: USAGE: the index does not exist, or there is no generation to roll back to.
            SLOT_UNKNOWN, CONTINUITY, CONNECTION, SINK_UNREACHABLE.
    """
    find_index(project, index)
    state = applied.check()
    if what == "rollback":
        _check_way_back(state, index)
    number = ControlRequests(applied.client, project.slot, project.prefix).submit(index, what)
    slot = applied.slot()
    return GenerationRequest(index, what, number, slot is not None and slot.reader is not None)


def wait_until_served(applied: AppliedPosition, request: GenerationRequest, seconds: float) -> str:
    """Wait until a request is carried out; return the generation that readers see then.

    Raises:
        HeadraceError: BEHIND after `seconds`; SINK_REJECTED where the generation failed.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        requested = [
            generation
            for generation in applied.state().of(request.index)
            if generation.request == request.number
        ]
        if requested and requested[-1].published:
            return requested[-1].generation
        if requested and requested[-1].frozen:
            raise HeadraceError(Kind.SINK_REJECTED, f"{requested[-1].generation}: {requested[-1].frozen}")
        time.sleep(_LOOK_SECONDS)
    raise HeadraceError(
        Kind.BEHIND,
        f"{request.what} {request.index} is not done after {seconds:g} s",
        "`headrace indexes` shows how far it is.",
    )


def _check_way_back(state: PipelineState, index: str) -> None:
    generations = state.of(index)
    if not any(
        generation.followed and not generation.building and not generation.published
        for generation in generations
    ):
        raise HeadraceError(
            Kind.USAGE,
            why_no_way_back(index, generations),
            "`headrace indexes` lists what is there; [generations] keep says how many are kept.",
        )
