"""Say what a MERGE does to a Delta table's rows, in the SQL of whoever runs it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.mirror.net_changes import DELETED
from headrace.mirror.versions import CLOSES, FROM_LSN, IS_CURRENT, TO_LSN, VALID_TO, RowVersions

Quote = Callable[[str], str]
"""Quotes a column's name."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Rows that come into a table; SQL calls the table's own `old`, and these `new`.

    Attributes:
        rows: the rows.
        key: the key's columns.
        is_same: when a row is the one that is there; of each, one at most.
        is_deleted: which of those that are there are deleted.
        updated: the columns that the others get, and their values.
        is_inserted: which of those that are not there are inserted.
        inserted: their columns and values.
    """

    rows: pa.Table
    key: Sequence[str]
    is_same: str
    is_deleted: str
    updated: Mapping[str, str]
    is_inserted: str
    inserted: Mapping[str, str]


def merge_of_rows(rows: pa.Table, key: Sequence[str], quote: Quote) -> Merge:
    """Upsert and delete rows by key: the table's columns, then whether the row is deleted."""
    values = {name: f"new.{quote(name)}" for name in rows.column_names if name != DELETED}
    deleted = f"new.{quote(DELETED)}"
    return Merge(rows, key, _same(key, quote), deleted, values, f"NOT {deleted}", values)


def merge_of_versions(found: RowVersions, key: Sequence[str], quote: Quote) -> Merge:
    """End current versions, and add others."""
    begun = found.rows.append_column(CLOSES, pa.repeat(pa.scalar(value=False), len(found.rows)))
    ended = found.closings.append_column(CLOSES, pa.repeat(pa.scalar(value=True), len(found.closings)))
    rows = pa.concat_tables([begun, ended], promote_options="default")
    new = {name: f"new.{quote(name)}" for name in found.rows.column_names}
    closes = f"new.{quote(CLOSES)}"
    return Merge(
        rows,
        key,
        f"{_same(key, quote)} AND {closes} AND old.{quote(IS_CURRENT)}",
        f"old.{quote(FROM_LSN)} = new.{quote(TO_LSN)}",  # no commit showed it
        {VALID_TO: new[VALID_TO], TO_LSN: new[TO_LSN], IS_CURRENT: "false"},
        f"NOT {closes}",
        new,
    )


def _same(key: Sequence[str], quote: Quote) -> str:
    return " AND ".join(f"old.{quote(name)} = new.{quote(name)}" for name in key)
