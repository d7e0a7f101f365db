"""Orders of a pipeline: many processes submit and answer them, in a cluster and in memory alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.client import path
from headrace.state import PipelineState, StateStore
from headrace.state.key import StateKey
from headrace.state.orders import MOST_OPEN, MOST_ORDERS, Mailbox, OrderError, OrderKind, new_order
from support.memory_mailbox import MemoryMailbox

_PREFIX = "orders_"


@pytest.fixture(params=["cluster", "memory"])
def orders(request: pytest.FixtureRequest, client: Client) -> Iterator[Mailbox]:
    """An empty mailbox; that of the cluster needs no index that exists."""
    book = MemoryMailbox() if request.param == "memory" else Mailbox(client, StateKey("s", _PREFIX))
    book.forget()
    assert book.read() == ()
    yield book
    book.forget()


def test_an_order_is_read_as_it_was_given_and_answered_once(orders: Mailbox) -> None:
    order = new_order(OrderKind.VERIFY, "users", "spare", {"percent": 5.0}, by="ada", client="10.0.0.7")
    assert orders.submit(order) == order
    assert orders.submit(order) == order  # an answer was lost, so it is given again
    assert orders.read() == orders.open_orders() == (order,)
    assert orders.start(order.id, "run 1")
    assert orders.start(order.id, "run 2")  # the run before has died
    [begun] = orders.read()
    assert (begun.state, begun.run) == ("running", "run 2")
    ended = orders.answer(order.id, "all right", result={"documents": 7})
    assert ended is not None
    assert (ended.state, ended.text, ended.result, ended.has_ended) == (
        "done",
        "all right",
        {"documents": 7},
        True,
    )
    assert ended.ended_at is not None
    assert ended.ended_at >= order.asked_at
    error = OrderError("HEADRACE_BEHIND", "too late")
    assert orders.answer(order.id, error=error) == ended == orders.get(order.id)
    assert orders.open_orders() == ()
    assert not orders.start(order.id, "run 1")
    assert orders.answer("unknown") is None
    assert orders.get("unknown") is None


def test_a_failure_keeps_code_cause_and_remedy_of_each_mistake(orders: Mailbox) -> None:
    order = orders.submit(new_order(OrderKind.RELOAD))
    mistakes = [HeadraceError(Kind.SCHEMA, "a", "Mend a."), HeadraceError(Kind.CONFIG, "b")]
    orders.answer(order.id, error=OrderError.of(ErrorGroup(mistakes)))
    [failed] = orders.read()
    assert (failed.state, failed.text) == ("failed", "a")
    assert failed.error is not None
    assert str(failed.error.to_error()) == str(ErrorGroup(mistakes))


def test_the_same_open_order_is_refused(orders: Mailbox) -> None:
    first = orders.submit(new_order(OrderKind.VERIFY, "users"))
    orders.submit(new_order(OrderKind.VERIFY, "products"))
    orders.submit(new_order(OrderKind.VERIFY, "users", "spare"))
    orders.start(first.id, "run")
    with pytest.raises(HeadraceError, match=f"the same order is open already, as {first.id}") as refused:
        orders.submit(new_order(OrderKind.VERIFY, "users"))
    assert refused.value.kind is Kind.USAGE
    orders.answer(first.id)
    orders.submit(new_order(OrderKind.VERIFY, "users"))


def test_the_newest_order_of_an_indexs_generations_counts(orders: Mailbox) -> None:
    reindex = orders.submit(new_order(OrderKind.REINDEX, "users"))
    other = orders.submit(new_order(OrderKind.REINDEX, "products"))
    orders.start(reindex.id, "run")
    rollback = orders.submit(new_order(OrderKind.ROLLBACK, "users"))
    again = orders.submit(new_order(OrderKind.ROLLBACK, "users"))
    states = {order.id: order.state for order in orders.read()}
    assert states == {reindex.id: "replaced", other.id: "open", rollback.id: "replaced", again.id: "open"}
    assert orders.open_orders() == (other, again)


def test_a_reload_that_has_not_begun_is_shared(orders: Mailbox) -> None:
    first = orders.submit(new_order(OrderKind.RELOAD))
    assert orders.submit(new_order(OrderKind.RELOAD)) == first
    orders.start(first.id, "run")  # it may have read the files already
    later = orders.submit(new_order(OrderKind.RELOAD))
    assert later.id != first.id
    assert [order.state for order in orders.read()] == ["running", "open"]


@pytest.mark.long
def test_orders_are_bounded_and_those_that_ended_first_leave_first(orders: Mailbox) -> None:
    waiting = orders.submit(new_order(OrderKind.PAUSE))
    for _ in range(MOST_ORDERS + 5):
        orders.answer(orders.submit(new_order(OrderKind.VERIFY, "users")).id)
    known = orders.read()
    assert len(known) == MOST_ORDERS
    assert known[0].id == waiting.id
    for number in range(MOST_OPEN - 1):
        orders.submit(new_order(OrderKind.VERIFY, f"index {number}"))
    with pytest.raises(HeadraceError, match="32 orders are open already"):
        orders.submit(new_order(OrderKind.VERIFY, "users"))
    with pytest.raises(HeadraceError, match="too large"):
        orders.submit(new_order(OrderKind.QUARANTINE_DROP, options={"id": "x" * 10_000}))


@pytest.mark.long
def test_a_large_result_is_cut_and_large_results_leave(orders: Mailbox) -> None:
    entries = [{"id": str(number), "reason": "r" * 3_000} for number in range(200)]
    for _ in range(60):
        order = orders.submit(new_order(OrderKind.QUARANTINE_RETRY, "users"))
        orders.answer(order.id, result={"found": 200, "left": entries})
    known = orders.read()
    assert len(json.dumps([order.to_json() for order in known])) < 520 * 1024
    assert len(known) > 10
    result = known[-1].result
    assert result["found"] == 200
    assert 0 < len(result["left"]) < 200
    assert result["left"][0]["id"] == "0"


def test_no_change_of_many_processes_is_lost(orders: Mailbox) -> None:
    def ask_and_answer(number: int) -> None:
        order = orders.submit(new_order(OrderKind.VERIFY, f"index {number}"))
        assert orders.start(order.id, "run")
        orders.answer(order.id, str(number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask_and_answer, range(24)))
    answers = {order.index: order.text for order in orders.read()}
    assert answers == {f"index {number}": str(number) for number in range(24)}


def test_sinks_of_a_pipeline_share_its_mailbox_which_goes_with_its_state(client: Client) -> None:
    key = StateKey("left", _PREFIX)
    orders = Mailbox(client, key.of_sink("spare"))
    meta = StateStore(client, key)
    meta.load()
    meta.save(PipelineState("1", 1, 1, "left", "p", "following", 5, 5))
    orders.submit(new_order(OrderKind.PAUSE, by="ada"))
    [order] = Mailbox(client, key).read()
    assert order.by == "ada"
    assert Mailbox(client, StateKey("other", _PREFIX)).read() == ()
    meta.delete()
    assert orders.read() == ()


def test_another_format_is_refused(client: Client) -> None:
    key = StateKey("newer", _PREFIX)
    Mailbox(client, key).submit(new_order(OrderKind.PAUSE))
    body = {"format": 2, "orders": []}
    client.call("PUT", path(key.meta_index, "_doc", "newer.orders"), body)
    with pytest.raises(HeadraceError, match="format 2, and this Headrace reads 1"):
        Mailbox(client, key).read()
    body = {"format": 1, "orders": [{"id": "1", "kind": "a newer one"}]}
    client.call("PUT", path(key.meta_index, "_doc", "newer.orders"), body)
    with pytest.raises(HeadraceError, match="cannot be read"):
        Mailbox(client, key).read()


def test_an_order_of_a_later_version_stays_as_it_is_beside_others(client: Client) -> None:
    key = StateKey("newer", _PREFIX)
    newer = {**new_order(OrderKind.PAUSE).to_json(), "kind": "a newer one", "depth": 3}
    client.call("PUT", path(key.meta_index, "_doc", "newer.orders"), {"format": 1, "orders": [newer]})
    mailbox = Mailbox(client, key)
    [found] = mailbox.open_orders()
    assert (found.kind, found.id) == (OrderKind.UNKNOWN, newer["id"])
    mailbox.submit(new_order(OrderKind.RESUME))
    stored = client.read(path(key.meta_index, "_doc", "newer.orders")).json()["_source"]["orders"]
    assert stored[0] == newer
    mailbox.forget()
