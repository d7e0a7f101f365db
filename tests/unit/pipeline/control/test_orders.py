"""How orders get on, and which keep others out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.control.orders import Order, Orders, new_order
from headrace.pipeline.control.refusal import Refusal
from headrace.reporter import SilentReporter

GENERATION = frozenset({"reindex", "rollback"})


@pytest.fixture
def orders() -> Iterator[Orders]:
    made = Orders(SilentReporter())
    yield made
    made.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace order"]


def start(
    orders: Orders,
    name: str = "verify",
    index: str | None = "users",
    follow: Callable[[None], object] = lambda _: "result",
    *,
    replaces: frozenset[str] = frozenset(),
) -> Order:
    return orders.start(new_order(name, index, "ada", "-"), lambda: None, follow, replaces=replaces)


def endless(_: None) -> None:
    while True:
        time.sleep(0.01)


def ended(orders: Orders, order: Order) -> Order:
    for _ in range(500):
        found = orders.get(order.id)
        assert found is not None
        if found.state != "running":
            return found
        time.sleep(0.01)
    raise AssertionError(f"{order} still runs")


def test_an_order_has_its_result(orders: Orders) -> None:
    order = ended(orders, start(orders))
    assert (order.state, order.result, order.error) == ("done", "result", None)


def test_a_failure_is_kept_and_a_bug_shows_no_values(orders: Orders) -> None:
    def fail(_: None) -> None:
        raise HeadraceError(Kind.BEHIND, "late", "Wait.")

    def bug(_: None) -> None:
        raise ValueError("row 'secret' is odd")

    failed, broken = ended(orders, start(orders, follow=fail)), ended(orders, start(orders, follow=bug))
    assert failed.to_json()["error"] == {"code": "HEADRACE_BEHIND", "cause": "late", "remedy": "Wait."}
    assert broken.error is not None
    assert broken.error.kind is Kind.INTERNAL
    assert "secret" not in str(broken.error)


def test_the_same_order_of_the_same_index_waits_for_its_end(orders: Orders) -> None:
    first = start(orders, follow=endless)
    with pytest.raises(Refusal) as caught:
        start(orders)
    assert (caught.value.status, first.id in str(caught.value.error)) == (409, True)
    start(orders, index="posts")
    start(orders, name="quarantine_retry")


def test_the_newest_order_of_a_generation_counts(orders: Orders) -> None:
    old = start(orders, name="reindex", follow=endless, replaces=GENERATION)
    other = start(orders, name="reindex", index="posts", follow=endless, replaces=GENERATION)
    new = start(orders, name="rollback", replaces=GENERATION)
    assert ended(orders, old).state == "replaced"
    assert ended(orders, new).state == "done"
    found = orders.get(other.id)
    assert found is not None
    assert found.state == "running"


def test_what_cannot_begin_is_not_kept(orders: Orders) -> None:
    def refuse() -> None:
        raise HeadraceError(Kind.USAGE, "no way back")

    with pytest.raises(HeadraceError):
        orders.start(new_order("rollback", "users", "ada", "-"), refuse, lambda _: None)
    assert orders.all() == []


def test_orders_at_once_and_orders_kept_are_bounded(orders: Orders) -> None:
    for number in range(250):
        ended(orders, start(orders, index=str(number)))
    assert len(orders.all()) <= 202
    for number in range(16):
        start(orders, index=str(number), follow=endless)
    with pytest.raises(Refusal) as caught:
        start(orders)
    assert caught.value.status == 503
