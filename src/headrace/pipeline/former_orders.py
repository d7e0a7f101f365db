"""Run an order desk beside the former core of the run; goes with that core.

The former core reads orders for generations and files itself, and answers those for files. A thread does the
rest: it carries out the other orders, and answers those for generations once they are served.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.order_desk import CARRIED_OUT_HERE, OrderDesk
from headrace.sinks.opensearch import Client
from headrace.state import MetaIndex, PipelineState, StateKey
from headrace.state.former_requests import when_begun
from headrace.state.orders import OF_GENERATIONS, Order

_LOOK_SECONDS = 0.2


@contextmanager
def beside_former_core(desk: OrderDesk, client: Client, key: StateKey) -> Iterator[None]:
    """Carry out and answer orders while this is entered, from when a run has the lock of the slot."""
    ending = threading.Event()
    when_begun(key, desk.begin)
    thread = threading.Thread(target=_tend, args=(desk, client, key, ending), name="headrace orders")
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def _tend(desk: OrderDesk, client: Client, key: StateKey, ending: threading.Event) -> None:
    meta = MetaIndex(client, key)
    while not ending.wait(_LOOK_SECONDS):
        if not desk.has_begun:
            continue
        try:
            for order in desk.open_orders():
                if order.kind in CARRIED_OUT_HERE:
                    desk.carry_out(order)
                elif order.kind in OF_GENERATIONS and order.state == "running":
                    _answer(desk, order, meta.load())
        except HeadraceError:  # the health monitor reports a cluster that does not answer
            continue


def _answer(desk: OrderDesk, order: Order, state: PipelineState | None) -> None:
    generations = () if state is None else state.of(order.index or "")
    answers = [generation for generation in generations if generation.request == order.id]
    if not answers:
        error = HeadraceError(
            Kind.SINK_REJECTED, "no generation came of it, or another one replaced it", "The log says more."
        )
        desk.answer(order, done=False, error=error)
    elif answers[-1].published:
        served = answers[-1].generation
        desk.answer(order, f"readers see {served}", done=True, result={"generation": served})
    elif answers[-1].frozen:
        cause = f"{answers[-1].generation}: {answers[-1].frozen}"
        desk.answer(order, done=False, error=HeadraceError(Kind.SINK_REJECTED, cause))
