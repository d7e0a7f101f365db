"""Keep what somebody asks of a deployment, and what came of it: one mailbox for every kind of order.

The command line, the private address, signals and Python programs submit orders; the run reads them, carries
them out and answers them. The last hundred orders of a pipeline stand in one document of the meta index.
Many processes change it: each change reads the document, and writes it only if nobody has changed it since.
"""

from __future__ import annotations

import datetime as dt
import enum
import getpass
import json
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self

from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.sinks.opensearch.client import Client
from headrace.state.key import StateKey
from headrace.state.pipeline_state import Unit
from headrace.state.system_index import StateDocument

MOST_ORDERS = 100
MOST_OPEN = 32
_FORMAT = 1
_MOST_BYTES = 512 * 1024
_MOST_RESULT_BYTES = 32 * 1024
_MOST_ORDER_BYTES = 8 * 1024
_MOST_TEXT = 1000

OrderState = Literal["open", "running", "done", "failed", "replaced"]


class OrderKind(enum.Enum):
    """What somebody can ask of a running deployment."""

    REINDEX = "reindex"
    ROLLBACK = "rollback"
    RELOAD = "reload"
    PAUSE = "pause"
    RESUME = "resume"
    LOG_LEVEL = "log level"
    VERIFY = "verify"
    QUARANTINE_RETRY = "quarantine retry"
    QUARANTINE_DROP = "quarantine drop"
    # What a later version of Headrace can be asked for, and this one cannot read.
    UNKNOWN = "unknown"

    @property
    def key(self) -> str:
        """The kind as one word, for JSON and metrics."""
        return self.value.replace(" ", "_")


# Of one index, the newest of them replaces an open one.
OF_GENERATIONS = frozenset({OrderKind.REINDEX, OrderKind.ROLLBACK})

# They concern the run that works, and no later one.
FOR_ONE_RUN = frozenset({OrderKind.PAUSE, OrderKind.RESUME, OrderKind.LOG_LEVEL})


@dataclass(frozen=True, slots=True)
class OrderError:
    """Why an order failed.

    Attributes:
        code: the stable code of the error, for example `HEADRACE_USAGE`.
        more: the further mistakes, where several were found.
    """

    code: str
    cause: str
    remedy: str = ""
    more: tuple[OrderError, ...] = ()

    @classmethod
    def of(cls, error: HeadraceError) -> Self:
        """Note an error, or each error of a group."""
        if isinstance(error, ErrorGroup):
            first, *others = map(cls.of, error.errors)
            return replace(first, more=tuple(others))
        return cls(error.code, error.cause, error.remedy)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `dataclasses.asdict` has written."""
        more = tuple(map(cls.from_json, data.get("more", ())))
        return cls(data["code"], data["cause"], data["remedy"], more)

    def to_error(self) -> HeadraceError:
        """Return the error that it notes."""
        name = self.code.removeprefix("HEADRACE_")
        kind = Kind[name] if name in Kind.__members__ else Kind.INTERNAL
        error = HeadraceError(kind, self.cause, self.remedy)
        return ErrorGroup([error, *(other.to_error() for other in self.more)]) if self.more else error


@dataclass(frozen=True, slots=True)
class Order:
    """What somebody asks of a deployment, and what came of it.

    Attributes:
        id: names the order; a generation that answers it stores the id.
        index: the logical index that it concerns; None: all, or the whole run.
        sink: the secondary sink that it concerns; empty for the primary.
        options: JSON values, for example `{"level": "debug"}`.
        by: who asks: a user and a host, or the name of a token.
        client: the address that the request came from; empty where it came through no address.
        asked_at, ended_at: ISO 8601 in UTC; `ended_at` is None before its end.
        state: open until the run begins with it, then running, then one of the others.
        run: names the run that has begun with it; empty before.
        text: what came of it, in a few words; empty before.
        result: what came of it, as JSON values. Lists of a large one are cut.
        error: why it failed.
        unread: of an unknown kind, what another version of Headrace has written.
    """

    id: str
    kind: OrderKind
    index: str | None = None
    sink: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    by: str = ""
    client: str = ""
    asked_at: str = ""
    state: OrderState = "open"
    ended_at: str | None = None
    run: str = ""
    text: str = ""
    result: Any = None
    error: OrderError | None = None
    unread: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        """Whether it is answered, or replaced."""
        return self.state not in ("open", "running")

    @property
    def unit(self) -> Unit | None:
        """The unit that it concerns; None: it concerns the whole run."""
        return None if self.index is None else Unit(self.sink, self.index)

    def is_like(self, other: Order) -> bool:
        """Whether another order asks the same kind of thing of the same index."""
        return self.kind is other.kind and self.unit == other.unit

    def to_json(self) -> dict[str, Any]:
        """Return the order as JSON values; of one that is not understood, all that was read."""
        values = {**asdict(self), "kind": self.kind.value}
        del values["unread"]
        return {**values, **self.unread, **{name: values[name] for name in _OF_ANSWERS}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` has written, perhaps that of a later version."""
        error = data["error"] and OrderError.from_json(data["error"])
        known = {name: data[name] for name in _FIELDS if name in data}
        kind = _KINDS.get(data["kind"]) if data.keys() <= _FIELDS else None
        if kind is None:  # what a field asks for that is not known must not be left out in silence
            return cls(**{**known, "kind": OrderKind.UNKNOWN, "error": error, "unread": data})
        return cls(**{**known, "kind": kind, "error": error})

    def __str__(self) -> str:
        of = f" of {self.index}" if self.index else ""
        return f"{self.unread.get('kind', self.kind.value)}{of}, order {self.id}"


_KINDS = {kind.value: kind for kind in OrderKind}
_FIELDS = {one.name for one in fields(Order)} - {"unread"}
# What whoever answers an order writes.
_OF_ANSWERS = ("state", "ended_at", "run", "text", "result", "error")


def new_order(
    kind: OrderKind,
    index: str | None = None,
    sink: str = "",
    options: Mapping[str, Any] | None = None,
    *,
    by: str = "",
    client: str = "",
) -> Order:
    """Return an order with an id of its own and the time now; `by` is the user and host, if not given."""
    by = by or user_and_host()
    return Order(uuid.uuid4().hex[:16], kind, index, sink, dict(options or {}), by, client, _now())


def user_and_host() -> str:
    """Return the user and the host, for who is shown to have given an order."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user id without a name, as in many containers
        user = "?"
    return f"{user}@{socket.gethostname()}"


# The orders of one pipeline, oldest first.
Orders = tuple[Order, ...]


class Mailbox:
    """The orders of one pipeline, in a document of the meta index.

    Each change is made by compare-and-set, so that of many processes none undoes what another has done.

    Args:
        client: of the cluster that keeps the state.
        key: names the pipeline, or one of its secondary sinks: all have the same mailbox.
    """

    def __init__(self, client: Client, key: StateKey) -> None:
        self._client = client
        self._key = key.of_pipeline()

    def submit(self, order: Order) -> Order:
        """Ask for something; return the order whose answer to wait for.

        That is another one where the same reload waits already. A reindex or rollback replaces an open one of
        the same index.

        Raises:
            HeadraceError: USAGE: the same order is open already, or it is too large. BEHIND: too
                many orders are open.
        """
        if _bytes(order.to_json()) > _MOST_ORDER_BYTES:
            raise HeadraceError(
                Kind.USAGE, f"the order {order.kind.value} is too large", "Shorten its options."
            )
        orders = self._change(lambda known: _submitted(known, order))
        return next((known for known in orders if known.id == order.id), None) or _joined(orders, order)

    def read(self) -> Orders:
        """Return the last orders, oldest first."""
        return _orders(self._read()[0])

    def get(self, id_: str) -> Order | None:
        """Return an order; None where it is not known (any more)."""
        return next((order for order in self.read() if order.id == id_), None)

    def open_orders(self) -> Orders:
        """Return the orders that have not ended, oldest first."""
        return _not_ended(self.read())

    def start(self, id_: str, run: str) -> bool:
        """Note that a run begins with an order, or goes on with it; return False where it has ended.

        Only the run that holds the slot's lock calls it. A reload must be started before the files are read:
        until then others who ask for one join it.
        """

        def begin(order: Order) -> Order:
            return order if order.has_ended else replace(order, state="running", run=run)

        orders = self._change(lambda known: _with(known, id_, begin))
        return any(order.id == id_ and not order.has_ended for order in orders)

    def answer(
        self, id_: str, text: str = "", *, result: Any = None, error: OrderError | None = None
    ) -> Order | None:
        """Note what came of an order; return the order, or None where it is not known any more.

        An order that has ended already is not changed.

        Args:
            text: in a few words; of a failed order, its cause if nothing is given.
            result: as JSON values.
            error: why it failed; None: it is done.
        """

        def end(order: Order) -> Order:
            if order.has_ended:
                return order
            return replace(
                order,
                state="done" if error is None else "failed",
                ended_at=_now(),
                text=(text or (error.cause if error is not None else ""))[:_MOST_TEXT],
                result=cut(result) if error is None else None,
                error=error and _shortened(error),
            )

        orders = self._change(lambda known: _with(known, id_, end))
        return next((order for order in orders if order.id == id_), None)

    def forget(self) -> None:
        """Delete all orders."""
        self._document().delete()

    def _change(self, change: Callable[[Orders], Orders]) -> Orders:
        """Change the orders by compare-and-set; each conflict means that another process has got on."""
        while True:
            body, document = self._read()
            known = _orders(body)
            changed = _bounded(change(known))
            # Nothing is written where nothing changes: so a repeated call costs a read alone.
            if changed == known:
                return known
            if self._replace(_body(changed), document):
                return changed

    def _document(self) -> StateDocument:
        id_ = f"{self._key.id}.orders"
        return StateDocument(self._client, self._key.meta_index, id_, f"the orders of {self._key}")

    def _read(self) -> tuple[Mapping[str, Any] | None, Any]:
        document = self._document()
        return document.load(), document

    def _replace(self, body: Mapping[str, Any], document: Any) -> bool:
        """Write the orders, unless another process has changed them since they were read."""
        try:
            document.save(body)
        except HeadraceError as error:
            if error.kind is not Kind.CONTINUITY:
                raise
            return False
        return True


# The rules, as pure functions.


def _submitted(known: Orders, order: Order) -> Orders:
    """Return the orders with a new one, and those that it replaces.

    Raises:
        HeadraceError: as `Mailbox.submit`.
    """
    if any(other.id == order.id for other in known):  # an earlier try whose answer was lost
        return known
    if order.kind in OF_GENERATIONS:
        known = tuple(_replaced(other, order) for other in known)
    still_open = _not_ended(known)
    same = [other for other in still_open if other.is_like(order)]
    if order.kind is OrderKind.RELOAD:
        if any(other.state == "open" for other in same):
            return known
        same = []  # one that runs has read the files already; this one comes after it
    if same:
        raise HeadraceError(
            Kind.USAGE,
            f"the same order is open already, as {same[0].id}",
            "`headrace orders` shows what becomes of it.",
        )
    if len(still_open) >= MOST_OPEN:
        raise HeadraceError(
            Kind.BEHIND,
            f"{len(still_open)} orders are open already",
            "Wait until one of them has ended; `headrace orders` lists them.",
        )
    return (*known, order)


def _replaced(known: Order, order: Order) -> Order:
    """Return a known order; the new one replaces it where both ask for a generation of the same index."""
    if known.kind not in OF_GENERATIONS or known.unit != order.unit or known.has_ended:
        return known
    return replace(known, state="replaced", ended_at=_now(), text=f"order {order.id} replaced it")


def _not_ended(orders: Orders) -> Orders:
    return tuple(order for order in orders if not order.has_ended)


def _joined(orders: Orders, order: Order) -> Order:
    return next(other for other in orders if other.is_like(order) and other.state == "open")


def _with(known: Orders, id_: str, change: Callable[[Order], Order]) -> Orders:
    return tuple(change(order) if order.id == id_ else order for order in known)


def _bounded(orders: Orders) -> Orders:
    """Leave out the orders that ended first, as far as there are too many, or they are too large."""
    while len(orders) > MOST_ORDERS or _bytes(_body(orders)) > _MOST_BYTES:
        # One that is open is never left out: somebody waits for its answer.
        oldest = min((order for order in orders if order.has_ended), key=_end, default=None)
        if oldest is None:
            return orders
        orders = tuple(order for order in orders if order is not oldest)
    return orders


def _end(order: Order) -> str:
    return order.ended_at or ""


def cut(value: Any) -> Any:
    """Return JSON values that are not too large to be stored: long lists and texts keep their beginning."""
    for most in (100, 10, 1):
        if _bytes(value) <= _MOST_RESULT_BYTES:
            return value
        value = _cut(value, most)
    return value if _bytes(value) <= _MOST_RESULT_BYTES else None


def _cut(value: Any, most: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _cut(entry, most) for name, entry in value.items()}
    if isinstance(value, str):
        longest = 100 + 10 * most
        return value if len(value) <= longest else f"{value[:longest]}…"
    if isinstance(value, Sequence):
        return [_cut(entry, most) for entry in value[:most]]
    return value


def _shortened(error: OrderError) -> OrderError:
    return OrderError.from_json(cut(asdict(error)))


def _body(orders: Orders) -> dict[str, Any]:
    return {"format": _FORMAT, "orders": [order.to_json() for order in orders]}


def _orders(body: Mapping[str, Any] | None) -> Orders:
    if body is None:
        return ()
    if body.get("format") != _FORMAT:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the orders are stored in format {body.get('format')}, and this Headrace reads {_FORMAT}",
            "Use the Headrace that has written them.",
        )
    try:
        return tuple(map(Order.from_json, body["orders"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the stored orders of the deployment cannot be read: {error!r}",
            "Use the Headrace that has written them, or delete the document SLOT.orders of the meta index.",
        ) from error


def _bytes(value: Any) -> int:
    return len(json.dumps(value))


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
