"""Run Spark jobs: so that an interrupt of the caller cancels them, and one at a time beside the stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from pyspark import SparkContext

from headrace.errors import HeadraceError, Kind

_POLL_SECONDS = 0.2
_WATCH_SECONDS = 1.0

_Result = TypeVar("_Result")


def interruptibly(
    context: SparkContext,
    group: str,
    work: Callable[[threading.Event], _Result],
    *,
    watch: Callable[[], None] = lambda: None,
) -> _Result:
    """Return the result of `work`; if the caller is interrupted meanwhile, cancel the jobs of `group`.

    `work` runs in a thread of its own, because each thread has its own connection to the JVM: the interrupted
    thread cancels over its own, which holds no half-read answer.

    Args:
        context: Spark's.
        group: the job group of `work`'s jobs.
        work: gets an event that is set when it has to end.
        watch: called once a second meanwhile.
    """
    ending = threading.Event()
    with ThreadPoolExecutor(1, "headrace job") as thread:
        future = thread.submit(work, ending)
        try:
            while not wait([future], _WATCH_SECONDS).done:
                watch()
            return future.result()
        except BaseException:
            ending.set()
            while not future.done():  # repeated: the job may not have started yet
                context.cancelJobGroup(group)
                wait([future], _POLL_SECONDS)
            raise


RECENT_SECONDS = 10.0
"""After this time, an earlier job says nothing about the stream."""
_LONG_SECONDS = 0.25
"""A batch of the stream that takes longer is slowed down by the job beside it."""


class JobGate:
    """Held while a job runs beside the stream: one at a time once readers see the stream's documents.

    Before, jobs run side by side: Spark gives a slot that one of them leaves to the next one's tasks.

    Args:
        is_read: whether the stream has readers by now; if it has them at first, jobs wait until it has
            started.
        one_at_a_time: also before there are readers, since what a job may use is limited.
        clock: in seconds.

    Attributes:
        batch_seconds: tells how long the longest of the stream's last batches took.
    """

    def __init__(
        self,
        is_read: Callable[[], bool] = lambda: False,
        *,
        one_at_a_time: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_read = is_read
        self._one_at_a_time = one_at_a_time
        self.batch_seconds: Callable[[], float] = lambda: 0.0
        self._changed = threading.Condition()
        self._running = 0
        self._has_begun = not is_read()
        self._clock = clock
        self._released: float | None = None

    def crowded(self) -> bool:
        """Tell whether a job should take no more than half of the task slots, for the readers' sake.

        True for the first job in a while, and for each one after a job beside which a batch of the stream
        took long.
        """
        if not self.is_read():
            return False
        is_first = self._released is None or self._clock() > self._released + RECENT_SECONDS
        return is_first or self.batch_seconds() > _LONG_SECONDS

    def begin(self) -> None:
        """Note that the stream has started; may be called again."""
        with self._changed:
            self._has_begun = True
            self._changed.notify_all()

    @property
    def is_busy(self) -> bool:
        """Tell whether a job is running beside the stream."""
        return self._running > 0

    @contextmanager
    def acquire(self, ending: threading.Event) -> Iterator[None]:
        """Wait until a job may run beside the stream, and hold the gate while the context is entered.

        Raises:
            HeadraceError: SPARK, once `ending` is set.
        """
        with self._changed:
            while not self._is_open():
                if ending.is_set():
                    raise HeadraceError(Kind.SPARK, "the run is ending")
                self._changed.wait(_POLL_SECONDS)  # short, since `ending` may be set at any time
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._released = self._clock()
                self._running -= 1
                self._changed.notify_all()

    def _is_open(self) -> bool:
        return self._has_begun and not (self._running and (self._one_at_a_time or self.is_read()))
