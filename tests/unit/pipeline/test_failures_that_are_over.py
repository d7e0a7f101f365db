"""What has failed is remembered while somebody still wants it, and a calm time longer."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.controller.actions import EndRun, StartQuery, build_key
from headrace.pipeline.controller.desired import Definition, Desired
from headrace.pipeline.controller.loop import Controller
from headrace.pipeline.controller.orders import decide_orders
from headrace.pipeline.controller.ports import Ports
from headrace.pipeline.controller.reconcile import reconcile
from headrace.pipeline.controller.statuses import status_of
from headrace.pipeline.controller.world import Failures, QuerySeen, SinkSeen, World
from headrace.sinks.opensearch.shard_history import Identity
from headrace.state import GenerationState, Order, PipelineState, Unit
from headrace.state.orders import OrderKind
from headrace.status.board import UnitPhase
from support.settled_world import settled_world

UNIT = Unit("", "users")
SERVED = GenerationState("users", "users_aa_1", "1", "aa", backfilled_at=10, published=True)
STATE = PipelineState("7", 1, 5, "s", "p", "following", 1, 50, (SERVED,), catalog="text")
REFUSED = HeadraceError(Kind.SINK_REJECTED, "a document is refused")
BUILD, SERVE = build_key(UNIT, "aa"), f"Serve {UNIT}"
RELOAD = Order("n1", OrderKind.RELOAD)
REINDEX = Order("n2", OrderKind.REINDEX, UNIT.index)


def world(now: float = 100.0, **seen: object) -> World:
    """One in which everything is as it should be, but for what is `seen`."""
    query = QuerySeen(frozenset({SERVED.id}), frozenset({SERVED.id}))
    return settled_world((SERVED,), **{"now": now, "state": STATE, "query": query, **seen})


def wanted(*orders: Order) -> Desired:
    """What the files describe is what readers see."""
    return Desired({UNIT: Definition("aa")}, orders, reloaded={RELOAD.id: "the files are taken up"})


@pytest.mark.parametrize(
    ("key", "now", "is_over"),
    [
        (SERVE, 159.0, False),
        (SERVE, 160.0, True),
        # A generation that was created well may fail late, and a query that was started well too.
        (BUILD, 459.0, False),
        (BUILD, 460.0, True),
        (StartQuery.__name__, 459.0, False),
        (StartQuery.__name__, 460.0, True),
    ],
)
def test_a_failure_is_over_where_nothing_wants_its_action_any_more(
    key: str, now: float, *, is_over: bool
) -> None:
    controller = Controller(
        lambda failures: (world(now, failures=failures), wanted()),
        cast("Ports", None),
        tell=lambda _: None,
        report=lambda *_: None,
        clock=lambda: now,
    )
    controller.failures[key] = Failures(REFUSED, 3, next_try=160.0, since=50.0)
    assert controller.go_round() is None
    assert (key not in controller.failures) is is_over


def test_a_failure_is_not_over_while_its_action_is_wanted() -> None:
    led_elsewhere = SinkSeen({SERVED.generation: Identity(SERVED.uuid)}, {SERVED.generation: "users"})
    controller = Controller(
        lambda failures: (world(500.0, failures=failures, sinks={"": led_elsewhere}), wanted()),
        cast("Ports", None),
        tell=lambda _: None,
        report=lambda *_: None,
        clock=lambda: 500.0,
    )
    controller.failures[SERVE] = Failures(REFUSED, 3, next_try=501.0, since=50.0)
    controller.go_round()
    assert SERVE in controller.failures


def test_a_unit_that_is_right_is_live_although_another_generation_of_it_has_failed() -> None:
    """As where a reindex has failed, or a generation that was only retained."""
    found = world(failures={BUILD: Failures(REFUSED, 1, next_try=160.0)})
    assert status_of(UNIT, found, STATE, wanted()).phase is UnitPhase.LIVE
    [answer] = decide_orders(found, STATE, wanted(RELOAD))
    assert (answer.why, getattr(answer, "done", None)) == ("the files are taken up", True)


def test_who_waits_for_a_reindex_is_told_why_it_cannot_begin() -> None:
    found = world(failures={BUILD: Failures(REFUSED, 1, next_try=160.0, order=REINDEX.id)})
    status = status_of(UNIT, found, STATE, wanted(REINDEX))
    assert (status.phase, status.why) == (UnitPhase.FAILED, REFUSED.cause)


def test_a_unit_that_is_pinned_does_not_show_the_failure_that_it_was_rolled_back_for() -> None:
    state = replace(STATE, generations=(replace(SERVED, pinned="bb"),))
    found = world(state=state, failures={build_key(UNIT, "bb"): Failures(REFUSED, 1, next_try=160.0)})
    desired = Desired({UNIT: Definition("bb")}, ())
    assert status_of(UNIT, found, state, desired).phase is UnitPhase.LIVE


@pytest.mark.parametrize("query", [None, QuerySeen(frozenset(), outdated=True)])
def test_a_query_gets_no_plan_that_lacks_a_followed_generation(query: QuerySeen | None) -> None:
    """As where stopping an index whose file does not fit is not stored yet: its changes would be lost."""
    found = world(query=query, reads={})
    assert reconcile(found, wanted()) == ()
    assert reconcile(replace(found, reads={SERVED.id: frozenset({"users"})}), wanted()) != ()


def test_a_fault_of_long_ago_does_not_end_the_run() -> None:
    fault = HeadraceError(Kind.SERVER_FAULT, "the server has a fault")
    failed = Failures(fault, 1, next_try=1.0, since=0.0)
    for lasted, then in ((failed, StartQuery), (replace(failed, next_try=3600.0), EndRun)):
        found = world(7200.0, query=None, failures={StartQuery.__name__: lasted})
        assert [type(action) for action in reconcile(found, wanted())] == [then]
