"""Decode rows of a binary COPY to Arrow columns, without a Python object for a row or a value.

A row is the number of its fields, and for each its length (-1: NULL) and its bytes. As in `columnar`, all
rows are walked together, field by field, and positions are checked once at the end.

Source: PostgreSQL documentation, "COPY", binary format; the send functions of its types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import HeadraceError, Kind
from headrace.model.value_type import ValueType
from headrace.pgoutput.batch import SLACK, Bytes, MessageBatch, Numbers, take_values, windows
from headrace.pgoutput.cursor import broken

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""What stands before the first row: the signature, no flags, no extension."""
TRAILER = b"\xff\xff"
"""What stands in the place of a row after the last one."""

DAYS, MICROSECONDS = 10_957, 946_684_800_000_000
"""From 1970, where Arrow counts from, to 2000, where PostgreSQL does."""
NOT_A_NUMBER = np.iinfo(np.int64).min
"""The digits of a NaN in a decimal column; no value of 18 digits has them."""

NUMERIC = 1700
_OID = 26
_MAX_DIGITS = 18  # of a decimal whose digits fit into 64 bits
_TYPES: dict[int, tuple[pa.DataType, str]] = {
    16: (pa.bool_(), "u1"),
    20: (pa.int64(), ">i8"),
    21: (pa.int16(), ">i2"),
    23: (pa.int32(), ">i4"),
    _OID: (pa.int64(), ">u4"),
    700: (pa.float32(), ">u4"),
    701: (pa.float64(), ">u8"),
    1082: (pa.date32(), ">i4"),
    1114: (pa.timestamp("us"), ">i8"),
    1184: (pa.timestamp("us", "UTC"), ">i8"),
    17: (pa.binary(), ""),
    **dict.fromkeys((19, 25, 114, 1042, 1043), (pa.string(), "")),  # name, text, json, bpchar, varchar
}
_SHIFTS = {1082: DAYS, 1114: MICROSECONDS, 1184: MICROSECONDS}


@dataclass(frozen=True, slots=True)
class CopiedColumn:
    """One column of a COPY.

    Attributes:
        name: its name.
        oid: its type, one of `is_decoded`.
        digits: of a numeric, see `decimal_digits`.
    """

    name: str
    oid: int
    digits: tuple[int, int] | None = None

    @property
    def arrow(self) -> pa.DataType:
        """Return what its values become."""
        return _TYPES[self.oid][0] if self.digits is None else pa.decimal128(*self.digits)


def decimal_digits(kind: ValueType) -> tuple[int, int] | None:
    """Return precision and scale of the decimals that a type's values become; None where they are texts."""
    return (kind.arrow.precision, kind.arrow.scale) if pa.types.is_decimal(kind.arrow) else None


def is_decoded(oid: int, digits: tuple[int, int] | None = None) -> bool:
    """Return whether columns of this type can be decoded; of numeric, those that 64 bits hold."""
    if oid == NUMERIC:
        return digits is not None and digits[0] + -digits[1] % _GROUP <= _MAX_DIGITS  # read in whole groups
    return oid in _TYPES


def is_text(oid: int) -> bool:
    """Return whether columns of this type are decoded to texts."""
    return oid in _TYPES and pa.types.is_string(_TYPES[oid][0])


def decode_copied(batch: MessageBatch, columns: Sequence[CopiedColumn]) -> pa.RecordBatch:
    """Decode rows to a batch of `columns`.

    Dates and timestamps are PostgreSQL's integers, shifted to 1970 with wrap-around: the infinities become
    the ends of the integers, shifted. A NaN among decimals becomes NOT_A_NUMBER.

    Args:
        batch: a message for each row, without header and trailer.
        columns: their columns.

    Raises:
        HeadraceError: PROTOCOL where the bytes are no such rows; VALUE where a text is no UTF-8.
    """
    if (windows(batch.data, ">u2")[batch.begin] != len(columns)).any():
        raise _broken("a row has another number of fields than columns were asked for")
    found = _find_fields(batch, len(columns))
    arrays = [_decode(batch.data, column, fields) for column, fields in zip(columns, found, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of one column.

    Attributes:
        begin, size: where each lies (bytes), `(rows,)`.
        missing: which are NULL; None: none is.
    """

    begin: Numbers
    size: Numbers
    missing: npt.NDArray[np.bool_] | None


def _find_fields(batch: MessageBatch, columns: int) -> list[_Fields]:
    """Return where the fields of each column lie, all of them inside of their rows."""
    position, last = batch.begin + 2, len(batch.data) - SLACK
    lengths_at = windows(batch.data, ">i4")
    found = []
    for _ in range(columns):
        if position.max(initial=0) > last:
            position = np.minimum(position, last)  # it cannot end where its message ends any more
        size = lengths_at[position].astype(np.int64)
        position = position + 4
        missing = None
        if size.min(initial=0) < 0:
            missing = size < 0
            size[missing] = 0
        found.append(_Fields(position, size, missing))
        position = position + size
    if (position != batch.end).any():
        raise _broken("a row does not end where its message ends")
    return found


def _decode(data: Bytes, column: CopiedColumn, fields: _Fields) -> pa.Array:
    if column.digits is not None:
        return _decimals(data, column, *column.digits, fields)
    arrow, form = _TYPES[column.oid]
    if not form:
        return _bytes(data, column, fields)
    stored = np.dtype(form)
    _check(fields, fields.size == stored.itemsize, column)
    values = windows(data, form)[fields.begin].astype(stored.newbyteorder("="))
    if arrow == pa.bool_():
        return pa.array(values != 0, arrow, mask=fields.missing)
    if column.oid == _OID:
        values = values.astype(np.int64)
    # The infinities wrap around, as `decode_copied` says.
    values += values.dtype.type(_SHIFTS.get(column.oid, 0))
    return _numbers(arrow, values, fields.missing)


def _bytes(data: Bytes, column: CopiedColumn, fields: _Fields) -> pa.Array:
    """Copy the fields of a text or bytea column."""
    values = take_values(data, fields.begin, fields.size, np.arange(len(fields.begin)), fields.missing)
    if column.arrow == pa.binary():
        return values
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        problem = f"a text in the column {column.name} is not UTF-8"
        raise HeadraceError(Kind.VALUE, problem, "Correct it in the database.") from None


_NEGATIVE, _SIGNS = 0x4000, (0, 0x4000)
_GROUP, _HEAD = 4, 8  # decimal digits of a group; bytes before the first one
_POWERS = (10**_GROUP) ** np.arange(_MAX_DIGITS // _GROUP + 1, dtype=np.int64)


def _decimals(data: Bytes, column: CopiedColumn, precision: int, scale: int, fields: _Fields) -> pa.Array:
    """Decode numerics: groups of four decimal digits, the first of which counts 10⁴ to the power `weight`."""
    words = windows(data, ">u2")
    groups = words[fields.begin].astype(np.int64)
    if fields.missing is not None:
        groups[fields.missing] = 0
    _check(fields, fields.size == _HEAD + 2 * groups, column)
    whole_scale = -(-scale // _GROUP)
    place = words[fields.begin + 2].astype(np.int16) + np.int64(whole_scale)  # of the first group
    digits = np.zeros(len(groups), np.int64)
    for group in range(int(groups.max(initial=0))):
        has = group < groups
        value = words[np.where(has, fields.begin + (_HEAD + 2 * group), 0)] * has.astype(np.int64)
        digits += value * _POWERS[np.clip(place - group, 0, len(_POWERS) - 1)]
    # Groups have four digits, and the scale need not be a multiple: the digits beyond it are zeros.
    digits //= 10 ** (_GROUP * whole_scale - scale)
    if digits.max(initial=0) >= 10**precision or digits.min(initial=0) < 0:
        raise _broken(f"a number in the column {column.name} has more digits than its type")
    sign = words[fields.begin + 4]
    if fields.missing is not None:
        sign[fields.missing] = 0
    np.negative(digits, out=digits, where=sign == _NEGATIVE)
    digits[~np.isin(sign, _SIGNS)] = NOT_A_NUMBER
    both = np.empty((len(digits), 2), np.int64)
    # Arrow's decimals have 128 bits, the lower half first; the shift fills the upper one with the sign.
    both[:, 0], both[:, 1] = digits, digits >> 63
    return _numbers(column.arrow, both, fields.missing)


def _numbers(arrow: pa.DataType, values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return fixed-width values as an Arrow array over the same memory."""
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(arrow, len(values), [valid, pa.py_buffer(values)])


def _check(fields: _Fields, fits: npt.NDArray[np.bool_], column: CopiedColumn) -> None:
    if fields.missing is not None:
        fits = fits | fields.missing
    if not fits.all():
        raise _broken(f"a field of the column {column.name} has another size than its type")


def _broken(what: str) -> HeadraceError:
    return broken(what, "the rows of the database cannot be read")
