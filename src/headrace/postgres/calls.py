"""How is a driver given up that waits inside, where nobody can interrupt it?

ADBC gives away neither its socket nor the wait. So its calls are made in a thread of their own; one whose
answer cannot come any more is left behind with its thread and its connection, which end with the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar

import psycopg

from headrace.postgres.answer_timeout import AnswerTimeout

_SLICE_SECONDS = 1.0
_WRITE_SECONDS = 600.0
"""How long one call may take in which the server sends: what has come of it is not heard before its end."""

_LEFT_BEHIND: list[object] = []

_Result = TypeVar("_Result")


class WatchedCalls:
    """The calls of one connection, one after the other; not for two threads at once.

    Args:
        conninfo: as `AnswerTimeout`.

    Attributes:
        lost: a call was left behind; no other can be made.
    """

    def __init__(self, conninfo: Callable[[], str]) -> None:
        self.lost = False
        self._silence = AnswerTimeout(conninfo, _WRITE_SECONDS)
        self._closed = False
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], object]] | None] = SimpleQueue()
        threading.Thread(target=self._serve, name="headrace calls", daemon=True).start()

    def is_served_by(self, pid: int) -> None:
        """Judge silence by what the server's process `pid` does."""
        self._silence.pid = pid

    def make(self, call: Callable[[], _Result]) -> _Result:
        """What `call` returns.

        Raises:
            psycopg.OperationalError: no answer can come any more. Else what `call` raises.
        """
        if self.lost or self._closed:
            raise psycopg.OperationalError("the connection was given up")
        future: Future[_Result] = Future()
        self._calls.put((future, call))
        self._silence.begin()
        while not wait([future], _SLICE_SECONDS).done:
            try:
                self._silence.check()
            except psycopg.OperationalError:
                self.lost = True
                raise
        return future.result()

    def close(self, *used: object) -> None:
        """Let the thread end behind its last call.

        Args:
            used: what its calls use; kept where one was left behind, because nothing may free it meanwhile.
        """
        self._calls.put(None)
        self._closed = True
        if self.lost:
            _LEFT_BEHIND.append(used)

    def _serve(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - whoever made the call gets it
                future.set_exception(error)
            del item, future, call
