"""What follows from what is there and what is wanted; every row of the table is one story."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.pipeline.controller.actions import (
    AnswerOrder,
    CarryOut,
    Complete,
    CreateGeneration,
    DropIndex,
    Forget,
    ReadFiles,
    Serve,
    SetUp,
    StopFollowing,
    Unpin,
    build_key,
)
from headrace.pipeline.controller.desired import Definition, Desired
from headrace.pipeline.controller.generations import UnitView, decide_unit, may_join
from headrace.pipeline.controller.orders import decide_orders
from headrace.pipeline.controller.reconcile import is_due, reconcile
from headrace.pipeline.controller.statuses import status_of
from headrace.pipeline.controller.world import (
    BackfillSeen,
    CatalogSeen,
    Failures,
    QuerySeen,
    SinkSeen,
    TableChange,
    TableVerdict,
    Unknown,
)
from headrace.sinks.opensearch.shard_history import Identity
from headrace.state import GenerationState, Order, PipelineState, Unit
from headrace.state.orders import OrderKind
from headrace.status.board import UnitPhase
from support.settled_world import settled_world

UNIT = Unit("", "users")
SERVED = GenerationState("users", "users_aa_1", "1", "aa", backfilled_at=10, published=True)
KEPT = GenerationState("users", "users_bb_2", "2", "bb", backfilled_at=20)
BUILDING = GenerationState("users", "users_cc_3", "3", "cc", joined=30)
STOPPED = replace(SERVED, frozen="a column was dropped")
AWAY = Unknown(HeadraceError(Kind.SINK_UNREACHABLE, "it does not answer"))
REINDEX = Order("n1", OrderKind.REINDEX, UNIT.index)
ROLLBACK = Order("n2", OrderKind.ROLLBACK, UNIT.index)
REWRITTEN = TableChange(TableVerdict.READ_AGAIN, "users was rewritten")
AGAIN = {"users_aa_1": (REWRITTEN,)}
Generations = tuple[GenerationState, ...]


def view(
    generations: Generations,
    wanted: Definition | None,
    *,
    keep: int = 1,
    orders: tuple[Order, ...] = (),
    **seen: object,
) -> UnitView:
    """The unit in a world that is as the state says, but for what is `seen`."""
    world = settled_world(generations, **seen)
    state = PipelineState("7", 1, 5, "s", "p", "following", 1, 50, generations, catalog="text")
    desired = Desired({} if wanted is None else {UNIT: wanted}, orders, keep=keep)
    return UnitView.of(UNIT, world, state, desired)


def what(found: UnitView) -> tuple[str, str]:
    """The name of the action, and the generation that it is about."""
    action = decide_unit(found)
    generation = getattr(action, "generation", None)
    return type(action).__name__, "" if generation is None else generation.generation


@pytest.mark.parametrize(
    ("generations", "wanted", "then"),
    [
        ((), "aa", (CreateGeneration, "")),
        ((SERVED,), "aa", (None, "")),
        ((SERVED,), "bb", (CreateGeneration, "")),
        ((SERVED, KEPT), "aa", (None, "")),
        ((SERVED, KEPT), "bb", (Serve, "users_bb_2")),
        ((SERVED, KEPT), "cc", (CreateGeneration, "")),
        ((SERVED, BUILDING), "cc", (None, "")),
        ((BUILDING,), "cc", (None, "")),
        ((SERVED, BUILDING), "dd", (Forget, "users_cc_3")),
        ((SERVED, BUILDING), "aa", (Forget, "users_cc_3")),
        ((STOPPED,), "aa", (CreateGeneration, "")),
        ((SERVED, replace(BUILDING, frozen="refused")), "cc", (Forget, "users_cc_3")),
        ((replace(SERVED, pinned="bb"), KEPT), "bb", (None, "")),
        ((replace(SERVED, pinned="bb"), KEPT), "cc", (Unpin, "users_aa_1")),
        ((SERVED, KEPT, replace(KEPT, generation="users_bb_0", uuid="0")), "aa", (Forget, "users_bb_2")),
        ((SERVED, replace(KEPT, frozen="a column was dropped")), "aa", (Forget, "users_bb_2")),
    ],
)
def test_the_files_decide(generations: Generations, wanted: str, then: tuple[type | None, str]) -> None:
    kind, generation = then
    name = "NoneType" if kind is None else kind.__name__
    assert what(view(generations, Definition(wanted))) == (name, generation)


def test_a_unit_that_no_file_describes_is_forgotten() -> None:
    assert what(view((SERVED,), None)) == (Forget.__name__, "users_aa_1")


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ({"catalog": CatalogSeen("text", Lsn(40), {}, AGAIN)}, "users was rewritten"),
        ({"unfit": {"users_aa_1": "its schema is in no file"}}, "in no file"),
        ({"sinks": {"": SinkSeen()}}, "deleted in the cluster"),
        ({"sinks": {"": SinkSeen({"users_aa_1": Identity("other")})}}, "another index has its name"),
        ({"sinks": {"": replace(AWAY, taken=True)}}, "does not answer"),
        ({"deferred": {"users_aa_1": 1_000_001}}, "1,000,001 documents waited"),
    ],
)
def test_what_may_be_wrong_is_not_followed_any_more(seen: dict[str, object], why: str) -> None:
    action = decide_unit(view((SERVED,), Definition("aa"), **seen))  # type: ignore[arg-type]
    assert isinstance(action, StopFollowing)
    assert why in action.why
    assert action.failure is None, "the next one is built at once"


def test_documents_that_wait_stop_their_own_generation_unless_a_lock_is_the_cause() -> None:
    plan = frozenset({"users_aa_1", "items_aa_1"})
    refused, locked = HeadraceError(Kind.SINK_REJECTED, "refused"), HeadraceError(Kind.LOCKED, "locked")

    def seen(**held: HeadraceError) -> UnitView:
        return view((SERVED,), Definition("aa"), query=QuerySeen(plan, plan, held=held))

    assert decide_unit(seen(items_aa_1=refused)) is None
    action = decide_unit(seen(users_aa_1=refused))
    assert isinstance(action, StopFollowing)
    assert action.failure is refused
    waiting = seen(users_aa_1=locked)
    assert decide_unit(waiting) is None
    status = status_of(UNIT, waiting.world, waiting.state, waiting.desired)
    assert (status.phase, status.why, status.serves) == (UnitPhase.WAITING, "locked", True)


def test_settings_that_are_refused_are_told_of_their_index_and_stop_nothing() -> None:
    error = HeadraceError(Kind.SINK_REJECTED, "1 minute is no time", "Correct it.")
    found = view((SERVED,), Definition("aa")).sink
    assert found is not None
    sink = replace(found, refused={SERVED.generation: error})
    reload = Order("r1", OrderKind.RELOAD)
    seen = view((SERVED,), Definition("aa"), query=QuerySeen(frozenset({"users_aa_1"})), sinks={"": sink})
    assert decide_unit(seen) is None
    status = status_of(UNIT, seen.world, seen.state, seen.desired)
    assert (status.phase, status.text) == (UnitPhase.LIVE, "1 minute is no time. Correct it.")
    assert status.is_stuck, "somebody has to mend it"
    desired = replace(seen.desired, orders=(reload,), reloaded={"r1": "settings changed: users"})
    [answer] = decide_orders(seen.world, seen.state, desired)
    assert isinstance(answer, AnswerOrder)
    assert (answer.done, answer.why) == (False, "users: 1 minute is no time")
    well = view((SERVED,), Definition("aa"))
    [answer] = decide_orders(well.world, well.state, desired)
    assert isinstance(answer, AnswerOrder)
    assert (answer.done, answer.why) == (True, "settings changed: users")


@pytest.mark.parametrize(
    "seen",
    [{"sinks": {"": AWAY}}, {"catalog": Unknown(HeadraceError(Kind.CONNECTION, "it does not answer"))}],
)
@pytest.mark.parametrize("generations", [(SERVED,), (SERVED, BUILDING), ()])
def test_what_is_unknown_is_never_taken_for_absent(generations: Generations, seen: dict[str, object]) -> None:
    assert what(view(generations, Definition("cc"), **seen)) == ("NoneType", "")  # type: ignore[arg-type]


def test_a_file_that_does_not_fit_stops_its_index_and_builds_nothing() -> None:
    misfit = Definition("", "there is no column name")
    assert what(view((SERVED,), misfit)) == (StopFollowing.__name__, "users_aa_1")
    assert what(view((STOPPED,), misfit)) == ("NoneType", "")


def test_a_set_up_that_is_refused_keeps_only_those_indexes_waiting_that_it_concerns() -> None:
    error = HeadraceError(Kind.PRIVILEGE, "must be owner of table items")
    failures = {SetUp.__name__: Failures(error, 3, next_try=130.0)}
    reload = Order("n3", OrderKind.RELOAD)

    def seen(index: str) -> UnitView:
        catalog = CatalogSeen("text", Lsn(40), set_up="items is published", unprepared=frozenset({index}))
        return view((SERVED,), Definition("bb"), catalog=catalog, failures=failures, orders=(reload,))

    assert what(seen("items")) == (CreateGeneration.__name__, "")
    waiting = seen(UNIT.index)
    assert what(waiting) == ("NoneType", "")
    desired = replace(waiting.desired, reloaded={reload.id: "the files are taken up"})
    status = status_of(UNIT, waiting.world, waiting.state, desired)
    assert (status.phase, status.why, status.next_try) == (UnitPhase.FAILED, error.cause, 30.0)
    [answer] = decide_orders(waiting.world, waiting.state, desired)
    assert isinstance(answer, AnswerOrder)
    assert error.cause in answer.why


def test_nothing_is_built_before_it_is_forgotten_that_deferred_keys_were_lost() -> None:
    """Else each unit is stopped while another one is built, and so without an end."""
    lost = view((), Definition("aa"), sinks={"": SinkSeen(keys_lost="the index of what waited was deleted")})
    assert what(lost) == ("NoneType", "")


def test_a_reload_does_not_wait_for_a_sink_that_is_filled_once_readers_see_the_index() -> None:
    reload, plain = Order("n3", OrderKind.RELOAD), Unit("queue", "users")
    found = view((BUILDING,), Definition("cc"))
    sinks = {**found.world.sinks, "queue": SinkSeen(queryable=False)}
    units = {UNIT: Definition("cc"), plain: Definition("cc")}
    desired = Desired(units, (reload,), reloaded={reload.id: "the files are taken up"})
    [answer] = decide_orders(replace(found.world, sinks=sinks), found.state, desired)
    assert (type(answer), answer.why) == (AnswerOrder, "the files are taken up")


def test_a_sink_that_lists_no_ids_joins_only_beside_an_index_that_is_followed() -> None:
    """The index must know every document that the sink gets: a TRUNCATE asks it for them."""
    plain = Unit("queue", "users")
    for served, joins in ((SERVED, True), (replace(SERVED, frozen="the log has a gap"), False)):
        found = view((served,), Definition("aa"))
        world = replace(found.world, sinks={**found.world.sinks, "queue": SinkSeen(queryable=False)})
        desired = Desired({UNIT: Definition("aa"), plain: Definition("aa")})
        assert may_join(UnitView.of(plain, world, found.state, desired)) is joins


def test_a_generation_is_served_once_it_is_filled() -> None:
    filled = {"users_cc_3": BackfillSeen(complete=True)}
    assert what(view((SERVED, BUILDING), Definition("cc"), backfills=filled)) == (
        Complete.__name__,
        "users_cc_3",
    )


def test_a_generation_that_has_failed_stays_to_be_looked_at_until_the_next_try() -> None:
    error = HeadraceError(Kind.SINK_REJECTED, "a document is refused")
    failed = {"users_cc_3": BackfillSeen(failure=error)}
    action = decide_unit(view((SERVED, BUILDING), Definition("cc"), backfills=failed))
    assert isinstance(action, StopFollowing)
    assert action.delays == (build_key(UNIT, "cc"), error)
    stopped = replace(BUILDING, frozen="a document is refused")
    for next_try, then in ((160.0, "NoneType"), (99.0, Forget.__name__)):
        failures = {build_key(UNIT, "cc"): Failures(error, 1, next_try)}
        found = view((SERVED, stopped), Definition("cc"), failures=failures)
        # What is not due is decided all the same, and not carried out.
        name = what(found)[0]
        assert name == (then if then != "NoneType" else CreateGeneration.__name__)


def test_orders_are_carried_out_once() -> None:
    reindex = view((SERVED,), Definition("aa"), orders=(REINDEX,))
    action = decide_unit(reindex)
    assert isinstance(action, CreateGeneration)
    assert action.order == "n1"
    made = replace(BUILDING, hash="aa", request="n1")
    assert what(view((SERVED, made), Definition("aa"), orders=(REINDEX,))) == ("NoneType", "")
    back = decide_unit(view((SERVED, KEPT), Definition("aa"), orders=(ROLLBACK,)))
    assert isinstance(back, Serve)
    assert (back.generation.generation, back.pinned, back.order) == ("users_bb_2", "aa", "n2")


@pytest.mark.parametrize(
    ("orders", "tried", "goes_on"),
    [((), "", False), ((REINDEX,), "", True), ((REINDEX,), "n0", True), ((REINDEX,), "n1", False)],
)
def test_a_reindex_tries_at_once_what_has_failed_and_once(
    orders: tuple[Order, ...], tried: str, goes_on: bool
) -> None:
    error = HeadraceError(Kind.SINK_REJECTED, "a document is refused")
    failures = {build_key(UNIT, "cc"): Failures(error, 1, next_try=160.0, order=tried)}
    found = view((SERVED,), Definition("cc"), failures=failures, orders=orders)
    action = decide_unit(found)
    assert isinstance(action, CreateGeneration)
    assert is_due(found.world, action) is goes_on


def test_a_rollback_without_a_way_back_is_answered_with_the_reason() -> None:
    found = view((SERVED,), Definition("aa"), orders=(ROLLBACK,))
    desired = Desired({UNIT: Definition("aa")}, (ROLLBACK,))
    [answer] = decide_orders(found.world, found.state, desired)
    assert "no generation of users is kept" in answer.why


def test_on_units_that_are_not_known_yet_nothing_is_decided() -> None:
    """They are not removed: the first look at the database has failed, or the one after a reload."""
    orders = (REINDEX, Order("n3", OrderKind.RELOAD), Order("n4", OrderKind.PAUSE))
    found = view((SERVED, KEPT), Definition("aa"), orders=orders, server=AWAY)
    state = replace(found.state, generations=(SERVED,))  # of `users_bb_2` only the cluster knows
    world = replace(found.world, state=state)
    known = {type(action) for action in reconcile(world, found.desired)}
    assert known == {ReadFiles, CarryOut, CreateGeneration, DropIndex}
    for desired in (found.desired, replace(found.desired, reloaded={"n3": "every index is as it was"})):
        [action] = reconcile(world, replace(desired, units=None))
        assert isinstance(action, CarryOut)
        assert action.order.id == "n4"
