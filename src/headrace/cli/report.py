"""How is each thing that was found told: as a line with its place, or as data for programs?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from headrace.errors import HeadraceError, Kind
from headrace.postgres.coverage import TableCoverage
from headrace.postgres.ddl_plan import Step
from headrace.schema import LocatedError

Level = Literal["error", "setup", "warning"]
"""`setup`: nothing is wrong, but `headrace setup` has something to do before a run can start."""

_PLACED = re.compile(r"(?P<file>[^\n]+?):(?P<line>\d+)(?::(?P<column>\d+))?: (?P<problem>.*)", re.DOTALL)
_RUN = re.compile(r"\b[Rr]un: (?P<sql>.+?);?(?: Or .*)?$", re.DOTALL)
_NUMBER_WIDTH = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that was found.

    Attributes:
        text: what is wrong, without its place and without the remedy.
        file: as people write it: from here, where it lies below.
        line, column: from 1; None where nothing says.
        excerpt: that line of the file.
        sql: statements that mend it.
    """

    level: Level
    code: str
    exit_code: int
    text: str
    remedy: str = ""
    sql: tuple[str, ...] = ()
    file: str | None = None
    line: int | None = None
    column: int | None = None
    excerpt: str = ""

    @property
    def sentence(self) -> str:
        """In one line, the excerpt left out."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        text = f"[{self.code}] {f'{place}: ' if place else ''}{self.text}"
        return f"{text}. {self.remedy}" if self.remedy else text

    def shown(self) -> str:
        """The excerpt with its line number and a caret under the column; empty where there is none."""
        if self.line is None or not self.excerpt.strip():
            return ""
        line = self.excerpt.expandtabs(1)
        marked = f"\n{'':>{_NUMBER_WIDTH}} │ {' ' * (self.column - 1)}^" if self.column is not None else ""
        return f"{self.line:>{_NUMBER_WIDTH}} │ {line}{marked}"

    def as_data(self) -> dict[str, object]:
        """For programs; every key is always there."""
        return {
            "level": self.level,
            "code": self.code,
            "text": self.text,
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "remedy": self.remedy,
            "sql": list(self.sql),
        }


def problem(level: Level, error: HeadraceError, sql: Iterable[str] = ()) -> Problem:
    """What `error` says, and where its place in a file is if it has one."""
    found = Problem(
        level, error.code, error.exit_code, error.told, error.remedy, tuple(sql) or _statements(error.remedy)
    )
    if isinstance(error, LocatedError):
        place = error.place
        return replace(
            found,
            text=error.problem,
            file=_shown(place.file),
            line=place.line,
            column=place.column,
            excerpt=place.text,
        )
    match = _PLACED.fullmatch(error.cause)
    if match is None or not Path(match["file"]).is_file():
        return found
    file, line, column = Path(match["file"]), int(match["line"]), match["column"]
    return replace(
        found,
        text=match["problem"],
        file=_shown(file),
        line=line,
        column=int(column) if column else None,
        excerpt=_line(file, line),
    )


def warning(kind: Kind, text: str) -> Problem:
    """A warning without a place."""
    return problem("warning", HeadraceError(kind, text))


def _statements(remedy: str) -> tuple[str, ...]:
    match = _RUN.search(remedy)
    return () if match is None else (f"{match['sql']};",)


def _shown(file: Path) -> str:
    endpoints = Path.cwd()
    return (
        str(file.relative_to(endpoints))
        if file.is_absolute() and file.is_relative_to(endpoints)
        else str(file)
    )


def _line(file: Path, number: int) -> str:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return lines[number - 1] if 0 < number <= len(lines) else ""


@dataclass
class CheckReport:
    """What was found; `indexes` are those that the files ask for."""

    indexes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    proposed: list[Step] = field(default_factory=list)
    coverage: list[TableCoverage] = field(default_factory=list)

    def add(self, errors: Iterable[HeadraceError]) -> None:
        """Add what is wrong and keeps a run from starting."""
        self.problems += [problem("error", error) for error in errors]

    def add_outstanding(self, errors: Iterable[HeadraceError]) -> None:
        """Add what keeps a run from starting until `headrace setup` has been run."""
        self.problems += [problem("setup", error) for error in errors]

    def of(self, level: Level) -> list[Problem]:
        """The problems of one level, in the order in which they were found."""
        return [one for one in self.problems if one.level == level]

    @property
    def exit_code(self) -> int:
        """0 where nothing is wrong."""
        return max((one.exit_code for one in self.of("error")), default=0)
