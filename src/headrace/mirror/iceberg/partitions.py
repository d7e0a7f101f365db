"""Compute the values of an Iceberg table's hidden partitions. Pure.

The values are those of Iceberg's specification: years, months, days and hours are counted from 1970, and NULL
alone is in the partition NULL. Days and hours outside the years 1 to 9999, which PyIceberg cannot name, are
refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType, StringType

from headrace.mirror.partition_files import Values
from headrace.mirror.partitions import check_days
from headrace.model.lake_partition import Partition
from headrace.model.names import TableName

_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
"""What NumPy calls the units of transforms."""


def partition_names(levels: Sequence[Partition]) -> list[str]:
    """Return the names under which `with_values` adds columns; no column of a database can have one."""
    return [f"\0{level}" for level in range(len(levels))]


def with_values(rows: pa.RecordBatch, levels: Sequence[Partition], table: TableName) -> pa.RecordBatch:
    """Return rows of a table with a column for each partition, that has what a text can tell of its value.

    Raises:
        HeadraceError: VALUE: a value cannot be that of a partition.
    """
    for partition in levels:
        column = rows.column(partition.column)
        is_day = partition.transform == "identity" and pa.types.is_date32(column.type)
        if is_day or partition.transform in {"day", "hour"}:
            check_days(column, partition, table)
    for name, partition in zip(partition_names(levels), levels, strict=True):
        rows = rows.append_column(name, _transformed(rows.column(partition.column), partition))
    return rows


def _transformed(column: pa.Array, partition: Partition) -> pa.Array:
    is_day = pa.types.is_date32(column.type)
    if partition.transform == "identity":
        return column.cast(pa.int32()) if is_day else column
    # What NULL becomes does not matter: the mask takes it out at the end.
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    numbers = column.cast(pa.int32() if is_day else pa.int64()).fill_null(0).to_numpy().astype(np.int64)
    # NumPy rounds down: moments before 1970 belong to the day that they are in.
    moments = numbers.astype("datetime64[D]" if is_day else "datetime64[us]")
    values = moments.astype(f"datetime64[{_UNITS[partition.transform]}]").astype(np.int64)
    return pa.array(values, pa.int32(), mask=nulls)


def record_of(texts: Values, spec: PartitionSpec, columns: Schema) -> Record:
    """Return the partition of which `with_values` has these texts."""
    kinds = [field.field_type for field in spec.partition_type(columns).fields]
    return Record(*(_value(text, kind) for text, kind in zip(texts, kinds, strict=True)))


def _value(text: str | None, kind: object) -> str | bool | int | None:
    if text is None or isinstance(kind, StringType):
        return text
    return text == "true" if isinstance(kind, BooleanType) else int(text)
