"""Answer the clients that wait at `/wait`: one thread looks for all of them how far the documents are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Self

from headrace.errors import HeadraceError
from headrace.state import PipelineState
from headrace.status.waiting import WaitProgress
from headrace.tools.applied_position import AppliedPosition

_READ_SECONDS = 0.05
_UNASKED_SECONDS = 0.1

# A look that is to be taken, and who waits for it.
_Asked = tuple[Future[WaitProgress], Callable[[], WaitProgress]]


class WaitService:
    """Looks for the waiting clients of one run how far its documents are, in one thread of its own.

    Args:
        applied: reads the applied position; closed with this.
    """

    def __init__(self, applied: AppliedPosition) -> None:
        self._applied = applied
        self._state: PipelineState | None = None
        self._refreshed: PipelineState | None = None
        self._next = 0.0
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        # No executor: the end of the process would wait for a look at a server that hangs.
        self._thread = threading.Thread(target=self._serve, name="headrace waits", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._asked.put(None)
        self._thread.join(timeout=5.0)

    def look(self, before: WaitProgress, *, searchable: bool, waited: float) -> Future[WaitProgress]:
        """Look how far a request is; see `Waits`."""
        future: Future[WaitProgress] = Future()
        self._asked.put((future, partial(self._look, before, searchable=searchable, waited=waited)))
        return future

    def _serve(self) -> None:
        with self._applied:
            while (asked := self._asked.get()) is not None:
                future, look = asked
                if future.set_running_or_notify_cancel():  # else its client has gone
                    future.set_result(look())

    def _look(self, before: WaitProgress, *, searchable: bool, waited: float) -> WaitProgress:
        applied, before = self._applied, replace(before, error=None)
        try:
            lsn = applied.end_of_log() if before.lsn is None else before.lsn
            before = replace(before, lsn=lsn)
            # Many may wait: what was read a moment ago holds for all of them.
            if self._state is None or time.monotonic() >= self._next:
                self._state, self._next = applied.state(), time.monotonic() + _READ_SECONDS
            state = self._state
            is_done = applied.covers(state, lsn)
            if is_done and searchable and self._refreshed is not state:
                applied.refresh(state)
                self._refreshed = state
            elif not is_done and waited >= _UNASKED_SECONDS:
                applied.request_position(lsn)
        except HeadraceError as error:
            return replace(before, error=str(error))
        return replace(before, applied=state.applied, done=is_done)
