"""Give a table the columns and partitions of a schema, and keep what Iceberg's types do not say of it."""

from __future__ import annotations

import base64
from collections.abc import Collection

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, Table, Transaction
from pyiceberg.table.metadata import TableMetadata

from headrace.mirror.partitions import partitions_of
from headrace.model.lake_partition import Partition

OWN = "headrace"
"""Names, in a snapshot's summary and a table's properties, the position up to where a table has the log."""
COLUMNS = "headrace.columns"
"""The property with the table's columns, their types and metadata."""


def alter(change: Transaction, schema: pa.Schema) -> None:
    """Give a table the columns and partitions of a schema.

    A column that keeps its name and type keeps its number; another gets one that none had before: files have
    columns by number, so that a number that is used again would give a column another's old values.
    """
    before = change.table_metadata
    columns = before.schema()
    written = {field.name: field.type for field in written_columns(before) or ()}
    staying = {field.name for field in schema if written.get(field.name) == field.type}
    wanted = partitions_of(schema)
    if not {partition.column for partition in levels(before.spec(), columns)} <= staying:
        # Without a column, lists of files whose partitions it decides cannot be written any more.
        with change.update_snapshot({OWN: before.properties[OWN]}).overwrite() as emptied:
            for file in present_files(change):
                emptied.delete_data_file(file)
    # A column cannot go before the partitions that it decides, nor come after them.
    with change.update_spec() as spec:
        for field, partition in zip(before.spec().fields, levels(before.spec(), columns), strict=True):
            if partition.column not in staying or partition not in wanted:
                spec.remove_field(field.name)
    _alter_columns(change, schema, staying)
    if before.properties.get(COLUMNS) != to_text(schema):
        change.set_properties({COLUMNS: to_text(schema)})
    after = change.table_metadata
    present = levels(after.spec(), after.schema())
    with change.update_spec() as spec:
        for partition in wanted:
            if partition not in present:
                # Not the column's own name: were the column made again, old partitions would keep it.
                name = f"_{partition.column}_{partition.transform}"
                spec.add_field(partition.column, partition.transform, name)


def _alter_columns(change: Transaction, schema: pa.Schema, staying: Collection[str]) -> None:
    with change.update_schema(allow_incompatible_changes=True) as update:
        for column in change.table_metadata.schema().fields:
            if column.name not in staying:
                update.delete_column((column.name,))
    with change.update_schema() as update:
        update.union_by_name(plain(schema))
    with change.update_schema() as update:
        for name in reversed(schema.names):
            update.move_first((name,))


def table_of(change: Transaction) -> Table:
    """Return the table that a transaction changes, as it was when it was opened, or as it is planned."""
    return change._table  # noqa: SLF001 - the library tells where a planned table's files go nowhere else


def present_files(change: Transaction) -> list[DataFile]:
    """Return the data files that a table has with a change."""
    table = table_of(change)
    return [task.file for task in DataScan(change.table_metadata, table.io).plan_files()]


def plain(schema: pa.Schema) -> pa.Schema:
    """Return columns without metadata."""
    return pa.schema([(field.name, field.type) for field in schema])


def levels(spec: PartitionSpec, columns: Schema) -> list[Partition]:
    """Return the levels of a table's partitions, in the order in which its files have them."""
    return [
        # a column that is gone has no name, and is wanted by nobody
        Partition(columns.find_column_name(field.source_id) or "", str(field.transform))  # type: ignore[arg-type]
        for field in spec.fields
    ]


def to_text(schema: pa.Schema) -> str:
    """Encode columns with their types and metadata as a text for a table's properties."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def written_columns(metadata: TableMetadata) -> pa.Schema | None:
    """Return the columns that `to_text` wrote; None: no mirror made the table."""
    text = metadata.properties.get(COLUMNS)
    return None if text is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
