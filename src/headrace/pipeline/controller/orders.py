"""Decide which orders are answered now, and how."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.pipeline.controller.actions import Action, AnswerOrder, CarryOut, ReadFiles, build_key
from headrace.pipeline.controller.desired import Definition, Desired
from headrace.pipeline.controller.generations import (
    UnitView,
    find_hindrance,
    may_join,
    newest_generation_order,
    why_no_way_back,
)
from headrace.pipeline.controller.world import World
from headrace.state import GenerationState, Order, PipelineState
from headrace.state.orders import OF_GENERATIONS, OrderKind


def decide_orders(world: World, state: PipelineState, desired: Desired) -> Iterator[Action]:
    """Answer the orders that are carried out, or can never be; begin those that change no unit.

    While the units are not known, the others wait.
    """
    answer: Action | None
    for order in desired.orders:
        if order.kind is OrderKind.RELOAD:
            answer = _answer_reload(order, world, state, desired)
        elif order.kind in OF_GENERATIONS:
            answer = _answer_generation(order, world, state, desired)
        elif order.id not in world.carried_out:
            yield CarryOut("it was ordered", order)
            continue
        else:
            continue
        if answer is not None:
            yield answer


def _answer_generation(
    order: Order, world: World, state: PipelineState, desired: Desired
) -> AnswerOrder | None:
    if desired.units is None:
        return None
    if order.unit is None or order.unit not in desired.units:
        return AnswerOrder("the deployment has no such index", order, done=False)
    view = UnitView.of(order.unit, world, state, desired)
    # Two orders for one index would build it twice, and only the last result would be served.
    if newest_generation_order(view.orders) is not order:
        return AnswerOrder("a newer order replaced it", order, done=False)
    answers = [generation for generation in view.generations if generation.request == order.id]
    if answers:
        return _answer_by(answers[0], order, view)
    why_not = _why_impossible(order, view)
    return AnswerOrder(why_not, order, done=False) if why_not else None


def _answer_by(generation: GenerationState, order: Order, view: UnitView) -> AnswerOrder | None:
    """Answer an order by what became of its generation; None while that is not known."""
    if generation.published and generation.followed:
        return AnswerOrder(f"{generation.generation} is served", order, done=True)
    is_replaced = generation.building and not view.fits(generation)
    why_not = generation.frozen or ("the files describe another one since then" if is_replaced else "")
    return AnswerOrder(why_not, order, done=False) if why_not else None


def _why_impossible(order: Order, view: UnitView) -> str:
    if view.definition is not None and view.definition.misfit:
        return view.definition.misfit
    if order.kind is OrderKind.ROLLBACK:
        return why_no_way_back(view.unit.index, view.generations)
    return ""


def _why_refused(definition: Definition, view: UnitView) -> str | None:
    """Return why a unit is not as the files describe it; empty where it is so; None: that shows later."""
    if definition.misfit:
        return definition.misfit
    if not view.is_right:
        failed = view.world.failures.get(build_key(view.unit, definition.hash)) or find_hindrance(view)
        if failed is not None:
            return failed.error.cause
        # The answer waits for no sink that is away, and for none that is filled behind another one.
        if may_join(view) and not any(map(view.fits, view.generations)):
            return None
    return "" if view.refused is None else view.refused.cause


def _answer_reload(order: Order, world: World, state: PipelineState, desired: Desired) -> Action | None:
    """Answer once each unit is as the files describe it, or is being built so, or has said why it is not.

    A unit that was rolled back since the files were read stays as it is: nothing more comes of the reload.
    """
    if order.id in desired.misread:
        return AnswerOrder(desired.misread[order.id], order, done=False)
    if desired.units is None:
        return None  # the former ones say nothing of files that are not compared with the database yet
    if order.id not in desired.reloaded:
        return ReadFiles("a reload was ordered", order)
    refused: list[str] = []
    for unit, definition in sorted(desired.units.items()):
        why = _why_refused(definition, UnitView.of(unit, world, state, desired))
        if why is None:
            return None
        if why:
            refused.append(f"{unit}: {why}")
    if refused:
        return AnswerOrder("; ".join(refused), order, done=False)
    return AnswerOrder(desired.reloaded[order.id], order, done=True)
