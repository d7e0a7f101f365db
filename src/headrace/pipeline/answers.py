"""Hand the orders to a run over to the controller, and answer them; see `OrderPort`."""

from __future__ import annotations

import time

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.controller.desired import OpenOrder, Unit
from headrace.pipeline.reloads import Reloads
from headrace.state.orders import Mailbox, Order, OrderError, OrderKind
from headrace.status.board import StatusBoard

_READ_SECONDS = 1.0


class RunOrders:
    """The orders to one run; used from its thread."""

    def __init__(self, mailbox: Mailbox, board: StatusBoard, reloads: Reloads) -> None:
        self.carried_out: frozenset[str] = frozenset()
        self._mailbox = mailbox
        self._board = board
        self._reloads = reloads
        self._orders: tuple[Order, ...] = ()
        self._next = 0.0

    def open_orders(self) -> tuple[OpenOrder, ...]:
        """Return the orders that are not answered yet, oldest first."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _READ_SECONDS
            try:
                self._orders = self._mailbox.open_orders()
            except HeadraceError:
                pass
        return tuple(
            OpenOrder(order.id, order.kind, None if order.index is None else Unit(order.sink, order.index))
            for order in self._orders
        )

    def answer(self, order: OpenOrder, text: str, *, done: bool) -> None:
        """Store what came of an order."""
        error = None
        if not done:
            found = self._reloads.error_of(order.id) or HeadraceError(Kind.SINK_REJECTED, text)
            error = OrderError.of(found)
        self._mailbox.answer(order.id, text, result=self._reloads.data_of(order.id), error=error)
        self._orders = tuple(other for other in self._orders if other.id != order.id)

    def carry_out(self, order: OpenOrder) -> None:
        """Begin what an order asks for."""
        full = next(other for other in self._orders if other.id == order.id)
        if order.kind is OrderKind.PAUSE:
            self._board.control.pause(full.by)
        elif order.kind is OrderKind.RESUME:
            self._board.control.resume()
        self.answer(order, "done", done=True)
