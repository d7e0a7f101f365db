"""Let a table wait that cannot be written, while the others go on (decision 0136)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.errors import ErrorGroup, HeadraceError, Kind, unexpected
from headrace.mirror.lake import Lake, check_answers, first_line
from headrace.mirror.table_checks import find_problem
from headrace.mirror.tables import MirroredTable
from headrace.model.names import TableName
from headrace.postgres.lock_holders import LockedError
from headrace.reporter import Reporter

_FIRST_SECONDS, _LONGEST_SECONDS = 10.0, 600.0
_SHARE = 4
"""The next try is so many times as long away as the last one took: nobody follows the others meanwhile."""
_OF_A_TABLE = frozenset(
    {
        Kind.BINDING,
        Kind.CONFIG,
        Kind.CONTINUITY,
        Kind.DATABASE,
        Kind.INTERNAL,
        Kind.PRIVILEGE,
        Kind.PUBLICATION,
        Kind.REPLICA_IDENTITY,
        Kind.VALUE,
    }
)
"""What is wrong with a table alone, where it is raised while that table is worked on."""
_OF_A_SNAPSHOT = frozenset({Kind.NO_FREE_SLOT, Kind.SLOT_WAIT})
"""Why the server takes no snapshot: that stops a table which is to be read, and none that is followed."""


def concerns_table(error: HeadraceError) -> bool:
    """Tell whether an error that was raised while one table was worked on says nothing of the others."""
    return error.kind in _OF_A_TABLE or isinstance(error, LockedError)


UNEXPECTED = (TypeError, ValueError, NotImplementedError, KeyError, pa.ArrowException)
"""What a library raises that does not expect a value or a type: a table's own failure."""
_FAILURES = (HeadraceError, *UNEXPECTED)


def _damaged(table: MirroredTable, path: str, error: Exception) -> HeadraceError:
    """Return the error of a table of the lake that cannot be read or written, where others can."""
    remedy = f"The mirror reads it again where it can. Else repair it, or remove {path}: it is loaded then"
    if table.keeps_past:
        remedy = f"Repair it, or put it back from a copy; if {path} is removed, its past is lost"
    return HeadraceError(
        Kind.CONTINUITY,
        f"the lake's table {table.name} cannot be read or written, and others can: {first_line(error)}",
        f"{remedy}.",
    )


@dataclass(frozen=True, slots=True)
class WaitingTable:
    """A table that is not written for now; what it misses is read again when it goes on.

    Attributes:
        error: why.
        pause: between the last try and the next one (seconds).
        next_try: when that is, as `time.monotonic` counts.
        said: what the catalog said of it; another answer lets it be tried at once.
    """

    error: HeadraceError
    pause: float
    next_try: float
    said: tuple[object, ...]

    @property
    def is_due(self) -> bool:
        """Whether it is to be tried now."""
        return time.monotonic() >= self.next_try


def said_of(table: MirroredTable) -> tuple[object, ...]:
    """Return what the catalog says of a table that may let it be mirrored, or not."""
    return table.catalog, table.schema, table.key, find_problem(table) is None


class WaitingTables:
    """The tables that wait, each with its reason and its next try.

    Args:
        report: is told who begins to wait, and who goes on.

    Attributes:
        lake: what holds them; None: its errors are raised.
        tables: each of them, by name.
        tries_again: whether somebody tries those again that wait; a mirror that runs once ends instead.
    """

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self.lake: Lake | None = None
        self.tables: dict[TableName, WaitingTable] = {}
        self.tries_again = True

    def __contains__(self, name: object) -> bool:
        return name in self.tables

    @property
    def is_due(self) -> bool:
        """Whether one is to be tried now."""
        return any(table.is_due for table in [*self.tables.values()])

    def reason(self, name: TableName) -> str | None:
        """Return why a table waits; None: it does not."""
        table = self.tables.get(name)
        return None if table is None else table.error.cause

    def is_held(self, name: TableName) -> bool:
        """Tell whether a table waits, and its next try is not due yet."""
        return name in self.tables and not self.tables[name].is_due

    def add(self, error: HeadraceError, table: MirroredTable, took: float = 0.0) -> None:
        """Let a table wait; one that is held stays so, one that was tried waits twice as long as before.

        Args:
            error: why.
            table: what the catalog says of it.
            took: how long the try took (seconds).
        """
        name = table.name
        # It fails each time that it is looked at; only tries make the pause longer.
        if self.is_held(name):
            return
        known = self.tables.get(name)
        pause = _FIRST_SECONDS if known is None else min(_LONGEST_SECONDS, 2 * known.pause)
        pause = max(pause, _SHARE * took)
        self.tables[name] = WaitingTable(error, pause, time.monotonic() + pause, said_of(table))
        remedy = f" {error.remedy}" if error.remedy else ""
        text = f"the table {name} waits: {error.cause}.{remedy} The others go on"
        if self.tries_again:
            text += f". If you edit the mirror's file, restart it; trying again in {pause:.0f} s"
        self._report.warning(text)

    def remove(self, name: TableName) -> None:
        """Let a table go on."""
        if self.tables.pop(name, None) is not None:
            self._report.info(f"the table {name} goes on")

    def forget_others(self, present: Collection[TableName]) -> None:
        """Forget the tables that are not among those that are mirrored."""
        self.tables = {name: table for name, table in self.tables.items() if name in present}

    def try_altered(self, now: Mapping[TableName, MirroredTable]) -> None:
        """Make the next try of those tables due that have been altered."""
        # A batch may make further tables wait meanwhile.
        for name, waiting in [*self.tables.items()]:
            if name in now and waiting.said != said_of(now[name]):
                # Half, which `add` doubles: an altered table that fails waits as one does for the first time.
                self.tables[name] = replace(waiting, pause=_FIRST_SECONDS / 2, next_try=0.0)

    @contextlib.contextmanager
    def alone(self, table: MirroredTable) -> Iterator[None]:
        """Let a table wait for what fails within, where that says nothing of others."""
        begun = time.monotonic()
        try:
            yield
        except self.failures as error:
            self.add(self.failure_of(table, error), table, time.monotonic() - begun)

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What may be a table's own failure."""
        return _FAILURES if self.lake is None else (*_FAILURES, *self.lake.errors)

    def failure_of(self, table: MirroredTable, error: Exception) -> HeadraceError:
        """Return one of `failures` as the table's error; one that says something of others is raised."""
        if self.lake is not None and isinstance(error, self.lake.errors):
            check_answers(self.lake, error)
            return _damaged(table, self.lake.path(table.name), error)
        if not isinstance(error, HeadraceError):
            return unexpected(f"the table {table.name} cannot be read or written", error)
        if not concerns_table(error) and error.kind not in _OF_A_SNAPSHOT:
            raise error
        return error

    def error(self) -> HeadraceError | None:
        """Return what says why tables wait; None: none does."""
        errors = [
            HeadraceError(
                table.error.kind, f"the table {name} was not written: {table.error.cause}", table.error.remedy
            )
            for name, table in sorted(self.tables.items())
        ]
        if not errors:
            return None
        return errors[0] if len(errors) == 1 else ErrorGroup(errors)
