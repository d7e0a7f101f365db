"""Measure how far a consumer of the log is behind the server, in bytes and in seconds.

Bytes are a difference of two positions. Seconds come from a record of the server's positions over time: a
consumer that has confirmed P is as late as the moment at which P was last the server's newest position.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

from headrace.model import Lsn

_CAPACITY = 1024


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
