"""Ask one sink what it holds, in a thread: nobody waits long for one that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from headrace.errors import HeadraceError, Kind, unexpected
from headrace.pipeline.controller.world import SinkSeen, Unknown
from headrace.pipeline.run_sink import RunSink
from headrace.state import GenerationState
from headrace.state.pipeline_state import generation_id

_PATIENCE_SECONDS = 5.0

# Counts the documents that wait for the sink, by concrete index.
CountDeferred = Callable[[], Mapping[str, int]]


class SinkWatch:
    """One sink as it was seen last; used from one thread.

    After `forget` the next look is waited for, some seconds at most.

    Args:
        name: the sink's name; empty for the one that keeps the state.
        sink: the sink.
        seconds: the time between two looks.
        count_deferred: counts the documents that wait for the sink; None where none ever do.
    """

    def __init__(
        self, name: str, sink: RunSink, seconds: float, count_deferred: CountDeferred | None = None
    ) -> None:
        self.sink = sink
        self.deferred: Mapping[str, int] = {}
        self._name = name
        self._seconds = seconds
        self._count_deferred = count_deferred
        self._lock = threading.Lock()
        self._seen: SinkSeen | Unknown = _no_answer(name)
        self._number = self._answered = 0
        self._next = 0.0
        self._hangs = False
        self._thread: threading.Thread | None = None
        self.forget()

    def look(self, stored: Sequence[GenerationState]) -> SinkSeen | Unknown:
        """Return what was seen last; ask again where that is due. See `ClusterSink.look`."""
        if self._is_outdated():
            self._await(self._thread)  # what it asks was asked too early
        if (self._is_outdated() or time.monotonic() >= self._next) and not self._is_asking():
            self._ask(list(stored))
        if self._is_outdated():
            self._await(self._thread)
            if self._is_outdated():
                return _no_answer(self._name)
        return self._seen

    def forget(self) -> None:
        """Look again before the next decision."""
        with self._lock:
            self._number += 1

    def close(self) -> None:
        """Let go of the sink."""
        self._await(self._thread)
        self.sink.close()

    def _is_outdated(self) -> bool:
        return self._answered < self._number

    def _is_asking(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _await(self, thread: threading.Thread | None) -> None:
        """Wait some seconds for an answer; not again before one has come."""
        if thread is not None and not self._hangs:
            thread.join(_PATIENCE_SECONDS)
            self._hangs = thread.is_alive()

    def _ask(self, stored: Sequence[GenerationState]) -> None:
        # The answer is as old as the question: a change that comes meanwhile makes it outdated.
        number, self._next = self._number, time.monotonic() + self._seconds
        self._thread = threading.Thread(
            target=self._run, args=(number, stored), name="headrace sink", daemon=True
        )
        self._thread.start()

    def _run(self, number: int, stored: Sequence[GenerationState]) -> None:
        try:
            if self._count_deferred is not None:
                self.deferred = {
                    generation_id(self._name, name): count for name, count in self._count_deferred().items()
                }
            seen = self.sink.look(stored)
        except Exception as error:  # noqa: BLE001 - the end of a thread
            seen = Unknown(unexpected("looking at a sink failed", error))
        with self._lock:
            # Together: who sees the number must find what belongs to it.
            self._hangs = False
            self._seen, self._answered = seen, max(number, self._answered)


def _no_answer(name: str) -> Unknown:
    what = f"the sink {name!r}" if name else "the search cluster"
    return Unknown(HeadraceError(Kind.SINK_UNREACHABLE, f"{what} does not answer in time"))
