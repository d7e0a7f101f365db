"""Does a partition's bound, as PostgreSQL prints it, tell which rows are in it, or say that it cannot?"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.mirror.delta import DeltaLake
from headrace.mirror.partition_bounds import Ahead, Bound, can_tell, condition, parse_bounds, rows_within
from headrace.mirror.positions import LakePositions, PositionsTable, TablePosition
from headrace.model.names import TableName
from headrace.model.types import ArrowForm, Json
from headrace.model.value_type import ValueType

INT = ValueType("int4", ArrowForm.INTEGER, Json.NUMBER, pa.int32())
DATE = ValueType("date", ArrowForm.DATE, Json.STRING, pa.date32())
TEXT = ValueType("text", ArrowForm.TEXT, Json.STRING, pa.string())
BOOL = ValueType("bool", ArrowForm.BOOLEAN, Json.BOOLEAN, pa.bool_())
NUMERIC = ValueType("numeric", ArrowForm.TEXT, Json.NUMBER, pa.string())


@pytest.mark.parametrize(
    ("kind", "strategy", "bound", "values", "within"),
    [
        (INT, "r", "FOR VALUES FROM (0) TO (10)", [-1, 0, 9, 10, None], [0, 1, 1, 0, 0]),
        (INT, "r", "FOR VALUES FROM ('-5') TO (0)", [-6, -5, -1, 0], [0, 1, 1, 0]),
        (INT, "r", "FOR VALUES FROM (MINVALUE) TO (3)", [-9, 2, 3, None], [1, 1, 0, 0]),
        (INT, "r", "FOR VALUES FROM (3) TO (MAXVALUE)", [2, 3, 99, None], [0, 1, 1, 0]),
        (INT, "l", "FOR VALUES IN (1, 2, NULL)", [1, 3, None], [1, 0, 1]),
        (TEXT, "l", "FOR VALUES IN ('it''s', 'a, b')", ["it's", "a, b", "a", None], [1, 1, 0, 0]),
        (TEXT, "l", "FOR VALUES IN (NULL)", ["NULL", None], [0, 1]),
        (TEXT, "l", "FOR VALUES IN ('NULL')", ["NULL", None], [1, 0]),
        (BOOL, "l", "FOR VALUES IN (true)", [True, False, None], [1, 0, 0]),
    ],
)
def test_rows_within_a_bound_are_told(
    kind: ValueType, strategy: str, bound: str, values: list[object], within: list[int]
) -> None:
    bounds = parse_bounds([(3, strategy, bound)])
    assert bounds is not None
    assert can_tell(bounds, {3: ("c", kind)})
    rows = pa.table({"c": pa.array(values, kind.arrow)})
    assert rows_within(rows, bounds, {3: ("c", kind)}).to_pylist() == [bool(flag) for flag in within]


def test_a_row_of_a_partition_of_a_partition_is_within_both() -> None:
    bounds = parse_bounds(
        [(1, "r", "FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')"), (2, "l", "FOR VALUES IN ('a')")]
    )
    assert bounds is not None
    columns = {1: ("d", DATE), 2: ("k", TEXT)}
    rows = pa.table(
        {"d": pa.array([20454, 20454, 20500], pa.int32()).cast(pa.date32()), "k": ["a", "b", "a"]}
    )
    assert rows_within(rows, bounds, columns).to_pylist() == [True, False, False]
    assert condition(bounds, columns) == (
        '"d" IS NOT NULL AND "d" >= \'2026-01-01\' AND "d" < \'2026-02-01\' AND ("k" IN (\'a\'))'
    )


@pytest.mark.parametrize(
    ("levels", "kind"),
    [
        ([(3, "h", "FOR VALUES WITH (modulus 4, remainder 0)")], INT),
        ([(3, "r", "DEFAULT")], INT),
        ([(0, "r", "FOR VALUES FROM (0) TO (10)")], INT),
        ([(3, "r", "FOR VALUES FROM (0, 1) TO (10, 2)")], INT),
        ([(3, "r", "FOR VALUES FROM ('a') TO ('b')")], TEXT),
        ([(3, "l", "FOR VALUES IN ('1.0')")], NUMERIC),
        ([(3, "r", "FOR VALUES FROM ('1') TO ('2')")], NUMERIC),
        ([(4, "r", "FOR VALUES FROM (0) TO (10)")], INT),
        ([(3, "r", "FOR VALUES FROM (0) TO (10)"), (3, "r", "DEFAULT")], INT),
        ([], INT),
    ],
)
def test_what_a_bound_does_not_tell_is_said(levels: list[tuple[int, str, str]], kind: ValueType) -> None:
    assert not can_tell(parse_bounds(levels), {3: ("c", kind)})


def test_what_is_noted_of_partitions_comes_back(tmp_path: Path) -> None:
    bounds = (Bound(1, "list", ("a", None)), Bound(2, "range", (None, "3")))
    aheads = (Ahead(9, bounds), Ahead(10, bounds[:1]))
    tables = {
        TableName("public", "parted"): TablePosition(1, 2, 3, leaves={5: bounds, 6: None}, ahead=aheads),
        TableName("public", "plain"): TablePosition(1, 2, 4),
    }
    table = PositionsTable(DeltaLake(str(tmp_path)), "slot")
    table.write(LakePositions(tables, {"lsn": "0/1"}))
    assert table.read().tables == tables
