"""When work beside the stream, as a backfill, is tried again after a failure."""

from __future__ import annotations

import logging
from threading import Event

from headrace.errors import HeadraceError, Kind, Patience, Retry

_LOG = logging.getLogger(__name__)
_SHORTEST_PAUSE = 1.0
_MOST_EXPONENT = 10
_MOST_RESTARTS = 5


class WorkRetries:
    """Waits after each failure of some work, and ends the tries where no more of them help.

    Args:
        work: what is tried, for the log.
        ending: once it is set there are no more pauses.
        longest: the longest pause (seconds).
        restarted: kinds of errors that no waiting cures, but that another try, planned anew, may.
    """

    def __init__(
        self, work: str, ending: Event, *, longest: float, restarted: frozenset[Kind] = frozenset()
    ) -> None:
        self._work = work
        self._ending = ending
        self._longest = longest
        self._restarted = restarted
        self._patience = Patience()
        self._failures = 0

    def forget(self) -> None:
        """Begin to count again: something of the work is done."""
        self._failures = 0
        self._patience.forget()

    def wait_after(self, error: HeadraceError) -> None:
        """Wait before the next try.

        Raises:
            HeadraceError: the error, where another try does not help.
        """
        self._failures += 1
        # Planned anew, work passes a table that was rewritten; what fails again and again does not pass.
        if error.kind not in self._restarted or self._failures > _MOST_RESTARTS:
            error = self._patience.judge(error)
            if error.retry is Retry.NEVER:
                raise error
        pause = min(_SHORTEST_PAUSE * 2 ** min(self._failures, _MOST_EXPONENT), self._longest)
        if error.kind is Kind.CONTINUITY:
            pause = 0.0  # the plan is outdated, and nobody has to recover
        _LOG.warning("%s; %s goes on in %.0f s", error, self._work, pause)
        self._ending.wait(pause)
