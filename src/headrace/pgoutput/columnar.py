"""Decode many row messages at once, without a Python object for a row or a value.

The rows of one relation are read together, column by column: each step is a few numpy operations over all
rows. The result is where the values lie, not the values: `Cells.take` copies them from the buffer as a
column. Positions are checked once at the end. They only grow, so a row that was read past its message cannot
end where its message ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.pgoutput.batch import SLACK, Bytes, MessageBatch, Numbers, take_values, windows
from headrace.pgoutput.cursor import broken

Letters = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

TEXT, BINARY, NULL, UNCHANGED = b"tbnu"
INSERT, UPDATE, DELETE, TRUNCATE = b"IUDT"
NEW_TUPLE, OLD_KEY, OLD_ROW = b"NKO"
NO_TUPLE = 0


def letter_set(letters: bytes) -> Mask:
    """Return an array of 256 booleans: whether each byte is one of `letters`."""
    is_member = np.zeros(256, np.bool_)
    is_member[list(letters)] = True
    return is_member


_IS_KIND = letter_set(b"tbnu")
_HAS_LENGTH = letter_set(b"tb")
_IS_OLD = letter_set(b"KO")
_IS_ROW = letter_set(b"IUD")
_TUPLE_AT = 5  # after the message's letter and the relation's oid


class Numerals:
    """Reads many big-endian numbers at once, at any addresses of a buffer."""

    def __init__(self, data: Bytes) -> None:
        self._data = data

    def _at(self, positions: Numbers, form: str) -> Numbers:
        return windows(self._data, form)[positions].astype(np.int64)

    def uint16(self, positions: Numbers) -> Numbers:
        """Read two bytes at each position."""
        return self._at(positions, ">u2")

    def uint32(self, positions: Numbers) -> Numbers:
        """Read four bytes at each position."""
        return self._at(positions, ">u4")

    def int64(self, positions: Numbers) -> Numbers:
        """Read eight bytes at each position; positions in the log stay below 2⁶³."""
        return self._at(positions, ">i8")


@dataclass(frozen=True, slots=True)
class Cells:
    """The places of the values of all tuples in the buffer, in its order; arrays are `(values,)`.

    Attributes:
        begin: the address of each value, ascending.
        size: the size of each value (bytes); 0 for a value without bytes.
        kind: TEXT, BINARY, NULL or UNCHANGED.
    """

    begin: Numbers
    size: Numbers
    kind: Letters

    def take(self, data: Bytes, wanted: Numbers) -> pa.BinaryArray:
        """Copy the values at the indices `wanted`; NULL and UNCHANGED become null."""
        kind = self.kind[wanted]
        missing = (kind == NULL) | (kind == UNCHANGED)
        return take_values(data, self.begin, self.size, wanted, missing if missing.any() else None)


@dataclass(frozen=True, slots=True)
class Tuples:
    """The old or the new tuples of rows: where each row's values are among the cells.

    Attributes:
        first: the index of each row's first value, `(rows,)`.
        count: the number of its values, `(rows,)`; 0 where a row has no such tuple.
    """

    first: Numbers
    count: Numbers


@dataclass(frozen=True, slots=True)
class Rows:
    """Decoded inserts, updates and deletes.

    Attributes:
        old_kind: OLD_KEY, OLD_ROW or NO_TUPLE, for each row.
        old: the old tuples.
        new: the new tuples.
        cells: the values of both; in each row the old values stand before the new ones.
    """

    old_kind: Letters
    old: Tuples
    new: Tuples
    cells: Cells


@dataclass(slots=True)
class _Walk:
    """Reads the rows of one relation together, from left to right.

    Attributes:
        data: the buffer.
        numerals: reads numbers from the buffer.
        rows: the rows' indices among all rows, ascending.
        position: up to where each row has been read.
        last: the last position that may be read.
    """

    data: Bytes
    numerals: Numerals
    rows: Numbers
    position: Numbers
    last: int

    def letters(self) -> Letters:
        """Return the next byte of each row."""
        # A length in a broken message may lead anywhere: reads are clamped, and the end is compared once.
        return self.data[np.minimum(self.position, self.last)]

    def skip(self, chosen: Mask | slice, size: int) -> None:
        """Skip `size` bytes in the chosen rows."""
        self.position[chosen] += size

    def tuples(self, chosen: Mask | None, columns: int) -> _Tuples:
        """Read one tuple of each chosen row; None: of all rows."""
        rows = self.rows if chosen is None else self.rows[chosen]
        position = self.position.copy() if chosen is None else self.position[chosen]
        last = self.last
        if len(rows) and (self.numerals.uint16(np.minimum(position, last)) != columns).any():
            raise broken("a row has another number of columns than its table")
        position += 2
        begin = np.empty((columns, len(rows)), np.int64)
        size = np.empty((columns, len(rows)), np.int64)
        kind = np.empty((columns, len(rows)), np.uint8)
        for column in range(columns):
            # A wrong length may point anywhere. Mostly none is wrong, and no clamped copy is made.
            position = position if position.max(initial=0) <= last else np.minimum(position, last)
            kinds = self.data[position]
            position = position + 1
            # The usual column, without a NULL: no masks.
            if (kinds == TEXT).all():
                lengths = self.numerals.uint32(position)
                position += 4
            else:
                valued = _HAS_LENGTH[kinds]
                # A NULL and an unchanged value have no length: what is read there belongs to the next column.
                lengths = np.where(valued, self.numerals.uint32(position), 0)
                position += valued * np.int64(4)
            kind[column], begin[column], size[column] = kinds, position, lengths
            position += lengths
        if not _IS_KIND[kind].all():
            raise broken("unknown value kind")
        if chosen is None:
            self.position = position
        else:
            self.position[chosen] = position
        return _Tuples(rows, begin, size, kind)


@dataclass(frozen=True, slots=True)
class _Tuples:
    """Tuples of one relation; `begin`, `size` and `kind` have shape `(columns, rows)`."""

    rows: Numbers
    begin: Numbers
    size: Numbers
    kind: Letters


@dataclass(frozen=True, slots=True)
class _Decoded:
    """What has been decoded of all rows so far."""

    old_kind: Letters
    olds: list[_Tuples]
    news: list[_Tuples]


def decode_rows(batch: MessageBatch, relation: Numbers, columns: Sequence[int]) -> Rows:
    """Decode messages that are all inserts, updates or deletes.

    Args:
        batch: the messages.
        relation: for each of them, an index into `columns`.
        columns: the number of columns of each relation.

    Raises:
        HeadraceError: PROTOCOL.
    """
    numerals = Numerals(batch.data)
    letters = batch.data[batch.begin]
    if not _IS_ROW[letters].all():
        raise broken("a message is no row")
    decoded = _Decoded(np.zeros(len(batch), np.uint8), [], [])
    for shape, rows in _by_shape(relation):
        walk = _Walk(batch.data, numerals, rows, batch.begin[rows] + _TUPLE_AT, len(batch.data) - SLACK)
        _decode_shape(walk, letters[rows], columns[shape], decoded)
        # The only check of all lengths: positions only grow, so one that was wrong cannot end right.
        if (walk.position != batch.end[rows]).any():
            raise broken("a message does not end where its row ends")
    return _collect(decoded)


def _by_shape(relation: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Yield each relation with the indices of its rows."""
    counts = np.bincount(relation)
    shapes = np.flatnonzero(counts)
    # Stable: rows of one relation keep the order of the log.
    order = np.argsort(relation, kind="stable") if len(shapes) > 1 else np.arange(len(relation))
    ends = np.cumsum(counts[shapes])
    for shape, first, last in zip(shapes, ends - counts[shapes], ends, strict=True):
        yield int(shape), order[first:last]


def _decode_shape(walk: _Walk, letters: Letters, width: int, decoded: _Decoded) -> None:
    kinds = walk.letters()
    has_old, has_new = kinds != NEW_TUPLE, letters != DELETE
    walk.skip(slice(None), 1)
    if has_old.any():
        old_kinds = kinds[has_old]
        if not _IS_OLD[old_kinds].all() or (letters[has_old] == INSERT).any():
            raise broken("unknown row kind")
        decoded.old_kind[walk.rows[has_old]] = old_kinds
        decoded.olds.append(walk.tuples(has_old, width))
        both = has_old & has_new
        if (walk.letters()[both] != NEW_TUPLE).any():
            raise broken("expected a new row")
        walk.skip(both, 1)
    if not (has_old | has_new).all():
        raise broken("a deleted row has no old side")
    if has_new.any():
        decoded.news.append(walk.tuples(None if has_new.all() else has_new, width))


def _collect(decoded: _Decoded) -> Rows:
    """Join the values of all tuples in the order of the rows, old values before new ones."""
    size = len(decoded.old_kind)
    old_count, new_count = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for count, tuples in ((old_count, decoded.olds), (new_count, decoded.news)):
        for part in tuples:
            count[part.rows] = len(part.begin)
    both = old_count + new_count
    first = np.cumsum(both) - both
    old, new = Tuples(first, old_count), Tuples(first + old_count, new_count)
    if len(decoded.olds) + len(decoded.news) == 1:  # they are in order already
        [part] = decoded.olds + decoded.news
        cells = Cells(part.begin.T.ravel(), part.size.T.ravel(), part.kind.T.ravel())
        return Rows(decoded.old_kind, old, new, cells)
    total = int(both.sum())
    begin, length = np.empty(total, np.int64), np.empty(total, np.int64)
    kind = np.empty(total, np.uint8)
    for side, tuples in ((old, decoded.olds), (new, decoded.news)):
        for part in tuples:
            places = (side.first[part.rows][:, None] + np.arange(len(part.begin))).ravel()
            begin[places], length[places] = part.begin.T.ravel(), part.size.T.ravel()
            kind[places] = part.kind.T.ravel()
    return Rows(decoded.old_kind, old, new, Cells(begin, length, kind))
