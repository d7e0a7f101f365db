"""Measure a run's progress: how far it is behind the log, whether it has stalled, how fast a backfill is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.model import Lsn

_CAPACITY = 1024
STALLED_SECONDS = 45.0
"""A batch without progress for so long is a stall; it shows within 60 s of its cause."""
_WEIGHT = 0.5


def bytes_behind(confirmed: Lsn | None, current: Lsn | None) -> int | None:
    """Return the bytes of log between the two, at least 0; None where one of them is unknown."""
    if confirmed is None or current is None:
        return None
    return max(0, current - confirmed)


@dataclass(frozen=True, slots=True)
class LagSample:
    """A position of the server: `lsn` was the newest one, last seen at `time` (monotonic seconds)."""

    lsn: Lsn
    time: float


@dataclass(frozen=True, slots=True)
class LagSamples:
    """Positions of the server over time, oldest first; both positions and times grow strictly.

    They tell the lag in seconds: a consumer that has confirmed P is as late as the moment at which P was last
    the server's newest position.

    The record is bounded: when it is full, the older half keeps every second sample. So it reaches far back,
    and is finest for recent positions.
    """

    ring: tuple[LagSample, ...] = ()
    capacity: int = _CAPACITY

    def observed(self, current: Lsn, now: float) -> LagSamples:
        """Return a copy with one more sample; after a step back (a restored server) only that sample."""
        sample = LagSample(current, now)
        if not self.ring or current < self.ring[-1].lsn:
            return replace(self, ring=(sample,))
        if current == self.ring[-1].lsn:
            return replace(self, ring=(*self.ring[:-1], sample))
        kept = self.ring
        if len(kept) >= self.capacity:
            half = len(kept) // 2
            kept = kept[:half:2] + kept[half:]
        return replace(self, ring=(*kept, sample))

    def seconds_behind(self, confirmed: Lsn | None, now: float) -> float | None:
        """Return how late a consumer is that has confirmed up to `confirmed`.

        It is 0 at the newest known position. Before the first sample it is the time since that sample: the
        consumer is at least that late. None where nothing is known.
        """
        if confirmed is None or not self.ring:
            return None
        if confirmed >= self.ring[-1].lsn:
            return 0.0
        at = bisect_right(self.ring, confirmed, key=lambda sample: sample.lsn)
        return max(0.0, now - self.ring[max(0, at - 1)].time)


class Stall:
    """Detects a stalled stream: no batch ends, and there is no sign of work on one.

    A long batch is no stall: its documents reach the sink request by request, or the database works on a
    statement of it. Readers of the board do the check, so a stall shows even when the thread that writes the
    board hangs. The methods are safe from any thread.

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


@dataclass(slots=True)
class Rate:
    """The current speed: each report counts as much as all earlier ones together.

    Attributes:
        per_second: documents per second; None before the first report.
        ranges_per_second: ranges per second; None before the first report.
    """

    per_second: float | None = None
    ranges_per_second: float | None = None

    def add(self, documents: int, seconds: float, ranges: int) -> None:
        """Add a report: so many documents of so many ranges were written in so many seconds."""
        seconds = max(seconds, 1e-3)
        self.per_second = _weighted(self.per_second, documents / seconds)
        self.ranges_per_second = _weighted(self.ranges_per_second, ranges / seconds)

    def seconds_for(self, ranges: int) -> float | None:
        """Return how long so many ranges will take (s); None where unknown."""
        return ranges / self.ranges_per_second if self.ranges_per_second else None


def _weighted(before: float | None, now: float) -> float:
    return now if before is None else before + _WEIGHT * (now - before)
