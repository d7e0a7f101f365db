"""Detect a stalled stream: no batch ends, and there is no sign of work on one.

A long batch is no stall: its documents reach the sink request by request, or the database works on a
statement of it. Readers of the board do the check, so a stall shows even when the thread that writes the
board hangs.
"""

from __future__ import annotations

from collections.abc import Callable

STALLED_SECONDS = 45.0
"""A batch without progress for so long is a stall; it shows within 60 s of its cause."""


class Stall:
    """Signs of progress of one run; the methods are safe from any thread.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._beat: Callable[[], float | None] | None = None
        self._worked = float("-inf")

    def watch(self, beat: Callable[[], float | None] | None) -> None:
        """Set the function that returns how many seconds ago the source was asked for a batch.

        The function returns None before the first batch. Where `beat` is None there is no source to watch.
        """
        self._beat, self._worked = beat, float("-inf")

    def worked(self) -> None:
        """Note that the database is at work for a batch right now."""
        self._worked = self._clock()

    def seconds(self, heard: float) -> float | None:
        """Return how long there has been no progress (s), where that is too long; else None.

        Args:
            heard: when a writer reported last (the clock's seconds).
        """
        beat = self._beat
        since = None if beat is None else beat()
        if since is None:
            return None
        still = min(since, self._clock() - max(self._worked, heard))
        return still if still > STALLED_SECONDS else None


def describe_stall(seconds: float) -> str:
    """Describe a stall for an operator."""
    return (
        f"stalled: for {seconds:.0f} s no batch has ended, no document was written and the database has "
        "worked on no statement of it; look for locks in pg_stat_activity and at the workers' memory, or "
        "restart the run: it goes on from where the slot stands"
    )
