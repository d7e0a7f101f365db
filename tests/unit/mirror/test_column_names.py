"""Are a row's columns known by their names only where these are in no doubt?"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.mirror.column_names import ColumnNames, rows_names
from headrace.model.changes import CHANGES_SCHEMA

ABC = {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize(
    ("before", "now", "names", "is_inserted", "is_known"),
    [
        (ABC, ABC, "a b c", True, True),
        (ABC, ABC, "a c", False, True),  # b is a large value
        (ABC, ABC, "a c", True, False),  # b was called otherwise
        (ABC, ABC, "a c x", False, False),
        (ABC, ABC | {"x": 4}, "a b c", True, True),
        (ABC, ABC | {"x": 4}, "a b c x", True, True),
        (ABC, ABC | {"x": 4}, "a c x", False, True),
        (ABC, ABC | {"x": 4}, "a b c y", True, False),  # x was called y
        (ABC, ABC | {"y": 4, "x": 5}, "a b c x", True, False),  # y was called x
        (ABC, ABC | {"x": 4, "y": 5}, "a b c y x", True, False),
        (ABC, ABC | {"x": 4, "y": 5}, "a b c x y", True, True),
        (ABC, ABC | {"x": 4, "y": 5}, "a c x y", False, True),
        (ABC, ABC | {"x": 4, "y": 5}, "a c x", False, False),  # y may have been called x
        (ABC, ABC | {"x": 4, "y": 5}, "a c", False, True),
        (ABC, {"a": 1, "z": 2, "c": 3}, "a b c", True, True),
        (ABC, {"a": 1, "z": 2, "c": 3}, "a z c", True, True),
        (ABC, {"a": 1, "z": 2, "c": 3}, "a b z", False, False),
        (ABC, {"a": 1, "y": 2, "z": 3}, "a z", False, False),  # b may have been called z
        (ABC, {"b": 2}, "a b c", True, True),
        (ABC, {"b": 2}, "b c", True, True),
        (ABC, {"b": 2}, "b", True, True),
    ],
)
def test_a_row_is_known_by_its_names(
    before: dict[str, int], now: dict[str, int], names: str, *, is_inserted: bool, is_known: bool
) -> None:
    renamed = frozenset({*before.values()} & {number for _, number in now.items() - before.items()})
    found = ColumnNames.between(before, now, renamed)
    assert found.tell(names.split(), is_inserted=is_inserted) == is_known


def test_columns_that_were_altered_and_have_their_names_again_are_known_by_their_order() -> None:
    one = ColumnNames.between(ABC, ABC, frozenset({1}))
    assert one.tell(["b", "a", "c"], is_inserted=True)
    two = ColumnNames.between(ABC, ABC, frozenset({1, 2}))
    assert two.tell(["a", "b", "c"], is_inserted=True)
    assert not two.tell(["b", "a", "c"], is_inserted=True)
    assert not two.tell(["a"], is_inserted=False)
    assert two.tell(["c"], is_inserted=False)


def test_names_of_rows_are_in_the_log_s_order_and_each_list_is_there_once() -> None:
    rows = [
        {"op": "c", "after": [("b", "1"), ("a", "2")]},
        {"op": "c", "after": [("b", "3"), ("a", "4")]},
        {"op": "u", "before": [("a", "1")], "after": [("b", None)]},
        {"op": "d", "before": [("a", "1")]},
        {"op": "t"},
    ]
    changes = pa.RecordBatch.from_pylist(rows, CHANGES_SCHEMA)
    every = pa.repeat(pa.scalar(value=True), len(changes))
    assert list(rows_names(changes, every)) == [
        (["b", "a"], True),
        (["b"], False),
        (["a"], False),
        (["a"], False),
    ]
    assert list(rows_names(changes.slice(3), every.slice(3))) == [(["a"], False)]
    assert not list(rows_names(changes, pc.invert(every)))
