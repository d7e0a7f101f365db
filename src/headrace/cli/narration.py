"""Print the changes of the status board while `headrace run` runs.

Failures and recoveries are lines everywhere. The progress of a backfill is a bar on a terminal, and a line
every ten seconds elsewhere, while there is any. On a terminal the last line shows the state of the stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headrace.cli import terminal
from headrace.log_fields import log_fields
from headrace.model.lsn import format_lsn
from headrace.model.units import duration, quantity, size
from headrace.status.backfill_text import describe_backfill
from headrace.status.board import IndexStatus, StatusBoard, View
from headrace.status.phases import Phase

_LOOK_SECONDS = 1.0
_PROGRESS_SECONDS = 10.0
_AGAIN_SECONDS = 10.0
_BAR_WIDTH = 24
_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """A line of output."""

    kind: Literal["trouble", "recovery", "progress"]
    text: str


@dataclass(slots=True)
class Narration:
    """Decides which changes of the board are printed; pure except for what it remembers.

    Args:
        progress: whether the progress of a backfill is printed in lines.
    """

    progress: bool
    _trouble: str | None = None
    _since: float = 0.0
    _printed_at: float = 0.0
    _told: dict[str, tuple[float, tuple[int, int] | None]] = field(default_factory=dict)
    """When a backfill is told of next, and how far it was the last time."""

    def lines(self, view: View, now: float) -> Iterator[Line]:
        """Yield what is new on the board at `now` (monotonic seconds)."""
        trouble = _trouble_of(view)
        # A reason that changes with each try would fill the log: it is told once in ten seconds.
        if trouble is not None and (self._trouble is None or now >= self._printed_at + _AGAIN_SECONDS):
            if trouble != self._trouble:
                self._since = now if self._trouble is None else self._since
                self._printed_at, self._trouble = now, trouble
                yield Line("trouble", trouble)
        # A run that ends has not recovered.
        elif trouble is None and self._trouble is not None and view.phase is not Phase.STOPPED:
            self._trouble = None
            yield Line("recovery", f"the run works again, after {duration(now - self._since)}")
        if self.progress:
            yield from self._progress_lines(view, now)

    def _progress_lines(self, view: View, now: float) -> Iterator[Line]:
        building = dict(_building(view))
        self._told = {name: told for name, told in self._told.items() if name in building}
        for name, index in building.items():
            done = index.documents, index.ranges_done
            due, before = self._told.setdefault(name, (now + _PROGRESS_SECONDS, None))
            if now >= due and done != before:
                self._told[name] = now + _PROGRESS_SECONDS, done
                yield Line("progress", f"{name}: {describe_backfill(index)}")


def _building(view: View) -> Iterator[tuple[str, IndexStatus]]:
    """Yield the generations that are backfilled, with their names; secondary sinks too."""
    for sink, index in view.all_indexes():
        if index.building is not None:
            yield f"{sink}: {index.name}" if sink else index.name, index


def _trouble_of(view: View) -> str | None:
    """Return why the run makes no progress; None where it does, or has not started."""
    return view.unready if view.phase is Phase.DEGRADED or view.stalled is not None else None


def _code_of(view: View) -> str | None:
    """Return the code of the error that keeps the run from making progress."""
    failure = view.failure if view.stalled is None else view.stalled.error
    return None if failure is None else failure.code


class Narrator:
    """Prints what happens in a run, from its beginning to its end."""

    def __init__(self, board: StatusBoard, clock: Callable[[], float], *, draw: bool) -> None:
        self._board = board
        self._report = board.report
        self._draw = draw
        self._clock = clock
        self._narration = Narration(progress=not draw)
        self._changes: tuple[float, int] | None = None
        self._rate = 0.0
        self._live: Live | None = None
        self._refused: dict[str, None] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace narrator", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        if self._live is not None:
            self._live.stop()

    def _run(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            view = self._board.view()
            applied = view.positions.applied
            with log_fields(position=None if applied is None else format_lsn(applied)):
                self._tell(view)
            for rejection in self._board.sinks.take_rejections():
                if rejection not in self._refused:  # a document that changes often is refused again each time
                    self._refused[rejection] = None
                    self._report.warning(rejection)
            while len(self._refused) > _REMEMBERED:
                del self._refused[next(iter(self._refused))]
            if self._draw and view.phase is not Phase.STOPPED:
                self._show(view)

    def _tell(self, view: View) -> None:
        report = self._report
        tell = {"trouble": report.warning, "recovery": report.done, "progress": report.info}
        for line in self._narration.lines(view, self._clock()):
            with log_fields(code=_code_of(view) if line.kind == "trouble" else None):
                tell[line.kind](line.text)

    def _show(self, view: View) -> None:
        """Draw the last lines of the terminal again, once the start is over."""
        if self._live is None:
            # The start draws spinners of its own, and rich takes one live display at a time.
            if view.phase in {Phase.STARTING, Phase.STANDBY}:
                return
            self._live = Live(console=terminal.err, transient=True, auto_refresh=False)
            self._live.start()
        self._live.update(self._render(view), refresh=True)

    def _render(self, view: View) -> RenderableType:
        bars = Table.grid(padding=(0, 2))
        for name, index in _building(view):
            bar = ProgressBar(max(1, index.ranges_total), index.ranges_done, width=_BAR_WIDTH)
            bars.add_row(escape(name), bar, describe_backfill(index))
        return Group(bars, Text(self._status(view), style="dim"))

    def _status(self, view: View) -> str:
        now, changes = self._clock(), view.counts.changes
        if self._changes is not None and now > self._changes[0]:
            self._rate = (changes - self._changes[1]) / (now - self._changes[0])
        self._changes = (now, changes)
        lag = "" if view.lag_bytes is None else f" · {size(view.lag_bytes)} behind"
        return (
            f"{view.phase.value} · {self._rate:,.0f} changes/s{lag} · {quantity(changes, 'change')} applied"
        )
