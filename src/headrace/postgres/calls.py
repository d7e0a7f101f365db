"""Call a driver that cannot be interrupted while it waits.

ADBC exposes neither its socket nor its wait. So its calls run in a thread of their own. A call whose answer
cannot come any more is abandoned with its thread and its connection, which end with the process.
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
"""How long the server may send during one call: what has arrived is not visible before the call ends."""

_ABANDONED: list[object] = []

_Result = TypeVar("_Result")


class WatchedCalls:
    """Run the calls of one connection, one after the other; not for two threads at once.

    Args:
        conninfo: as `AnswerTimeout`.

    Attributes:
        lost: whether a call was abandoned; no other can run.
    """

    def __init__(self, conninfo: Callable[[], str]) -> None:
        self.lost = False
        self._silence = AnswerTimeout(conninfo, _WRITE_SECONDS)
        self._closed = False
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], object]] | None] = SimpleQueue()
        threading.Thread(target=self._run_calls, name="headrace calls", daemon=True).start()

    def is_served_by(self, pid: int) -> None:
        """Set the server process whose activity decides how long to wait."""
        self._silence.pid = pid

    def run(self, call: Callable[[], _Result]) -> _Result:
        """Run `call` and return its result.

        Raises:
            psycopg.OperationalError: no answer can come any more. Errors of `call` pass through.
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
        """End the thread after its last call.

        Args:
            used: what the calls use. It is kept alive where a call was abandoned, because that call still
                uses it.
        """
        self._calls.put(None)
        self._closed = True
        if self.lost:
            _ABANDONED.append(used)

    def _run_calls(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it is raised to the caller
                future.set_exception(error)
            del item, future, call
