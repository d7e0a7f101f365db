"""Give values to Python, and take them back, where Python has no such moment. Pure.

Python has no dates and times outside the years 1 to 9999, nor infinite ones: whole numbers stand for all.
NaN is one object, so that it is found as a key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column's values; dates and timestamps, in nested values too, are whole numbers."""
    # Whole numbers for all moments, not only for far ones: two kinds would not compare.
    values: list[Any] = column.cast(_countable(column.type)).to_pylist()
    return [_one_nan(value) for value in values] if pa.types.is_floating(column.type) else values


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows by the names of their columns, with `python_values`."""
    names = rows.schema.names
    columns = [python_values(column) for column in rows.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def arrow_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of what `python_values` made of values of a type."""
    return pa.array(values, _countable(kind)).cast(kind)


def arrow_rows(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return a table of what `python_rows` made of rows with a schema."""
    columns = [arrow_values([row[field.name] for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def shown_value(value: Any, kind: pa.DataType) -> Any:
    """Return what people read in the place of one of `python_values`: a moment where Python has it."""
    try:
        return arrow_values([value], kind)[0].as_py()
    except (OverflowError, ValueError):
        return value


def _one_nan(value: float | None) -> float | None:
    return math.nan if value is not None and math.isnan(value) else value


def _countable(kind: pa.DataType) -> pa.DataType:
    """Return a type with whole numbers in the place of moments."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_countable(kind.value_type)))
    if pa.types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return pa.struct([field.with_type(_countable(field.type)) for field in fields])
    return kind
