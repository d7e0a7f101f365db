"""How fast does a seeding get on, and how long will the rest take? Pure."""

from __future__ import annotations

from dataclasses import dataclass

_WEIGHT = 0.5


@dataclass(slots=True)
class Rate:
    """Of late: each report counts as much as all that came before it.

    Attributes:
        per_second: documents; None before the first report.
        ranges_per_second: as well.
    """

    per_second: float | None = None
    ranges_per_second: float | None = None

    def add(self, documents: int, seconds: float, ranges: int) -> None:
        """So many more documents of so many ranges were written in so many seconds."""
        seconds = max(seconds, 1e-3)
        self.per_second = _mixed(self.per_second, documents / seconds)
        self.ranges_per_second = _mixed(self.ranges_per_second, ranges / seconds)

    def seconds_for(self, ranges: int) -> float | None:
        """How long so many ranges will take; None where nobody knows."""
        return ranges / self.ranges_per_second if self.ranges_per_second else None


def _mixed(before: float | None, now: float) -> float:
    return now if before is None else before + _WEIGHT * (now - before)
