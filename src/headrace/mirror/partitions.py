"""Say in a schema how a lake's table is partitioned, and compute its partitions' values. Pure.

A column that decides of partitions has metadata that say so: `0:day 2:hour` is the first and the third
level. A lake with partitions of its own kind reads that alone; one whose tables are partitioned by columns,
as Delta's are, gets further columns here, which the mirror's other files never see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import HeadraceError, Kind
from headrace.mirror.columns import PARTITION, with_metadata
from headrace.model.lake_partition import Partition, Transform, parse_partition
from headrace.model.names import TableName

DERIVED = b"headrace.derived"
"""Metadata of a column that is there for partitions alone: which, as in `day(placed_at)`."""
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)
_FOLDER_BYTES = 255
"""The longest name of a folder in common file systems."""
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 in days since 1970. Other days, and infinite ones, are in the partition NULL of a
transform: no reader knows their texts."""
_FINEST: tuple[tuple[Callable[[pa.DataType], bool], tuple[Transform, ...]], ...] = (
    (pa.types.is_timestamp, ("year", "month", "day", "hour")),
    (pa.types.is_date32, ("identity", "year", "month", "day")),
    (pa.types.is_integer, ("identity",)),
    (pa.types.is_string, ("identity",)),
    (pa.types.is_boolean, ("identity",)),
)
_TYPES: dict[Transform, pa.DataType] = {
    "year": pa.int32(),
    "month": pa.date32(),
    "day": pa.date32(),
    "hour": pa.string(),
}


def allowed_transforms(kind: pa.DataType) -> tuple[Transform, ...]:
    """Return what a column of a type may be partitioned by."""
    return next((transforms for matches, transforms in _FINEST if matches(kind)), ())


def with_partitions(schema: pa.Schema, partitions: Sequence[Partition]) -> pa.Schema:
    """Return a schema whose columns say how the table is partitioned, and no other way."""
    levels: dict[str, list[str]] = {}
    for level, partition in enumerate(partitions):
        levels.setdefault(partition.column, []).append(f"{level}:{partition.transform}")
    texts = {column: " ".join(parts) for column, parts in levels.items()}
    return pa.schema([with_metadata(field, partition=texts.get(field.name)) for field in schema])


def partitions_of(schema: pa.Schema) -> tuple[Partition, ...]:
    """Return how a table with a schema is partitioned."""
    found = {}
    for field in schema:
        for part in (field.metadata or {}).get(PARTITION, b"").decode().split():
            level, _, transform = part.partition(":")
            found[int(level)] = Partition(field.name, cast("Transform", transform))
    return tuple(partition for _, partition in sorted(found.items()))


def derived_fields(schema: pa.Schema) -> list[pa.Field]:
    """Return the columns that partitions of a schema need besides its own."""
    return [
        pa.field(partition.name, _TYPES[partition.transform], metadata={DERIVED: str(partition)})
        for partition in partitions_of(schema)
        if partition.transform != "identity"
    ]


def derived_from(field: pa.Field) -> Partition | None:
    """Return what a lake's column is derived from; None: it is one of the table's."""
    text = (field.metadata or {}).get(DERIVED)
    return None if text is None else parse_partition(text.decode())


def with_derived(rows: _Rows, partitions: Sequence[Partition], table: TableName) -> _Rows:
    """Return rows with the columns that partitions need.

    Raises:
        HeadraceError: VALUE: a value cannot be that of a partition.
    """
    for partition in partitions:
        column = rows.column(partition.column)
        if partition.transform == "identity":
            _check_values(column, partition, table)
        else:
            rows = rows.append_column(
                pa.field(partition.name, _TYPES[partition.transform]), _derived(partition.transform, column)
            )
    return rows


def _check_values(column: pa.Array | pa.ChunkedArray, partition: Partition, table: TableName) -> None:
    if pa.types.is_date32(column.type):
        check_days(column, partition, table)
    elif pa.types.is_string(column.type):
        refused = column.filter(pc.is_in(column, pa.array(["", NULL_FOLDER])))
        if len(refused):
            raise _refused(partition, table, repr(refused[0].as_py()))
        # Three bytes stand for one, beside the column's name.
        long = column.filter(pc.greater(pc.binary_length(column), _FOLDER_BYTES // 4))
        for value in pc.unique(long).to_pylist():
            if len(partition_folder(partition.name, value)) > _FOLDER_BYTES:
                what, why = f"a text of {len(value)} characters", "is too long for a partition's folder"
                raise _refused(partition, table, what, why)


def check_days(column: pa.Array | pa.ChunkedArray, partition: Partition, table: TableName) -> None:
    """Make sure that days or moments have a year of four digits.

    Raises:
        HeadraceError: VALUE.
    """
    if not pc.all(is_in_calendar(column), min_count=0).as_py():
        raise _refused(partition, table, "a day before 0001 or after 9999")


def _refused(
    partition: Partition, table: TableName, value: str, why: str = "no partition of a lake can have"
) -> HeadraceError:
    return HeadraceError(
        Kind.VALUE,
        f"the column {partition} of {table} has {value}, which {why}",
        "Take it out of the partition_by of its [[mirror.tables]], or correct the rows.",
    )


def partition_folder(name: str, value: str | None) -> str:
    """Return the folder of a partition: readers that look at paths decode it."""
    text = NULL_FOLDER if value is None else quote(value, safe="")
    return f"{quote(name, safe='')}={text}"


def _derived(transform: Transform, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    # A folder's name has four digits for a year: other days are in the partition NULL.
    column = pc.if_else(is_in_calendar(column), column, pa.scalar(None, column.type))
    match transform:
        case "year":
            return pc.year(column).cast(pa.int32())
        case "month":
            return pc.floor_temporal(column, unit="month").cast(pa.date32())
        case "day":
            return pc.floor_temporal(column, unit="day").cast(pa.date32())
        case _:
            hours = pc.floor_temporal(column, unit="hour").cast(pa.timestamp("s"))
            return pc.strftime(hours, "%Y-%m-%dT%H")


def is_in_calendar(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Tell which days have a year of four digits."""
    is_day = pa.types.is_date32(column.type)
    numbers = column.cast(pa.int32() if is_day else pa.int64())
    per_day = 1 if is_day else 86_400_000_000
    first, last = _FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day
    return pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, last))
