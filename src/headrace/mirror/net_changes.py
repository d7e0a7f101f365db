"""Reduce the changes of one table to what they leave of each row. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.mirror.columns import PREFIX, replaced
from headrace.mirror.keys import KeyIndex, equal_keys, keys_of, whole
from headrace.mirror.python_values import arrow_values, python_values

Position = tuple[int, int]
"""The commit record's address (bytes) and the change's number in its transaction."""

DELETED = PREFIX + "deleted"
"""The column that tells a row that ends the one of its key from a row that is written."""
_TYPE, _LSN, _SEQUENCE, _UNCHANGED = (
    PREFIX + name for name in ("change_type", "commit_lsn", "commit_seq", "unchanged")
)

Key = tuple[Any, ...]
Lookup = Callable[[Sequence[Key], Sequence[str]], dict[Key, dict[str, Any]]]
"""Returns, of the rows with these keys, the values of these columns as the lake holds them."""
_Source = tuple[int, str, int | Key]
"""A value that is not known: its row, its column, and the row or the lake's key that has it."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What becomes of a row of the lake that a row with `DELETED` ends.

    Attributes:
        columns: those that it gets from the row that ends it; none: it is removed.
        live: the column that tells which rows can be ended, and what these have there; None: all can be.
        span: the columns with the positions between which a row is valid; new rows come beside those of the
            same key then, and a row that ends where it began, which no commit showed, is removed. None: a
            new row replaces the one of its key.
    """

    columns: tuple[str, ...] = ()
    live: tuple[str, bool] | None = None
    span: tuple[str, str] | None = None

    def is_live(self, rows: pa.RecordBatch) -> pa.Array:
        """Tell which rows can be ended."""
        if self.live is None:
            return pa.repeat(pa.scalar(value=True), len(rows))
        column, value = self.live
        return rows.column(column) if value else pc.invert(rows.column(column))

    def ended(self, rows: pa.RecordBatch, values: Mapping[str, pa.Array | pa.Scalar]) -> pa.RecordBatch:
        """Return what becomes of rows if those that live end.

        Args:
            rows: the lake's.
            values: of `columns`, each one for all rows, or one for each.
        """
        is_live = self.is_live(rows)
        found = {
            name: pc.if_else(is_live, value.cast(rows.schema.field(name).type), rows.column(name))
            for name, value in values.items()
        }
        ended = replaced(rows, found)
        if self.span is None:
            return ended
        return ended.filter(pc.not_equal(*(ended.column(name) for name in self.span)))


REMOVAL = Ending()
"""Rows that end are removed."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """What some changes leave of a table.

    Attributes:
        rows: the table's columns, then `DELETED`. Of a row that ends another, only what that one gets.
        emptied: what a row gets, by column, that a TRUNCATE has ended alone; None: there was no TRUNCATE.
    """

    rows: pa.Table
    emptied: Mapping[str, pa.Scalar] | None

    @property
    def written(self) -> pa.Table:
        """The rows that are written."""
        return self.rows.filter(pc.invert(self.rows.column(DELETED))).drop_columns([DELETED])

    def remaining(
        self, old: Iterable[pa.RecordBatch], key: Sequence[str], ending: Ending
    ) -> Iterator[pa.RecordBatch]:
        """Yield what stays of a table's rows after the TRUNCATE, without those that are replaced."""
        if self.emptied is None or not ending.columns:
            return
        sought = self.rows if ending.span is None else self.rows.filter(self.rows.column(DELETED))
        index = KeyIndex(sought, key)
        is_end = whole(sought.column(DELETED))
        for batch in old:
            at = index.places(batch)
            stays = is_end.take(at).fill_null(True)  # noqa: FBT003 - PyArrow's
            at = at.filter(stays)
            values = {
                name: whole(sought.column(name)).take(at).fill_null(value)
                for name, value in self.emptied.items()
            }
            yield ending.ended(batch.filter(stays), values)


def net_changes(rows: pa.Table, key: Sequence[str]) -> Reduced:
    """Reduce `rows`, at least one, to the newest of each key.

    Args:
        rows: in the schema of a `RowShape` with the prefix `PREFIX`, by ascending position, and complete.
        key: the key's columns.
    """
    rows, emptied = behind_truncate(rows)
    own = [name for name in rows.column_names if not name.startswith(PREFIX)]
    newest = newest_of_keys(rows, key)
    if len(newest) < len(rows):
        rows = rows.take(newest)
    deleted = pc.equal(rows.column(_TYPE), "delete")
    return Reduced(rows.select(own).append_column(DELETED, deleted), {} if emptied else None)


def in_order(rows: pa.Table) -> pa.Table:
    """Return changes by ascending position."""
    order = np.lexsort([rows.column(name).to_numpy() for name in (_SEQUENCE, _LSN)])
    return rows.take(pa.array(order)) if (order[1:] < order[:-1]).any() else rows


def last_position(rows: pa.Table) -> Position:
    """Return the position of the last change, of at least one by ascending position."""
    return rows.column(_LSN)[-1].as_py(), rows.column(_SEQUENCE)[-1].as_py()


def count_lacking(rows: pa.Table) -> int:
    """Return how many changes lack values that the log left out because they did not change."""
    return len(rows) - int(rows.column(_UNCHANGED).null_count)


def first_changes(rows: pa.Table, lacking: int) -> pa.Table:
    """Return the first changes, of which so many, about, lack values; those at one position stay together."""
    counted = np.cumsum(rows.column(_UNCHANGED).is_valid().to_numpy())
    if counted[-1] <= lacking:
        return rows
    places = np.stack([rows.column(name).to_numpy() for name in (_LSN, _SEQUENCE)])
    ends = np.flatnonzero((places[:, 1:] != places[:, :-1]).any(0)) + 1
    last = int(np.searchsorted(counted[ends - 1], lacking, "right")) - 1
    return rows.slice(0, int(ends[max(0, last)]))


def behind_truncate(rows: pa.Table) -> tuple[pa.Table, bool]:
    """Return the changes after the last TRUNCATE, and whether there is one: it leaves no other row."""
    truncations = np.flatnonzero(pc.equal(rows.column(_TYPE), "truncate").to_numpy())
    return (rows.slice(int(truncations[-1]) + 1), True) if len(truncations) else (rows, False)


def newest_of_keys(rows: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return the index of the last row of each key, ascending."""
    numbers = pa.array(np.arange(len(rows)))
    numbered = equal_keys(rows.select(key)).append_column(PREFIX + "row", numbers)
    last = numbered.group_by(list(key), use_threads=False).aggregate([(PREFIX + "row", "max")])
    return pa.array(np.sort(last.column(PREFIX + "row_max").to_numpy()))


def completed(rows: pa.Table, key: Sequence[str], look: Lookup) -> pa.Table:
    """Fill the values that the log left out: from the row's earlier changes here, else from the lake.

    A row that moved to another key has them from the row with the key that it had before, whose `delete`
    stands right before it, at the same position.

    Args:
        rows: by ascending position.
        key: the key's columns.
        look: finds what the lake has.
    """
    if rows.column(_UNCHANGED).null_count == len(rows):
        return rows
    sources = list(_sources(rows, keys_of(rows, key)))
    found = _find_elsewhere(sources, look)
    values = {name: python_values(rows.column(name)) for name in {name for _, name, _ in sources}}
    # Rows come in order, so that a source row is complete before it is used.
    for row, name, origin in sources:
        known = values[name]
        known[row] = known[origin] if isinstance(origin, int) else found[origin][name]
    return replaced(
        rows, {name: arrow_values(column, rows.schema.field(name).type) for name, column in values.items()}
    )


def _find_elsewhere(sources: Iterable[_Source], look: Lookup) -> dict[Key, dict[str, Any]]:
    """Return what the lake has of the rows that are not among the changes."""
    elsewhere = [(name, origin) for _, name, origin in sources if isinstance(origin, tuple)]
    # By `repr`: values of keys need not be comparable with one another.
    missing = sorted({origin for _, origin in elsewhere}, key=repr)
    return look(missing, sorted({name for name, _ in elsewhere})) if missing else {}


def _sources(rows: pa.Table, keys: Sequence[Key]) -> Iterator[_Source]:
    """Yield each value that is not known."""
    kinds = rows.column(_TYPE).to_pylist()
    unchanged = rows.column(_UNCHANGED).to_pylist()
    positions = list(zip(rows.column(_LSN).to_pylist(), rows.column(_SEQUENCE).to_pylist(), strict=True))
    last: dict[Key, int] = {}
    origin_of: dict[Key, Key | int] = {}
    for row, (kind, key) in enumerate(zip(kinds, keys, strict=True)):
        before: int | Key | None = last.get(key)
        # A row that moved to another key stands after the `delete` of its old one, at the same position.
        if kind == "insert" and row and positions[row - 1] == positions[row] and kinds[row - 1] == "delete":
            before = origin_of.get(keys[row - 1], keys[row - 1])
        for name in unchanged[row] or ():
            yield row, name, key if before is None else before
        if kind == "delete":
            origin_of[key] = last.pop(key, key)
        else:
            last[key] = row
