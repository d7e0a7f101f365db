"""What do many messages say at once? The vectorised decoder: no Python object for a row or a value.

It walks the rows of one relation shape together, column by column: each step is a handful of numpy
operations over all rows. What it yields is where the values lie, not the values: whoever wants columns
takes them from the buffer (`Cells.take`) in one copy. Every position is checked once at the end: it only
ever grows, so a row that read past its message cannot end where its message ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.pgoutput.batch import SLACK, Bytes, MessageBatch, Numbers
from headrace.pgoutput.cursor import broken
from headrace.pgoutput.decoder import decode_message

Letters = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

TEXT, BINARY, NULL, UNCHANGED = b"tbnu"
INSERT, UPDATE, DELETE, TRUNCATE = b"IUDT"
NEW_TUPLE, OLD_KEY, OLD_ROW = b"NKO"
NO_TUPLE = 0


def letter_set(letters: bytes) -> Mask:
    """For each byte, whether it is one of `letters`: an array of 256 to look many up at once."""
    found = np.zeros(256, np.bool_)
    found[list(letters)] = True
    return found


_IS_KIND = letter_set(b"tbnu")
_HAS_LENGTH = letter_set(b"tb")
_IS_OLD = letter_set(b"KO")
_IS_ROW = letter_set(b"IUD")
_TUPLE_AT = 5  # behind the message's letter and the relation's oid


class Numerals:
    """Big-endian numbers at any address of a buffer, many at a time."""

    def __init__(self, data: Bytes) -> None:
        self._data = data

    def _at(self, positions: Numbers, form: str) -> Numbers:
        size = np.dtype(form).itemsize
        every = np.ndarray((max(len(self._data) - size + 1, 0),), form, self._data, strides=(1,))
        return every[positions].astype(np.int64)

    def uint16(self, positions: Numbers) -> Numbers:
        """Two bytes each."""
        return self._at(positions, ">u2")

    def uint32(self, positions: Numbers) -> Numbers:
        """Four bytes each."""
        return self._at(positions, ">u4")

    def int64(self, positions: Numbers) -> Numbers:
        """Eight bytes each; addresses of the log stay below 2⁶³."""
        return self._at(positions, ">i8")


@dataclass(frozen=True, slots=True)
class Cells:
    """Where the values of tuples lie: those of all rows behind each other, in the order of the buffer.

    Attributes:
        begin: the address of each value in the buffer, ascending.
        size: bytes of each; 0 where it has none.
        kind: TEXT, BINARY, NULL or UNCHANGED.
    """

    begin: Numbers
    size: Numbers
    kind: Letters

    def take(self, data: Bytes, wanted: Numbers) -> pa.BinaryArray:
        """The values at the indices `wanted`, copied; those without bytes are null.

        The addresses ascend, so one Arrow array can lie over the whole buffer without a copy: its even
        elements are the values, its odd ones what lies between them.
        """
        offsets = np.empty(2 * len(self.begin) + 1, np.int32)
        offsets[0:-1:2] = self.begin
        offsets[1::2] = self.begin + self.size
        offsets[-1] = offsets[-2] if len(offsets) > 1 else 0
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        every = pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)
        kind = self.kind[wanted]
        missing = (kind == NULL) | (kind == UNCHANGED)
        return every.take(pa.array(wanted * 2, mask=missing if missing.any() else None))


@dataclass(frozen=True, slots=True)
class Tuples:
    """One side of rows: where each row's values begin among the cells, and how many they are.

    Attributes:
        first: `(rows,)`.
        count: `(rows,)`; 0 where a row has no such side.
    """

    first: Numbers
    count: Numbers


@dataclass(frozen=True, slots=True)
class Rows:
    """Inserts, updates and deletes, decoded.

    Attributes:
        old_kind: OLD_KEY, OLD_ROW or NO_TUPLE, for each row.
        old: the old tuples.
        new: the new tuples.
        cells: the values of both; in each row the old ones stand before the new ones.
    """

    old_kind: Letters
    old: Tuples
    new: Tuples
    cells: Cells


@dataclass(slots=True)
class _Walk:
    """The rows of one relation shape, read from left to right.

    Attributes:
        rows: their indices among all rows, ascending.
        position: how far each has been read.
    """

    data: Bytes
    numerals: Numerals
    rows: Numbers
    position: Numbers
    last: int

    def letters(self) -> Letters:
        """One byte of each row."""
        return self.data[np.minimum(self.position, self.last)]

    def skip(self, chosen: Mask | slice, size: int) -> None:
        """Go `size` bytes on in the chosen rows."""
        self.position[chosen] += size

    def tuples(self, chosen: Mask | None, columns: int) -> _Tuples:
        """One tuple of each chosen row (all where None)."""
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
            here = position if position.max(initial=0) <= last else np.minimum(position, last)
            kinds = self.data[here]
            position = here + 1
            if (kinds == TEXT).all():
                lengths = self.numerals.uint32(position)
                position += 4
            else:
                valued = _HAS_LENGTH[kinds]
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
    """Tuples of the same shape; matrices of (columns, rows)."""

    rows: Numbers
    begin: Numbers
    size: Numbers
    kind: Letters


@dataclass(frozen=True, slots=True)
class _Found:
    """What has been decoded of all rows so far."""

    old_kind: Letters
    olds: list[_Tuples]
    news: list[_Tuples]


def decode_rows(batch: MessageBatch, relation: Numbers, columns: Sequence[int]) -> Rows:
    """Decode messages that are all inserts, updates or deletes.

    Args:
        batch: the messages.
        relation: for each of them, an index into `columns`.
        columns: how many columns each relation has.

    Raises:
        HeadraceError: PROTOCOL, as the plain decoder would (`decode_message`).
    """
    try:
        return _decode(batch, relation, columns)
    except HeadraceError:
        for index in range(len(batch)):
            decode_message(batch.payload(index))  # the plain decoder says it better
        raise


def _decode(batch: MessageBatch, relation: Numbers, columns: Sequence[int]) -> Rows:
    numerals = Numerals(batch.data)
    letters = batch.data[batch.begin]
    if not _IS_ROW[letters].all():
        raise broken("a message is no row")
    found = _Found(np.zeros(len(batch), np.uint8), [], [])
    for shape, rows in _by_shape(relation):
        walk = _Walk(batch.data, numerals, rows, batch.begin[rows] + _TUPLE_AT, len(batch.data) - SLACK)
        _decode_shape(walk, letters[rows], columns[shape], found)
        if (walk.position != batch.end[rows]).any():
            raise broken("a message does not end where its row ends")
    return _collect(found)


def _by_shape(relation: Numbers) -> Iterator[tuple[int, Numbers]]:
    """The rows of each relation."""
    counts = np.bincount(relation)
    shapes = np.flatnonzero(counts)
    order = np.argsort(relation, kind="stable") if len(shapes) > 1 else np.arange(len(relation))
    behind = np.cumsum(counts[shapes])
    for shape, first, last in zip(shapes, behind - counts[shapes], behind, strict=True):
        yield int(shape), order[first:last]


def _decode_shape(walk: _Walk, letters: Letters, width: int, found: _Found) -> None:
    kinds = walk.letters()
    has_old, has_new = kinds != NEW_TUPLE, letters != DELETE
    walk.skip(slice(None), 1)
    if has_old.any():
        old_kinds = kinds[has_old]
        if not _IS_OLD[old_kinds].all() or (letters[has_old] == INSERT).any():
            raise broken("unknown row kind")
        found.old_kind[walk.rows[has_old]] = old_kinds
        found.olds.append(walk.tuples(has_old, width))
        both = has_old & has_new
        if (walk.letters()[both] != NEW_TUPLE).any():
            raise broken("expected a new row")
        walk.skip(both, 1)
    if not (has_old | has_new).all():
        raise broken("a deleted row has no old side")
    if has_new.any():
        found.news.append(walk.tuples(None if has_new.all() else has_new, width))


def _collect(found: _Found) -> Rows:
    """All tuples' values behind each other, in the order of the rows, the old ones before the new ones."""
    size = len(found.old_kind)
    old_count, new_count = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for count, tuples in ((old_count, found.olds), (new_count, found.news)):
        for some in tuples:
            count[some.rows] = len(some.begin)
    both = old_count + new_count
    first = np.cumsum(both) - both
    old, new = Tuples(first, old_count), Tuples(first + old_count, new_count)
    if len(found.olds) + len(found.news) == 1:  # then they lie in order already
        [some] = found.olds + found.news
        cells = Cells(some.begin.T.ravel(), some.size.T.ravel(), some.kind.T.ravel())
        return Rows(found.old_kind, old, new, cells)
    total = int(both.sum())
    begin, length = np.empty(total, np.int64), np.empty(total, np.int64)
    kind = np.empty(total, np.uint8)
    for side, tuples in ((old, found.olds), (new, found.news)):
        for some in tuples:
            places = (side.first[some.rows][:, None] + np.arange(len(some.begin))).ravel()
            begin[places], length[places] = some.begin.T.ravel(), some.size.T.ravel()
            kind[places] = some.kind.T.ravel()
    return Rows(found.old_kind, old, new, Cells(begin, length, kind))
