"""Do filters find in a partitioned Iceberg table what they find without partitions, in fewer files?"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform

from headrace.errors import HeadraceError, Kind
from headrace.mirror.iceberg.lake import IcebergLake
from headrace.mirror.iceberg.partitions import with_values
from headrace.mirror.iceberg.table import IcebergTable
from headrace.mirror.lake import look
from headrace.mirror.net_changes import DELETED
from headrace.mirror.partitions import partitions_of, with_partitions
from headrace.model.lake_partition import Partition, parse_partition
from headrace.model.names import TableName
from headrace.model.values.moments import DATE_ENDS, TIMESTAMP_ENDS
from support import stranger
from support.lake import read_table

# ruff: noqa: DTZ001 - timestamps without time zone
TABLE = TableName("public", "t")
DAY = 86_400_000_000
TEXTS = ["", "a/b=%", "x'\"\\{}", "..", "ü~" * 200, "__HIVE_DEFAULT_PARTITION__", "null", "1", None]
MOMENTS = [
    -62_135_596_800_000_000,  # 0001-01-01
    -DAY - 1,
    -DAY,
    -1,
    0,
    1_709_183_167_000_001,  # 2024-02-29
    1_709_251_199_999_999,
    1_709_251_200_000_000,
    TIMESTAMP_ENDS.greatest,
    TIMESTAMP_ENDS.least,
    253_402_300_800_000_000,  # the year 10000
    None,
]
FAR = {8, 9, 10}
"""Which of them Python does not know."""
SCHEMA = pa.schema(
    {
        "id": pa.int32(),
        "c": pa.string(),
        "d": pa.date32(),
        "m": pa.timestamp("us"),
        "z": pa.timestamp("us", "UTC"),
        "n": pa.int64(),
        "s": pa.int16(),
        "b": pa.bool_(),
    }.items()
)
WAYS = [
    *("c", "d", "n", "s", "b", "year(d)", "month(d)", "day(d)"),
    *(f"{unit}({name})" for unit in ("year", "month", "day", "hour") for name in "mz"),
]
FILTERS = [
    pl.col("m") == dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    pl.col("m") >= dt.datetime(9999, 1, 1),
    pl.col("m") < dt.datetime(1970, 1, 1),
    pl.col("m").is_null(),
    (pl.col("z") >= dt.datetime(2024, 2, 29, tzinfo=dt.UTC))
    & (pl.col("z") < dt.datetime(2024, 3, 1, tzinfo=dt.UTC)),
    pl.col("z") <= dt.datetime(1969, 12, 30, 23, 59, 59, 999_999, tzinfo=dt.UTC),
    pl.col("d") == dt.date(2024, 2, 29),
    pl.col("d") > dt.date(2024, 2, 29),
    pl.col("d") < dt.date(1970, 1, 1),
    pl.col("d").is_null(),
    *(pl.col("c") == text for text in TEXTS if text is not None),
    pl.col("c") > "a",
    pl.col("c").is_null(),
    pl.col("n") < 3,
    pl.col("s") == 5,
    pl.col("b"),
    pl.col("b").is_null(),
]


def source(*ways: str) -> pa.Table:
    """Rows with all kinds of values that partitions may have."""
    number = range(len(MOMENTS))
    days = [None if moment is None else moment // DAY for moment in MOMENTS]
    days[8:10] = [DATE_ENDS.greatest, DATE_ENDS.least]
    moments = pa.array(MOMENTS, pa.int64())
    columns = [
        pa.array(number, pa.int32()),
        pa.array([TEXTS[index % len(TEXTS)] for index in number]),
        pa.array(days, pa.int32()).cast(pa.date32()),
        moments.cast(pa.timestamp("us")),
        moments.cast(pa.timestamp("us", "UTC")),
        pa.array([2**62 * (index % 3 - 1) for index in number], pa.int64()),
        pa.array([index - 6 for index in number], pa.int16()),
        pa.array([(True, False, None)[index % 3] for index in number]),
    ]
    rows = pa.Table.from_arrays(columns, schema=SCHEMA)
    has_days = any(way == "d" or way.startswith(("day", "hour")) for way in ways)
    return rows.filter(pa.array([not has_days or index not in FAR for index in number]))


def partitioned(folder: Path, *partition_by: str) -> IcebergTable:
    """A table with these rows."""
    schema = with_partitions(SCHEMA, tuple(map(parse_partition, partition_by)))
    lake = IcebergLake(str(folder))
    rows = source(*partition_by).cast(schema).to_batches(max_chunksize=5)
    lake.commit(TABLE, schema, lake.write(TABLE, schema, rows), (1, 0))
    return opened(folder)


def opened(folder: Path) -> IcebergTable:
    table = IcebergLake(str(folder)).open(TABLE)
    assert table is not None
    return table


def frame(folder: Path, version: int | None = None) -> pl.DataFrame:
    return read_table(folder / "public" / "t", "iceberg", version).sort("id")


def partitions(table: IcebergTable) -> list[tuple[str | None, ...]]:
    files = [task.file.partition for task in table.table.scan().plan_files()]
    return sorted((tuple(map(text_of, [found[at] for at in range(len(found))])) for found in files), key=repr)


def text_of(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def merge(folder: Path, rows: pa.Table, *, deletes: bool = False) -> IcebergTable:
    flags = pa.repeat(pa.scalar(deletes), len(rows))
    opened(folder).merge(rows.append_column(DELETED, flags), ["id"], (2, 0))
    return opened(folder)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_filters_find_the_same_rows_with_each_transform(way: str, tmp_path: Path) -> None:
    table = partitioned(tmp_path, way)
    expected = pl.DataFrame(pl.from_arrow(source(way)))
    assert frame(tmp_path).equals(expected.cast({"s": pl.Int32}))
    lazy = pl.scan_iceberg(table.uri)
    for chosen in FILTERS:
        found = lazy.filter(chosen).collect()["id"].sort().to_list()
        assert found == expected.filter(chosen)["id"].to_list(), chosen
    [field] = table.table.spec().fields
    assert field.source_id == table.table.schema().find_field(parse_partition(way).column).field_id
    assert len(partitions(table)) == len(set(partitions(table))) > 1, "one file for each"


@pytest.mark.parametrize("way", WAYS)
def test_values_are_those_of_the_librarys_transforms(way: str) -> None:
    """Where the library's Python knows the day; what lies behind is in order."""
    partition = parse_partition(way)
    schema = with_partitions(SCHEMA, (partition,))
    [batch] = source(way).cast(schema).combine_chunks().to_batches()
    values = with_values(batch, [partition], TABLE).column(-1).to_pylist()
    column = batch.column(partition.column)
    is_moment = pa.types.is_temporal(column.type)
    whole = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    numbers = (column.cast(whole) if is_moment else column).to_pylist()
    numbered = [field.with_metadata({"PARQUET:field_id": str(at)}) for at, field in enumerate(SCHEMA)]
    kind = pyarrow_to_schema(pa.schema(numbered)).find_field(partition.column).field_type
    transform = parse_transform(partition.transform).transform(kind)
    for index, number, value in zip(batch.column("id").to_pylist(), numbers, values, strict=True):
        assert index in FAR or transform(number) == value, number
    if is_moment:
        known = sorted((n, v) for n, v in zip(numbers, values, strict=True) if n is not None)
        assert [value for _, value in known] == sorted(value for _, value in known)


@pytest.mark.parametrize("way", ["d", "day(m)", "hour(z)"])
def test_a_day_that_the_library_cannot_name_is_refused(way: str, tmp_path: Path) -> None:
    schema = with_partitions(SCHEMA, (parse_partition(way),))
    with pytest.raises(HeadraceError, match="a day before 0001 or after 9999") as refused:
        IcebergLake(str(tmp_path)).write(TABLE, schema, source().cast(schema).to_batches())
    assert refused.value.kind is Kind.VALUE


@pytest.mark.parametrize(
    ("way", "condition", "number"),
    [
        ("day(m)", "m >= '2024-02-29T00:00:00' AND m < '2024-03-01T00:00:00'", 1),
        ("day(m)", "m IS NULL", 1),
        ("hour(z)", "z = '1969-12-31T23:59:59.999999+00:00'", 1),
        ("month(d)", "d = '2024-03-01'", 1),
        ("year(d)", "d < '1000-01-01'", 2),
        ("c", "c = ''", 1),
        ("b", "b IS NULL", 1),
    ],
)
def test_files_are_left_out_by_partitions_alone(
    way: str, condition: str, number: int, tmp_path: Path
) -> None:
    """Bounds of columns, which leave out files too, are not looked at in the first count."""
    table = partitioned(tmp_path, way)
    columns, spec = table.table.schema(), table.table.spec()
    projected = inclusive_projection(columns, spec)(parse(condition))
    kinds = Schema(*spec.partition_type(columns).fields)
    may_match = expression_evaluator(kinds, projected, case_sensitive=True)
    files = [task.file for task in table.table.scan().plan_files()]
    assert sum(may_match(file.partition) for file in files) == number < len(files)
    assert 1 <= len(list(table.table.scan(row_filter=condition).plan_files())) <= number


def test_changed_rows_move_and_their_files_can_be_joined(tmp_path: Path) -> None:
    partitioned(tmp_path, "day(m)", "b")
    rows = source()
    moved = rows.set_column(3, SCHEMA.field("m"), pa.repeat(rows.column("m")[4], len(rows)))
    moved = moved.set_column(7, SCHEMA.field("b"), pa.array([True] * len(rows)))
    table = merge(tmp_path, moved.slice(0, 9))
    assert frame(tmp_path)["m"].head(9).to_list() == [dt.datetime(1970, 1, 1)] * 9
    assert ("0", "true") in partitions(table)
    assert len(set(partitions(table))) == 2, "the row of the day that is NULL is left"
    table = merge(tmp_path, moved.slice(9), deletes=True)
    assert set(partitions(table)) == {("0", "true")}
    table.join_files(1 << 20)
    table = opened(tmp_path)
    assert partitions(table) == [("0", "true")]
    assert look(table, ["id"], [(3,)], ["b"]) == {(3,): {"id": 3, "b": True}}
    with pytest.raises(HeadraceError, match="lacks an updated row"):
        look(table, ["id"], [(3,), (11,)], ["b"])


def test_small_files_are_joined_within_their_partition(tmp_path: Path) -> None:
    partitioned(tmp_path, "b")
    [row] = source().slice(0, 1).to_pylist()
    for number in range(3):
        rows = pa.Table.from_pylist([{"id": 100 + number, "b": row["b"]}], SCHEMA)
        table = merge(tmp_path, rows)
    assert (table.count_files(1 << 20), len(partitions(table))) == (4, 6)
    before = frame(tmp_path)
    assert table.join_files(1 << 20) == (4, 1)
    assert frame(tmp_path).equals(before)
    assert partitions(opened(tmp_path)) == [("false",), ("true",), (None,)]


def test_other_partitions_are_one_commit_and_old_snapshots_stay(tmp_path: Path) -> None:
    table = partitioned(tmp_path, "day(m)", "c")
    lake, before = IcebergLake(str(tmp_path)), frame(tmp_path)
    versions = [table.version]
    first = table.table.spec()
    ways = (
        (Partition("m", "month"),),
        (),
        (Partition("n"), Partition("m", "day")),
        partitions_of(table.schema),
    )
    for wanted in ways:
        schema = with_partitions(table.schema, wanted)
        lake.commit(TABLE, schema, lake.write(TABLE, schema, table.rows()), (7, 7), table)
        table = opened(tmp_path)
        assert partitions_of(table.schema) == wanted
        assert table.find_other_commit(versions[-1]) is None
        assert len(table.table.snapshots()) == len(versions) + 1
        versions.append(table.version)
    assert table.table.spec() == first, "a specification that the table had comes back"
    fields = [field for spec in table.table.specs().values() for field in spec.fields]
    numbers = {(field.source_id, str(field.transform)): field.field_id for field in fields}
    assert len(set(numbers.values())) == len(numbers) == 4
    for version in versions:
        assert frame(tmp_path, version).equals(before)
    merge(tmp_path, source().slice(0, 3), deletes=True)
    assert frame(tmp_path)["id"].to_list() == before["id"].to_list()[3:]


def test_a_partitioning_column_may_be_dropped_with_its_partitions(tmp_path: Path) -> None:
    table = partitioned(tmp_path, "day(m)", "b")
    first, before = table.version, frame(tmp_path)
    kept = pa.schema([field for field in table.schema if field.name != "m"])
    schema = with_partitions(kept, (Partition("b"),))
    lake = IcebergLake(str(tmp_path))
    rows = [batch.drop_columns(["m"]) for batch in table.rows()]
    lake.commit(TABLE, schema, lake.write(TABLE, schema, rows), (3, 0), lake.open(TABLE))
    assert frame(tmp_path).equals(before.drop("m"))
    assert frame(tmp_path, first).equals(before)


def test_a_partitioning_column_may_change_its_type_and_have_any_name(tmp_path: Path) -> None:
    lake = IcebergLake(str(tmp_path))
    for position, kind in enumerate((pa.int32(), pa.int64(), pa.string()), 1):
        ways = (Partition("a.b"), Partition("n"))[:: 1 if position % 2 else -1]
        schema = with_partitions(pa.schema([("a.b", kind), ("n", pa.int32())]), ways)
        rows = pa.RecordBatch.from_arrays(
            [pa.array([1]).cast(kind), pa.array([2], pa.int32())], schema=schema
        )
        lake.commit(TABLE, schema, lake.write(TABLE, schema, [rows]), (position, 0), lake.open(TABLE))
        table = opened(tmp_path)
        assert [batch.to_pydict() for batch in table.rows()] == [rows.to_pydict()]
        assert partitions_of(table.schema) == ways
        assert table.find_other_commit(table.version) is None


def test_partitions_that_another_program_altered_are_told(tmp_path: Path) -> None:
    before = partitioned(tmp_path, "day(m)")
    with before.table.update_spec() as update:
        update.add_identity("b")
    assert opened(tmp_path).find_other_commit(before.version) == "other partitions"


def test_files_that_another_program_wrote_are_changed_too(tmp_path: Path) -> None:
    partitioned(tmp_path, "b")
    merge(tmp_path, source().slice(8, 3), deletes=True)  # the library cannot write such days
    stranger.rewrite(opened(tmp_path))
    table = merge(tmp_path, source().slice(0, 2), deletes=True)
    assert frame(tmp_path)["id"].to_list() == [*range(2, 8), 11]
    assert partitions(table) == [("false",), ("true",), (None,)]
