"""Ask a running pipeline to build an index anew, or to let readers see the generation before."""

from __future__ import annotations

import time
from dataclasses import dataclass

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.applied_position import AppliedPosition
from headrace.pipeline.generation_states import why_no_way_back
from headrace.pipeline.project import Project, find_index
from headrace.sinks.opensearch import ControlRequests, PipelineState
from headrace.sinks.opensearch.control_requests import What

_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What was asked for.

    Attributes:
        number: the generation that comes of it bears this.
        is_heard: whether a run is there to carry it out; else the next one begins with it.
    """

    index: str
    what: What
    number: str
    is_heard: bool


def ask(applied: AppliedPosition, project: Project, index: str, what: What) -> GenerationRequest:
    """Ask for it; who runs the pipeline looks once a second.

    Raises:
        HeadraceError: USAGE for an index that is not there, and where nothing can be gone back to;
            SLOT_UNKNOWN, CONTINUITY, CONNECTION, SINK_UNREACHABLE.
    """
    find_index(project, index)
    state = applied.check()
    if what == "rollback":
        _check_way_back(state, index)
    number = ControlRequests(applied.client, project.slot, project.prefix).give(index, what)
    slot = applied.slot()
    return GenerationRequest(index, what, number, slot is not None and slot.reader is not None)


def wait_until_served(applied: AppliedPosition, request: GenerationRequest, seconds: float) -> str:
    """The generation that readers see once the request is carried out.

    Raises:
        HeadraceError: BEHIND where it is not within `seconds`; SINK_REJECTED where it failed.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = [one for one in applied.state().of(request.index) if one.order == request.number]
        if found and found[-1].published:
            return found[-1].generation
        if found and found[-1].frozen:
            raise HeadraceError(Kind.SINK_REJECTED, f"{found[-1].generation}: {found[-1].frozen}")
        time.sleep(_LOOK_SECONDS)
    raise HeadraceError(
        Kind.BEHIND,
        f"{request.what} {request.index} is not done after {seconds:g} s",
        "`headrace indexes` shows how far it is.",
    )


def _check_way_back(state: PipelineState, index: str) -> None:
    found = state.of(index)
    if not any(one.followed and not one.building and not one.published for one in found):
        raise HeadraceError(
            Kind.USAGE,
            why_no_way_back(index, found),
            "`headrace indexes` lists what is there; [generations] keep says how many are kept.",
        )
