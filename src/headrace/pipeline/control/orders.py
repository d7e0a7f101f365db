"""Keep the orders that take a while: each has an id, a thread while it runs, and a result."""

from __future__ import annotations

import datetime as dt
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Literal, TypeVar

from headrace.errors import HeadraceError, unexpected
from headrace.pipeline.control.refusal import refuse
from headrace.pipeline.stopping import Stopped, Stopping
from headrace.reporter import Reporter

_MOST_RUNNING = 16
_MOST_KEPT = 200
_END_SECONDS = 5.0

OrderState = Literal["running", "done", "failed", "replaced"]
_Begun = TypeVar("_Begun")


@dataclass(frozen=True, slots=True)
class Order:
    """One order.

    Attributes:
        id: names it in `GET /v1/orders/{id}`.
        order: what was ordered, for example `reindex`.
        index: the index that it is about; None: all.
        by: the name of the token.
        client: the address that the request came from.
        asked_at, ended_at: ISO 8601 in UTC; `ended_at` is None while it runs.
        result: what came of it, as JSON values; None before, and after an error.
        error: why it failed.
    """

    id: str
    order: str
    index: str | None
    by: str
    client: str
    asked_at: str
    state: OrderState = "running"
    ended_at: str | None = None
    result: Any = None
    error: HeadraceError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the order as JSON values."""
        error = self.error
        return {
            "id": self.id,
            "order": self.order,
            "index": self.index,
            "by": self.by,
            "client": self.client,
            "asked_at": self.asked_at,
            "state": self.state,
            "ended_at": self.ended_at,
            "result": self.result,
            "error": error and {"code": error.code, "cause": error.cause, "remedy": error.remedy},
        }

    def __str__(self) -> str:
        of = f" of {self.index}" if self.index else ""
        return f"{self.order}{of}, order {self.id}"


class Orders:
    """The orders of one run, the newest ones; safe from any thread."""

    def __init__(self, reporter: Reporter) -> None:
        self._report = reporter
        self._lock = threading.Lock()
        self._orders: dict[str, Order] = {}
        self._threads: dict[str, tuple[threading.Thread, Stopping]] = {}

    def get(self, id_: str) -> Order | None:
        """Return an order; None where it is not known (any more)."""
        with self._lock:
            return self._orders.get(id_)

    def all(self) -> list[Order]:
        """Return the known orders, oldest first."""
        with self._lock:
            return list(self._orders.values())

    def start(
        self,
        order: Order,
        begin: Callable[[], _Begun],
        follow: Callable[[_Begun], Any],
        *,
        replaces: frozenset[str] = frozenset(),
    ) -> Order:
        """Begin an order in this thread, and follow it in one of its own.

        Args:
            order: a new one.
            begin: what can be refused at once; gives `follow` its argument.
            follow: returns the result.
            replaces: the orders of the same index that this one replaces.

        Raises:
            Refusal: the same order runs already, or too many do.
            HeadraceError: as `begin`.
        """
        with self._lock:
            self._check_room(order, replaces)
            self._orders[order.id] = order
        try:
            begun = begin()
        except BaseException:
            with self._lock:
                del self._orders[order.id]
            raise
        stopping = Stopping()
        thread = threading.Thread(
            target=self._follow,
            args=(order, stopping, lambda: follow(begun)),
            name="headrace order",
            daemon=True,
        )
        with self._lock:
            replaced = [
                other.id
                for other in self._running(order.index)
                if other.order in replaces and other.id != order.id
            ]
            self._threads[order.id] = thread, stopping
            self._report.info(f"control: {order.by} from {order.client}: {order}")
            thread.start()
        for id_ in replaced:
            self._interrupt(id_)
        return order

    def close(self) -> None:
        """End the threads; what was ordered of the pipeline stays ordered."""
        with self._lock:
            threads = list(self._threads.values())
        for _, stopping in threads:
            stopping.stop()
        end = time.monotonic() + _END_SECONDS
        for thread, _ in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _check_room(self, order: Order, replaces: frozenset[str]) -> None:
        running = [other for other in self._orders.values() if other.state == "running"]
        for other in running:
            if (other.order, other.index) == (order.order, order.index) and order.order not in replaces:
                raise refuse(
                    HTTPStatus.CONFLICT,
                    "conflict",
                    f"the same order runs already, as {other.id}",
                    f"GET /v1/orders/{other.id} follows it.",
                )
        if len(running) >= _MOST_RUNNING:
            raise refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too_many_orders",
                f"{len(running)} orders run already",
                "Wait until one of them has ended.",
                Retry_After="10",
            )
        ended = [other.id for other in self._orders.values() if other.state != "running"]
        for id_ in ended[: max(0, len(ended) - _MOST_KEPT)]:
            del self._orders[id_]

    def _running(self, index: str | None) -> list[Order]:
        return [other for other in self._orders.values() if other.state == "running" and other.index == index]

    def _interrupt(self, id_: str) -> None:
        with self._lock:
            running = self._threads.get(id_)
        if running is not None:
            running[1].stop()

    def _follow(self, order: Order, stopping: Stopping, follow: Callable[[], Any]) -> None:
        try:
            with stopping.interrupting():
                result = follow()
            self._end(order, state="done", result=result)
            self._report.done(f"control: {order}: done")
        except Stopped:
            self._end(order, state="replaced")
        except HeadraceError as error:
            self._end(order, state="failed", error=error)
            self._report.warning(f"control: {order}: {error}")
        except Exception as bug:  # noqa: BLE001 - whoever follows the order is told
            self._end(order, state="failed", error=unexpected("a bug", bug))
            self._report.warning(f"control: {order}: {unexpected('a bug', bug)}")

    def _end(self, order: Order, **changes: Any) -> None:
        with self._lock:
            self._orders[order.id] = replace(order, ended_at=_now(), **changes)
            del self._threads[order.id]


def new_order(order: str, index: str | None, by: str, client: str) -> Order:
    """Return an order with an id of its own and the time."""
    return Order(uuid.uuid4().hex[:16], order, index, by, client, _now())


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
