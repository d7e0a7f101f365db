"""Partition Delta tables by columns: those that the database has, and those that a transform needs. Pure.

A table's schema has the columns of the database in the mirror's other files, with metadata that say how it is
partitioned. The Delta table also has the derived columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.mirror.partitions import derived_fields, derived_from, partitions_of
from headrace.model.lake_partition import Partition
from headrace.model.types import quoted
from headrace.postgres.quoting import replication_literal

_MOST_VALUES = 200
"""A merge that meets more partitions looks into all of them."""


def declared(schema: pa.Schema) -> pa.Schema:
    """Return the columns that a Delta table has."""
    return pa.schema([*schema, *derived_fields(schema)])


def undeclared(fields: Iterable[pa.Field]) -> pa.Schema:
    """Return the columns of a Delta table without the derived ones."""
    return pa.schema([field for field in fields if derived_from(field) is None])


def partition_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of a Delta table that decide in which partition a row is."""
    return [partition.name for partition in partitions_of(schema)]


def pruning(rows: pa.Table, partitions: Sequence[Partition], key: Sequence[str]) -> Iterator[str]:
    """Yield conditions of a merge that leave partitions out in which no row's key can be.

    Only a column of the key tells: another one may have had another value when its row was written.

    Args:
        rows: the new rows, with derived columns.
        partitions: how the table is partitioned.
        key: the key's columns.
    """
    for partition in partitions:
        values = pc.unique(rows.column(partition.name))
        if partition.column in key and len(values) <= _MOST_VALUES:
            name = f"old.{quoted(partition.name)}"
            texts = [_literal(value) for value in values if value.is_valid]
            conditions = [f"{name} IN ({', '.join(texts)})"] if texts else []
            conditions += [f"{name} IS NULL"] if values.null_count else []
            yield f"({' OR '.join(conditions) or 'false'})"


def _literal(value: pa.Scalar) -> str:
    """Return a value in the SQL of DataFusion."""
    if pa.types.is_date32(value.type):
        return f"CAST('{value.cast(pa.string()).as_py()}' AS DATE)"
    if pa.types.is_string(value.type):
        return replication_literal(value.as_py())  # DataFusion knows no escapes either
    return str(value.as_py()).lower()
