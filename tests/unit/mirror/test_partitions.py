"""Are rows in the partitions of their values, whatever the values are, and found there?"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from headrace.errors import HeadraceError, Kind
from headrace.mirror.delta import DeltaLake, DeltaLakeTable
from headrace.mirror.lake import look
from headrace.mirror.net_changes import DELETED
from headrace.mirror.partition_files import write_partitions
from headrace.mirror.partitions import partitions_of, with_derived, with_partitions
from headrace.model.lake_partition import Partition, parse_partition
from headrace.model.names import TableName

TABLE = TableName("public", "t")
ODD = ["a b%", "q/é %20=", "tab\tnl\n", "x'\"\\{}", "#?+&", "..", "ü~", "2024-01-01", None]
# ruff: noqa: DTZ001 - timestamps without time zone
MOMENTS = [
    dt.datetime(1, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(2024, 2, 29, 5, 6, 7),
    dt.datetime(9999, 12, 31, 23),
    None,
]


@pytest.mark.parametrize("text", ["country", "day(placed_at)", "year(a (b))", "hour(day)"])
def test_a_partition_is_shown_as_it_is_written(text: str) -> None:
    assert str(parse_partition(text)) == text


def test_a_schema_says_how_a_table_is_partitioned() -> None:
    schema = pa.schema([pa.field("a", pa.date32(), metadata={"x": "y"}), pa.field("b", pa.int32())])
    partitions = (Partition("a", "month"), Partition("b"), Partition("a", "day"))
    said = with_partitions(schema, partitions)
    assert partitions_of(said) == partitions
    assert said.field("a").metadata[b"x"] == b"y"
    assert partitions_of(with_partitions(said, ())) == ()


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_parts_of_moments_are_those_of_their_texts(zone: str | None) -> None:
    """The ends of what PostgreSQL has, its infinities too, are in no day that a reader knows."""
    ends = pa.array([2**62, -(2**62)]).cast(pa.timestamp("us", zone))
    moments = pa.array(MOMENTS, pa.timestamp("us")).cast(pa.timestamp("us", zone))
    rows = pa.table({"m": pa.chunked_array([moments, ends])})
    parts = [parse_partition(f"{unit}(m)") for unit in ("year", "month", "day", "hour")]
    got = with_derived(rows, parts, TABLE).drop_columns(["m"]).to_pylist()
    assert [tuple(row.values()) for row in got] == [
        (None,) * 4
        if moment is None
        else (moment.year, moment.date().replace(day=1), moment.date(), moment.isoformat()[:13])
        for moment in [*MOMENTS, None, None]
    ]


def test_rows_in_any_order_make_a_file_for_each_partition(tmp_path: Path) -> None:
    """Also where most rows went through the temporary file."""
    draw = random.Random(7)
    schema = pa.schema(
        [("c", pa.string()), ("n", pa.int32()), ("v", pa.int64()), ("l", pa.list_(pa.int32()))]
    )
    rows = [
        {"c": draw.choice(ODD), "n": draw.choice([1, 2, None]), "v": number, "l": [number, None]}
        for number in range(3000)
    ]
    batches = [pa.RecordBatch.from_pylist(rows[at : at + 100], schema) for at in range(0, len(rows), 100)]
    folder = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    files = write_partitions(
        TABLE, folder, schema, iter(batches), partition_by=("c", "n"), target_bytes=1 << 20, run_bytes=20_000
    )
    expected = Counter((row["c"], None if row["n"] is None else str(row["n"])) for row in rows)
    rows_of = {tuple(file.partition.values()): json.loads(file.statistics)["numRecords"] for file in files}
    assert rows_of == expected
    assert len(files) == len(expected)


def test_odd_texts_days_and_numbers_are_read_as_they_were_written(tmp_path: Path) -> None:
    table, rows = partitioned(tmp_path, "c", "d", "day(m)", "n", "b")
    assert frame(tmp_path) == rows
    assert sorted(map(repr, (row for batch in table.rows() for row in batch.to_pylist()))) == sorted(
        map(repr, rows.values())
    )
    assert len(DeltaTable(table.uri).file_uris()) == len(rows)
    day = pl.scan_delta(table.uri).filter(pl.col("_m_day") == dt.date(2024, 2, 29)).collect()
    assert set(day["id"]) == {id_ for id_, row in rows.items() if row["m"] == MOMENTS[2]}


@pytest.mark.parametrize("partition_by", [("c",), ("hour(m)", "n"), ("month(d)",), ("id",)])
def test_changed_rows_move_to_their_partition(partition_by: tuple[str, ...], tmp_path: Path) -> None:
    table, rows = partitioned(tmp_path, *partition_by)
    found = look(table, ["id"], [(3,), (8,)], ["c"])
    assert {key[0]: row["c"] for key, row in found.items()} == {3: ODD[3], 8: None}
    changed = [row | {"c": ODD[-1 - id_], "m": MOMENTS[0], "n": 77} for id_, row in rows.items() if id_ < 4]
    nothing = dict.fromkeys(rows[0]) | {"id": 5}
    given = pa.Table.from_pylist([*changed, nothing], table.schema)
    table.merge(given.append_column(DELETED, pa.array([False] * 4 + [True])), ["id"], (9, 9))
    expected = rows | {row["id"]: row for row in changed}
    del expected[5]
    assert frame(tmp_path) == expected


def test_a_merge_looks_into_partitions_that_its_keys_can_be_in_alone(tmp_path: Path) -> None:
    table, rows = partitioned(tmp_path, "c", "n")
    ends = [row for row in rows.values() if row["c"] in {"a b%", None}]
    given = pa.Table.from_pylist([row | {"m": MOMENTS[0]} for row in ends], table.schema)
    table.merge(given.append_column(DELETED, pa.array([False] * len(ends))), ["id", "c"], (9, 9))
    [commit] = DeltaTable(table.uri).history(1)
    assert commit["operationMetrics"]["num_target_files_scanned"] == len(ends)
    missed = [row for row in ends if row["c"] is None]  # a key of NULL is no row's key
    assert len(pl.read_delta(table.uri)) == len(rows) + len(missed)


def test_a_table_is_partitioned_in_another_way_in_one_commit(tmp_path: Path) -> None:
    table, rows = partitioned(tmp_path, "c", "hour(m)")
    lake = DeltaLake(str(tmp_path))
    for partitions in ((Partition("m", "month"),), (), (Partition("n"), Partition("m", "hour"))):
        version = table.version
        schema = with_partitions(table.schema, partitions)
        lake.commit(TABLE, schema, lake.write(TABLE, schema, table.rows()), (7, 7), table)
        table = opened(lake)
        assert partitions_of(table.schema) == partitions
        assert (table.version, table.position) == (version + 1, (7, 7))
        assert table.find_other_commit(version) is None
        assert frame(tmp_path) == rows


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), ""),
        (pa.string(), "__HIVE_DEFAULT_PARTITION__"),
        (pa.string(), "é" * 43),
        (pa.string(), "x" * 254),
        (pa.date32(), 3_000_000),
    ],
)
def test_a_value_that_no_partition_can_have_is_refused(kind: pa.DataType, value: Any, tmp_path: Path) -> None:
    """Delta takes an empty text for NULL."""
    schema = with_partitions(pa.schema([("id", pa.int32()), ("c", kind)]), (Partition("c"),))
    batch = pa.record_batch(
        [
            pa.array([1], pa.int32()),
            pa.array([value], pa.string() if kind == pa.string() else pa.int32()).cast(kind),
        ],
        schema=schema,
    )
    with pytest.raises(HeadraceError) as raised:
        DeltaLake(str(tmp_path)).write(TABLE, schema, [batch])
    assert raised.value.kind is Kind.VALUE
    assert "the column c of t" in raised.value.cause


@pytest.mark.parametrize("value", ["é" * 42, "x" * 253])
def test_the_longest_texts_have_a_folder(value: str, tmp_path: Path) -> None:
    """The longest name of a folder has 255 bytes, where `é` is `%C3%A9`."""
    lake = DeltaLake(str(tmp_path))
    schema = with_partitions(pa.schema([("id", pa.int32()), ("c", pa.string())]), (Partition("c"),))
    rows = pa.table({"id": pa.array([1], pa.int32()), "c": [value], "d": [False]})
    lake.commit(TABLE, schema, lake.write(TABLE, schema, rows.select(["id", "c"]).to_batches()), (1, 0))
    changed = rows.set_column(0, "id", pa.array([2], pa.int32()))
    opened(lake).merge(changed.rename_columns(["id", "c", DELETED]), ["id"], (2, 0))
    assert frame(tmp_path) == {1: {"id": 1, "c": value}, 2: {"id": 2, "c": value}}


def test_too_many_partitions_are_refused(tmp_path: Path) -> None:
    schema = with_partitions(pa.schema([("id", pa.int32()), ("v", pa.int32())]), (Partition("id"),))
    numbers = pa.array(range(50_001), pa.int32())
    with pytest.raises(HeadraceError, match="the table t would have more than 50,000 partitions"):
        DeltaLake(str(tmp_path)).write(TABLE, schema, [pa.record_batch([numbers, numbers], schema=schema)])
    assert not list(tmp_path.rglob("*.parquet"))


def test_the_partition_with_most_small_files_is_counted(tmp_path: Path) -> None:
    table, rows = partitioned(tmp_path, "b")
    for number in range(3):
        row = rows[1] | {"id": 100 + number}
        given = pa.Table.from_pylist([row], table.schema).append_column(DELETED, pa.array([False]))
        table.merge(given, ["id"], (9, number))
        table = opened(DeltaLake(str(tmp_path)))
    assert table.count_files(1 << 20) == 4
    assert table.join_files(1 << 20) == (4, 1)
    assert len(frame(tmp_path)) == len(rows) + 3


def partitioned(folder: Path, *partition_by: str) -> tuple[DeltaLakeTable, dict[int, dict[str, Any]]]:
    """A table with a row for each odd text, and its rows by `id`."""
    columns = {
        "id": pa.int32(),
        "c": pa.string(),
        "d": pa.date32(),
        "m": pa.timestamp("us"),
        "n": pa.int64(),
        "b": pa.bool_(),
    }
    rows: dict[int, dict[str, Any]] = {}
    for number, text in enumerate(ODD):
        moment = MOMENTS[number % len(MOMENTS)]
        values = (number, text, moment and moment.date(), moment, number - 4, number % 2 == 1)
        rows[number] = dict(zip(columns, values, strict=True))
    schema = with_partitions(pa.schema(list(columns.items())), tuple(map(parse_partition, partition_by)))
    lake = DeltaLake(str(folder))
    batches = [pa.RecordBatch.from_pylist([row], schema) for row in rows.values()]
    lake.commit(TABLE, schema, lake.write(TABLE, schema, batches), (1, 0))
    return opened(lake), rows


def opened(lake: DeltaLake) -> DeltaLakeTable:
    table = lake.open(TABLE)
    assert table is not None
    return table


def frame(folder: Path) -> dict[int, dict[str, Any]]:
    """The rows by `id`, as polars reads them, without derived columns."""
    found = pl.read_delta(str(folder / "public" / "t"))
    rows = found.select(name for name in found.columns if not name.startswith("_")).to_dicts()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}
