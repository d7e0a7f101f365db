"""Whose turn is it beside the stream? One job's at a time: two would take the stream's place."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import HeadraceError, Kind

_POLL_SECONDS = 0.2
_LONG_SECONDS = 0.5
"""A batch of the stream that takes longer is slowed down by what is beside it."""


class Turn:
    """Taken by whoever has a job beside the stream.

    Args:
        read: whether the stream has readers by now: it gets on first, then.

    Attributes:
        is_read: whether it has, as `begin` said it last.
    """

    def __init__(self, *, read: bool = False) -> None:
        self.is_read = read
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._long, self._was_long = False, True
        if not read:
            self._begun.set()

    @property
    def crowded(self) -> bool:
        """Whether a job is to take no more than half of the places, for the readers' sake.

        The first one, and each one behind a job beside which the stream's batches took long.
        """
        return self.is_read and self._was_long

    def begin(self, *, read: bool, batch_seconds: float) -> None:
        """The stream gets on; said again and again: has it readers, and how long took its last batch?"""
        self.is_read, self._long = read, batch_seconds > _LONG_SECONDS
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
            self._was_long = self._long
            self._lock.release()
