from collections.abc import Mapping

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA
from headrace.model.names import TableName
from headrace.resolution.resolver import has_truncate, lead_values, rows_that_differ, tables_of

TABLE = TableName("public", "t")
Side = Mapping[str, str | None] | None
Row = tuple[str, Side, Side]


def changes(*rows: Row, table: str | None = "t") -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "schema": "public",
                "table": table,
                "op": op,
                "before": None if before is None else list(before.items()),
                "after": None if after is None else list(after.items()),
                "_commit_lsn": 1,
                "_commit_seq": 1,
            }
            for op, before, after in rows
        ],
        schema=CHANGES_SCHEMA,
    )


CASES: dict[str, tuple[Row, set[tuple[str, ...]]]] = {
    "insert": (("c", None, {"a": "1"}), {("1",)}),
    "delete": (("d", {"a": "1"}, None), {("1",)}),
    "moved": (("u", {"a": "1", "z": None}, {"z": "0", "a": "2"}), {("1",), ("2",)}),
    "no old side": (("u", None, {"a": "2"}), {("2",)}),
    "old side of other columns": (("u", {"id": "5"}, {"a": "2"}), {("2",)}),
    "unchanged TOAST": (("u", {"a": "1"}, {"b": "2"}), {("1",)}),
    "became null": (("u", {"a": "1"}, {"a": None}), {("1",)}),
    "was null": (("u", {"a": None}, {"a": "1"}), {("1",)}),
    "null on both sides": (("d", {"a": None}, None), set()),
}


@pytest.mark.parametrize("case", CASES)
def test_old_and_new_values_both_count(case: str) -> None:
    row, expected = CASES[case]
    assert set(lead_values(changes(row), TABLE, ("a",))) == expected


def test_a_key_of_several_columns_is_taken_side_by_side() -> None:
    rows = changes(
        ("u", {"a": "1", "b": "x"}, {"a": "2", "b": "y"}),
        ("u", {"a": "1"}, {"a": "3", "b": "z"}),
        ("u", {"a": "1", "b": "x"}, {"a": "9", "b": None}),
    )
    assert sorted(lead_values(rows, TABLE, ("b", "a"))) == [("x", "1"), ("y", "2"), ("z", "1"), ("z", "3")]


def test_each_value_comes_once_also_from_a_slice() -> None:
    rows = changes(*(("c", None, {"b": "0", "a": str(number % 3)}) for number in range(30)))
    assert sorted(lead_values(rows, TABLE, ("a",))) == [("0",), ("1",), ("2",)]
    assert sorted(lead_values(rows.slice(4, 2), TABLE, ("a",))) == [("1",), ("2",)]


@pytest.mark.parametrize("op", ["c", "d"])
def test_a_column_on_neither_side_is_an_error_never_skipped(op: str) -> None:
    fine, short = {"a": "1", "id": "1"}, {"id": "2"}
    rows = changes(("d", fine, None), (op, short if op == "d" else None, short if op == "c" else None))
    with pytest.raises(HeadraceError, match="table t does not carry its column a") as caught:
        lead_values(rows, TABLE, ("a",))
    assert caught.value.kind is Kind.REPLICA_IDENTITY
    assert 'ALTER TABLE "public"."t" REPLICA IDENTITY FULL' in caught.value.remedy


def test_rows_are_told_apart_by_table_and_progress_belongs_to_none() -> None:
    together = pa.concat_tables(
        [
            changes(("c", None, {"a": "1"})),
            changes(("t", None, None), table="u"),
            changes(("progress", None, None), table=None),
        ]
    )
    found = tables_of(together)
    assert {one.name: rows.num_rows for one, rows in found.items()} == {"t": 1, "u": 1}
    assert {one.name: has_truncate(rows) for one, rows in found.items()} == {"t": False, "u": True}


def test_a_change_of_a_shape_that_the_table_had_before_is_left_out() -> None:
    rows = changes(("c", None, {"b": "1"}), ("c", None, {"a": "2"}))
    assert lead_values(rows, TABLE, ("a",), since=2) == [("2",)]
    with pytest.raises(HeadraceError):
        lead_values(rows, TABLE, ("a",), since=1)


WHOLE = {"a": "1", "b": None, "c": "x"}
DIFFERING: dict[str, tuple[Row, bool]] = {
    "an update of another column": (("u", WHOLE, {**WHOLE, "c": "y"}), False),
    "an update of nothing": (("u", WHOLE, WHOLE), False),
    "another value": (("u", WHOLE, {**WHOLE, "a": "2"}), True),
    "a null that became a value": (("u", WHOLE, {**WHOLE, "b": "2"}), True),
    "a value that became null": (("u", WHOLE, {**WHOLE, "a": None}), True),
    "an old row that holds its key only": (("u", {"c": "x"}, WHOLE), True),
    "an old row without one of them": (("u", {"a": "1", "c": "x"}, {**WHOLE, "c": "y"}), True),
    "no old row": (("u", None, WHOLE), True),
    "a new row without one of them": (("u", WHOLE, {"a": "1", "c": "y"}), True),
    "an insert": (("c", None, WHOLE), True),
    "a delete": (("d", WHOLE, None), True),
}


@pytest.mark.parametrize("case", DIFFERING)
def test_an_update_counts_unless_it_is_known_to_change_nothing_that_is_read(case: str) -> None:
    row, differs = DIFFERING[case]
    beside = ("u", WHOLE, {**WHOLE, "a": "3"})
    found = rows_that_differ(changes(beside, row, beside), frozenset({"a", "b"}))
    assert found.num_rows == 2 + differs
    assert rows_that_differ(changes(row), None).num_rows == 1
    assert (
        rows_that_differ(changes(beside, row, beside).slice(1, 1), frozenset({"a", "b"})).num_rows == differs
    )
