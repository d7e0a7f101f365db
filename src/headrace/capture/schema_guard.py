"""Does a table in the log still have the columns that a query was told of?"""

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
        columns: type oid and type modifier of each column that is asked for, by name.
        left_out: the columns that the table had besides.
        old_rows: whether the log must hold whole old rows.
        key: the columns that must be as they were, also where others need not be.
        may_change: whether other columns may come, go, and have another type.
        chosen: whether `columns` were named: a new one is not asked for.
        order: all columns of the table as it was, in its order.
    """

    columns: Mapping[str, tuple[int, int]]
    left_out: frozenset[str] = frozenset()
    old_rows: bool = False
    key: frozenset[str] = frozenset()
    may_change: bool = False
    chosen: bool = False
    order: tuple[str, ...] = ()


class GuardedRouting(RootRouting):
    """Names for a query that has typed columns; a table that was altered is refused when a row needs it."""

    def __init__(self, url: str, expected: Mapping[TableName, PlannedTable]) -> None:
        super().__init__(url, expected)
        self._expected = expected
        self._absences: tuple[Absence, ...] = ()

    @property
    def absences(self) -> tuple[Absence, ...]:
        """What the log has lacked so far, of one table that may change."""
        return self._absences

    def described(self, relation: Relation, commit_lsn: Lsn, xid: int) -> Relation:
        """Compared before any of its rows is used."""
        named = super().described(relation, commit_lsn, xid)
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
        if expected is not None and expected.old_rows and not all(one.key for one in relation.columns):
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
        """Whether the table is now as it was when the query began: then it is the log that is older."""
        names = [name for (name,) in self.session().query(_COLUMNS, (str(oid),))]
        return set(names) == set(expected.order)

    def _note(self, lsn: Lsn, missing: frozenset[str]) -> None:
        """From the transaction that commits at `lsn` on the log lacks `missing`."""
        before = bisect.bisect_right(self._absences, lsn, key=lambda one: one[0])
        if missing != (self._absences[before - 1][1] if before else frozenset()):
            self._absences = (*self._absences[:before], (lsn, missing), *self._absences[before:])


def _moved(relation: Relation, expected: PlannedTable) -> str | None:
    """Which column stands where another one stood: they have exchanged names, or one was made anew."""
    if expected.may_change:
        return None
    names = [name for name in relation.names if name in expected.order]
    before = [name for name in expected.order if name in relation.names]
    for name, other in zip(names, before, strict=True):
        if name != other:
            return f"the column {name} stands where {other} stood: one of them was renamed, or made anew"
    return None


def _check_key(relation: Relation, table: TableName, key: frozenset[str]) -> None:
    """Deleted rows have the key; where the log has nothing of them, there are none."""
    carried = [one.name for one in relation.columns if one.key]
    missing = [name for name in sorted(key) if name not in carried]
    if carried and missing:
        raise uncarried_key(table, missing[0], carried)


def _difference(relation: Relation, expected: PlannedTable) -> str | None:
    """What differs first; None where nothing that the query sees does."""
    found = {column.name: (column.type_oid, column.type_modifier) for column in relation.columns}
    checked = expected.columns
    if expected.may_change:
        checked = {name: kind for name, kind in checked.items() if name in expected.key}
    for name, kind in checked.items():
        if name not in found:
            return f"the log has no column {name}, it has {', '.join(found)}"
        if found[name] != kind:
            return f"the column {name} has another type in the log"
    if expected.may_change or expected.chosen:
        return None
    new = [name for name in found if name not in expected.columns and name not in expected.left_out]
    return f"it has a column {new[0]} that the query does not have" if new else None
