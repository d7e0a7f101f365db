"""Show the former core of the run its requests, which are orders of the mailbox; goes with that core."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from headrace.errors import ErrorGroup, HeadraceError
from headrace.sinks.opensearch.client import Client
from headrace.state.key import StateKey
from headrace.state.orders import OF_GENERATIONS, Mailbox, Order, OrderError, OrderKind

RequestKind = Literal["reindex", "rollback"]

RUN = uuid.uuid4().hex[:16]
"""Names the runs of this process in the orders that they begin with."""

_BEGIN: dict[StateKey, Callable[[], None]] = {}
"""What is called once a run of this process has the lock of its slot, by pipeline."""


def when_begun(key: StateKey, begin: Callable[[], None]) -> None:
    """Let the next run of a pipeline in this process call `begin` once it has the lock of the slot."""
    _BEGIN[key] = begin


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """An order for the generations of one index.

    Attributes:
        index: the logical index.
        kind: what to do.
        number: id of the order; the generation that it was carried out on stores it, so that it is not
            repeated after a kill.
    """

    index: str
    kind: RequestKind
    number: str


class ControlRequests:
    """The orders for generations of one sink."""

    def __init__(self, client: Client, key: StateKey) -> None:
        self._mailbox = Mailbox(client, key)
        self._sink = key.sink

    def read(self, indexes: Iterable[str]) -> list[ControlRequest]:
        """Read the orders for these indexes that nobody has begun with, or an earlier run."""
        known = frozenset(indexes)
        return [
            ControlRequest(order.index, cast("RequestKind", order.kind.value), order.id)
            for order in self._mailbox.open_orders()
            if order.kind in OF_GENERATIONS
            and order.index in known
            and order.sink == self._sink
            and order.run != RUN
        ]

    def done(self, request: ControlRequest) -> None:
        """Note that the generation which the order asks for is saved, or that there can be none."""
        self._mailbox.start(request.number, RUN)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """An order for a whole run; `OrderDesk` carries them out, so that there is none."""


class RunRequests:
    """Tells whoever waits for it that a run has begun."""

    def __init__(self, _: Client, key: StateKey) -> None:
        self._key = key

    def read(self) -> list[RunRequest]:
        """Return nothing: `OrderDesk` carries such orders out."""
        return []

    def done(self, request: RunRequest) -> None:
        """Do nothing."""

    def forget(self) -> None:
        """Answer the orders that were meant for an earlier run."""
        if (begin := _BEGIN.pop(self._key, None)) is not None:
            begin()


class ReloadRequest:
    """The orders to take up changed files."""

    def __init__(self, client: Client, key: StateKey) -> None:
        self._mailbox = Mailbox(client, key)

    def pending(self) -> Order | None:
        """Begin with the oldest order that is not answered; None where there is none."""
        for order in self._mailbox.open_orders():
            if order.kind is OrderKind.RELOAD and self._mailbox.start(order.id, RUN):
                return order
        return None

    def answer(self, order: Order, errors: Sequence[HeadraceError], text: str, result: Any) -> None:
        """Answer an order."""
        error = OrderError.of(ErrorGroup(errors)) if errors else None
        self._mailbox.answer(order.id, text, result=result, error=error)
