"""Say what a MERGE does to a Delta table's rows, in SQL that DataFusion and Spark both read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.mirror.deletions import DELETED_AT, IS_DELETED, MARKS
from headrace.mirror.net_changes import DELETED
from headrace.mirror.partitions import with_derived
from headrace.mirror.versions import CLOSES, FROM_LSN, IS_CURRENT, TO_LSN, VALID_TO, RowVersions
from headrace.model.lake_partition import Partition
from headrace.model.names import TableName
from headrace.model.types import quoted


@dataclass(frozen=True, slots=True)
class Merge:
    """Rows that come into a table; SQL calls the table's own `old`, and these `new`.

    Attributes:
        rows: the rows.
        key: the key's columns.
        is_same: when a row is the one that is there; of each, one at most.
        is_deleted: which of those that are there are deleted; None: none is.
        updates: of the others, which (None: all that are left) get which columns, and their values.
        is_inserted: which of those that are not there are inserted.
        inserted: their columns and values.
        partitions: how the table is partitioned.
    """

    rows: pa.Table
    key: Sequence[str]
    is_same: str
    is_deleted: str | None
    updates: Sequence[tuple[str | None, Mapping[str, str]]]
    is_inserted: str
    inserted: Mapping[str, str]
    partitions: Sequence[Partition] = ()

    def partitioned(self, partitions: Sequence[Partition], table: TableName) -> Merge:
        """Return the merge into a table that is partitioned: rows that are written get its derived columns.

        Raises:
            HeadraceError: VALUE: a value cannot be a partition's.
        """
        rows = with_derived(self.rows, partitions, table)
        derived = {name: f"new.{quoted(name)}" for name in rows.column_names[len(self.rows.column_names) :]}
        updates = [
            (which, {**values, **derived} if values.keys() == self.inserted.keys() else values)
            for which, values in self.updates
        ]
        inserted = {**self.inserted, **derived}
        return replace(self, rows=rows, updates=updates, inserted=inserted, partitions=tuple(partitions))


def merge_of_rows(rows: pa.Table, key: Sequence[str]) -> Merge:
    """Upsert and delete rows by key: the table's columns, then whether the row is deleted."""
    values = _values(rows, DELETED)
    deleted = f"new.{quoted(DELETED)}"
    return Merge(rows, key, _same(key), deleted, [(None, values)], f"NOT {deleted}", values)


def merge_of_marks(rows: pa.Table, key: Sequence[str]) -> Merge:
    """Upsert rows by key: the table's columns, then whether the row only marks another one as deleted."""
    # A row that is deleted already keeps its time: only one that lives gets an end.
    values = _values(rows, MARKS)
    marks = f"new.{quoted(MARKS)}"
    end = {name: values[name] for name in (IS_DELETED, DELETED_AT)}
    updates = [(f"{marks} AND NOT old.{quoted(IS_DELETED)}", end), (f"NOT {marks}", values)]
    return Merge(rows, key, _same(key), None, updates, f"NOT {marks}", values)


def merge_of_versions(found: RowVersions, key: Sequence[str]) -> Merge:
    """End current versions, and add others."""
    # One merge does both: ended and begun versions of a key must not be seen one without the other.
    begun = found.rows.append_column(CLOSES, pa.repeat(pa.scalar(value=False), len(found.rows)))
    ended = found.closings.append_column(CLOSES, pa.repeat(pa.scalar(value=True), len(found.closings)))
    rows = pa.concat_tables([begun, ended], promote_options="default")
    new = _values(rows, CLOSES)
    closes = f"new.{quoted(CLOSES)}"
    return Merge(
        rows,
        key,
        f"{_same(key)} AND {closes} AND old.{quoted(IS_CURRENT)}",
        f"old.{quoted(FROM_LSN)} = new.{quoted(TO_LSN)}",  # no commit showed it
        [(None, {VALID_TO: new[VALID_TO], TO_LSN: new[TO_LSN], IS_CURRENT: "false"})],
        f"NOT {closes}",
        new,
    )


def _values(rows: pa.Table, flag: str) -> dict[str, str]:
    return {name: f"new.{quoted(name)}" for name in rows.column_names if name != flag}


def _same(key: Sequence[str]) -> str:
    return " AND ".join(f"old.{quoted(name)} = new.{quoted(name)}" for name in key)
