"""Give a running query a new plan, so that it writes other generations without a restart.

The driver leaves the plan in a file. The process that plans the batches takes it between two of them, reports
from which position on, and sends it with each later task. So every change before that position is applied
with the former plan, and every later one with the new plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.capture.signals import write_whole
from headrace.model import Lsn, format_lsn, parse_lsn


@dataclass(frozen=True, slots=True)
class PlanReload:
    """The file with the plan for later batches, and beside it the note of what was taken.

    Attributes:
        path: the path of the file, which does not exist until there is a second plan.
    """

    path: Path

    def offer(self, number: int, plan: str) -> None:
        """Leave a plan (the text of `PLAN_OPTION`); each has a higher number than the one before."""
        write_whole(self.path, f"{number}\n{plan}")

    def taken(self) -> tuple[int, Lsn] | None:
        """Return the number of the plan that was taken last, and the position (bytes) from which it holds."""
        try:
            number, position = self._note.read_text().split()
        except FileNotFoundError:
            return None
        return int(number), parse_lsn(position)

    def offered(self) -> tuple[int, str] | None:
        """Return the number and the text of the plan that was left last."""
        try:
            number, plan = self.path.read_text().split("\n")
        except FileNotFoundError:
            return None
        return int(number), plan

    def take(self, number: int, position: Lsn) -> None:
        """Report that everything before `position` is applied, and that later batches use this plan."""
        write_whole(self._note, f"{number} {format_lsn(position)}")

    @property
    def _note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.taken")


class PlanReloadReader:
    """The side that plans batches: takes a plan from the file; used from one thread."""

    def __init__(self, reload: PlanReload) -> None:
        self._reload_plan = reload
        self._seen: tuple[int, int] | None = None
        self._number = 0
        self.plan: str | None = None

    def look(self, position: Lsn) -> None:
        """Take a new plan between two batches; every change before `position` had the former one."""
        try:
            status = self._reload_plan.path.stat()
        except FileNotFoundError:
            return
        if (seen := (status.st_ino, status.st_mtime_ns)) == self._seen:
            return
        offered = self._reload_plan.offered()
        if offered is not None and offered[0] > self._number:
            self._number, self.plan = offered
            self._reload_plan.take(self._number, position)
        self._seen = seen
