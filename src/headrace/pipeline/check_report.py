"""The problems that a check finds: as lines with their place, or as data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from headrace.errors import HeadraceError, Kind, LocatedError
from headrace.postgres.coverage import TableCoverage
from headrace.postgres.ddl_plan import Step

Level = Literal["error", "setup", "warning"]
"""`setup`: nothing is wrong, but `headrace setup` must be run before a run can start."""

_RUN = re.compile(r"\b[Rr]un: (?P<sql>.+?);?(?: Or .*)?$", re.DOTALL)
_NUMBER_WIDTH = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem.

    Attributes:
        level: how serious it is.
        code: the error code.
        exit_code: the exit code of an error.
        text: what is wrong, without the place and the remedy.
        remedy: what the operator can do.
        sql: statements that solve the problem.
        file: the path of the file, relative to the working directory where it is below it.
        line: the line from 1; None where it is unknown.
        column: the column from 1; None where it is unknown.
        excerpt: that line of a schema file; a line of the deployment file may hold a password.
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
        """The problem in one line, without the excerpt."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        text = f"[{self.code}] {f'{place}: ' if place else ''}{self.text}"
        return f"{text}. {self.remedy}" if self.remedy else text

    def shown(self) -> str:
        """Return the excerpt with its line number and a caret under the column; empty where there is none."""
        if self.line is None or not self.excerpt.strip():
            return ""
        line = self.excerpt.expandtabs(1)
        marked = f"\n{'':>{_NUMBER_WIDTH}} │ {' ' * (self.column - 1)}^" if self.column is not None else ""
        return f"{self.line:>{_NUMBER_WIDTH}} │ {line}{marked}"

    def as_data(self) -> dict[str, object]:
        """Return the problem as JSON data; every key is always present."""
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
    """Build a problem from `error`, with its place in a file where it has one."""
    base = Problem(
        level,
        error.code,
        error.exit_code,
        error.full_cause,
        error.remedy,
        tuple(sql) or _statements(error.remedy),
    )
    if not isinstance(error, LocatedError):
        return base
    place = error.place
    return replace(
        base,
        text=error.problem,
        file=_display_path(place.file),
        line=place.line,
        column=place.column,
        excerpt="" if error.kind is Kind.CONFIG else place.text or _line(place.file, place.line),
    )


def warning(kind: Kind, text: str) -> Problem:
    """Build a warning without a place."""
    return problem("warning", HeadraceError(kind, text))


def _statements(remedy: str) -> tuple[str, ...]:
    match = _RUN.search(remedy)
    return () if match is None else (f"{match['sql']};",)


def _display_path(file: Path) -> str:
    working_directory = Path.cwd()
    return (
        str(file.relative_to(working_directory))
        if file.is_absolute() and file.is_relative_to(working_directory)
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
    """The problems that were found; `indexes` are those that the files define."""

    indexes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    proposed: list[Step] = field(default_factory=list)
    coverage: list[TableCoverage] = field(default_factory=list)

    def add(self, errors: Iterable[HeadraceError]) -> None:
        """Add errors that keep a run from starting."""
        self.problems += [problem("error", error) for error in errors]

    def add_outstanding(self, errors: Iterable[HeadraceError]) -> None:
        """Add errors that keep a run from starting until `headrace setup` has been run."""
        self.problems += [problem("setup", error) for error in errors]

    def of(self, level: Level) -> list[Problem]:
        """Return the problems of one level, in the order in which they were found."""
        return [entry for entry in self.problems if entry.level == level]

    @property
    def exit_code(self) -> int:
        """The exit code: 0 where there is no error."""
        return max((entry.exit_code for entry in self.of("error")), default=0)
