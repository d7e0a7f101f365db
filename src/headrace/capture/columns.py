"""Convert decoded changes to Arrow batches in `CHANGES_SCHEMA`, with the columns whose values are kept.

The maps hold names and values of all rows one after another, so each is one `take`, whatever the tables.
Changes that only lead to documents need few columns. The values of the others are skipped while the log is
decoded and never copied, whatever their size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.capture.changes import ChangeRows
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA, Op
from headrace.model.names import TableName
from headrace.pgoutput.batch import Numbers
from headrace.pgoutput.columnar import (
    BINARY,
    DELETE,
    INSERT,
    NO_TUPLE,
    NULL,
    OLD_KEY,
    TRUNCATE,
    UNCHANGED,
    UPDATE,
    Mask,
    Tuples,
)
from headrace.pgoutput.cursor import broken
from headrace.pgoutput.messages import Relation

WIDEST_COMPARED = 1 << 20
"""Bytes of a value that is only compared; a longer one is left out, and then counts as changed."""

_NONE, _ANY = -1, 1 << 40


@dataclass(frozen=True, slots=True)
class KeptColumns:
    """The columns of one table whose values are kept.

    Attributes:
        leading: columns whose values lead to documents.
        compared: columns that are only compared, to see whether they changed.
    """

    leading: frozenset[str]
    compared: frozenset[str] = frozenset()

    def __or__(self, other: KeptColumns) -> KeptColumns:
        return KeptColumns(self.leading | other.leading, self.compared | other.compared)

    def __le__(self, other: KeptColumns) -> bool:
        return self.leading <= other.leading and self.compared <= other.leading | other.compared

    def widest(self, column: str) -> int:
        """Return the size of the longest value of `column` that is kept (bytes); negative: none is."""
        if column in self.leading:
            return _ANY
        return WIDEST_COMPARED if column in self.compared else _NONE


Projection = Mapping[TableName, KeptColumns]
"""The kept columns by the table's name in the changes; of a table that is absent no value is kept."""

_NOTHING = KeptColumns(frozenset())


def widest_values(projection: Projection | None, relations: Iterable[Relation]) -> Numbers | None:
    """Return `KeptColumns.widest` of every column of `relations`, in order; None: all values are kept."""
    if projection is None:
        return None
    kept = ((projection.get(relation.table, _NOTHING), relation) for relation in relations)
    return np.array([columns.widest(name) for columns, relation in kept for name in relation.names], np.int64)


def covers(projection: Projection, other: Projection) -> bool:
    """Return whether `projection` keeps everything that `other` keeps."""
    return all(columns <= projection.get(table, _NOTHING) for table, columns in other.items())


_OPS = {INSERT: Op.INSERT, UPDATE: Op.UPDATE, DELETE: Op.DELETE, TRUNCATE: Op.TRUNCATE}
_OP_NAMES = pa.array([op.value for op in _OPS.values()], pa.string())
_OP_INDEX = np.zeros(256, np.int64)
_OP_INDEX[list(_OPS)] = np.arange(len(_OPS))


def changes_batch(rows: ChangeRows, projection: Projection | None = None) -> pa.RecordBatch:
    """Return all changes as one batch in `CHANGES_SCHEMA`.

    Args:
        rows: the changes.
        projection: the columns whose values are kept; None: all.

    Raises:
        HeadraceError: DATABASE where a value is not UTF-8 (an SQL_ASCII database); PROTOCOL where a value is
            not in text format.
    """
    # The option `binary` is never set.
    if (rows.cells.kind == BINARY).any():
        raise broken("a binary value stands in a stream of text")
    columns = _Columns(rows.relations, widest_values(projection, rows.relations))
    try:
        return pa.RecordBatch.from_arrays(
            [
                _take_names([relation.table.schema for relation in rows.relations], rows.relation),
                _take_names([relation.table.name for relation in rows.relations], rows.relation),
                _OP_NAMES.take(pa.array(_OP_INDEX[rows.op])),
                columns.before(rows),
                columns.after(rows),
                pa.array(rows.commit_lsn, pa.int64()),
                pa.array(rows.sequence, pa.int64()),
                pa.array(rows.commit_time, pa.timestamp("us", tz="UTC")),
                pa.array(rows.xid, pa.int64()),
                _identities(rows.relations).take(pa.array(rows.relation)),
            ],
            schema=CHANGES_SCHEMA,
        )
    except pa.ArrowInvalid as error:
        raise HeadraceError(
            Kind.DATABASE,
            f"a value in the log is not UTF-8: {error}",
            "Headrace needs a database whose encoding PostgreSQL can convert to UTF-8.",
        ) from error


def _take_names(names: list[str], index: Numbers) -> pa.StringArray:
    return pa.array(names, pa.string()).take(pa.array(index))


def _identities(relations: Iterable[Relation]) -> pa.ListArray:
    """Return the columns of each relation's replica identity; NULL for one whose old rows are whole."""
    names = (
        None
        if relation.replica_identity == "f"
        else [column.name for column in relation.columns if column.key]
        for relation in relations
    )
    return pa.array(names, CHANGES_SCHEMA.field("_identity").type)


class _Side:
    """The values of all old or all new tuples, one after another: the cell, row and column number of each.

    `width` is the number of values in each row, if all rows are of one relation and have equally many.
    """

    def __init__(self, rows: ChangeRows, tuples: Tuples, first_column: Numbers) -> None:
        self.count = tuples.count
        self._first_column = first_column
        self._relation = rows.relation
        relation, count = rows.relation, tuples.count
        alike = len(rows) > 0 and bool((relation == relation[0]).all() and (count == count[0]).all())
        self.width = int(count[0]) if alike else None
        self.cell: Numbers
        if self.width is not None:
            self.cell = (tuples.first[:, None] + np.arange(self.width)).ravel()
        else:
            self.cell = tuples.first[self.row] + self._within

    @cached_property
    def row(self) -> Numbers:
        """The row number of each value."""
        return np.repeat(np.arange(len(self.count)), self.count)

    @cached_property
    def _within(self) -> Numbers:
        before = np.cumsum(self.count) - self.count
        within: Numbers = np.arange(len(self.row)) - before[self.row]
        return within

    @cached_property
    def column(self) -> Numbers:
        """The column number of each value."""
        column: Numbers = self._first_column[self._relation][self.row] + self._within
        return column


class _Columns:
    """The columns of all relations, numbered consecutively.

    Args:
        relations: the relations.
        widest: bytes of the longest value that is kept, for each column; None: all values are kept.
    """

    def __init__(self, relations: tuple[Relation, ...], widest: Numbers | None) -> None:
        self._widest = widest
        widths = np.array([len(relation.columns) for relation in relations], np.int64)
        self._first = np.cumsum(widths) - widths
        self._relations = relations
        self._names = pa.array([name for relation in relations for name in relation.names], pa.string())
        self._key = np.array([c.key for relation in relations for c in relation.columns], np.bool_)

    def before(self, rows: ChangeRows) -> pa.MapArray:
        """Return the old tuples as maps; of a key tuple only the key columns."""
        side = _Side(rows, rows.old, self._first)
        keep = rows.cells.kind[side.cell] != UNCHANGED
        if (rows.old_kind == OLD_KEY).any():
            # In a key tuple the columns outside of the key are sent as NULL, without meaning.
            keep &= (rows.old_kind[side.row] != OLD_KEY) | self._key[side.column]
        return self._map(rows, side, keep, rows.old_kind == NO_TUPLE)

    def after(self, rows: ChangeRows) -> pa.MapArray:
        """Return the new tuples as maps; an unchanged value is taken from the old tuple, or left out."""
        side = _Side(rows, rows.new, self._first)
        keep = rows.cells.kind[side.cell] != UNCHANGED
        if not keep.all():
            gaps = np.flatnonzero(~keep & (rows.old_kind[side.row] != NO_TUPLE))
            owner = side.row[gaps]
            old = rows.old.first[owner] + (side.cell[gaps] - rows.new.first[owner])
            kind = rows.cells.kind[old]
            # The old row of a key tuple has NULL in all other columns: no value of theirs is known by it.
            is_known = (kind != UNCHANGED) & (self._key[side.column[gaps]] | (kind != NULL))
            side.cell[gaps[is_known]] = old[is_known]
            keep[gaps[is_known]] = True
        return self._map(rows, side, keep, (rows.op == DELETE) | (rows.op == TRUNCATE))

    def _map(self, rows: ChangeRows, side: _Side, keep: Mask, missing: Mask) -> pa.MapArray:
        if self._widest is not None:
            # The size is known without a look at the value, so a large one is never copied.
            keep = keep & (rows.cells.size[side.cell] <= self._widest[side.column])
        offsets = np.zeros(len(rows) + 1, np.int32)
        if keep.all():
            cell = side.cell
            np.cumsum(side.count, out=offsets[1:])
            names = self._repeated(rows) if side.width else self._names.take(pa.array(side.column))
        else:
            cell = side.cell[keep]
            np.cumsum(np.bincount(side.row[keep], minlength=len(rows)), out=offsets[1:])
            names = self._names.take(pa.array(side.column[keep]))
        values = rows.cells.take(rows.data, cell).cast(pa.string())
        return pa.MapArray.from_arrays(pa.array(offsets), names, values, mask=pa.array(missing))

    def _repeated(self, rows: ChangeRows) -> pa.StringArray:
        """Return the column names of the only relation, once for each row."""
        names = [name.encode() for name in self._relations[int(rows.relation[0])].names]
        ends = np.cumsum([len(name) for name in names], dtype=np.int32)
        offsets = np.zeros(len(rows) * len(names) + 1, np.int32)
        every = np.arange(len(rows), dtype=np.int32) * ends[-1]
        offsets[1:] = (every[:, None] + ends).ravel()
        # The bytes are repeated as they are: a take would look each name up for each value.
        data = b"".join(names) * len(rows)
        return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
