"""Name the columns of the lake's tables, and say what of the database each is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import pyarrow as pa

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

PREFIX = "__headrace_"
"""What the names of the metadata columns begin with while changes are applied."""

COLUMN, TYPE, KEY = b"headrace.column", b"headrace.type", b"headrace.key"
"""Metadata of a lake column: the number and the type of the database's column, and its place in the key. They
tell a renamed column from a new one, and a column that was dropped and added again from the old one."""
MASK = b"headrace.mask"
"""Metadata of a column whose values the lake does not have: what it has in their place, with which salt."""
NULLED = b"headrace.nulled"
"""Metadata of a column that has NULL in the place of values that do not fit its type."""
PARTITION = b"headrace.partition"
"""Metadata of a column that decides in which partitions rows are: see `partitions.py`."""
DROPPED = b"headrace.dropped"
"""Metadata of a column that the database's table does not have any more."""


def number_of(field: pa.Field) -> bytes | None:
    """Return the number of the database's column; None for a column that the mirror added."""
    number: bytes | None = (field.metadata or {}).get(COLUMN)
    return number


def is_followed(field: pa.Field) -> bool:
    """Tell whether a lake column is one of the database's table, as it was when it was last looked at."""
    return number_of(field) is not None and DROPPED not in field.metadata


def described(schema: pa.Schema) -> list[tuple[str, pa.DataType, tuple[bytes | None, ...]]]:
    """Return what two schemas that need no alteration have in common."""
    wanted = (COLUMN, TYPE, KEY, MASK, NULLED)
    return [
        (field.name, field.type, tuple((field.metadata or {}).get(name) for name in wanted))
        for field in schema
    ]


def with_metadata(field: pa.Field, **values: str | None) -> pa.Field:
    """Return `field` with other metadata: `dropped` or `partition`; None removes one."""
    names = {"dropped": DROPPED, "partition": PARTITION}
    metadata = {**(field.metadata or {}), **{names[name]: value for name, value in values.items()}}
    return field.with_metadata({name: value for name, value in metadata.items() if value is not None})


def has_part(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Tell whether a type is such a one, or has such a part."""
    parts = (kind.field(index).type for index in range(kind.num_fields))
    return test(kind) or any(has_part(part, test) for part in parts)


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of `schema`; one that it does not have is NULL."""
    # Names alone decide: readers of the lake find columns by nothing else.
    present = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = [present.get(field.name, pa.nulls(len(batch))).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def replaced(rows: Rows, values: Mapping[str, pa.Array | pa.ChunkedArray]) -> Rows:
    """Return rows with other values of some columns, in their types."""
    columns = [values.get(name, column) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
    return type(rows).from_arrays(columns, schema=rows.schema)


def extended(rows: Rows, columns: Mapping[str, pa.Array | pa.ChunkedArray | pa.Scalar]) -> Rows:
    """Return rows with further columns; a scalar is the value of each row."""
    for name, values in columns.items():
        is_one = isinstance(values, pa.Scalar)
        rows = rows.append_column(name, pa.repeat(values, len(rows)) if is_one else values)
    return rows
