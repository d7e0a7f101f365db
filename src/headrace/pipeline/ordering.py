"""Give orders to a deployment, and wait for their answers: the side of who asks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from headrace.errors import HeadraceError, Kind, Retry
from headrace.state.orders import Mailbox, Order, OrderError

_LOOK_SECONDS = 0.3


def follow(
    mailbox: Mailbox, order: Order, seconds: float, *, is_alive: Callable[[], bool] = lambda: True
) -> Order:
    """Wait until an order has ended; return it as it is then, or after so many seconds.

    A cluster that is away for a while is waited for.

    Args:
        is_alive: whether the run that must answer lives; the wait ends where it does not.

    Raises:
        HeadraceError: BEHIND: the order is not known any more; an error of the cluster.
    """
    end = time.monotonic() + seconds
    while True:
        lives, is_late = is_alive(), time.monotonic() > end
        try:
            known = mailbox.get(order.id)
        except HeadraceError as error:
            if error.retry is Retry.NEVER or is_late or not lives:
                raise
        else:
            if known is None:
                remedy = (
                    "The state was deleted or restored, or a hundred newer orders came: give the order again."
                )
                raise HeadraceError(Kind.BEHIND, f"there is no record of the {order} any more", remedy)
            if known.has_ended or is_late or not lives:
                return known
        time.sleep(max(0.0, min(_LOOK_SECONDS, end - time.monotonic())))


def result_of(order: Order) -> Any:
    """Return the result of an order that has ended.

    Raises:
        HeadraceError: why it failed; BEHIND where another order has replaced it.
    """
    if order.error is not None:
        raise order.error.to_error()
    if order.state == "replaced":
        cause = f"another order has replaced {order.kind.value} {order.index or ''}".rstrip()
        raise HeadraceError(Kind.BEHIND, cause, "`headrace orders` shows the newer one.")
    return order.result


def follow_at_once(mailbox: Mailbox, order: Order, seconds: float) -> Any:
    """Wait until the run that works has carried out an order; return its result.

    Raises:
        HeadraceError: BEHIND: no run has taken the order within `seconds`; it is withdrawn then. As for
            `result_of`.
    """
    if not (ended := follow(mailbox, order, seconds)).has_ended:
        nobody = HeadraceError(
            Kind.BEHIND,
            f"no run has taken the request within {seconds:g} s",
            "Check that `headrace run` is alive and has started.",
        )
        ended = mailbox.answer(order.id, error=OrderError.of(nobody)) or order
    return result_of(ended)
