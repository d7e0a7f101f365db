"""Does a kill -9 of the whole process tree, at any commit point, lose or falsify nothing?

Each test lets the pipeline stand still at one row of the table of commit points, kills every process of its
tree, starts it plainly again and compares all indexes with the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace

_EVERY_ITEM = "UPDATE order_items SET quantity = quantity % 9 + 1, unit_price = unit_price + 1"
"""One transaction of about 3,000 rows that touches every order and nearly every user."""


@pytest.fixture(scope="module")
def backfilled(deploy: Deploy) -> Iterator[Headrace]:
    """A deployment that was killed in its backfill, completed it after a plain start, and is stopped."""
    with deploy(users=200) as pipeline:
        pipeline.start(failpoint="range")
        pipeline.wait_failpoint()
        pipeline.kill()
        pipeline.shop.run(
            "UPDATE users SET name = name || '!' WHERE id % 2 = 0",
            "DELETE FROM orders WHERE id % 11 = 0",
            "DELETE FROM reviews WHERE id % 5 = 0",
        )
        pipeline.start()
        pipeline.wait_ready()
        pipeline.converges()
        pipeline.terminate()
        yield pipeline


@pytest.mark.long
def test_killed_while_backfilling(backfilled: Headrace) -> None:
    """The fixture killed it after its first written range, and rows changed before it went on."""
    assert backfilled.differences() == []


@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param("planned", marks=pytest.mark.long),
        pytest.param("bulk", marks=pytest.mark.long),
        pytest.param("applied", marks=pytest.mark.long),
        pytest.param("confirmed", marks=pytest.mark.long),
    ],
)
def test_killed_while_a_large_transaction_is_applied(backfilled: Headrace, failpoint: str) -> None:
    """Also a move and a deletion, whose old parents only the log knows.

    Flusso's hole 1.
    """
    orders = backfilled.shop.ids("SELECT id FROM orders WHERE status = 'paid' ORDER BY id DESC LIMIT 2")
    backfilled.shop.run(
        _EVERY_ITEM,
        f"UPDATE orders SET user_id = user_id % 100 + 1 WHERE id = {orders[0]}",
        f"DELETE FROM orders WHERE id = {orders[1]}",
    )
    assert backfilled.differences() != []
    backfilled.start(failpoint=failpoint)
    backfilled.wait_failpoint()
    if failpoint == "planned":
        assert backfilled.differences() != [], "the kill comes too late to show anything"
    backfilled.kill()
    backfilled.start()
    backfilled.wait_ready()
    backfilled.converges()
    backfilled.terminate()


@pytest.mark.long
@pytest.mark.parametrize("failpoint", ["early", "bulk", "planned"])
def test_killed_while_a_small_batch_is_written_early(backfilled: Headrace, failpoint: str) -> None:
    """Its documents are there, and Spark does not know of the batch; then their rows change once more."""
    backfilled.start(failpoint=failpoint)
    backfilled.wait_ready()
    [order] = backfilled.shop.ids("SELECT id FROM orders ORDER BY id LIMIT 1")
    backfilled.shop.run(f"UPDATE orders SET user_id = user_id % 100 + 1, status = 'paid' WHERE id = {order}")
    backfilled.wait_failpoint()
    backfilled.kill()
    backfilled.shop.run(
        f"UPDATE orders SET user_id = user_id % 100 + 1 WHERE id = {order}",
        f"DELETE FROM order_items WHERE order_id = {order}",
    )
    assert backfilled.differences() != []
    backfilled.start()
    backfilled.wait_ready()
    backfilled.converges()
    backfilled.terminate()
