"""Measure how fast a backfill runs, and estimate how long the rest will take. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_WEIGHT = 0.5


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
