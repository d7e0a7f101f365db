"""Does the stream stand still? It does where no batch ends and nothing is seen to work on one.

A long batch is none: its documents reach the sink one request after the other, or the database works on a
statement of it. Whoever reads the board asks, so this is also told when the thread that fills it hangs.
"""

from __future__ import annotations

from collections.abc import Callable

STALLED_SECONDS = 45.0
"""A batch without any sign of progress for so long is told of: within 60 s of what it is."""


class Stall:
    """Signs of life of one run; the methods are safe from any thread.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._beat: Callable[[], float | None] | None = None
        self._worked = float("-inf")

    def watch(self, beat: Callable[[], float | None] | None) -> None:
        """From now on `beat` says how many seconds ago the source was asked for a batch; None: nobody does.

        What it returns may be None: not yet.
        """
        self._beat, self._worked = beat, float("-inf")

    def worked(self) -> None:
        """The database is at work for a batch right now."""
        self._worked = self._clock()

    def seconds(self, heard: float) -> float | None:
        """How long nothing has moved, where that is too long; else None.

        Args:
            heard: when a writer was heard last (the clock's seconds).
        """
        beat = self._beat
        since = None if beat is None else beat()
        if since is None:
            return None
        still = min(since, self._clock() - max(self._worked, heard))
        return still if still > STALLED_SECONDS else None


def told(seconds: float) -> str:
    """What an operator reads."""
    return (
        f"stalled: for {seconds:.0f} s no batch has ended, no document was written and the database has "
        "worked on no statement of it; look for locks in pg_stat_activity and at the workers' memory, or "
        "restart the run: it goes on from where the slot stands"
    )
