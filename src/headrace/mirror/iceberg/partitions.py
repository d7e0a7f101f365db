"""Partition Iceberg tables by hidden transforms: number them, and compute their values. Pure.

The values are those of Iceberg's specification for all that a column can have, its infinite and far days too:
years, months, days and hours are counted from 1970, and NULL alone is in the partition NULL.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType, StringType

from headrace.mirror.partition_files import Values
from headrace.mirror.partitions import partitions_of
from headrace.model.lake_partition import Partition

_DAY = 86_400_000_000
_HOUR = 3_600_000_000


def spec_of(schema: pa.Schema, columns: Schema, metadata: TableMetadata) -> PartitionSpec:
    """Return how a table is to be partitioned: one of its specifications, or a new one.

    Args:
        schema: the table's columns, whose metadata say it.
        columns: their numbers.
        metadata: what the table has had; a transform of a column keeps its number for ever.
    """
    specs = metadata.partition_specs
    # Readers tell partitions of old files by these numbers.
    known = {(field.source_id, str(field.transform)): field for spec in specs for field in spec.fields}
    unused = itertools.count(max(metadata.last_partition_id or 0, PARTITION_FIELD_ID_START - 1) + 1)
    fields = []
    for partition in partitions_of(schema):
        source = columns.find_field(partition.column).field_id
        field = known.get((source, partition.transform))
        fields.append(
            PartitionField(
                source, next(unused), transform=parse_transform(partition.transform), name=partition.name
            )
            if field is None
            else field
        )
    for spec in specs:
        if list(spec.fields) == fields:
            return spec
    return PartitionSpec(*fields, spec_id=1 + max(spec.spec_id for spec in specs))


def says(schema: pa.Schema, columns: Schema, spec: PartitionSpec) -> bool:
    """Tell whether a table is partitioned as the metadata of its columns say."""
    said = [(partition.column, partition.transform) for partition in partitions_of(schema)]
    return said == [
        (columns.find_column_name(field.source_id), str(field.transform)) for field in spec.fields
    ]


def partition_names(schema: pa.Schema) -> list[str]:
    """Return the names under which `with_values` adds columns; no column of a database can have one."""
    return [f"\0{level}" for level in range(len(partitions_of(schema)))]


def with_values(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a table with a column for each partition, that has what a text can tell of its value."""
    values = [_transformed(rows.column(partition.column), partition) for partition in partitions_of(schema)]
    added = [pa.field(name, value.type) for name, value in zip(partition_names(schema), values, strict=True)]
    return pa.RecordBatch.from_arrays([*rows.columns, *values], schema=pa.schema([*rows.schema, *added]))


def is_in(rows: pa.RecordBatch, schema: pa.Schema, partition: Values) -> npt.NDArray[np.bool_]:
    """Tell which rows of a table are in a partition."""
    stays = np.ones(len(rows), np.bool_)
    for level, text in zip(partitions_of(schema), partition, strict=True):
        values = _transformed(rows.column(level.column), level)
        if text is None:
            same = values.is_null()
        else:
            same = pc.equal(values, pa.scalar(text).cast(values.type)).fill_null(False)  # noqa: FBT003 - PyArrow's
        stays &= same.to_numpy(zero_copy_only=False)
    return stays


def _transformed(column: pa.Array, partition: Partition) -> pa.Array:
    is_day = pa.types.is_date32(column.type)
    if partition.transform == "identity":
        return column.cast(pa.int32()) if is_day else column
    # What NULL becomes does not matter below: the mask takes it out at the end.
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    numbers = column.cast(pa.int32() if is_day else pa.int64()).fill_null(0).to_numpy().astype(np.int64)
    # Floor division: moments before 1970 belong to the day that they are in.
    days = numbers if is_day else numbers // _DAY
    match partition.transform:
        case "hour":
            # 32 bits end with the year 246,953; PostgreSQL's moments with 294,276, and infinity behind them
            values = np.clip(numbers // _HOUR, -(2**31), 2**31 - 1)
        case "day":
            values = days
        case "month":
            values = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        case _:
            values = days.astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64)
    return pa.array(values, pa.int32(), mask=nulls)


def record_of(texts: Values, spec: PartitionSpec, columns: Schema) -> Record:
    """Return the partition of which `with_values` has these texts."""
    kinds = [field.field_type for field in spec.partition_type(columns).fields]
    return Record(*(_value(text, kind) for text, kind in zip(texts, kinds, strict=True)))


def _value(text: str | None, kind: object) -> str | bool | int | None:
    if text is None or isinstance(kind, StringType):
        return text
    return text == "true" if isinstance(kind, BooleanType) else int(text)


def texts_of(record: Record) -> Values:
    """Return the texts of a partition, as `with_values` has them."""
    return tuple(_text(record[index]) for index in range(len(record)))


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def schema_with(spec: PartitionSpec, schemas: Sequence[Schema]) -> Schema:
    """Return the last of a table's columns, present ones first, that have what a specification is made of."""
    sources = [field.source_id for field in spec.fields]
    return next(schema for schema in schemas if all(map(schema.find_column_name, sources)))
