"""Hand the orders of a run over to the controller, and answer what it has decided; see `OrderPort`."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.order_desk import OrderDesk
from headrace.pipeline.reloads import Reloads
from headrace.state import Order
from headrace.state.orders import OrderKind


@dataclass(eq=False, slots=True)
class Answers:
    """The orders to one run, between its desk and its controller; used from the run's thread.

    Attributes:
        desk: reads, starts and answers orders.
        reloads: reads the files again; its state says by which generation an order is answered.
    """

    desk: OrderDesk
    reloads: Reloads

    def read_files(self, order: Order) -> None:
        """Read the files that a reload orders; see `OrderPort`."""
        # Started before the files are read: a reload that is ordered from now on must read them once more.
        if self.desk.start(order):
            self.reloads.read(order)

    def answer(self, order: Order, text: str, *, done: bool) -> None:
        """Store what came of an order."""
        result: object = None
        error: HeadraceError | None = None
        if order.kind is OrderKind.RELOAD:
            error = self.reloads.refusals.get(order.id)
            changed = self.reloads.results.get(order.id)
            result = None if changed is None else asdict(changed)
        elif done:
            result = {"generation": self._served_by(order)}
        if not done and error is None:
            error = HeadraceError(Kind.BEHIND, text, "`headrace indexes` and `headrace status` say more.")
        self.desk.answer(order, text, result=result, error=error)
        self.reloads.forget(order)

    def carry_out(self, order: Order) -> None:
        """Begin what an order asks for; the desk answers it."""
        self.desk.carry_out(order)

    def _served_by(self, order: Order) -> str:
        state = self.reloads.store.current
        generations = () if state is None else state.generations
        return next((found.generation for found in generations if found.request == order.id), "")
