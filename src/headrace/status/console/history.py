"""Remember what the board showed: the lag of the last hour, the rates of the last half minute, since when.

The board holds only the present. Whoever serves the console looks at it once a second and tells the history.
What is kept is bounded, and is gone when the run ends.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from headrace.model.lsn import Lsn
from headrace.postgres.slot import SlotFacts
from headrace.status.board import View
from headrace.status.console.events import Happening, happenings

SAMPLE_SECONDS = 5.0
"""Between two points of the curve."""
_SAMPLES = 720  # an hour
_RECENT_SECONDS = 30.0
_RECENT_LOOKS = 120
_LOG_RATE_SECONDS = 600.0
_EVENTS = 500
_EVENT_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class LagPoint:
    """The lag at one moment; `time` is Unix time in seconds, unknown values are None."""

    time: float
    seconds: float | None
    size: int | None
    current: Lsn | None = None


@dataclass(frozen=True, slots=True)
class Rates:
    """What happened in a second, of late; None where unknown.

    Attributes:
        changes: changed rows whose documents are durable.
        log: bytes that the server wrote to its log.
        confirmed: bytes that were confirmed to the slot.
        stages: things done by each stage of the stream (captured, resolved, assembled, written).
        batch_seconds: seconds that a batch spends in each stage.
        tables: changed rows of each table, `SCHEMA.TABLE`; None where nothing is known of any.
    """

    changes: float | None = None
    log: float | None = None
    confirmed: float | None = None
    stages: dict[str, float] = field(default_factory=dict)
    batch_seconds: dict[str, float] = field(default_factory=dict)
    tables: dict[str, float] | None = None


@dataclass(slots=True)
class History:
    """What the board showed; used from one thread.

    Attributes:
        points: the lag, oldest first.
        events: what happened in the last day, newest first.
        since: when the run came into its phase (Unix time).
        moved_at: when the confirmed position moved last; None before it did.
    """

    points: deque[LagPoint] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    events: deque[Happening] = field(default_factory=lambda: deque(maxlen=_EVENTS))
    since: float | None = None
    moved_at: float | None = None
    _last: View | None = None
    _recent: deque[tuple[float, View]] = field(default_factory=lambda: deque(maxlen=_RECENT_LOOKS))

    def observe(self, view: View, now: float) -> None:
        """Take the board at `now` (Unix time) into account."""
        before, self._last = self._last, view
        if before is None:
            self.since = view.started
        else:
            self._note_changes(before, view, now)
        # A clock that was set back would stop the curve until it is where it was.
        if not self.points or now - self.points[-1].time >= SAMPLE_SECONDS or now < self.points[-1].time:
            self.points.append(LagPoint(now, view.lag_seconds, view.lag_bytes, view.positions.current))
        # Newest first, as the page lists them.
        self.events.extendleft(happenings(before, view, now))
        while self.events and self.events[-1].time < now - _EVENT_SECONDS:
            self.events.pop()
        self._recent.append((now, view))
        while len(self._recent) > 2 and self._recent[0][0] < now - _RECENT_SECONDS:  # noqa: PLR2004 - a pair
            self._recent.popleft()

    def _note_changes(self, before: View, view: View, now: float) -> None:
        """Note when the state changed last, and when the confirmed position moved last."""
        if (view.phase, view.stalled is None) != (before.phase, before.stalled is None):
            self.since = now
        confirmed = view.positions.confirmed
        if confirmed is not None and confirmed != before.positions.confirmed:
            self.moved_at = now

    def rates(self) -> Rates:
        """Return the rates over the last half minute."""
        if len(self._recent) < 2:  # noqa: PLR2004 - a pair
            return Rates()
        (began, first), (ended, last) = self._recent[0], self._recent[-1]
        seconds = ended - began
        if seconds <= 0:
            return Rates()
        batches = last.stages.batches - first.stages.batches
        stages, spent = {}, {}
        for done, timed in _STAGES.items():
            stages[done] = max(0, getattr(last.stages, done) - getattr(first.stages, done)) / seconds
            if batches > 0:
                spent[done] = (getattr(last.stages, timed) - getattr(first.stages, timed)) / batches
        tables = {
            name: max(0, count - first.stages.tables.get(name, 0)) / seconds
            for name, count in last.stages.tables.items()
        }
        return Rates(
            changes=self._changes_per_second(),
            log=_grown(first.positions.current, last.positions.current, seconds),
            confirmed=_grown(first.positions.confirmed, last.positions.confirmed, seconds),
            stages=stages,
            batch_seconds=spent,
            tables=tables if last.stages.batches else None,
        )

    def log_rate(self) -> float | None:
        """Return how many bytes of log the server writes in a second, over the last ten minutes."""
        points = [point for point in self.points if point.current is not None]
        if not points:
            return None
        points = [point for point in points if point.time >= points[-1].time - _LOG_RATE_SECONDS]
        seconds = points[-1].time - points[0].time
        return _grown(points[0].current, points[-1].current, seconds) if seconds > 0 else None

    def room_seconds(self, slot: SlotFacts) -> float | None:
        """Return how long the log may grow at the present rate until the slot is lost; None: unlimited."""
        rate = self.log_rate()
        if slot.safe_wal_size is None or not rate:
            return None
        return max(0, slot.safe_wal_size) / rate

    def _changes_per_second(self) -> float | None:
        """Return the rate since the totals are known: they are those of earlier runs too."""
        known = [(at, view.counts.changes) for at, view in self._recent if view.counts.changes]
        if not known:
            return 0.0
        (began, first), (ended, last) = known[0], known[-1]
        return max(0, last - first) / (ended - began) if ended > began else None


_STAGES = {
    "captured": "capture_seconds",
    "resolved": "resolve_seconds",
    "assembled": "assemble_seconds",
    "written": "write_seconds",
}


def _grown(first: Lsn | None, last: Lsn | None, seconds: float) -> float | None:
    if first is None or last is None or last < first:
        return None
    return (last - first) / seconds
