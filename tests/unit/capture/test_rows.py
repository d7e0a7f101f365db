"""What do the changes of one table look like as its rows?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from headrace.capture.rows import RowShape
from headrace.capture.toast import Key, Reread, completed
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA
from headrace.model.names import TableName
from headrace.model.value_type import Attribute, DatabaseType, resolve

_TYPES = {
    23: DatabaseType(23, "pg_catalog", "int4", "base"),
    25: DatabaseType(25, "pg_catalog", "text", "base"),
}
_INT, _TEXT = (resolve(Attribute("", oid), _TYPES) for oid in _TYPES)
_ITEM = TableName("public", "item")
Side = Mapping[str, str | None] | None


def shape(**given: Any) -> RowShape:
    return RowShape(_ITEM, {"id": _INT, "name": _TEXT, "body": _TEXT}, ("id",), **given)


def changes(*rows: tuple[str, Side, Side]) -> pa.RecordBatch:
    """From (op, before, after) each, numbered from 1."""
    given = [
        {
            "schema": "public", "table": "item", "op": op, "_commit_lsn": 7, "_commit_seq": number, "_xid": 9,
            "before": None if before is None else list(before.items()),
            "after": None if after is None else list(after.items()),
        }
        for number, (op, before, after) in enumerate(rows, 1)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(given, schema=CHANGES_SCHEMA)


def found(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    names = ["_change_type", "_commit_seq", "id", "name", "body", "_unchanged"]
    return [tuple(row[name] for name in names) for row in batch.to_pylist()]


ROW = {"id": "1", "name": "a", "body": "b"}
KEY = {"id": "1"}
REREAD = Reread(_ITEM, {"id": "integer"}, ("id", "name", "body"))


def test_the_kinds_of_change() -> None:
    batch = shape().rows(
        changes(("c", None, ROW), ("u", None, {**ROW, "name": None}), ("d", KEY, None), ("t", None, None))
    )
    assert batch.schema == shape().schema
    assert found(batch) == [
        ("insert", 1, 1, "a", "b", None),
        ("update_postimage", 2, 1, None, "b", None),
        ("delete", 3, 1, None, None, None),
        ("truncate", 4, None, None, None, None),
    ]


@pytest.mark.parametrize("pre_images", [False, True])
def test_a_key_that_changes_is_a_delete_and_an_insert(pre_images: bool) -> None:
    batch = shape(pre_images=pre_images).rows(changes(("u", KEY, {**ROW, "id": "2"}), ("u", ROW, ROW)))
    preimage = [("update_preimage", 2, 1, "a", "b", None)] if pre_images else []
    assert found(batch) == [
        ("delete", 1, 1, None, None, None),
        ("insert", 1, 2, "a", "b", None),
        *preimage,
        ("update_postimage", 2, 1, "a", "b", None),
    ]


def test_a_key_that_is_left_out_still_tells_which_row_moved() -> None:
    one = RowShape(_ITEM, {"name": _TEXT}, ("id",), left_out=frozenset({"id", "body"}))
    batch = one.rows(changes(("u", KEY, {**ROW, "id": "2"}), ("u", None, {"id": "1"}), ("d", KEY, None)))
    assert batch.select(["_change_type", "name", "_unchanged"]).to_pylist() == [
        {"_change_type": "delete", "name": None, "_unchanged": None},
        {"_change_type": "insert", "name": "a", "_unchanged": None},
        {"_change_type": "update_postimage", "name": None, "_unchanged": ["name"]},
        {"_change_type": "delete", "name": None, "_unchanged": None},
    ]


def test_what_the_log_left_out_is_looked_up_by_key_in_one_go() -> None:
    asked: list[tuple[Sequence[Key], tuple[str, ...]]] = []

    def look(_: Reread, keys: Sequence[Key], columns: Sequence[str]) -> dict[int, dict[str, str | None]]:
        asked.append((keys, tuple(columns)))
        return {0: {"name": None, "body": "found"}, 2: {"name": "c", "body": "too"}}

    batch = changes(
        ("u", None, {"id": "1", "name": "a"}), ("u", None, {"id": "2"}), ("u", None, ROW),
        ("c", None, ROW), ("u", KEY, {"id": "3"}), ("c", None, {"id": "4", "name": "d"}),
    )  # fmt: skip
    assert found(shape().rows(completed(batch, lambda _: REREAD, look))) == [
        ("update_postimage", 1, 1, "a", "found", None),
        ("update_postimage", 2, 2, None, None, ["name", "body"]),
        ("update_postimage", 3, 1, "a", "b", None),
        ("insert", 4, 1, "a", "b", None),
        ("delete", 5, 1, None, None, None),
        ("insert", 5, 3, "c", "too", None),
        ("insert", 6, 4, "d", None, ["body"]),
    ]
    assert asked == [([("1",), ("2",), ("3",), ("4",)], ("name", "body"))]
    assert found(shape().rows(batch))[0] == ("update_postimage", 1, 1, "a", None, ["body"])


def test_nothing_is_looked_up_where_all_is_known() -> None:
    def look(_: Reread, _keys: Sequence[Key], _columns: Sequence[str]) -> dict[int, dict[str, str | None]]:
        raise AssertionError

    whole = changes(("u", None, ROW), ("c", None, ROW), ("d", KEY, None), ("t", None, None))
    for batch in (whole, whole.slice(1), changes()):
        assert completed(batch, lambda _: REREAD, look) is batch


def test_a_value_of_another_type_is_an_error_that_names_the_column() -> None:
    with pytest.raises(HeadraceError, match=r"item\.id") as raised:
        shape().rows(changes(("c", None, {**ROW, "id": "x"})))
    assert raised.value.kind is Kind.VALUE


def test_a_column_that_is_new_does_not_stand_for_one_that_is_missing() -> None:
    """As many columns as the query has, but not the same ones; in a part of a batch, too."""

    def look(_: Reread, keys: Sequence[Key], columns: Sequence[str]) -> dict[int, dict[str, str | None]]:
        assert (list(keys), list(columns)) == ([("1",)], ["body"])
        return {0: {"body": "found"}}

    batch = changes(("c", None, ROW), ("u", None, {"id": "1", "name": "a", "more": "m"})).slice(1)
    [row] = completed(batch, lambda _: REREAD, look).column("after").to_pylist()
    assert dict(row) == {"id": "1", "name": "a", "more": "m", "body": "found"}


def test_what_has_no_place_is_kept_beside_the_columns() -> None:
    wide = shape(rescues=True, pre_images=True, left_out=frozenset({"unseen"}))
    batch = wide.rows(
        changes(
            ("c", None, {**ROW, "id": "x", "more": "m", "unseen": "1"}),
            ("u", {**ROW, "more": None}, {**ROW, "more": 'a"b'}),
            ("d", {**KEY, "more": "m"}, None),
            ("t", None, None),
            ("c", None, {**ROW, "unseen": "1"}),
        )
    )
    assert batch.schema == wide.schema
    assert batch.schema.names[-1] == "_rescued_data"
    rescued = [(row["_change_type"], row["id"], row["_rescued_data"]) for row in batch.to_pylist()]
    assert rescued == [
        ("insert", None, '{"more": "m", "id": "x"}'),
        ("update_preimage", 1, '{"more": null}'),
        ("update_postimage", 1, '{"more": "a\\"b"}'),
        ("delete", 1, '{"more": "m"}'),
        ("truncate", None, None),
        ("insert", 1, None),
    ]
    assert "_rescued_data" not in shape().rows(changes(("c", None, ROW))).schema.names
