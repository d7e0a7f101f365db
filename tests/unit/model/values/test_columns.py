"""Do the maps of changes become columns, each value in its row?"""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.model.values import column_texts

MAP = pa.map_(pa.string(), pa.string())
ROWS = pa.array(
    [
        [("id", "1"), ("n", "a"), ("other", "x")],
        None,
        [("n", None), ("id", "2")],
        [],
        [("id", "3")],
        [("id", "4"), ("n", "d")],
    ],
    MAP,
)
IDS = ["1", None, "2", None, "3", "4"]
NAMES = ["a", None, None, None, None, "d"]
KNOWN = [True, False, True, False, False, True]


@pytest.mark.parametrize(
    ("rows", "first", "last"),
    [
        (ROWS, 0, 6),
        (ROWS[1:5], 1, 5),
        (ROWS[2:2], 2, 2),
        (pa.chunked_array([ROWS[:3], ROWS[3:]]), 0, 6),
        (pa.chunked_array([], MAP), 0, 0),
    ],
    ids=["all", "a slice", "none", "chunks", "no chunk"],
)
def test_a_value_that_a_row_does_not_have_is_not_the_same_as_null(
    rows: pa.MapArray, first: int, last: int
) -> None:
    found = column_texts(rows, ["id", "n", "nowhere"])
    assert found["id"].texts.to_pylist() == IDS[first:last]
    assert found["n"].texts.to_pylist() == NAMES[first:last]
    assert found["n"].known.to_pylist() == KNOWN[first:last]
    assert found["nowhere"].known.to_pylist() == [False] * (last - first)


def test_values_of_rows_that_are_null_are_not_taken() -> None:
    """Arrow allows a null row to cover values."""
    rows = pa.MapArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()),
        pa.array(["id", "id"]),
        pa.array(["1", "2"]),
        mask=pa.array([True, False]),
    )
    assert column_texts(rows, ["id"])["id"].texts.to_pylist() == [None, "2"]
