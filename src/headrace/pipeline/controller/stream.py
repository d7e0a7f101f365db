"""Decide on the query and on the backfills beside it."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import HeadraceError, Kind, Retry
from headrace.pipeline.controller import actions
from headrace.pipeline.controller.world import Failures, SinkSeen, World
from headrace.state import GenerationState, PipelineState, Unit

# A query that fails so often in a row, and not by a unit or for a server, fails by a mistake of ours.
_MOST_FAILURES = 5


def wanted_plan(state: PipelineState) -> frozenset[str]:
    """Return the ids of the generations that the query should write: all that are followed.

    Those of a sink that is away belong to it too: what the sink does not take is deferred, or waited for.
    """
    return frozenset(generation.id for generation in state.generations if generation.followed)


def decide_query(world: World, state: PipelineState, *, goes_on: bool) -> Iterator[actions.Action]:
    """Start, change or close the query.

    Args:
        goes_on: whether the log is known to go on from the stored position.
    """
    plan, query = wanted_plan(state), world.query
    # A plan lacks what nobody knows the schema of: it is stopped first, or its changes would be lost.
    is_known = plan <= world.reads.keys()
    if query is None:
        if goes_on and is_known:
            yield _start(world)
    elif query.failure is not None:
        charged = any(is_charged(world, query.failure, generation) for generation in state.generations)
        yield actions.CloseQuery(query.failure.cause, query.failure, charged)
    elif query.starting or not is_known:
        # It takes no plan before it runs; what has changed by then is offered in a later round.
        return
    elif query.plan == plan and query.outdated:
        yield actions.ChangePlan("what its documents are made of has changed")
    elif query.plan != plan:
        added, removed = sorted(plan - query.plan), sorted(query.plan - plan)
        why = "; ".join(
            f"{what} {', '.join(names)}" for what, names in (("with", added), ("without", removed)) if names
        )
        yield actions.ChangePlan(why)


def is_charged(world: World, failure: HeadraceError, generation: GenerationState) -> bool:
    """Whether a query failed by this generation of its plan: it, or a table that it reads, is named."""
    if world.query is None or generation.id not in world.query.plan:
        return False
    reads = world.reads.get(generation.id, frozenset())
    return generation.id in failure.units or not reads.isdisjoint(failure.tables)


def _start(world: World) -> actions.Action:
    failed = world.failures.get(actions.StartQuery.__name__)
    if failed is None:
        return actions.StartQuery("no query runs")
    if _has_lasted(failed):
        return actions.EndRun(failed.error.cause, failed.error)
    # One lost process is an accident; two in a row may be the session's, which is made again then.
    lost_again = failed.error.kind is Kind.WORKER_LOST and failed.times > 1
    return actions.StartQuery(failed.error.cause, new_session=lost_again)


def _has_lasted(failed: Failures) -> bool:
    """Whether a query has failed so often, or for so long, that it does not pass by itself."""
    if failed.error.retry is Retry.NEVER:
        return failed.times > _MOST_FAILURES
    return failed.has_lasted()


def decide_backfills(world: World, state: PipelineState) -> Iterator[actions.Action]:
    """Fill what is followed and not complete; end what is not filled any more."""
    filled = {generation.id: generation for generation in state.generations if generation.backfilling}
    for name in sorted(world.backfills):
        if name not in filled and not world.backfills[name].ending:
            yield actions.StopBackfill("it is not filled any more", _unit_of(state, name), name)
    for name, generation in filled.items():
        if name not in world.backfills and _may_read(world, generation):
            yield actions.StartBackfill("it is not complete", generation.unit, generation)


def _may_read(world: World, generation: GenerationState) -> bool:
    """Whether every change after the stored position is written to the generation, and its sink answers."""
    query, sink = world.query, world.sinks.get(generation.sink)
    # Rows that are read before changes are followed would miss what is committed in between (decision 0060).
    if query is None or query.failure is not None or not isinstance(sink, SinkSeen):
        return False
    return generation.id in query.joined


def _unit_of(state: PipelineState, name: str) -> Unit:
    for generation in state.generations:
        if generation.id == name:
            return generation.unit
    return Unit("", name)
