"""Does each row stay as a commit last showed it, with the time at which it was deleted?"""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.mirror.columns import PREFIX
from headrace.mirror.modes import LoadMoment, SoftDeleteMode
from headrace.mirror.net_changes import DELETED, in_order
from headrace.mirror.versions import DELETED_AT, DELETION, DELETION_FIELDS, IS_DELETED, row_deletions

_SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("v", pa.string()),
        (PREFIX + "change_type", pa.string()),
        (PREFIX + "commit_lsn", pa.int64()),
        (PREFIX + "commit_seq", pa.int64()),
        (PREFIX + "commit_timestamp", pa.timestamp("us", tz="UTC")),
        (PREFIX + "unchanged", pa.list_(pa.string())),
    ]
)
State = dict[int, tuple[str | None, dt.datetime | None]]
"""Of each key what its row holds, and when it was deleted."""


def time(lsn: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=lsn)


def test_rows_are_as_the_last_commit_that_had_them_however_changes_are_cut_into_batches() -> None:
    for seed in range(150):
        draw = random.Random(seed)
        expected: State = {}
        lake: State = {}
        batch: list[dict[str, Any]] = []
        for lsn in range(1, 12):
            batch += transaction(draw, lsn, expected)
            if batch and (draw.random() < 0.4 or lsn == 11):
                lake = merged(lake, batch)
                batch = []
        assert lake == expected, seed


def test_rows_that_a_load_does_not_find_are_deleted_and_those_that_were_stay_so() -> None:
    schema = pa.schema([("id", pa.int32()), *DELETION_FIELDS])
    old = [
        {"id": 1, IS_DELETED: False, DELETED_AT: None},
        {"id": 2, IS_DELETED: False, DELETED_AT: None},
        {"id": 3, IS_DELETED: True, DELETED_AT: time(1)},
        {"id": 4, IS_DELETED: True, DELETED_AT: time(1)},
    ]
    keys = [pa.RecordBatch.from_pydict({"id": pa.array([1, 4], pa.int32())})]
    rows = [pa.RecordBatch.from_pylist(old, schema)]
    gone = SoftDeleteMode().kept(rows, LoadMoment(9, time(9)), ["id"], keys)
    assert [tuple(row.values()) for batch in gone for row in batch.to_pylist()] == [
        (2, True, time(9)),
        (3, True, time(1)),
    ]
    assert sum(len(batch) for batch in SoftDeleteMode().kept(rows, LoadMoment(9, time(9)), ["id"], [])) == 4
    assert list(SoftDeleteMode().kept(rows, LoadMoment(9, time(9)), [], keys)) == []


def test_keys_that_are_equal_to_the_database_are_equal_to_a_load() -> None:
    schema = pa.schema([("id", pa.float64()), *DELETION_FIELDS])
    old = pa.RecordBatch.from_pylist([{"id": 0.0, IS_DELETED: False}], schema)
    loaded = pa.RecordBatch.from_pydict({"id": [-0.0]})
    [kept] = SoftDeleteMode().kept([old], LoadMoment(9, time(9)), ["id"], [loaded])
    assert kept.to_pylist() == []


def transaction(draw: random.Random, lsn: int, rows: State) -> list[dict[str, Any]]:
    """The changes of a transaction, which it also makes of `rows`."""
    live = {key: value for key, (value, end) in rows.items() if end is None}
    before = dict(live)
    changes = []
    for sequence in range(draw.randint(1, 5)):
        key = draw.randint(1, 4)
        kind = (
            "truncate"
            if draw.random() < 0.05
            else "delete"
            if key in live and draw.random() < 0.5
            else "write"
        )
        value = f"{lsn}-{sequence}"
        change = {"id": key, "v": value, "kind": kind}
        if kind == "truncate":
            live.clear()
            change |= {"id": None, "v": None}
        elif kind == "delete":
            del live[key]
            change |= {"v": None}
        else:
            change["kind"] = "update_postimage" if key in live else "insert"
            live[key] = value
        changes.append(
            dict(
                zip(
                    _SCHEMA.names,
                    (change["id"], change["v"], change["kind"], lsn, sequence, time(lsn), None),
                    strict=True,
                )
            )
        )
    for key in before.keys() - live.keys():
        rows[key] = before[key], time(lsn)
    rows |= {key: (value, None) for key, value in live.items()}
    return changes


def merged(lake: State, changes: list[dict[str, Any]]) -> State:
    """What a lake's table is behind a batch of changes, in any order."""
    given = pa.Table.from_pylist(changes, _SCHEMA)
    given = given.take(pa.array(np.random.default_rng(1).permutation(len(given))))
    found = row_deletions(in_order(given), ["id"])
    schema = pa.schema([*_SCHEMA][:2] + list(DELETION_FIELDS))
    old = [
        {"id": key, "v": value, IS_DELETED: end is not None, DELETED_AT: end}
        for key, (value, end) in lake.items()
    ]
    result = dict(lake)
    if found.emptied is not None:
        kept = found.remaining([pa.RecordBatch.from_pylist(old, schema)], ["id"], DELETION)
        result = {row["id"]: (row["v"], row[DELETED_AT]) for batch in kept for row in batch.to_pylist()}
    for row in found.rows.to_pylist():
        key = row["id"]
        if not row[DELETED]:
            assert row[IS_DELETED] == (row[DELETED_AT] is not None)
            result[key] = row["v"], row[DELETED_AT]
        elif key in result and result[key][1] is None:
            result[key] = result[key][0], row[DELETED_AT]
    return result
