"""Measure how long values did not grow that always do."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator

LONGEST_PAUSE = 30.0
"""So long a run may stand on a machine that is loaded (seconds); how long it stands, `bench/` measures."""
_POLL = 0.02


class Pauses:
    """How long values that always grow did not.

    Args:
        reads: each returns such a value, or None where there is none.

    Attributes:
        longest: the longest time without progress of any value (seconds).
    """

    def __init__(self, *reads: Callable[[], int | None]) -> None:
        self.longest = 0.0
        self._reads = reads

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure while this is entered, up to its end."""
        with contextlib.ExitStack() as held:
            for read in self._reads:
                held.enter_context(in_thread(functools.partial(self._watch, read)))
            yield

    def restart(self) -> None:
        """Forget what was measured until now."""
        self.longest = 0.0

    def _watch(self, read: Callable[[], int | None], stop: threading.Event) -> None:
        last, since = read(), time.monotonic()
        while not stop.wait(_POLL):
            value, now = read(), time.monotonic()
            if value is not None and value != last:
                last, since = value, now
            self.longest = max(self.longest, now - since)


@contextlib.contextmanager
def in_thread(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Do work in a thread while this is entered; an error of it ends the test."""
    stop, failed = threading.Event(), []

    def run() -> None:
        try:
            work(stop)
        except Exception as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]
