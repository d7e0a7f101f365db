"""Extract the values that changed rows held in some columns, before or after. Pure and columnar.

A column that is absent from one side of a change has the value of the other side. Outside of the old side's
replica identity there is no column that leads anywhere (`required_columns`), and an unchanged TOAST value is
absent from the new side.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import HeadraceError, Kind
from headrace.model import Key, Lsn, Op, TableName


def tables_of(changes: pa.Table) -> dict[TableName, pa.Table]:
    """Group the rows by table; rows without a table are left out."""
    names = changes.select(["schema", "table"]).group_by(["schema", "table"]).aggregate([])
    result = {}
    for row in names.to_pylist():
        if row["table"] is None:
            continue
        is_own = pc.and_(pc.equal(changes["schema"], row["schema"]), pc.equal(changes["table"], row["table"]))
        result[TableName(row["schema"], row["table"])] = changes.filter(is_own)
    return result


def has_truncate(rows: pa.Table) -> bool:
    """Tell whether one of the rows is a truncate."""
    return bool(pc.any(pc.equal(rows["op"], Op.TRUNCATE.value)).as_py())


def without_truncates(rows: pa.Table) -> pa.Table:
    """Return the rows that carry values."""
    return rows.filter(pc.not_equal(rows["op"], Op.TRUNCATE.value))


def rows_that_differ(rows: pa.Table, columns: frozenset[str] | None) -> pa.Table:
    """Leave out updates whose old row is known to hold the same in all of `columns`.

    An incomplete old row does not count for the columns that it lacks. With None, no update is left out.
    """
    if columns is None or not _may_hold(rows["before"], len(columns)):
        return rows
    same = np.asarray(pc.equal(rows["op"], Op.UPDATE.value))
    for column in columns:
        before, had = _lookup(rows["before"], column)
        after, has = _lookup(rows["after"], column)
        equal = pc.fill_null(pc.equal(before, after), False)  # noqa: FBT003 - Arrow's name for it is as long
        nulls = pc.and_(pc.is_null(before), pc.is_null(after))
        same = same & had & has & np.asarray(pc.or_(equal, nulls))
    return rows.filter(pa.array(~same))


def _may_hold(side: pa.ChunkedArray, count: int) -> bool:
    """Tell whether some row carries at least `count` columns on that side."""
    return any(bool((np.diff(np.asarray(maps.offsets)) >= count).any()) for maps in side.chunks)


def lead_values(rows: pa.Table, table: TableName, columns: tuple[str, ...], since: Lsn = 0) -> list[Key]:
    """Return the distinct values of `columns` in the rows' old and new sides, without those with a null.

    A change that committed before `since` (bytes) may lack a column and is left out then.

    Raises:
        HeadraceError: REPLICA_IDENTITY, where neither side of a change carries a column.
    """
    olds, news = [], []
    late = rows["_commit_lsn"].to_numpy() >= since
    for column in columns:
        before, had = _lookup(rows["before"], column)
        after, has = _lookup(rows["after"], column)
        if bool(np.any(~(had | has) & late)):
            raise _missing(table, column)
        olds.append(pc.if_else(pa.array(had), before, after))
        news.append(pc.if_else(pa.array(has), after, before))
    names = [str(number) for number in range(len(columns))]
    sides = [pa.Table.from_arrays(side, names=names) for side in (olds, news)]
    distinct = pa.concat_tables(sides).drop_null().group_by(names, use_threads=False).aggregate([])
    return list(zip(*(distinct[name].to_pylist() for name in names), strict=True))


def _lookup(side: pa.ChunkedArray, column: str) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Find the column's value in each row, and whether the row carries it (a carried value may be null)."""
    maps = pa.concat_arrays(side.chunks) if side.num_chunks else pa.array([], side.type)
    offsets = np.asarray(maps.offsets)
    hits = np.flatnonzero(np.asarray(pc.equal(maps.keys, column)))
    hits = hits[(hits >= offsets[0]) & (hits < offsets[-1])]
    places = np.full(len(maps), -1, dtype=np.int64)
    places[np.searchsorted(offsets, hits, side="right") - 1] = hits
    carried = places >= 0
    return maps.items.take(pa.array(places, mask=~carried)), carried


def _missing(table: TableName, column: str) -> HeadraceError:
    return HeadraceError(
        Kind.REPLICA_IDENTITY,
        f"a change of table {table} does not carry its column {column}, which leads to documents",
        f"Run headrace check for the replica identity that it needs, or ALTER TABLE {table} "
        "REPLICA IDENTITY FULL, then reindex.",
    )
