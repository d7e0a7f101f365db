"""How far behind the server is a consumer of its log, in bytes and in seconds?

Bytes are a difference of two positions. Seconds come from remembering when the server stood where: a
consumer that has confirmed P is as late as the moment at which P was last the server's newest position.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

from headrace.model import Lsn

_CAPACITY = 1024


def bytes_behind(confirmed: Lsn | None, current: Lsn | None) -> int | None:
    """The bytes of log between the two, at least 0; None where one of them is unknown."""
    if confirmed is None or current is None:
        return None
    return max(0, current - confirmed)


@dataclass(frozen=True, slots=True)
class LagSample:
    """The server's newest position was `lsn`, last seen so at `time` (monotonic seconds)."""

    lsn: Lsn
    time: float


@dataclass(frozen=True, slots=True)
class LagSamples:
    """Where the server stood when, oldest first; both positions and times grow strictly.

    Bounded: when it is full, the older half keeps every second sample. So it reaches far back, with a grain
    that is finest where it matters.
    """

    ring: tuple[LagSample, ...] = ()
    capacity: int = _CAPACITY

    def observed(self, current: Lsn, now: float) -> LagSamples:
        """With one more sample; a position that went back (a restored server) forgets all before it."""
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
        """How late a consumer is that has confirmed up to `confirmed`.

        0 where that is the newest position that was seen. For a position before the first sample, the time
        since that sample: it is at least that late. None where nothing is known.
        """
        if confirmed is None or not self.ring:
            return None
        if confirmed >= self.ring[-1].lsn:
            return 0.0
        at = bisect_right(self.ring, confirmed, key=lambda sample: sample.lsn)
        return max(0.0, now - self.ring[max(0, at - 1)].time)
