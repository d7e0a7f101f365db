"""Read the orders of a run, and carry out those that change no index: the side of who is asked.

A run polls its desk once a second at most. It decides itself about orders for generations and files, and
answers them here. The others the desk carries out: a pause, a resume and a log level at once, and in a thread
of its own what takes a while.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from headrace.errors import HeadraceError, Kind, Retry, retrying, unexpected
from headrace.pipeline.stopping import Stopped, Stopping
from headrace.state.orders import FOR_ONE_RUN, Mailbox, Order, OrderError, OrderKind, cut, new_order
from headrace.status.board import StatusBoard

LogLevelName = Literal["debug", "info", "warning"]
LOG_LEVELS: tuple[LogLevelName, ...] = get_args(LogLevelName)

_POLL_SECONDS = 1.0
_END_SECONDS = 5.0

# What came of an order: in a few words, and as JSON values.
Outcome = tuple[str, Any]


@dataclass(eq=False, slots=True)
class OrderDesk:
    """The orders of one run; safe from any thread.

    Args:
        mailbox: the orders of the deployment.
        board: is told of a pause; its reporter gets a line for each order and each answer.
        do_errand: does what takes a while, in a thread of its own; see `headrace.tools.errands`.
        clock: monotonic seconds.

    Attributes:
        mailbox: the orders of the deployment.
        run: names this run in the orders that it has begun with.
        has_begun: whether this run carries out orders: it holds the lock of the slot.
    """

    mailbox: Mailbox
    board: StatusBoard
    do_errand: Callable[[Order], Outcome]
    clock: Callable[[], float] = time.monotonic
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:16], init=False)
    has_begun: bool = field(default=False, init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _open: tuple[Order, ...] = field(default=(), init=False)
    _next_read: float = field(default=0.0, init=False)
    _seen: set[str] = field(default_factory=set, init=False)
    _own: set[str] = field(default_factory=set, init=False)
    _begun: set[str] = field(default_factory=set, init=False)
    _threads: dict[str, tuple[threading.Thread, Stopping]] = field(default_factory=dict, init=False)
    # Plain values, because signal handlers set them: one that waits for a lock may wait for ever.
    _is_awake: bool = field(default=False, init=False)
    _wants_reload: bool = field(default=False, init=False)

    def __enter__(self) -> Self:
        return self

    @property
    def begun(self) -> frozenset[str]:
        """The ids of the orders that `carry_out` has begun with."""
        with self._lock:
            return frozenset(self._begun)

    def wake(self) -> None:
        """Let the next poll read the mailbox at once; a signal handler may call it."""
        self._is_awake = True

    def want_reload(self) -> None:
        """Let the next poll order a reload; a signal handler may call it."""
        self._wants_reload = True

    def submit(self, order: Order) -> Order:
        """Submit an order of this process, and let the next poll read it at once; see `Mailbox.submit`."""
        with self._lock:
            self._own.add(order.id)
        submitted = self.mailbox.submit(order)
        self.wake()
        return submitted

    def begin(self) -> None:
        """Begin to carry out orders, with the lock of the slot held.

        What was ordered of an earlier run alone is answered; the rest is still to be done. A verification or
        retry that the earlier run had begun with is repeated, and dropping from quarantine is not: it would
        take what was refused since.

        Raises:
            HeadraceError: an error of the cluster.
        """
        for order in self.mailbox.open_orders():
            with self._lock:
                is_ours = order.id in self._own
            # Ordered by this process before it had its turn, so it is still wanted.
            if is_ours:
                continue
            if order.kind in FOR_ONE_RUN:
                self._fail(order, "it was meant for an earlier run", "Give the order again.")
            elif order.kind is OrderKind.QUARANTINE_DROP and order.state == "running":
                self._fail(order, "the run that had begun with it has ended", "Give the order again.")
        self.has_begun = True
        self.wake()

    def open_orders(self) -> tuple[Order, ...]:
        """Return the orders that are not answered, oldest first; reads the mailbox once a second at most.

        While the cluster does not answer, these are the orders that were open before.
        """
        with self._lock:
            try:
                self._poll()
            except HeadraceError as error:
                if error.retry is Retry.NEVER:  # else who looks at the cluster tells of it
                    self.board.set_warning("orders", f"no new order is carried out: {error}")
            return self._open

    def start(self, order: Order) -> bool:
        """Note that this run begins with an order; return False where it has ended meanwhile.

        A reload must be started before the files are read, see `Mailbox.start`.
        """
        return self.mailbox.start(order.id, self.run)

    def answer(
        self, order: Order, text: str = "", *, result: Any = None, error: HeadraceError | None = None
    ) -> None:
        """Store what came of an order.

        Args:
            text: in a few words.
            result: as JSON values.
            error: why it has failed; None: it is carried out.

        Raises:
            HeadraceError: an error of the cluster; the call can be repeated.
        """
        noted = None if error is None else OrderError.of(error)
        self.mailbox.answer(order.id, text, result=result, error=noted)
        with self._lock:
            self._open = tuple(other for other in self._open if other.id != order.id)
        if error is None:
            self.board.report.done(f"control: {order}: done{f': {text}' if text else ''}")
        else:
            self.board.report.warning(f"control: {order}: {error}")

    def carry_out(self, order: Order) -> None:
        """Carry out an order that changes no index, and answer it; a second call does nothing.

        Raises:
            HeadraceError: an error of the cluster; the call can be repeated.
        """
        with self._lock:
            if order.id in self._begun:
                return
            self._begun.add(order.id)
        try:
            if order.kind in FOR_ONE_RUN:
                self._carry_out_at_once(order)
            elif self.start(order):
                self._start_thread(order)
        except BaseException:
            with self._lock:
                # Nothing was begun: the controller asks for it again.
                self._begun.discard(order.id)
            raise

    def __exit__(self, *_exception: object) -> None:
        """End the threads; what they were busy with is answered."""
        with self._lock:
            threads = list(self._threads.values())
        for _thread, stopping in threads:
            # All are told before any is waited for: they end side by side.
            stopping.stop()
        end = time.monotonic() + _END_SECONDS
        for thread, _stopping in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _poll(self) -> None:
        if not self._is_awake and not self._wants_reload and self.clock() < self._next_read:
            return
        # Before the read: who wakes the desk meanwhile is heard in the next poll.
        self._is_awake = False
        self._next_read = self.clock() + _POLL_SECONDS
        if self._wants_reload:
            self.mailbox.submit(new_order(OrderKind.RELOAD, by="SIGHUP"))
            # After the order: one that could not be stored is submitted again.
            self._wants_reload = False
        self._open = self.mailbox.open_orders()
        self.board.set_warning("orders", None)
        for order in self._open:
            if order.id not in self._seen:
                source = f" from {order.client}" if order.client else ""
                self.board.report.info(f"control: {order.by}{source}: {order}")
        self._seen = {order.id for order in self._open}

    def _carry_out_at_once(self, order: Order) -> None:
        """Carry out what this process alone must know."""
        board, report = self.board, self.board.report
        if order.kind is OrderKind.PAUSE:
            if board.pause(order.by):
                report.warning(f"paused by {order.by}: changes wait in the log, which the slot retains")
            result: Any = {"paused": board.snapshot()["paused"]}
        elif order.kind is OrderKind.RESUME:
            if board.resume():
                report.info(f"resumed by {order.by}")
            result = {"paused": None}
        else:
            level = str(order.options.get("level"))
            if level not in LOG_LEVELS:
                self._fail(order, f"{level!r} is no log level", f"Write {', '.join(LOG_LEVELS)}.")
                return
            logging.getLogger("headrace").setLevel(level.upper())
            report.info(f"log level {level}, set by {order.by}")
            result = {"level": level}
        self.answer(order, result=result)

    def _start_thread(self, order: Order) -> None:
        stopping = Stopping()
        thread = threading.Thread(
            target=self._run_errand, args=(order, stopping), name="headrace order", daemon=True
        )
        with self._lock:
            self._threads[order.id] = thread, stopping
            thread.start()

    def _run_errand(self, order: Order, stopping: Stopping) -> None:
        text, result, error = "", None, None
        try:
            with stopping.interrupting():
                text, result = self.do_errand(order)
                result = cut(result)  # here, so that what is no JSON is a bug that is answered
        except Stopped:
            cause = "the run ended before the order was done"
            error = HeadraceError(Kind.BEHIND, cause, "Give the order again once a run is live.")
        except Exception as failure:  # noqa: BLE001 - whoever follows the order is told
            error = unexpected("a bug", failure)
        try:
            for attempt in retrying(longest=1.0, ending=stopping):
                with attempt:
                    self.answer(order, text, result=result, error=error)
        except HeadraceError as failure:
            self.board.report.warning(f"control: {order}: its answer cannot be stored: {failure}")
        finally:
            with self._lock:
                del self._threads[order.id]

    def _fail(self, order: Order, cause: str, remedy: str) -> None:
        self.answer(order, cause, error=HeadraceError(Kind.USAGE, cause, remedy))
