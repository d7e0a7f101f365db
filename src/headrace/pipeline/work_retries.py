"""When work beside the stream, as a backfill, is tried again after a failure."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from threading import Event

from headrace.errors import HeadraceError, Kind, Patience, Retry

_LOG = logging.getLogger(__name__)
_SHORTEST_PAUSE = 1.0
_MOST_EXPONENT = 10
_MOST_RESTARTS = 5


@dataclass(eq=False, slots=True)
class WorkRetries:
    """Waits after each failure of some work, and ends the tries where no more of them help.

    Args:
        work: what is tried, for the log.
        ending: once it is set there are no more pauses.
        longest: the longest pause (seconds).
        restarted: kinds of errors that no waiting cures, but that another try, planned again, may.
    """

    work: str
    ending: Event
    longest: float
    restarted: frozenset[Kind] = frozenset()
    _patience: Patience = field(default_factory=Patience, init=False)
    _failures: int = field(default=0, init=False)

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
        # Planned again, work passes a table that was rewritten; what fails again and again does not pass.
        if error.kind not in self.restarted or self._failures > _MOST_RESTARTS:
            error = self._patience.judge(error)
            if error.retry is Retry.NEVER:
                raise error
        pause = min(_SHORTEST_PAUSE * 2 ** min(self._failures, _MOST_EXPONENT), self.longest)
        if error.kind is Kind.CONTINUITY:
            pause = 0.0  # the plan is outdated, and nobody has to recover
        _LOG.warning("%s; %s goes on in %.0f s", error, self.work, pause)
        self.ending.wait(pause)
