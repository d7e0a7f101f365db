"""Whose turn is it beside the stream? One job's at a time: two would take the stream's place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.errors import HeadraceError, Kind

_POLL_SECONDS = 0.2
RECENT_SECONDS = 10.0
"""What was longer ago says nothing about the stream of now."""
_LONG_SECONDS = 0.25
"""A batch of the stream that takes longer is slowed down by what is beside it."""


class JobGate:
    """Taken by whoever has a job beside the stream.

    Args:
        is_read: whether the stream has readers by now; one that has them at first gets on first.
        batch_seconds: how long the longest of the stream's last batches took.
        clock: in seconds.
    """

    def __init__(
        self,
        is_read: Callable[[], bool] = lambda: False,
        batch_seconds: Callable[[], float] = lambda: 0.0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_read = is_read
        self._batch_seconds = batch_seconds
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._clock = clock
        self._given_back: float | None = None
        if not is_read():
            self._begun.set()

    def crowded(self) -> bool:
        """Whether a job is to take no more than half of the places, for the readers' sake.

        The first one in a while, and each one behind a job beside which a batch of the stream took long.
        """
        if not self.is_read():
            return False
        is_first = self._given_back is None or self._clock() > self._given_back + RECENT_SECONDS
        return is_first or self._batch_seconds() > _LONG_SECONDS

    def begin(self) -> None:
        """The stream gets on; may be said again."""
        self._begun.set()

    @property
    def is_taken(self) -> bool:
        """Whether a job is beside the stream."""
        return self._lock.locked()

    @contextmanager
    def taken(self, ending: threading.Event) -> Iterator[None]:
        """Until no other job is beside the stream; whoever ends does not wait for it.

        Raises:
            HeadraceError: SPARK, once `ending` is set.
        """
        while not (self._begun.wait(_POLL_SECONDS) and self._lock.acquire(timeout=_POLL_SECONDS)):
            if ending.is_set():
                raise HeadraceError(Kind.SPARK, "it is ending")
        try:
            yield
        finally:
            self._given_back = self._clock()
            self._lock.release()
