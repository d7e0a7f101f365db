"""Compare two sides of many rows in little memory, by digests and hashes. Pure.

Rows fall into buckets by a hash of their key; of each bucket the number of rows and the sum of their hashes
are kept. Of the buckets that differ, the hash of each row is. Hashes are of this process alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.mirror.keys import equal_keys, keys_of
from headrace.mirror.python_values import python_rows, python_values

BUCKETS = 1 << 16
MISSING, SURPLUS, DIFFERENT = _KINDS = range(3)
"""The other side lacks the rows of a key, has them alone, or has other ones."""
Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
_BUCKET_SHIFT = np.uint64(64 - 16)
"""The highest bits of a key's hash are its bucket: hashes in order are in the order of their buckets, too."""
_SORTED_AT_ONCE = 1 << 20
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_NOTHING = np.uint64(0x2545F4914F6CDD1D)
_SHIFT = np.uint64(32)
_WHOLE = (pa.types.is_integer, pa.types.is_timestamp, pa.types.is_boolean)
"""Types whose values become whole numbers by one cast."""


@dataclass(frozen=True, slots=True)
class HashedBatch:
    """Some rows, and the hashes of their keys and of all of their values."""

    batch: pa.RecordBatch
    keys: Hashes
    rows: Hashes

    def chosen(self, wanted: Flags) -> tuple[Hashes, Hashes]:
        """Return the hashes of those in the wanted buckets, by ascending hashes of their keys."""
        chosen = np.flatnonzero(wanted[_buckets(self.keys)])
        order = chosen[np.argsort(self.keys[chosen])]
        return self.keys[order], self.rows[order]


def hashed(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[HashedBatch]:
    """Yield rows with their hashes; without columns of a key, the key of a row is all that it shows."""
    for batch in batches:
        rows = hashes(batch, batch.schema.names)
        yield HashedBatch(batch, key_hashes(batch, key) if key else rows, rows)


class RowsDigest:
    """How many rows each bucket has, and the sum of their hashes."""

    def __init__(self, rows: Iterable[HashedBatch]) -> None:
        self.counts = np.zeros(BUCKETS, np.int64)
        self._sums = np.zeros(BUCKETS, np.uint64)
        for part in rows:
            places = _buckets(part.keys)
            self.counts += np.bincount(places, minlength=BUCKETS)
            np.add.at(self._sums, places, part.rows)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.counts.sum())

    def differing(self, other: RowsDigest) -> Flags:
        """Return of each bucket whether the two sides have other rows."""
        differ: Flags = (self.counts != other.counts) | (self._sums != other._sums)
        return differ


@dataclass(frozen=True, slots=True)
class RowDifferences:
    """The keys of which two sides have other rows.

    Attributes:
        keys: the hash of each.
        ways: of each, a number that is another one where the sides differ in another way.
        kinds: of each: `MISSING`, `SURPLUS` or `DIFFERENT`.
    """

    keys: Hashes
    ways: Hashes
    kinds: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.keys)

    def first(self, most: int) -> Hashes:
        """Return the keys of so many of each kind at most."""
        return np.concatenate([self.keys[self.kinds == kind][:most] for kind in _KINDS])

    def lasting(self, before: RowDifferences) -> RowDifferences:
        """Return those that differed in the same way before."""
        _, here, there = np.intersect1d(self.keys, before.keys, assume_unique=True, return_indices=True)
        same = here[self.ways[here] == before.ways[there]]
        return RowDifferences(self.keys[same], self.ways[same], self.kinds[same])


class RowHashes:
    """Hashes of one side's rows in some buckets, which are compared with those of the other side.

    They take 16 bytes a row: the hash of its key, and its own.

    Args:
        rows: all rows of the side.
        wanted: the buckets.
        counts: how many rows each bucket has.
    """

    def __init__(self, rows: Iterable[HashedBatch], wanted: Flags, counts: npt.NDArray[np.int64]) -> None:
        self._wanted = wanted
        counts = np.where(wanted, counts, 0)
        ends = np.cumsum(counts)
        # A place that stays free is in order, too: it has the least hash of its bucket.
        self._keys = np.repeat(np.arange(BUCKETS, dtype=np.uint64) << _BUCKET_SHIFT, counts)
        self._sums = np.zeros(len(self._keys), np.uint64)
        free = ends - counts
        for part in rows:
            keys, own = part.chosen(wanted)
            buckets = _buckets(keys)
            places = free[buckets] + np.arange(len(keys)) - np.searchsorted(buckets, buckets)
            free += np.bincount(buckets, minlength=BUCKETS)
            # A label in a key that was renamed since it was counted brings rows into other buckets.
            is_counted = places < ends[buckets]
            self._keys[places[is_counted]] = keys[is_counted]
            self._sums[places[is_counted]] = own[is_counted]
        self._sort(ends)

    def _sort(self, ends: npt.NDArray[np.int64]) -> None:
        """Sort the hashes, some buckets at a time; the sum of all rows of a key stands at its first place."""
        cuts = ends[np.searchsorted(ends, np.arange(_SORTED_AT_ONCE, len(self._keys), _SORTED_AT_ONCE))]
        for keys, sums in zip(np.split(self._keys, cuts), np.split(self._sums, cuts), strict=True):
            order = np.argsort(keys)
            own = sums[order]
            keys[:], sums[:] = keys[order], 0
            np.add.at(sums, np.searchsorted(keys, keys), own)

    def compare(self, rows: Iterable[HashedBatch]) -> RowDifferences:
        """Take all rows of the other side from these, and return what is left on either; once."""
        is_met = np.zeros(len(self._keys), np.bool_)
        surplus = [np.empty((2, 0), np.uint64)]
        for part in rows:
            keys, own = part.chosen(self._wanted)
            places, is_known = _find(self._keys, keys)
            np.subtract.at(self._sums, places, own[is_known])
            is_met[places] = True
            surplus.append(np.stack([keys[~is_known], own[~is_known]]))
        others, sums = _summed(*np.concatenate(surplus, axis=1))
        left = np.flatnonzero(self._sums)
        kinds = [np.where(is_met[left], DIFFERENT, MISSING), np.full(len(others), SURPLUS)]
        return RowDifferences(
            np.concatenate([self._keys[left], others]),
            np.concatenate([self._sums[left], -sums]),
            np.concatenate(kinds).astype(np.uint8),
        )


class KeyFinder:
    """Finds the keys of rows by their hashes, while the rows are read.

    Args:
        key: the key's columns; none: what a row shows is its key.
        sought: the hashes.

    Attributes:
        found: the key of each.
    """

    def __init__(self, key: Sequence[str], sought: Hashes) -> None:
        self._key = key
        self._sought = np.sort(sought)
        self.found: dict[int, tuple[Any, ...]] = {}

    def watch(self, rows: Iterable[HashedBatch]) -> Iterator[HashedBatch]:
        """Yield rows as they come; take the keys that are sought."""
        for part in rows:
            _, is_sought = _find(self._sought, part.keys)
            batch = part.batch.filter(pa.array(is_sought))
            keys = keys_of(batch, self._key) if self._key else [(repr(row),) for row in python_rows(batch)]
            for code, key in zip(part.keys[is_sought].tolist(), keys, strict=True):
                self.found.setdefault(code, key)
            yield part


def _find(ascending: Hashes, sought: Hashes) -> tuple[npt.NDArray[np.int64], Flags]:
    """Return the first place of each sought hash that is there, and of each whether it is."""
    places = np.searchsorted(ascending, sought)
    is_there = np.searchsorted(ascending, sought, "right") > places
    return places[is_there], is_there


def _summed(keys: Hashes, rows: Hashes) -> tuple[Hashes, Hashes]:
    """Return each key once, and the sum of its rows."""
    keys, places = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(keys), np.uint64)
    np.add.at(sums, places, rows)
    return keys, sums


def _buckets(keys: Hashes) -> npt.NDArray[np.int64]:
    return (keys >> _BUCKET_SHIFT).astype(np.int64)


def key_hashes(batch: pa.RecordBatch, key: Sequence[str]) -> Hashes:
    """Return the hash of each row's key, the same for keys that are equal to the database."""
    return hashes(equal_keys(batch.select(key)), key)


def hashes(batch: pa.RecordBatch, names: Sequence[str]) -> Hashes:
    """Return a hash of the values that each row has in some columns."""
    # The order of columns counts: the same values in two columns swapped are another row.
    found = np.full(len(batch), _NOTHING)
    for name in names:
        found = _mixed(found * _ODD + _column(batch.column(name)))
    return found


def _column(values: pa.Array) -> Hashes:
    found = _mixed(_numbers(values))
    if values.null_count:
        found[values.is_null().to_numpy(zero_copy_only=False)] = _NOTHING
    return found


def _numbers(values: pa.Array) -> Hashes:
    kind = values.type
    if pa.types.is_floating(kind):
        # NaN has many bit patterns, and is one value to PostgreSQL.
        plain = values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        return np.where(np.isnan(plain), np.nan, plain).view(np.uint64)
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif not any(matches(kind) for matches in _WHOLE):
        return _objects(values.cast(pa.string()) if pa.types.is_decimal(kind) else values)
    numbers: Hashes = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    return numbers


def _objects(values: pa.Array) -> Hashes:
    """Return a hash of each text, or of what a nested value shows."""
    if pa.types.is_nested(values.type):
        found = (hash(repr(value)) for value in python_values(values))
    else:
        found = (hash(value) for value in values.to_pylist())
    return np.fromiter(found, np.int64, len(values)).view(np.uint64)


def _mixed(values: Hashes) -> Hashes:
    values = (values ^ (values >> _SHIFT)) * _MIX
    return values ^ (values >> _SHIFT)
