"""Read the rows of a table's Parquet files, and say what is in each."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    PYARROW_PARQUET_FIELD_ID_KEY,
    MetricModeTypes,
    MetricsMode,
    PyArrowFileIO,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DoubleType, FloatType, NestedField, PrimitiveType

from headrace.mirror.columns import fitted
from headrace.mirror.files import DataFile as WrittenFile
from headrace.mirror.iceberg.partitions import record_of
from headrace.mirror.keys import KeyIndex
from headrace.mirror.python_values import python_values

_BATCH_ROWS = 65_536


def file_system(io: FileIO, location: str) -> FileSystem:
    """Return a folder, whose files are reached as those of a table; it is made where it is missing."""
    assert isinstance(io, PyArrowFileIO), "the lake has opened the catalog so"
    scheme, authority, path = io.parse_location(location, io.properties)
    system = io.fs_by_scheme(scheme, authority)
    if isinstance(system, LocalFileSystem):
        system.create_dir(path, recursive=True)
    return SubTreeFileSystem(path, system)


def describe(io: FileIO, path: str, file: WrittenFile, columns: Schema, spec: PartitionSpec) -> DataFile:
    """Return what a table's metadata say of a new data file.

    Raises:
        ValueError: it does not have these columns.
    """
    with io.new_input(path).open() as source, pq.ParquetFile(source) as parquet:
        numbers = [int(field.metadata[PYARROW_PARQUET_FIELD_ID_KEY]) for field in parquet.schema_arrow]
        metadata = parquet.metadata
    if numbers != [field.field_id for field in columns.fields]:
        raise ValueError(f"{path} has other columns")
    paths = parquet_path_to_id_mapping(columns)
    statistics = data_file_statistics_from_parquet_metadata(
        metadata, _statistics_plan(metadata, columns, paths), paths
    )
    described = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=record_of(tuple(file.partition.values()), spec, columns),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    described.spec_id = spec.spec_id
    return described


def _statistics_plan(
    metadata: pq.FileMetaData, columns: Schema, paths: Mapping[str, int]
) -> dict[int, StatisticsCollector]:
    """Return what is to be known of each column: no bounds where Python has no such day."""
    plan = compute_statistics_plan(columns, {})
    for group, number in itertools.product(range(metadata.num_row_groups), range(metadata.num_columns)):
        column = metadata.row_group(group).column(number)
        field = paths[column.path_in_schema]
        try:
            _ = column.statistics.min, column.statistics.max
        except (OverflowError, ValueError, NotImplementedError):  # the last before PyArrow 23
            plan[field] = replace(plan[field], mode=MetricsMode(MetricModeTypes.COUNTS))
    return plan


def read_rows(
    io: FileIO, path: str, schema: pa.Schema, columns: Schema, names: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file, whoever wrote it.

    Args:
        io: reads it.
        path: where it is.
        schema: the table's columns.
        columns: their numbers.
        names: those that are wanted; None: all.
    """
    wanted = [field for field in schema if names is None or field.name in names]
    with (
        io.new_input(path).open() as source,
        # An object store answers few large requests sooner than many small ones.
        pq.ParquetFile(source, pre_buffer=not path.startswith(("/", "file:"))) as file,
    ):
        held = _held_columns(file.schema_arrow, wanted, columns)
        kinds = [_with_names(file.schema_arrow.field(name).type, columns) for name in held.values()]
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[*held.values()]):
                # By `select`, a file that has none of the columns keeps its number of rows.
                rows = batch.select([*held.values()]).rename_columns([*held])
                for at, (name, kind) in enumerate(zip(held, kinds, strict=True)):
                    if rows.column(at).type != kind:
                        rows = rows.set_column(at, name, rows.column(at).view(kind))
                yield fitted(rows, pa.schema(wanted))


def _held_columns(file: pa.Schema, wanted: Sequence[pa.Field], columns: Schema) -> dict[str, str]:
    """Return the file's name of each column that it has: one that came later is in no older file."""
    numbers = {field.name: field.field_id for field in columns.fields}
    # A program that gave a column no number means the table's of that name.
    present = {
        int((field.metadata or {}).get(PYARROW_PARQUET_FIELD_ID_KEY, numbers.get(field.name, -1))): field.name
        for field in file
    }
    held = {field.name: numbers.get(field.name) for field in wanted}
    return {name: present[number] for name, number in held.items() if number in present}


def _with_names(kind: pa.DataType, columns: Schema) -> pa.DataType:
    """Return a file's type with the table's names of its parts: Java's writer has others for odd ones."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_names(kind.value_type, columns)))
    if not pa.types.is_struct(kind):
        return kind
    fields = []
    for part in kind:
        number = (part.metadata or {}).get(PYARROW_PARQUET_FIELD_ID_KEY)
        name = part.name if number is None else columns.find_field(int(number)).name
        fields.append(part.with_type(_with_names(part.type, columns)).with_name(name))
    return pa.struct(fields)


def may_have(file: DataFile, columns: Schema, index: KeyIndex) -> bool:
    """Tell whether a file can have one of some keys, by what is said of it."""
    return all(_may_have(file, columns.find_field(name), index.bounds(name)) for name in index.key)


def _may_have(file: DataFile, column: NestedField, values: pa.Array) -> bool:
    kind = column.field_type
    # Bounds of floats leave NaN out.
    if not isinstance(kind, PrimitiveType) or isinstance(kind, (BooleanType, FloatType, DoubleType)):
        return True
    least, greatest = (
        (bounds or {}).get(column.field_id) for bounds in (file.lower_bounds, file.upper_bounds)
    )
    if least is None or greatest is None:
        return True
    sought = python_values(values)
    place = bisect.bisect_left(sought, from_bytes(kind, least))
    return place < len(sought) and sought[place] <= from_bytes(kind, greatest)
