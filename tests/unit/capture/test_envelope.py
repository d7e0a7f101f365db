"""What does a change look like to a program that follows many tables?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.capture.envelope import ENVELOPE_SCHEMA, enveloped, unwrapped
from headrace.capture.rows import SnapshotPlace, emptied, snapshot_changes
from headrace.capture.toast import Key, Reread, completed
from headrace.model.changes import CHANGES_SCHEMA
from headrace.model.names import TableName

Values = dict[str, str | None]

ORDER, PART = TableName("public", "order"), TableName("sales", "part")
KEYS = {ORDER: ("id",), PART: ("a", "b")}


def changes(*rows: tuple[TableName, str, Values | None, Values | None]) -> pa.RecordBatch:
    """From (table, op, before, after) each, numbered from 1."""
    given = [
        {
            "schema": table.schema, "table": table.name, "op": op, "_commit_lsn": 7, "_commit_seq": number,
            "_xid": 9, "_commit_timestamp": 1_000_000,
            "_identity": list(before) if before and op in "ud" else None,
            "before": None if before is None else list(before.items()),
            "after": None if after is None else list(after.items()),
        }
        for number, (table, op, before, after) in enumerate(rows, 1)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(given, schema=CHANGES_SCHEMA)


MIXED = changes(
    (PART, "c", None, {"a": "1", "b": "x", "n": None}),
    (ORDER, "u", None, {"id": "1", "n": "m"}),
    (PART, "u", {"a": "1", "b": "x"}, {"a": "1", "b": "y", "n": None}),
    (ORDER, "d", {"id": "1"}, None),
    (ORDER, "t", None, None),
    (PART, "r", None, {"a": "2", "b": None}),
)


def shown(batch: pa.RecordBatch, name: str) -> list[Any]:
    return [value if value is None else dict(value) for value in batch.column(name).to_pylist()]


def test_each_row_has_its_table_and_its_key_in_the_order_of_the_log() -> None:
    batch = enveloped(MIXED, KEYS, "shop", {})
    assert batch.schema == ENVELOPE_SCHEMA
    assert batch.column("table").to_pylist() == [str(one) for one in (PART, ORDER, PART, ORDER, ORDER, PART)]
    assert shown(batch, "key") == [
        {"a": "1", "b": "x"},
        {"id": "1"},
        {"a": "1", "b": "y"},
        {"id": "1"},
        None,
        {"a": "2", "b": None},
    ]
    source = batch.column("source").to_pylist()
    assert [one["commit_seq"] for one in source] == [1, 2, 3, 4, 5, 6]
    assert {one["database"] for one in source} == {"shop"}
    assert [one["identity"] for one in source] == [None, None, ["a", "b"], ["id"], None, None]
    assert [(one["snapshot"], one["snapshot_attempt"]) for one in source[-2:]] == [(False, None), (True, 3)]


def test_what_takes_an_earlier_attempt_away_stands_before_its_rows() -> None:
    place = SnapshotPlace(100, 2)
    texts = pa.RecordBatch.from_pydict({"id": ["1"]})
    batches = [emptied([ORDER], place), snapshot_changes(ORDER, texts, place)]
    rows = [row for batch in batches for row in enveloped(batch, KEYS, "shop", {}).to_pylist()]
    assert [(row["table"], row["op"]) for row in rows] == [("order", "t"), ("order", "r")]
    assert {(row["source"]["snapshot"], row["source"]["snapshot_attempt"]) for row in rows} == {(True, 2)}
    assert [row["source"]["commit_lsn"] for row in rows] == [99, 99]
    first, second = (row["source"]["commit_seq"] for row in rows)
    assert SnapshotPlace(100, 1).sequence < first < second


def test_a_key_that_the_new_row_does_not_carry_is_the_old_rows() -> None:
    """A large key that did not change is not sent again, but the old key is."""
    batch = enveloped(changes((ORDER, "u", {"id": "long"}, {"n": "m"})), KEYS, "shop", {})
    assert shown(batch, "key") == [{"id": "long"}]


def test_a_table_without_a_key_has_none() -> None:
    assert shown(enveloped(MIXED, {}, "shop", {}), "key") == [None] * 6


def test_a_partition_that_was_emptied_says_of_which_table_it_is() -> None:
    leaf = TableName("public", "order_2024")
    rows = changes((leaf, "t", None, None), (ORDER, "c", None, {"id": "1"}))
    batch = enveloped(rows, KEYS, "shop", {leaf: ORDER})
    assert batch.column("table").to_pylist() == [
        "order_2024",
        '"order"' if str(ORDER) != "order" else "order",
    ]
    assert [one["partition_of"] for one in batch.column("source").to_pylist()] == [str(ORDER), None]


def test_what_was_wrapped_comes_out_again() -> None:
    assert unwrapped(enveloped(MIXED, KEYS, "shop", {})).equals(MIXED)
    part = enveloped(MIXED, KEYS, "shop", {}).slice(2, 3)
    assert unwrapped(part).to_pylist() == MIXED.slice(2, 3).to_pylist()


def test_what_the_log_left_out_is_filled_in() -> None:
    """Only of rows that are found, and only what is missing; drasi's hole 4."""
    reread = Reread(ORDER, {"id": "integer"}, ("id", "n", "large"))
    asked: list[tuple[list[Key], tuple[str, ...]]] = []

    def look(_: Reread, keys: Any, columns: Sequence[str]) -> dict[int, dict[str, str | None]]:
        asked.append((list(keys), tuple(columns)))
        return {0: dict(zip(columns, ("L", "never"), strict=False))}

    given = changes(
        (ORDER, "d", {"id": "1"}, None),
        (ORDER, "c", None, {"id": "2", "n": None}),
        (PART, "u", None, {"a": "1"}),
        (ORDER, "u", None, {"id": "3", "n": "m"}),
        (ORDER, "u", None, {"id": "4", "n": "m", "large": None}),
    )
    found = completed(given, lambda table: reread if table == ORDER else None, look)
    assert asked == [([("2",), ("3",)], ("large",))]
    assert shown(found, "after") == [
        None,
        {"id": "2", "n": None, "large": "L"},
        {"a": "1"},
        {"id": "3", "n": "m"},
        {"id": "4", "n": "m", "large": None},
    ]
