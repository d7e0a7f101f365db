"""Choose the tables that a mirror has: of those that the file names, and that the database has now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headrace.datasources.query_schema import find_unfollowed_children
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.positions import LakePositions
from headrace.mirror.table_checks import find_namesakes, find_problem, find_unknown_columns
from headrace.mirror.tables import LOCK_SECONDS, MirroredTable
from headrace.mirror.waiting import WaitingTables, said_of
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession
from headrace.reporter import Reporter

_ABSENT = "the log has no table of this name: it may be a view, a partition, or unlogged"
_NO_KEY = (
    "it has no primary key; the mirror takes it in once it has one, or (unless the mode is history) once you "
    "run ALTER TABLE … REPLICA IDENTITY FULL"
)


class TableChooser:
    """Chooses the tables of a mirror; it names those that it leaves out once.

    Args:
        ends: the database and the lake.
        waiting: where a table waits that cannot be mirrored for now.
        report: is told which tables are left out.

    Attributes:
        waiting: the same.
        left_out: why tables are not mirrored that only patterns match, or that the log does not have.
        followed: the tables that can be mirrored, where a query of one's own follows them; None: any.
    """

    def __init__(self, ends: MirrorEndpoints, waiting: WaitingTables, report: Reporter) -> None:
        self._ends = ends
        self.waiting = waiting
        self._report = report
        self.left_out: dict[TableName, str] = {}
        self.followed: Collection[TableName] | None = None
        self._warned: Collection[str] = ()
        self._said: dict[TableName, tuple[object, ...]] = {}

    def read(self, known: Collection[TableName]) -> dict[TableName, MirroredTable]:
        """Return the tables that can be mirrored, and let the others wait, or leave them out.

        Args:
            known: those that the lake has.

        Raises:
            HeadraceError: why a table cannot be mirrored that the file names and the lake does not have, or
                why none can; BINDING, also where there is no such table.
        """
        with ReadSession(self._ends.url, lock_seconds=LOCK_SECONDS) as session:
            found = self._find(session, known)
            self.waiting.forget_others(found)
            found = {name: table for name, table in found.items() if not self.is_left_out(table)}
            problems = {name: problem for name, table in found.items() if (problem := find_problem(table))}
            problems |= find_namesakes([name for name in found if name not in problems], known)
            problems |= find_unfollowed_children(session, found.keys() - problems.keys())
        self.let_wait(problems, found, known)
        # Where nothing at all can be mirrored, the file is wrong, and waiting would hide it.
        if len(problems) == len(found) > 0 and not self.waiting.tables:
            raise ErrorGroup([*problems.values()])
        held = {name for name in found if name in problems or self.waiting.is_held(name)}
        return {name: table for name, table in found.items() if name not in held}

    def _find(self, session: ReadSession, known: Collection[TableName]) -> dict[TableName, MirroredTable]:
        """Read the tables that the file names; leave out those that the log does not have.

        Raises:
            HeadraceError: BINDING: the file names a table that neither the database nor the lake has.
        """
        found = self._ends.selection.read(session, self._ends.selection.find(session))
        absent = self._ends.selection.find_absent(found)
        # One that the lake has was dropped: the others go on without it.
        self._ends.selection.check_named(session, [name for name in absent if not self.has(name, known)])
        self._leave_out(absent, _ABSENT)
        return found

    def check_file(
        self, session: ReadSession, tables: Mapping[TableName, MirroredTable], known: LakePositions
    ) -> list[str]:
        """Refuse misspelt columns where tables are loaded for the first time; return what has no effect else.

        Values would be in the lake that it should not have. In a lake's table a column may have been dropped.

        Raises:
            HeadraceError: BINDING.
        """
        found = self._ends.selection.find_idle_parts(session)
        # A table that waits may be the one that has the column.
        tables = {**self._ends.selection.read(session, self.waiting.tables), **tables}
        for error, part in find_unknown_columns(tables):
            is_loaded = not known.tables.keys().isdisjoint(part)
            if not is_loaded and known.stream is not None:
                # One that was dropped, and made again without the column, is not noted, but the lake has it.
                is_loaded = any(self.has(name, known.tables) for name in part)
            if not is_loaded:
                raise error
            found.append(f"{error.cause}. {error.remedy}")
        return found

    def warn_of_file(
        self, session: ReadSession, tables: Mapping[TableName, MirroredTable], known: LakePositions
    ) -> None:
        """Check the file, and tell once what of it has no effect.

        Raises:
            HeadraceError: as of `check_file`.
        """
        warnings = self.check_file(session, tables, known)
        for text in warnings:
            if text not in self._warned:
                self._report.warning(text)
        self._warned = frozenset(warnings)

    def has(self, name: TableName, known: Collection[TableName]) -> bool:
        """Tell whether the lake has a table, noted or not."""
        # One that was dropped, and is being made again, is not noted, but the lake has it.
        return name in known or self._ends.lake.open(name) is not None

    def let_wait(
        self,
        problems: Mapping[TableName, HeadraceError],
        tables: Mapping[TableName, MirroredTable],
        known: Collection[TableName],
    ) -> None:
        """Let tables with problems wait, leave those out that never could be followed, refuse named ones.

        Args:
            problems: what is wrong with each of them.
            tables: what the catalog says of them.
            known: those that the lake has.

        Raises:
            HeadraceError: what is wrong with tables that the file names and the lake does not have.
        """
        new = {name: problem for name, problem in problems.items() if not self.has(name, known)}
        refused = [problem for name, problem in new.items() if self._ends.selection.names(name)]
        if refused:
            raise ErrorGroup(refused)
        keyless = {
            name: tables[name]
            for name, problem in new.items()
            if problem.kind is Kind.REPLICA_IDENTITY and tables[name].problem is None
        }
        self._leave_out(keyless, _NO_KEY)
        self._said |= {name: said_of(table) for name, table in keyless.items()}
        for name, problem in problems.items():
            if name not in keyless:
                self.waiting.add(problem, tables[name])

    def _leave_out(self, names: Iterable[TableName], why: str) -> None:
        """Name tables once that are not mirrored."""
        new = [name for name in names if name not in self.left_out]
        self.left_out |= dict.fromkeys(new, why)
        if new:
            self._report.warning(f"left out: {', '.join(map(str, new))} ({why})")

    def is_left_out(self, table: MirroredTable) -> bool:
        """Tell whether a table is left out, and the catalog says of it what it said then."""
        if self.followed is not None and table.name not in self.followed:
            return True
        return self._said.get(table.name) == said_of(table)
