"""Are two sides of many rows compared exactly, in as few bytes a row as promised?"""

from __future__ import annotations

import math
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.mirror import digests
from headrace.mirror.digests import (
    BUCKETS,
    DIFFERENT,
    MISSING,
    SURPLUS,
    HashedBatch,
    KeyFinder,
    RowDifferences,
    RowHashes,
    RowsDigest,
    hashed,
)

SCHEMA = pa.schema([("id", pa.float64()), ("v", pa.string()), ("tags", pa.list_(pa.int32()))])
Row = tuple[float | None, str | None, list[int] | None]
IDS: tuple[float | None, ...] = (None, math.nan, 0.0, -0.0, *map(float, range(1, 40)))
SIDES = {(True, False): MISSING, (False, True): SURPLUS, (True, True): DIFFERENT}


@pytest.mark.parametrize("key", [("id",), ("id", "v"), ()])
@pytest.mark.parametrize("seed", range(10))
def test_differences_are_those_of_the_rows_themselves(
    seed: int, key: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_SORTED_AT_ONCE", 8)
    rng = random.Random(seed)
    ours = [draw(rng) for _ in range(rng.randrange(80))]
    theirs = [row if rng.random() < 0.8 else draw(rng) for row in ours if rng.random() < 0.9]
    theirs += [draw(rng) for _ in range(rng.randrange(4))]
    rng.shuffle(theirs)
    found = compared(batches(ours), batches(theirs), key)
    keys = KeyFinder(key, found.keys)
    assert sum(len(part.batch) for part in keys.watch(hashed(batches(ours + theirs), key))) == len(
        ours + theirs
    )
    named = {keys.found[code]: kind for code, kind in zip(found.keys.tolist(), found.kinds, strict=True)}
    assert shown(named) == shown(expected(ours, theirs, key))


def draw(rng: random.Random) -> Row:
    return rng.choice(IDS), rng.choice((None, "", "a", "b")), rng.choice((None, [], [1, 2]))


def expected(ours: Sequence[Row], theirs: Sequence[Row], key: tuple[str, ...]) -> dict[Any, int]:
    """Compare two sides as sets of what the rows of each key show."""
    rows = [Counter((key_of(row, key), repr(row)) for row in side) for side in (ours, theirs)]
    here, there = ({of for of, _ in side} for side in rows)
    differing = {of for of, _ in (rows[0] - rows[1]) + (rows[1] - rows[0])}
    return {of: SIDES[of in here, of in there] for of in differing}


def key_of(row: Row, key: tuple[str, ...]) -> Any:
    values = dict(zip(SCHEMA.names, row, strict=True))
    return tuple(values[name] for name in key) if key else (repr(values),)


def shown(found: dict[Any, int]) -> dict[str, int]:
    """Show keys as PostgreSQL tells them apart: -0 is 0, unless the whole row is the key."""
    return {
        repr(tuple(part + 0 if isinstance(part, float) else part for part in of)): kind
        for of, kind in found.items()
    }


A, B, C, D = ((1.0, value, None) for value in "abcd")


@pytest.mark.parametrize(
    ("before", "now", "lasts"),
    [
        ((A, B), (A, B), True),
        ((A, None), (A, None), True),
        ((A, B), (A, C), False),
        ((A, B), (D, B), False),
        ((A, B), (B, A), False),
        ((A, B), (A, None), False),
        ((A, None), (None, A), False),
        ((A, B), (A, A), False),
    ],
)
def test_a_difference_lasts_while_both_sides_differ_in_the_same_way(
    before: tuple[Row | None, Row | None], now: tuple[Row | None, Row | None], lasts: bool
) -> None:
    assert len(differing(*now).lasting(differing(*before))) == lasts


def differing(ours: Row | None, theirs: Row | None) -> RowDifferences:
    here, there = (batches([] if row is None else [row]) for row in (ours, theirs))
    return compared(here, there, ["id"])


def test_rows_take_sixteen_bytes_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_SORTED_AT_ONCE", 1 << 16)
    many, step = 1 << 20, 1 << 14

    def rows() -> Iterator[HashedBatch]:
        parts = (np.arange(first, first + step) for first in range(0, many, step))
        return hashed((pa.RecordBatch.from_arrays([ids, ids], ["id", "v"]) for ids in parts), ["id"])

    counts = RowsDigest(rows()).counts
    tracemalloc.start()
    try:
        assert len(RowHashes(rows(), np.ones(BUCKETS, np.bool_), counts).compare(rows())) == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 16 * many < peak < 22 * many


def test_rows_that_were_counted_otherwise_do_no_harm() -> None:
    """As where a label in a key is renamed between two readings of the same rows."""
    before, since = [(float(n), "v", None) for n in range(50)], [(float(n), "v", None) for n in range(9, 70)]
    counts = RowsDigest(hashed(batches(before), ["id"])).counts
    one = RowHashes(hashed(batches(since), ["id"]), np.ones(BUCKETS, np.bool_), counts)
    found = one.compare(hashed(batches(since), ["id"]))
    assert {*found.kinds.tolist()} <= {SURPLUS}
    assert len(found) <= 20


def batches(rows: Sequence[Row]) -> list[pa.RecordBatch]:
    """Several, one of them empty."""
    parts = [rows[at : at + 7] for at in range(0, len(rows) + 1, 7)]
    return [
        pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in part], SCHEMA)
        for part in [*parts, []]
    ]


def compared(
    ours: Sequence[pa.RecordBatch], theirs: Sequence[pa.RecordBatch], key: Sequence[str]
) -> RowDifferences:
    digest = RowsDigest(hashed(ours, key))
    wanted = digest.differing(RowsDigest(hashed(theirs, key)))
    return RowHashes(hashed(ours, key), wanted, digest.counts).compare(hashed(theirs, key))
