"""Check that a table in the log still has the columns that a query was started with."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.capture.relation_routing import RootRouting
from headrace.capture.rows import Absence
from headrace.catalog.known import uncarried_key
from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn, TableName
from headrace.pgoutput import Relation
from headrace.postgres.quoting import table as quoted

_COLUMNS = """
SELECT attname::text FROM pg_attribute WHERE attrelid = $1::text::oid AND attnum > 0 AND NOT attisdropped
"""
_NEWER_TABLE = (
    "Load the table again, and start the query: it takes the columns that the table has then. Its checkpoint "
    "stays good; its sink may have to be altered too."
)
_OLDER_ROWS = (
    "The log still holds rows of before the table was altered, which loading it again does not change. Start "
    "the query once with onSchemaChange=rescue or ignore, which take such rows, until it has caught up."
)


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table as it was when a query began.

    Attributes:
        columns: type oid and type modifier of each requested column, by name.
        left_out: the other columns that the table had.
        old_rows: whether the log must hold whole old rows.
        key: the columns that must stay as they were, even with `may_change`.
        may_change: whether other columns may be added, dropped, and have another type.
        chosen: whether `columns` were selected by name, so that a new column is not requested.
        order: all columns of the table, in its order.
    """

    columns: Mapping[str, tuple[int, int]]
    left_out: frozenset[str] = frozenset()
    old_rows: bool = False
    key: frozenset[str] = frozenset()
    may_change: bool = False
    chosen: bool = False
    order: tuple[str, ...] = ()


class GuardedRouting(RootRouting):
    """Reports root names for a query with typed columns; refuses rows of a table that was altered."""

    def __init__(self, url: str, expected: Mapping[TableName, PlannedTable]) -> None:
        super().__init__(url, expected)
        self._expected = expected
        self._absences: tuple[Absence, ...] = ()

    @property
    def absences(self) -> tuple[Absence, ...]:
        """The columns that the log has lacked so far, for a single table that may change."""
        return self._absences

    def route(self, relation: Relation, commit_lsn: Lsn, xid: int) -> Relation:
        """Return the relation under its root's name; its columns are checked before any row is used."""
        named = super().route(relation, commit_lsn, xid)
        expected = self._expected.get(named.table)
        difference = None
        if expected is not None:
            difference = _difference(relation, expected) or (
                _moved(relation, expected) if named.table == relation.table else None
            )
        if expected is not None and difference is not None:
            raise HeadraceError(
                Kind.SCHEMA_CHANGED,
                f"the table {named.table} was altered: {difference}",
                _OLDER_ROWS if self._is_unaltered(relation.oid, expected) else _NEWER_TABLE,
            )
        if expected is not None and expected.may_change:
            self._note(commit_lsn, frozenset(expected.columns) - frozenset(relation.names))
        if expected is not None and expected.old_rows and not all(column.key for column in relation.columns):
            raise HeadraceError(
                Kind.REPLICA_IDENTITY,
                f"the log does not hold the old rows of {named.table} any more, which the query asks for",
                f"Run: ALTER TABLE {quoted(named.table)} REPLICA IDENTITY FULL. Then start again with a new "
                "checkpoint, or without preImages and unchangedToast=old.",
            )
        if expected is not None:
            _check_key(relation, named.table, expected.key)
        return named

    def _is_unaltered(self, oid: int, expected: PlannedTable) -> bool:
        """Return whether the table has the columns of the query's start, so that only the log is older."""
        names = [name for (name,) in self.session().query(_COLUMNS, (str(oid),))]
        return set(names) == set(expected.order)

    def _note(self, lsn: Lsn, missing: frozenset[str]) -> None:
        """Note that the log lacks the columns `missing` from the commit at `lsn` on."""
        before = bisect.bisect_right(self._absences, lsn, key=lambda absence: absence[0])
        if missing != (self._absences[before - 1][1] if before else frozenset()):
            self._absences = (*self._absences[:before], (lsn, missing), *self._absences[before:])


def _moved(relation: Relation, expected: PlannedTable) -> str | None:
    """Describe the first column that was renamed or created anew; None where there is none."""
    if expected.may_change:
        return None
    names = [name for name in relation.names if name in expected.order]
    before = [name for name in expected.order if name in relation.names]
    for name, other in zip(names, before, strict=True):
        if name != other:
            return f"the column {name} stands where {other} stood: one of them was renamed, or made anew"
    return None


def _check_key(relation: Relation, table: TableName, key: frozenset[str]) -> None:
    """Raise an error if deleted rows lack a key column; where the log has no old rows there is no check."""
    carried = [column.name for column in relation.columns if column.key]
    missing = [name for name in sorted(key) if name not in carried]
    if carried and missing:
        raise uncarried_key(table, missing[0], carried)


def _difference(relation: Relation, expected: PlannedTable) -> str | None:
    """Describe the first difference that the query would see; None where there is none."""
    logged = {column.name: (column.type_oid, column.type_modifier) for column in relation.columns}
    checked = expected.columns
    if expected.may_change:
        checked = {name: kind for name, kind in checked.items() if name in expected.key}
    for name, kind in checked.items():
        if name not in logged:
            return f"the log has no column {name}, it has {', '.join(logged)}"
        if logged[name] != kind:
            return f"the column {name} has another type in the log"
    if expected.may_change or expected.chosen:
        return None
    new = [name for name in logged if name not in expected.columns and name not in expected.left_out]
    return f"it has a column {new[0]} that the query does not have" if new else None
