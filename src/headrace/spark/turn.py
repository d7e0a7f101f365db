"""Whose turn is it beside the stream? One job's at a time: two would take the stream's place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.errors import HeadraceError, Kind

_POLL_SECONDS = 0.2
_LONG_SECONDS = 0.5
"""A batch of the stream that takes longer is slowed down by what is beside it."""


class Turn:
    """Taken by whoever has a job beside the stream.

    Args:
        is_read: whether the stream has readers by now; one that has them at first gets on first.
        batch_seconds: how long the stream's last batch took.
    """

    def __init__(
        self, is_read: Callable[[], bool] = lambda: False, batch_seconds: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.is_read = is_read
        self._batch_seconds = batch_seconds
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._was_taken = False
        if not is_read():
            self._begun.set()

    def crowded(self) -> bool:
        """Whether a job is to take no more than half of the places, for the readers' sake.

        The first one, and each one behind a job beside which the stream's batches took long.
        """
        return self.is_read() and not (self._was_taken and self._batch_seconds() <= _LONG_SECONDS)

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
            self._was_taken = True
            self._lock.release()
