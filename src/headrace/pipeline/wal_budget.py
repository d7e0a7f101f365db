"""Compare the log that the slot retains with its budget, and release the slot where the budget says so.

A slot retains the log for as long as nothing is confirmed. The primary's disk fills, and then it stops for
every application. With `on_budget = "release"` the slot is dropped first, and everything is backfilled again
afterwards, as after any other gap (decision 0062).
"""

from __future__ import annotations

from headrace.config.deployment import SourceConfig
from headrace.model.units import duration, size
from headrace.postgres.slot import SlotFacts
from headrace.status.board import StatusBoard

_WARN_AT = 0.5
_HOUR = 3600.0


class WalBudget:
    """The budget of one run's slot.

    Args:
        source: `wal_budget` (bytes), `wal_budget_hours`, `on_budget`.
        board: shows a warning from half of the budget on.
        releases: whether the slot may be given up: only where the run reseeds.
    """

    def __init__(self, source: SourceConfig, board: StatusBoard, *, releases: bool) -> None:
        self._bytes = source.wal_budget
        self._seconds = None if source.wal_budget_hours is None else source.wal_budget_hours * _HOUR
        self._releases = releases and source.on_budget == "release"
        self._board = board

    def check(self, slot: SlotFacts, seconds_behind: float | None) -> str:
        """Warn from half of the budget on.

        Returns why the slot is to be released: more than the budget is retained, and it may be given up.
        Empty otherwise.

        Args:
            slot: as the server describes it now.
            seconds_behind: since when the slot's position has not been the server's newest.
        """
        used, text = self._used(slot, seconds_behind)
        if used < _WARN_AT:
            self._board.set_warning("budget", None)
            return ""
        # No warning then: the release itself is told, with what follows from it.
        if used >= 1 and self._releases:
            return f"the slot {slot.name!r} is released, before the primary's disk is full: {text}"
        warning = f"the slot {slot.name!r}: {text}; find out what holds the stream up, or give it more room"
        self._board.set_warning("budget", warning)
        return ""

    def _used(self, slot: SlotFacts, seconds_behind: float | None) -> tuple[float, str]:
        """Return which part of the budget is used, and a text that says so."""
        parts = [(0.0, "")]
        if self._bytes is not None:
            text = f"{size(slot.retained)} of log are retained, the budget is {size(self._bytes)}"
            parts.append((slot.retained / self._bytes, text))
        if self._seconds is not None and seconds_behind is not None:
            text = f"it is {duration(seconds_behind)} behind, the budget is {duration(self._seconds)}"
            parts.append((seconds_behind / self._seconds, text))
        return max(parts)
