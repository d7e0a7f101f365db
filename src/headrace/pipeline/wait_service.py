"""Who waits at `/wait` of a run, and for what? One thread looks for all of them, while there are any."""

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
_PATIENCE_SECONDS = 0.1


@dataclass(eq=False, slots=True)
class _Waiter:
    future: Future[WaitProgress]
    searchable: bool
    since: float
    progress: WaitProgress


class WaitService:
    """Those who wait for one run; the thread looks at the meta index twenty times a second at most.

    Args:
        opened: gives the connections to look with; called in the thread.
        most: how many may wait at once.
    """

    def __init__(self, opened: Callable[[], AppliedPosition], *, most: int = _MOST) -> None:
        self._opened = opened
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
        """See `Waits`."""
        with self._changed:
            self._forget_cancelled()
            if len(self._waiters) >= self._most:
                return None
            waiter = _Waiter(Future(), searchable, time.monotonic(), WaitProgress(lsn))
            self._waiters.append(waiter)
            self._changed.notify_all()
            return waiter.future

    def progress(self, asked: Future[WaitProgress]) -> WaitProgress:
        """See `Waits`."""
        with self._changed:
            return next((one.progress for one in self._waiters if one.future is asked), WaitProgress())

    def _forget_cancelled(self) -> None:
        self._waiters = [one for one in self._waiters if not one.future.done()]

    def _serve(self) -> None:
        with self._opened() as applied:
            while (waiting := self._next()) is not None:
                try:
                    self._look(applied, waiting)
                except HeadraceError as error:
                    self._note(waiting, trouble=str(error))
                time.sleep(_SECONDS)

    def _next(self) -> list[_Waiter] | None:
        """Whoever waits now, once somebody does; None at the end."""
        with self._changed:
            self._forget_cancelled()
            self._changed.wait_for(lambda: self._waiters or self._closing)
            return None if self._closing else list(self._waiters)

    def _note(self, waiting: list[_Waiter], **changes: Any) -> None:
        with self._changed:
            for one in waiting:
                one.progress = replace(one.progress, **changes)

    def _look(self, applied: AppliedPosition, waiting: list[_Waiter]) -> None:
        new = [one for one in waiting if one.progress.lsn is None]
        if new:
            end = applied.end_of_log()
            self._note(new, lsn=end)
        state = applied.state()
        self._note(waiting, applied=state.applied, trouble=None)
        there = [one for one in waiting if applied.covers(state, one.progress.lsn or 0)]
        if any(one.searchable for one in there):
            applied.refresh(state)
        with self._changed:
            for one in there:
                if one.future.set_running_or_notify_cancel():
                    one.future.set_result(one.progress)
            self._forget_cancelled()
        late = time.monotonic() - _PATIENCE_SECONDS
        wanted = [one.progress.lsn or 0 for one in waiting if one not in there and one.since <= late]
        if wanted:
            applied.urge(max(wanted))
