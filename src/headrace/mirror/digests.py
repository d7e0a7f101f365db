"""Compute digests of rows, so that two sides of many rows are compared in little memory. Pure.

Rows fall into buckets by a hash of their key; of each bucket the number of rows and the sum of their hashes
are kept. Hashes are of this process alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.mirror.python_values import python_values

BUCKETS = 1 << 16
_Hashes = npt.NDArray[np.uint64]
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_NOTHING = np.uint64(0x2545F4914F6CDD1D)
_SHIFT = np.uint64(32)
_WHOLE: tuple[tuple[Callable[[pa.DataType], bool], tuple[pa.DataType, ...]], ...] = (
    (pa.types.is_integer, ()),
    (pa.types.is_timestamp, ()),
    (pa.types.is_boolean, (pa.int8(),)),
    (pa.types.is_date32, (pa.int32(),)),
)
"""Types whose values are whole numbers, and by which casts they become such."""


class RowsDigest:
    """How many rows each bucket has, and the sum of their hashes."""

    def __init__(self) -> None:
        self.counts = np.zeros(BUCKETS, np.int64)
        self._sums = np.zeros(BUCKETS, np.uint64)

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> RowsDigest:
        """Return the digest of all rows."""
        digest = cls()
        for batch in batches:
            places = buckets(batch, key)
            digest.counts += np.bincount(places, minlength=BUCKETS)
            np.add.at(digest._sums, places, hashes(batch, batch.schema.names))
        return digest

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.counts.sum())

    def differing(self, other: RowsDigest) -> npt.NDArray[np.bool_]:
        """Return of each bucket whether the two sides have other rows."""
        differ: npt.NDArray[np.bool_] = (self.counts != other.counts) | (self._sums != other._sums)
        return differ


def buckets(batch: pa.RecordBatch, key: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the bucket of each row."""
    return (hashes(batch, key) % np.uint64(BUCKETS)).astype(np.int64)


def hashes(batch: pa.RecordBatch, names: Sequence[str]) -> _Hashes:
    """Return a hash of the values that each row has in some columns."""
    # The order of columns counts: the same values in two columns swapped are another row.
    found = np.full(len(batch), _NOTHING)
    for name in names:
        found = _mixed(found * _ODD + _column(batch.column(name)))
    return found


def _column(values: pa.Array) -> _Hashes:
    hashed = _mixed(_numbers(values))
    return (
        np.where(values.is_null().to_numpy(zero_copy_only=False), _NOTHING, hashed)
        if values.null_count
        else hashed
    )


def _numbers(values: pa.Array) -> _Hashes:
    kind = values.type
    if pa.types.is_floating(kind):
        # NaN has many bit patterns, and is one value to PostgreSQL.
        plain = values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        return _bits(np.where(np.isnan(plain), np.nan, plain))
    for matches, steps in _WHOLE:
        if matches(kind):
            for step in steps:
                values = values.cast(step)
            return _bits(values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
    return _objects(values.cast(pa.string()) if pa.types.is_decimal(kind) else values)


def _bits(values: npt.NDArray[Any]) -> _Hashes:
    return values.view(np.uint64)


def _objects(values: pa.Array) -> _Hashes:
    """Return a hash of each text, or of what a nested value shows."""
    if pa.types.is_nested(values.type):
        found = (hash(repr(value)) for value in python_values(values))
    else:
        found = (hash(value) for value in values.to_pylist())
    return np.fromiter(found, np.int64, len(values)).view(np.uint64)


def _mixed(values: _Hashes) -> _Hashes:
    values = (values ^ (values >> _SHIFT)) * _MIX
    return values ^ (values >> _SHIFT)


def chosen(batch: pa.RecordBatch, key: Sequence[str], wanted: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Return the rows of the wanted buckets."""
    return batch.filter(pa.array(wanted[buckets(batch, key)]))
