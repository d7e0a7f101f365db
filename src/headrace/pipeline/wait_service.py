"""Serve the clients that wait at `/wait` of a run, with one thread for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from headrace.errors import HeadraceError
from headrace.model import Lsn
from headrace.pipeline.applied_position import AppliedPosition
from headrace.status.waiting import WaitProgress

_MOST = 64
_SECONDS = 0.05
_UNASKED_SECONDS = 0.1


@dataclass(eq=False, slots=True)
class _Waiter:
    future: Future[WaitProgress]
    searchable: bool
    since: float
    progress: WaitProgress


class WaitService:
    """The waiting clients of one run; the thread reads the meta index twenty times a second at most.

    Args:
        open_: opens what reads the applied position; called in the thread.
        most: how many clients may wait at once.
    """

    def __init__(self, open_: Callable[[], AppliedPosition], *, most: int = _MOST) -> None:
        self._open = open_
        self._most = most
        self._changed = threading.Condition()
        self._waiters: list[_Waiter] = []
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="headrace waits", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout=5.0)

    def ask(self, lsn: Lsn | None, *, searchable: bool) -> Future[WaitProgress] | None:
        """Register a waiting client; see `Waits`."""
        with self._changed:
            self._forget_cancelled()
            if len(self._waiters) >= self._most:
                return None
            waiter = _Waiter(Future(), searchable, time.monotonic(), WaitProgress(lsn))
            self._waiters.append(waiter)
            self._changed.notify_all()
            return waiter.future

    def progress(self, asked: Future[WaitProgress]) -> WaitProgress:
        """Return how far a waiting client's position is; see `Waits`."""
        with self._changed:
            return next(
                (waiter.progress for waiter in self._waiters if waiter.future is asked), WaitProgress()
            )

    def _forget_cancelled(self) -> None:
        self._waiters = [waiter for waiter in self._waiters if not waiter.future.done()]

    def _serve(self) -> None:
        with self._open() as applied:
            while (waiting := self._next()) is not None:
                try:
                    self._look(applied, waiting)
                except HeadraceError as error:
                    self._note(waiting, error=str(error))
                time.sleep(_SECONDS)

    def _next(self) -> list[_Waiter] | None:
        """Wait until a client waits; return all that wait, or None at the end."""
        with self._changed:
            self._forget_cancelled()
            self._changed.wait_for(lambda: self._waiters or self._closing)
            return None if self._closing else list(self._waiters)

    def _note(self, waiting: list[_Waiter], **changes: Any) -> None:
        with self._changed:
            for waiter in waiting:
                waiter.progress = replace(waiter.progress, **changes)

    def _look(self, applied: AppliedPosition, waiting: list[_Waiter]) -> None:
        new = [waiter for waiter in waiting if waiter.progress.lsn is None]
        if new:
            end = applied.end_of_log()
            self._note(new, lsn=end)
        state = applied.state()
        self._note(waiting, applied=state.applied, error=None)
        done = [waiter for waiter in waiting if applied.covers(state, waiter.progress.lsn or 0)]
        if any(waiter.searchable for waiter in done):
            applied.refresh(state)
        with self._changed:
            for waiter in done:
                if waiter.future.set_running_or_notify_cancel():
                    waiter.future.set_result(waiter.progress)
            self._forget_cancelled()
        late = time.monotonic() - _UNASKED_SECONDS
        requested = [
            waiter.progress.lsn or 0 for waiter in waiting if waiter not in done and waiter.since <= late
        ]
        if requested:
            applied.request_position(max(requested))
