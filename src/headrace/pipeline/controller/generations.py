"""Decide what becomes of the generations of one unit: followed or not, created, completed, served, forgotten.

The rules stand in one list, in the order in which they count. A unit gets the first that applies, one a
round; a rule that needs a sink or a catalog that could not be asked does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.controller.actions import (
    Action,
    Complete,
    CreateGeneration,
    DropIndex,
    Forget,
    ForgetDeferred,
    RebuildCause,
    Serve,
    SetUp,
    StopFollowing,
    TakeUpCatalog,
    UnitAction,
    Unpin,
    build_key,
)
from headrace.pipeline.controller.desired import Definition, Desired
from headrace.pipeline.controller.stream import is_charged
from headrace.pipeline.controller.world import CatalogSeen, Failures, SinkSeen, TableVerdict, Unknown, World
from headrace.sinks.opensearch.shard_history import Identity
from headrace.state import GenerationState, Order, PipelineState, Unit
from headrace.state.orders import OF_GENERATIONS, OrderKind
from headrace.state.pipeline_state import generation_id, served_of

_UNKNOWN = "the caller waits until the units are known"


@dataclass(frozen=True, slots=True)
class UnitView:
    """One unit in one round.

    Attributes:
        definition: None where the files do not describe the unit any more.
        sink: None where it does not answer.
        catalog: None where it could not be read.
        generations: oldest first.
        followed: those that live changes are written to.
        served: the one that readers see, as far as the state says.
    """

    unit: Unit
    world: World
    state: PipelineState
    definition: Definition | None
    desired: Desired
    sink: SinkSeen | None
    catalog: CatalogSeen | None
    generations: tuple[GenerationState, ...]
    followed: tuple[GenerationState, ...]
    served: GenerationState | None
    orders: tuple[Order, ...]

    @classmethod
    def of(cls, unit: Unit, world: World, state: PipelineState, desired: Desired) -> UnitView:
        """Gather what concerns one unit."""
        assert desired.units is not None, _UNKNOWN
        sink, catalog = world.sinks.get(unit.sink), world.catalog
        generations = state.of_unit(unit)
        return cls(
            unit,
            world,
            state,
            desired.units.get(unit),
            desired,
            sink if isinstance(sink, SinkSeen) else None,
            catalog if isinstance(catalog, CatalogSeen) else None,
            generations,
            tuple(generation for generation in generations if generation.followed),
            served_of(generations),
            tuple(order for order in desired.orders if order.unit == unit),
        )

    @property
    def order(self) -> Order | None:
        """The newest order about generations: an older one is answered without being carried out."""
        return newest_generation_order(self.orders)

    @property
    def refused(self) -> HeadraceError | None:
        """Why the served index has not the settings that it should have; None where it has."""
        if self.sink is None or self.served is None:
            return None
        return self.sink.refused.get(self.served.generation)

    def fits(self, generation: GenerationState | None) -> bool:
        """Whether a generation is there, is followed, and is what the files describe."""
        if generation is None or self.definition is None:
            return False
        return generation.followed and generation.hash == self.definition.hash

    @property
    def is_pinned(self) -> bool:
        """Whether a rollback holds the served generation against what the files describe."""
        served = self.served
        return (
            served is not None
            and served.followed
            and self.definition is not None
            and served.pinned == self.definition.hash
        )

    @property
    def is_right(self) -> bool:
        """Whether readers see what the files describe, or what a rollback holds against them."""
        return self.is_pinned or self.fits(self.served)


def newest_generation_order(orders: Sequence[Order]) -> Order | None:
    """Return the newest order that asks for another generation."""
    return next((order for order in reversed(orders) if order.kind in OF_GENERATIONS), None)


def decide_units(world: World, state: PipelineState, desired: Desired) -> Iterator[Action]:
    """Decide on each unit, then on the catalog that all share."""
    assert desired.units is not None, _UNKNOWN
    # Those that the files or the state know, in a stable order.
    units = sorted({generation.unit for generation in state.generations} | desired.units.keys())
    views = [UnitView.of(unit, world, state, desired) for unit in units]
    yield from filter(None, map(decide_unit, views))
    if isinstance(world.catalog, CatalogSeen):
        yield from _decide_catalog(world.catalog, state, views)


def _decide_catalog(
    catalog: CatalogSeen, state: PipelineState, views: Sequence[UnitView]
) -> Iterator[Action]:
    """Take the catalog up once nothing is followed that its alterations have made wrong."""
    followed = [(view, generation) for view in views for generation in view.followed]
    stops = any(_why_drifted(view, generation) for view, generation in followed)
    renewed = [generation for view, generation in followed if _has_lost_rows(view, generation)]
    # First in the database: a generation whose tables are not published would miss changes (decision 0088).
    if catalog.set_up:
        yield SetUp(catalog.set_up)
    if stops or not is_newer(catalog, state):
        return
    if not renewed or _has_passed(catalog, state):
        yield TakeUpCatalog("the catalog was altered", catalog.text, catalog.published, tuple(renewed))


def _has_passed(catalog: CatalogSeen, state: PipelineState) -> bool:
    """Whether the stream is past the place at which lost rows were seen.

    Before, a batch may have read such a row and write it at a higher version than a renewal has.
    """
    return all(
        change.seen_at <= state.reached
        for changes in catalog.changes.values()
        for change in changes
        if change.verdict is TableVerdict.LIKE_A_TRUNCATE
    )


def is_newer(catalog: CatalogSeen, state: PipelineState) -> bool:
    """Whether the catalog is not the one that the state stores."""
    return catalog.text != state.catalog or dict(catalog.published) != dict(state.published)


def decide_unit(view: UnitView) -> UnitAction | None:
    """Return the first rule's action that applies; None where the unit needs nothing."""
    return next((action for rule in _RULES if (action := rule(view)) is not None), None)


# What must not be written any more.


def _stop_following(view: UnitView) -> UnitAction | None:
    """Stop following a generation that may hold wrong documents, or that cannot be written."""
    for generation in view.followed:
        # First what explains a failure: then the next generation need not wait.
        reasons = (
            (RebuildCause.MISFIT, _why_misfit(view)),
            (RebuildCause.SINK, _why_lost(view, generation)),
            (RebuildCause.DEFERRED, _why_overflowed(view, generation)),
            (RebuildCause.TABLE, _why_drifted(view, generation)),
        )
        for cause, why in reasons:
            if why:
                return StopFollowing(why, view.unit, generation, cause)
        if failure := _why_failed(view, generation):
            return StopFollowing(failure.cause, view.unit, generation, RebuildCause.FAILURE, failure)
    return None


def _why_failed(view: UnitView, generation: GenerationState) -> HeadraceError | None:
    """Return the error by which a generation has failed: of its documents, or of a query that names it."""
    backfill = view.world.backfills.get(generation.id)
    if backfill is not None and backfill.failure is not None:
        return backfill.failure
    query = view.world.query
    if query is None:
        return None
    held = query.held.get(generation.id)
    if held is not None and held.kind is not Kind.LOCKED:
        return held
    if query.failure is None or not is_charged(view.world, query.failure, generation):
        return None
    return query.failure


def _why_lost(view: UnitView, generation: GenerationState) -> str:
    """Return why the sink does not have what was written any more."""
    seen = view.world.sinks.get(view.unit.sink)
    # Another process has held the leases meanwhile and may have written: what is there is not what we wrote.
    if isinstance(seen, Unknown) and seen.taken:
        return seen.error.cause
    if view.sink is None or view.sink.keys_lost or not view.sink.queryable:
        return "" if view.sink is None else view.sink.keys_lost
    if generation.generation in view.sink.faults:
        return view.sink.faults[generation.generation]
    found = view.sink.indexes.get(generation.generation)
    if found is None:
        return "its index was deleted in the cluster"
    if Identity(generation.uuid, generation.history).is_another(found):
        return "another index has its name, or its documents were restored or lost in the cluster"
    return ""


def _why_overflowed(view: UnitView, generation: GenerationState) -> str:
    waiting, most = view.world.deferred.get(generation.id, 0), view.desired.most_deferred
    return f"{waiting:,} documents waited for the sink, and {most:,} may" if waiting > most else ""


def _why_drifted(view: UnitView, generation: GenerationState) -> str:
    """Return which table was altered so that what was read of it may be wrong.

    A generation that is still filled begins again where a table has lost rows: a task may have read them
    already, and would write them after any renewal.
    """
    if generation.id in view.world.unfit:
        return view.world.unfit[generation.id]
    if view.catalog is None:
        return ""
    wrong = (
        {TableVerdict.READ_AGAIN, TableVerdict.LIKE_A_TRUNCATE}
        if generation.building
        else {TableVerdict.READ_AGAIN}
    )
    changes = view.catalog.changes.get(generation.id, ())
    return "; ".join(dict.fromkeys(change.what for change in changes if change.verdict in wrong))


def _has_lost_rows(view: UnitView, generation: GenerationState) -> bool:
    if view.catalog is None or generation.building:
        return False
    changes = view.catalog.changes.get(generation.id, ())
    return any(change.verdict is TableVerdict.LIKE_A_TRUNCATE for change in changes)


def _why_misfit(view: UnitView) -> str:
    return "" if view.definition is None else view.definition.misfit


# What the files and orders ask for.


def _forget_removed(view: UnitView) -> UnitAction | None:
    """Forget the generations of a unit that the files do not describe any more."""
    if view.definition is not None or not view.generations:
        return None
    return Forget("no file describes the index any more", view.unit, view.generations[0])


def _unpin(view: UnitView) -> UnitAction | None:
    """Follow the files again, once they have changed since a rollback."""
    if view.definition is None or view.definition.misfit:
        return None
    for generation in view.generations:
        if generation.pinned not in ("", view.definition.hash):
            return Unpin("the schema file has changed since the rollback", view.unit, generation)
    return None


def _complete(view: UnitView) -> UnitAction | None:
    """Let readers see a generation that is filled, and that the files still describe."""
    if view.sink is None:
        return None
    for generation in view.followed:
        backfill = view.world.backfills.get(generation.id)
        if generation.building and view.fits(generation) and backfill is not None and backfill.complete:
            return Complete("every document is there", view.unit, generation)
    return None


def _roll_back(view: UnitView) -> UnitAction | None:
    """Serve the generation before, as ordered."""
    order = view.order
    # The request is stored with the generation: a rollback is carried out once, also over restarts.
    if order is None or order.kind is not OrderKind.ROLLBACK or view.sink is None or view.definition is None:
        return None
    if _is_answered(view, order):
        return None
    back = rollback_target(view.generations)
    if back is None:
        return None
    return Serve("a rollback was ordered", view.unit, back, pinned=view.definition.hash, order=order.id)


def rollback_target(generations: Sequence[GenerationState]) -> GenerationState | None:
    """Return the newest generation that can be served instead of the served one."""
    retained = _retained(generations)
    return retained[-1] if retained else None


def why_no_way_back(index: str, generations: Sequence[GenerationState]) -> str:
    """Return why an index cannot be rolled back; empty where it can."""
    if rollback_target(generations) is not None:
        return ""
    former = [other for other in generations if not other.building and not other.published]
    if former:  # none of them is followed, or there were a target
        return f"{former[-1].generation}, the generation before, is stopped: {former[-1].frozen}"
    return f"no generation of {index} is kept beside the one that is served"


def _serve_retained(view: UnitView) -> UnitAction | None:
    """Serve a complete generation that the files describe again, instead of building one."""
    if view.sink is None or view.is_right:
        return None
    complete = [
        generation for generation in view.generations if view.fits(generation) and not generation.building
    ]
    if not complete:
        return None
    return Serve("the files describe it again", view.unit, complete[-1])


def _set_alias_right(view: UnitView) -> UnitAction | None:
    """Lead readers back to the served generation, where the sink says otherwise."""
    served, sink = view.served, view.sink
    if served is None or sink is None or not sink.queryable or served.generation not in sink.indexes:
        return None
    if sink.served.get(view.unit.index) == served.generation:
        return None
    return Serve("its alias led elsewhere", view.unit, served, pinned=served.pinned, order=served.request)


def _forget_unneeded(view: UnitView) -> UnitAction | None:
    """Forget a generation that nobody will read: one not wanted any more, or a former one beyond `keep`."""
    for generation in view.generations:
        if generation.published or _is_awaited(view, generation):
            continue
        why = _why_unneeded(view, generation)
        if why:
            return Forget(why, view.unit, generation)
    return None


def _why_unneeded(view: UnitView, generation: GenerationState) -> str:
    if not generation.followed:
        return "" if _is_shown(view, generation) else generation.frozen
    if generation.building:
        return _why_not_built(view, generation)
    # By when readers saw them, not by age: a rollback makes an old one the newest.
    retained = sorted(_retained(view.generations), key=lambda former: former.served_at or 0.0)
    beyond = len(retained) - (0 if view.unit.sink else view.desired.keep)
    return "newer ones are retained" if generation in retained[: max(0, beyond)] else ""


def _is_shown(view: UnitView, generation: GenerationState) -> bool:
    """Whether a generation that has failed stays, to be looked at, until the next one is tried."""
    failed = view.world.failures.get(build_key(view.unit, generation.hash))
    return generation.building and failed is not None and view.world.now < failed.next_try


def _retained(generations: Sequence[GenerationState]) -> list[GenerationState]:
    """Return the complete generations that could be served instead of the served one."""
    return [
        generation
        for generation in generations
        if generation.followed and not generation.building and not generation.published
    ]


def _why_not_built(view: UnitView, generation: GenerationState) -> str:
    """Return why a generation that no open order awaits need not be filled; empty where it must."""
    if not view.fits(generation):
        return "the files have changed since then"
    if _is_replaced(view):
        return "a newer order replaces it"
    if view.is_pinned:
        return "a rollback was ordered"
    if view.fits(view.served):
        return "readers already see what the files describe"
    others = [other for other in view.generations if other.building and view.fits(other)]
    return "another one is built" if generation != others[-1] else ""


def _is_replaced(view: UnitView) -> bool:
    """Whether an order that is not carried out, and can be, asks for another generation than those there."""
    order = view.order
    if order is None or _is_answered(view, order):
        return False
    return order.kind is OrderKind.REINDEX or rollback_target(view.generations) is not None


def _is_answered(view: UnitView, order: Order) -> bool:
    return any(generation.request == order.id for generation in view.generations)


def _is_awaited(view: UnitView, generation: GenerationState) -> bool:
    """Whether an order that is open is answered by what became of this generation."""
    return bool(generation.request) and any(order.id == generation.request for order in view.orders)


def _create(view: UnitView) -> UnitAction | None:
    """Create a generation where the files or an order want one that is not there."""
    definition, catalog = view.definition, _stored_catalog(view)
    if definition is None or definition.misfit or catalog is None or not may_join(view):
        return None
    order = view.order
    if order is not None and order.kind is OrderKind.REINDEX and not _is_answered(view, order):
        why, cause = "a reindex was ordered", RebuildCause.ORDER
        return CreateGeneration(why, view.unit, definition.hash, catalog.as_of, cause, order.id)
    if view.is_pinned or any(view.fits(generation) for generation in view.generations):
        return None
    why, changed = _why_built(view.served)
    return CreateGeneration(why, view.unit, definition.hash, catalog.as_of, changed)


def _stored_catalog(view: UnitView) -> CatalogSeen | None:
    """Return the catalog, once the index is set up and the state stores it: no other is planned for."""
    catalog = view.catalog
    if catalog is None or view.unit.index in catalog.unprepared or is_newer(catalog, view.state):
        return None
    return catalog


def find_hindrance(view: UnitView) -> Failures | None:
    """Return the failure of a step that units share, where the unit's next generation waits for that step."""
    if view.catalog is None or view.is_right or any(map(view.fits, view.generations)):
        return None
    step = SetUp if view.unit.index in view.catalog.unprepared else TakeUpCatalog
    return view.world.failures.get(step.__name__)


def may_join(view: UnitView) -> bool:
    """Whether the unit may be filled now: a sink that cannot be queried is compared with the one that can."""
    # What was built before the loss is forgotten would be stopped for the loss again.
    if view.sink is None or view.sink.keys_lost:
        return False
    return view.sink.queryable or any(
        generation.published and generation.followed and generation.unit == Unit("", view.unit.index)
        for generation in view.state.generations
    )


def _why_built(served: GenerationState | None) -> tuple[str, RebuildCause | None]:
    """Return why another generation is built, and the cause where one that is followed is replaced."""
    if served is None:
        return "none is complete yet", None
    if served.frozen:  # its own cause was counted when that was stored
        return f"{served.generation}, which readers see, is stopped: {served.frozen}", None
    return "its schema file, its settings or the types of its columns have changed", RebuildCause.FILES


_RULES: Sequence[Callable[[UnitView], UnitAction | None]] = (
    _forget_removed,
    _stop_following,
    _unpin,
    _forget_unneeded,  # before `_roll_back`: what is still built must not replace what was rolled back to
    _complete,
    _roll_back,
    _serve_retained,
    _set_alias_right,
    _create,
)


# What nothing needs any more.


def decide_forgetting(world: World, state: PipelineState) -> Iterator[Action]:
    """Forget what is noted of documents that waited for a sink, once nothing that is followed needs it."""
    for name, sink in sorted(world.sinks.items()):
        if isinstance(sink, Unknown) or not sink.keys_lost:
            continue
        if not any(generation.followed for generation in state.generations if generation.sink == name):
            yield ForgetDeferred(sink.keys_lost, name)


def decide_drops(world: World, state: PipelineState) -> Iterator[Action]:
    """Drop the indexes that no state names: they were forgotten, or a killed start left them.

    One that a query or a backfill may still write, or that readers see, stays.
    """
    written = set() if world.query is None else {*world.query.plan, *world.query.leaving}
    # A backfill that was asked to end may still have a request under way.
    written |= world.backfills.keys()
    stored = {generation.id for generation in state.generations}
    for name, sink in sorted(world.sinks.items()):
        if isinstance(sink, Unknown):
            continue
        for index in sorted(sink.indexes):
            id_ = generation_id(name, index)
            is_used = id_ in stored or id_ in written or index in sink.read
            if not is_used:
                yield DropIndex("nothing needs it", Unit(name, sink.owners[index]), index)
