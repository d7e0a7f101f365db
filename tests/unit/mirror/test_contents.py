"""Do rows without a key come and go as often as they should?"""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError
from headrace.mirror.contents import without
from headrace.model.names import TableName

SCHEMA = pa.schema([pa.field("v", pa.float64()), pa.field("tags", pa.list_(pa.int32()))])


def batch(*rows: tuple[float | None, list[int | None] | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"v": v, "tags": tags} for v, tags in rows], SCHEMA)


NAN = float("nan")
ROWS = batch(
    (1.0, [1]), (1.0, [1]), (1.0, [2]), (0.0, None), (-0.0, None), (NAN, []), (NAN, []), (None, [None])
)


def remove(*rows: tuple[float | None, list[int | None] | None]) -> list[str]:
    removed = pa.Table.from_batches([batch(*rows)])
    left = without(TableName("public", "t"), [ROWS.slice(0, 3), ROWS.slice(3)], removed)
    return [repr(row) for part in left for row in part.to_pylist()]


def test_of_equal_rows_as_many_go_as_were_removed() -> None:
    everything = [repr(row) for row in ROWS.to_pylist()]
    assert remove((1.0, [1])) == everything[1:]
    assert remove((1.0, [1]), (1.0, [1])) == everything[2:]
    assert remove((-0.0, None)) == [*everything[:4], *everything[5:]]
    assert remove((NAN, []), (None, [None])) == everything[:5] + everything[6:7]


def test_a_row_that_is_not_there_is_no_silent_loss() -> None:
    with pytest.raises(HeadraceError, match=r"'tags': \[3\]"):
        remove((1.0, [3]))
    with pytest.raises(HeadraceError, match="nan"):
        remove((NAN, []), (NAN, []), (NAN, []))
