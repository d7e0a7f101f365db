"""Measure a run's progress: how far it is behind the log, how fast a backfill is."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

from headrace.model.lsn import Lsn

_CAPACITY = 1024
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
        kept = self.ring
        # What was known of a log that is gone would give a lag of hours.
        if kept and current < kept[-1].lsn:
            kept = ()
        elif kept and current == kept[-1].lsn:
            kept = kept[:-1]
        elif len(kept) >= self.capacity:
            half = len(kept) // 2
            kept = kept[:half:2] + kept[half:]
        return replace(self, ring=(*kept, LagSample(current, now)))

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


@dataclass(slots=True)
class Rate:
    """The current speed: each report counts as much as all earlier ones together.

    Attributes:
        per_second: documents per second; None before the first report.
        ranges_per_second: ranges per second; None before the first report.
        since: how long ago (s) the last range was finished.
    """

    per_second: float | None = None
    ranges_per_second: float | None = None
    since: float = 0.0

    def add(self, documents: int, seconds: float, ranges: int) -> None:
        """Add a report: so many documents of so many ranges were written in so many seconds."""
        self.per_second = _weighted(self.per_second, documents, seconds)
        self.ranges_per_second = _weighted(self.ranges_per_second, ranges, seconds)

    def including(self, documents: int, seconds: float, ranges: int, last: float) -> Rate:
        """Return the speed with a report of work that still goes on.

        Args:
            documents, seconds, ranges: as for `add`.
            last: when the last of its ranges was finished, in seconds from its beginning; 0 before.
        """
        per_second = _weighted(self.per_second, documents, seconds)
        # A range that is not finished yet says nothing of how long ranges take.
        finished = _weighted(self.ranges_per_second, ranges, last) if ranges else self.ranges_per_second
        return Rate(per_second, finished, seconds - last)

    def seconds_for(self, ranges: int) -> float | None:
        """Return how long so many ranges will take (s); None where unknown."""
        return max(0.0, ranges / self.ranges_per_second - self.since) if self.ranges_per_second else None


def _weighted(before: float | None, count: int, seconds: float) -> float:
    now = count / max(seconds, 1e-3)  # two reports may come within one tick of the clock
    return now if before is None else before + _WEIGHT * (now - before)
