"""Carry out one action. Each can be killed at any point: what is left undone is decided on again.

The order inside an action is always the same: first the server, then the state that names what is there. So
the state never names what does not exist, and what it does not name is dropped later.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import Any

from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind
from headrace.model.failpoints import reach
from headrace.pipeline.controller import actions
from headrace.pipeline.controller.ports import Ports
from headrace.state import GenerationState, PipelineState

Change = Callable[[PipelineState], PipelineState]


@singledispatch
def act(action: actions.Action, ports: Ports) -> None:
    """Carry out an action.

    Raises:
        HeadraceError: it failed; the next round sees what is left of it.
    """
    _AT_ONE_PORT[type(action)](action, ports)


@act.register
def _(_: actions.CreateSlot, ports: Ports) -> None:
    state = _load(ports)
    point = ports.source.create_slot(state)
    ports.deferral.forget()  # positions in a log that has ended
    ports.state.save(
        dataclasses.replace(
            ports.source.new_state(),
            phase="following",
            consistent_point=point,
            applied=point,
            # Readers keep what they see: former generations stay, not followed, until others are complete.
            generations=state.generations,
            counters=state.counters,
        )
    )
    reach("known")


@act.register
def _(action: actions.BeginAgain, ports: Ports) -> None:
    stopped = _load(ports).frozen(action.why)
    ports.state.save_generations(stopped.generations)  # first: a state without a log follows nothing
    ports.state.save(dataclasses.replace(stopped, phase="creating", ahead=None))
    reach("forgotten")


@act.register
def _(action: actions.TakeUpCatalog, ports: Ports) -> None:
    # Read first: a renewal may have a version that is too low, never one that is too high (decision 0015).
    version = _load(ports).reached
    for generation in action.renewed:
        ports.deferral.renew(generation, version)
    # Last: after a kill before it the catalog still differs, and the renewal is done again.
    ports.state.save_catalog(action.published, action.text)


@act.register
def _(action: actions.CreateGeneration, ports: Ports) -> None:
    created = ports.sinks[action.unit.sink].create(action.unit.index, action.hash)
    _change(
        ports,
        lambda state: state.changed(
            dataclasses.replace(
                created,
                sink=action.unit.sink,
                as_of=action.as_of,
                # Of the state that is saved: the query may have gone on since the index was created.
                joined=state.reached,
                request=action.order,
            )
        ),
    )
    reach("made")


@act.register
def _(action: actions.StopFollowing, ports: Ports) -> None:
    _change(ports, lambda state: _with(state, action.generation, frozen=action.why))


@act.register
def _(action: actions.Unpin, ports: Ports) -> None:
    _change(ports, lambda state: _with(state, action.generation, pinned=""))


@act.register
def _(action: actions.Forget, ports: Ports) -> None:
    _change(ports, lambda state: state.without(action.generation.id))
    left = _load(ports).generations
    if action.unit.sink and all(stored.sink != action.unit.sink for stored in left):
        # After the generation: one that lost its deferred keys must not be taken for complete.
        ports.deferral.forget_sink(action.unit.sink)


@act.register
def _(action: actions.Complete, ports: Ports) -> None:
    reach("filled")
    ports.sinks[action.unit.sink].complete(action.generation)
    # A kill here leaves readers with a complete index. The next start finds all ranges noted, compares the
    # ids and swaps again; what was served before it may be shown until then.
    reach("swapped")
    _change(ports, lambda state: _served(state, action.generation, "", action.generation.request))


@act.register
def _(action: actions.Serve, ports: Ports) -> None:
    # The alias first, then the state: after a kill between them the next round decides by the state.
    ports.sinks[action.unit.sink].serve(action.generation)
    _change(ports, lambda state: _served(state, action.generation, action.pinned, action.order))


@act.register
def _(_: actions.ChangePlan, ports: Ports) -> None:
    ports.stream.change(_load(ports))
    reach("joined")


# The actions that one port carries out alone.
_AT_ONE_PORT: Mapping[type[actions.Action], Callable[[Any, Ports], None]] = {
    actions.CreateState: lambda _, ports: ports.state.save(ports.source.new_state()),
    actions.DropSlot: lambda _, ports: ports.source.drop_slot(),
    actions.DropIndex: lambda action, ports: ports.sinks[action.unit.sink].drop(action.name),
    actions.StartQuery: lambda action, ports: ports.stream.start(
        _load(ports), new_session=action.new_session
    ),
    actions.CloseQuery: lambda _, ports: ports.stream.close(),
    actions.StartBackfill: lambda action, ports: ports.stream.start_backfill(action.generation),
    actions.StopBackfill: lambda action, ports: ports.stream.stop_backfill(action.generation),
    actions.SetUp: lambda _, ports: ports.source.set_up(),
    actions.ForgetDeferred: lambda action, ports: ports.deferral.forget_sink(action.sink),
    actions.ReadFiles: lambda action, ports: ports.orders.read_files(action.order),
    actions.AnswerOrder: lambda action, ports: ports.orders.answer(
        action.order, action.why, done=action.done
    ),
    actions.CarryOut: lambda action, ports: ports.orders.carry_out(action.order),
}


def _load(ports: Ports) -> PipelineState:
    # Without a request: nobody else writes the state while this process holds the lease.
    state = ports.state.current or ports.state.load()
    if state is None:
        raise HeadraceError(
            Kind.CONTINUITY, "the state of this deployment was deleted from the cluster", BACKFILL_AGAIN
        )
    return state


def _change(ports: Ports, change: Change) -> None:
    """Save a change of the generations, made to the state as it is now."""
    ports.state.save_generations(change(_load(ports)).generations)


def _with(state: PipelineState, generation: GenerationState, **changes: object) -> PipelineState:
    """Return the state with one generation changed; as it is where the state does not name it any more."""
    known = [stored for stored in state.generations if stored.id == generation.id]
    return state.changed(*(dataclasses.replace(stored, **changes) for stored in known))  # type: ignore[arg-type]


def _served(state: PipelineState, generation: GenerationState, pinned: str, order: str) -> PipelineState:
    """Return the state in which readers see this generation of its unit, and no other."""
    others = [stored for stored in state.generations if stored.unit == generation.unit and stored.published]
    state = state.changed(*(dataclasses.replace(stored, published=False) for stored in others))
    backfilled_at = state.reached if generation.backfilled_at is None else generation.backfilled_at
    served_at = generation.served_at if generation.published else time.time()
    return _with(
        state,
        generation,
        published=True,
        backfilled_at=backfilled_at,
        served_at=served_at,
        pinned=pinned,
        request=order,
    )
