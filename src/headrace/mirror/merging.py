"""Say what a MERGE does to a table's rows, in SQL that DataFusion and Spark both read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.mirror.net_changes import DELETED, Ending
from headrace.mirror.partitions import with_derived
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
        updates: of the others, which get which columns, and their values.
        is_inserted: which of those that are not there are inserted.
        inserted: their columns and values.
        partitions: how the table is partitioned, where it has derived columns for that.
    """

    rows: pa.Table
    key: Sequence[str]
    is_same: str
    is_deleted: str | None
    updates: Sequence[tuple[str, Mapping[str, str]]]
    is_inserted: str
    inserted: Mapping[str, str]
    partitions: Sequence[Partition]


def merge_of(
    rows: pa.Table, key: Sequence[str], ending: Ending, partitions: Sequence[Partition], table: TableName
) -> Merge:
    """Write rows, and end others, by key.

    Args:
        rows: the table's columns, then `DELETED`.
        key: the key's columns.
        ending: what becomes of rows that end.
        partitions: how the table is partitioned; rows that are written get its derived columns.
        table: the table, for messages.

    Raises:
        HeadraceError: VALUE: a value cannot be a partition's.
    """
    rows = with_derived(rows, partitions, table)
    values = {name: f"new.{quoted(name)}" for name in rows.column_names if name != DELETED}
    ends = f"new.{quoted(DELETED)}"
    is_written = f"NOT {ends}"
    same = [f"old.{quoted(name)} = {values[name]}" for name in key]
    if ending.live is not None:
        column, value = ending.live
        ends += f" AND {'' if value else 'NOT '}old.{quoted(column)}"
    updates: list[tuple[str, Mapping[str, str]]] = []
    removed: str | None = ends
    if ending.columns:
        updates.append((ends, {name: values[name] for name in ending.columns}))
        removed = None
    if ending.span is None:
        updates.append((is_written, values))
    else:
        # What is written is nobody's successor here: it comes beside what is there.
        same.append(ends)
        begin, end = ending.span
        removed = f"old.{quoted(begin)} = {values[end]}"
    return Merge(rows, key, " AND ".join(same), removed, updates, is_written, values, partitions)
