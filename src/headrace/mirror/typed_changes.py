"""Make of a table's changes rows with the columns and types that the lake's table has. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import HeadraceError, Kind
from headrace.mirror.columns import PREFIX, replaced
from headrace.mirror.partition_bounds import Ahead, rows_within
from headrace.mirror.tables import MirroredTable
from headrace.model.changes import Op
from headrace.model.values import column_texts


def typed_rows(
    table: MirroredTable, changes: pa.RecordBatch, former: Mapping[str, str], tell: Callable[[str], object]
) -> pa.Table:
    """Return rows in the schema of the table's `RowShape`, with the values that the lake has.

    Args:
        table: the table.
        changes: in `CHANGES_SCHEMA`.
        former: the present name of each renamed column, by the name that changes may have.
        tell: is told which values did not fit, and are NULL.

    Raises:
        HeadraceError: VALUE: a value does not fit its column.
    """
    changes = _renamed(changes, former)
    try:
        read = table.shape.rows(changes)
    except HeadraceError as error:
        if error.kind is not Kind.VALUE:
            raise
        texts = table.in_texts
        # The message names rows by their keys, as the lake has them: masked.
        raise table.explain_unfit(texts.in_lake(texts.shape.rows(changes))) or error from error
    rows = table.in_lake(pa.Table.from_batches([read]), tell)
    return rows if table.part.mode == "changes" else _with_defaults(rows, changes, table)


def _renamed(changes: pa.RecordBatch, former: Mapping[str, str]) -> pa.RecordBatch:
    """Return changes whose columns have the names that they have now."""
    # Changes of the time before a RENAME COLUMN carry the old name; the lake has the new one.
    for side in ("before", "after") if former else ():
        rows = changes.column(side)
        names = rows.keys
        for old, new in former.items():
            names = pc.if_else(pc.equal(names, old), new, names)
        renamed = pa.MapArray.from_arrays(rows.offsets, names, rows.items, rows.type, mask=rows.is_null())
        changes = replaced(changes, {side: renamed})
    return changes


def _with_defaults(rows: pa.Table, changes: pa.RecordBatch, table: MirroredTable) -> pa.Table:
    """Give rows that were inserted before a column was added the default that they have in the database."""
    names = [name for name in table.columns if name in table.defaults]
    # Updates take theirs from the lake, or from the insert before them.
    inserted = pc.equal(changes.column("op"), Op.INSERT.value)
    for name, column in (column_texts(changes.column("after"), names) if names else {}).items():
        # An insert carries every column that its table had then: one that it lacks was added later.
        older = pc.and_not(inserted, column.known)
        if pc.any(older).as_py():
            places = set(_places(changes.filter(older), "_"))
            is_older = pa.array([place in places for place in _places(rows, PREFIX)])
            default = table.default(name).cast(rows.column(name).type)
            rows = replaced(rows, {name: pc.if_else(is_older, default, rows.column(name))})
    return rows


def _places(rows: pa.RecordBatch | pa.Table, prefix: str) -> zip[tuple[int, int]]:
    """Return the position of each row; one change makes one row of it at least."""
    lsn, sequence = (rows.column(f"{prefix}{name}").to_pylist() for name in ("commit_lsn", "commit_seq"))
    return zip(lsn, sequence, strict=True)


def without_ahead(rows: pa.Table, table: MirroredTable, aheads: Sequence[Ahead]) -> pa.Table:
    """Return changes without those of parts that the lake has as they were after the changes."""
    for ahead in aheads:
        # The part was read as it was at `start`: earlier changes are in its rows already.
        is_before = pc.less(rows.column(PREFIX + "commit_lsn"), ahead.start)
        within = rows_within(rows, ahead.bounds, table.columns_by_number)
        rows = rows.filter(pc.invert(pc.and_(is_before, within)))
    return rows
