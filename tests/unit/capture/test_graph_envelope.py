"""What do changes look like as nodes of a graph?"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.capture.graph_envelope import ELEMENTS_SCHEMA, content_id, element_id, elements, label
from headrace.catalog.known import KnownTable
from headrace.model.names import TableName
from headrace.model.value_type import Attribute, DatabaseType, resolve
from unit.capture.test_envelope import Values, changes

_TYPES = {
    23: DatabaseType(23, "pg_catalog", "int4", "base"),
    25: DatabaseType(25, "pg_catalog", "text", "base"),
    17: DatabaseType(17, "pg_catalog", "bytea", "base"),
    114: DatabaseType(114, "pg_catalog", "json", "base"),
}
INT, TEXT, BYTES, JSON = (resolve(Attribute("", oid), _TYPES) for oid in _TYPES)
ITEM = TableName("public", "order_items")
EVENT = TableName("audit", "Event")
KNOWN = {
    ITEM: KnownTable(("order", "place"), ("integer", "integer"), {"order": INT, "place": INT, "n": TEXT}),
    EVENT: KnownTable((), (), {"at": INT, "what": JSON, "raw": BYTES}),
}


def found(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return [
        (row["op"], row["reference"]["element_id"], row["properties"] and json.loads(row["properties"]))
        for row in batch.to_pylist()
    ]


def test_a_row_is_a_node() -> None:
    batch = elements(
        changes(
            (ITEM, "t", None, None),
            (ITEM, "c", None, {"order": "1001", "place": "5", "n": 'a"b'}),
            (ITEM, "u", None, {"order": "1001", "place": "5", "n": None}),
            (ITEM, "d", {"order": "1001", "place": "5"}, None),
            (ITEM, "t", None, None),
        ),
        KNOWN,
        "shop",
    )
    assert batch.schema == ELEMENTS_SCHEMA
    assert found(batch) == [
        ("truncate", None, None),
        ("insert", "order_items:1001_5", {"order": 1001, "place": 5, "n": 'a"b'}),
        ("update", "order_items:1001_5", {"order": 1001, "place": 5, "n": None}),
        ("delete", "order_items:1001_5", None),
        ("truncate", None, None),
    ]
    assert {row["reference"]["source_id"] for row in batch.to_pylist()} == {"shop"}
    assert [row["labels"] for row in batch.to_pylist()] == [["order_items"]] * 5
    assert [row["effective_from"] for row in batch.to_pylist()] == [1_000_000_000] * 5


def test_a_key_that_changes_ends_one_node_and_begins_another() -> None:
    """Drasi's hole 4: the old node stayed. Among changes of other tables each stays at its place."""
    batch = elements(
        changes(
            (ITEM, "u", {"order": "1", "place": "1"}, {"order": "1", "place": "2", "n": "m"}),
            (EVENT, "c", None, {"at": "1", "what": '{"a":1}', "raw": "\\x00ff"}),
            (ITEM, "u", {"order": "1", "place": "2"}, {"order": "1", "place": "2", "n": "o"}),
        ),
        KNOWN,
        "shop",
    )
    rows = found(batch)
    assert [row[:2] for row in rows if row[1].startswith("order")] == [
        ("delete", "order_items:1_1"),
        ("insert", "order_items:1_2"),
        ("update", "order_items:1_2"),
    ]
    assert rows[2][0] == "insert"
    assert rows[2][2] == {"at": 1, "what": {"a": 1}, "raw": "AP8="}
    assert batch.column("_commit_seq").to_pylist() == [1, 1, 2, 3]


def test_a_part_of_a_key_that_was_not_sent_again_is_the_old_one() -> None:
    """A large part that did not change beside one that did."""
    rows = changes((ITEM, "u", {"order": "1", "place": "5"}, {"order": "2", "n": "m"}))
    assert [row[:2] for row in found(elements(rows, KNOWN, "shop"))] == [
        ("delete", "order_items:1_5"),
        ("insert", "order_items:2_5"),
    ]


def test_a_row_without_a_key_is_found_again_by_what_it_holds() -> None:
    """Drasi's hole 6: its ids were new at each start. The log has the whole old row there."""
    row: Values = {"at": "1", "what": None, "raw": None}
    batch = elements(
        changes(
            (EVENT, "r", None, row),
            (EVENT, "u", row, {**row, "at": "2"}),
            (EVENT, "d", {**row, "at": "2", "added": None}, None),
        ),
        KNOWN,
        "shop",
    )
    rows = found(batch)
    assert [one[0] for one in rows] == ["insert", "delete", "insert", "delete"]
    assert rows[0][1] == rows[1][1] == content_id(EVENT, row)
    assert rows[2][1] == rows[3][1] != rows[0][1]


def test_a_value_of_another_time_is_text() -> None:
    """The column was text when this was written, and is a number now."""
    batch = elements(changes((ITEM, "c", None, {"order": "one", "place": "007"})), KNOWN, "shop")
    assert found(batch)[0][2] == {"order": "one", "place": "007"}


def test_a_table_that_nothing_is_known_of() -> None:
    lost = TableName("public", "dropped")
    batch = elements(changes((lost, "c", None, {"id": "1"})), KNOWN, "shop")
    assert found(batch) == [("insert", content_id(lost, {"id": "1"}), {"id": "1"})]
    assert elements(changes(), KNOWN, "shop").num_rows == 0


@pytest.mark.parametrize(
    ("table", "key", "expected"),
    [
        (TableName("public", "users"), ("12345",), "users:12345"),
        (TableName("sales", "Users"), ("a_b", None), "sales.Users:a%5Fb_%N"),
        (TableName("public", "sales.Users"), ("%",), "sales%2EUsers:%25"),
    ],
)
def test_an_id_is_readable(table: TableName, key: tuple[str | None, ...], expected: str) -> None:
    assert element_id(table, key) == expected
    assert label(table) in {"users", "sales.Users"}


_PARTS = st.lists(st.none() | st.text(alphabet="a_%:N.", max_size=4), min_size=1, max_size=3).map(tuple)
_NAMES = st.builds(
    TableName, st.sampled_from(["public", "s", "s.t"]), st.text("ab.:%", min_size=1, max_size=4)
)


@given(_NAMES, _PARTS, _NAMES, _PARTS)
def test_no_two_rows_have_one_id(
    table: TableName, key: tuple[str | None, ...], other: TableName, other_key: tuple[str | None, ...]
) -> None:
    """Drasi's hole 6: ids that are joined by `_` collide. A table's keys all have as many parts."""
    if table == other and len(key) != len(other_key):
        return
    same = (table, key) == (other, other_key)
    assert (element_id(table, key) == element_id(other, other_key)) is same
