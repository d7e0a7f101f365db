"""How does a running query come to write other generations, without being ended?

Whoever runs it leaves a plan in a file. The process that plans the batches takes it between two of them, says
from which position on, and sends it along with each later task. So every change before that position is done
with the former plan, and every one behind it with the new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.capture.signals import write_whole
from headrace.model import Lsn, format_lsn, parse_lsn


@dataclass(frozen=True, slots=True)
class PlanReload:
    """The plan of the batches to come, in a file, and beside it what was taken.

    Attributes:
        path: of the file; there is none as long as the query writes what it began with.
    """

    path: Path

    def give(self, number: int, plan: str) -> None:
        """Leave a plan (`PLAN_OPTION`'s text); each has another number, which is higher."""
        write_whole(self.path, f"{number}\n{plan}")

    def taken(self) -> tuple[int, Lsn] | None:
        """The number of the plan that was taken last, and the position (bytes) from which on it holds."""
        try:
            number, position = self._note.read_text().split()
        except FileNotFoundError:
            return None
        return int(number), parse_lsn(position)

    def given(self) -> tuple[int, str] | None:
        """The plan that was left last, with its number."""
        try:
            number, plan = self.path.read_text().split("\n")
        except FileNotFoundError:
            return None
        return int(number), plan

    def take(self, number: int, position: Lsn) -> None:
        """Say that everything before `position` is applied, and that what comes is planned with this one."""
        write_whole(self._note, f"{number} {format_lsn(position)}")

    @property
    def _note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.taken")


class PlanReloadReader:
    """The planning side: takes what is left in the file; used from one thread."""

    def __init__(self, switch: PlanReload) -> None:
        self._reload_plan = switch
        self._seen: tuple[int, int] | None = None
        self._number = 0
        self.plan: str | None = None

    def look(self, position: Lsn) -> None:
        """Between two batches: take what is new, of which every change before `position` knew nothing."""
        try:
            found = self._reload_plan.path.stat()
        except FileNotFoundError:
            return
        if (seen := (found.st_ino, found.st_mtime_ns)) == self._seen:
            return
        given = self._reload_plan.given()
        if given is not None and given[0] > self._number:
            self._number, self.plan = given
            self._reload_plan.take(self._number, position)
        self._seen = seen
