"""Number a table's columns, and say in Iceberg's types what is in them. Pure."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

ID = b"PARQUET:field_id"
_TYPES: tuple[tuple[Callable[[pa.DataType], bool], PrimitiveType], ...] = (
    (pa.types.is_boolean, BooleanType()),
    (pa.types.is_int64, LongType()),
    # Iceberg has no unsigned numbers: an oid needs 64 bits.
    (pa.types.is_uint32, LongType()),
    (pa.types.is_integer, IntegerType()),
    (pa.types.is_float32, FloatType()),
    (pa.types.is_float64, DoubleType()),
    (pa.types.is_string, StringType()),
    (pa.types.is_binary, BinaryType()),
    (pa.types.is_date32, DateType()),
)
_WIDER = {IntegerType(): pa.int32(), LongType(): pa.int64()}


def numbered(schema: pa.Schema, present: Schema | None = None, last: int = 0) -> Schema:
    """Return a table's columns in Iceberg's types, each with its number.

    A column that keeps its name and type keeps its number; another gets one that none had before.

    Args:
        schema: the columns.
        present: those that the table has; None: there is no table.
        last: the highest number that a column of the table has had.
    """
    # Files have columns by number: a number that is used again would give a column another's old values.
    before = {} if present is None else {field.name: field for field in present.fields}
    unused = itertools.count(last + 1)
    return Schema(*(_field(field, before.get(field.name), unused) for field in schema))


def _field(field: pa.Field, before: NestedField | None, unused: Iterator[int]) -> NestedField:
    if before is not None and not before.required:
        own = iter(_numbers(before.field_type))
        try:
            if _type(field.type, own) == before.field_type:
                return before
        except StopIteration:
            pass  # it has more parts than before
    number = next(unused)
    return NestedField(number, field.name, _type(field.type, unused), required=False)


def _type(kind: pa.DataType, numbers: Iterator[int]) -> IcebergType:
    """Return the type of a column; the parts of its values are numbered."""
    if pa.types.is_list(kind):
        number = next(numbers)
        return ListType(number, _type(kind.value_type, numbers), element_required=False)
    if pa.types.is_struct(kind):
        parts = [kind.field(index) for index in range(kind.num_fields)]
        return StructType(
            *(
                NestedField(next(numbers), part.name, _type(part.type, numbers), required=False)
                for part in parts
            )
        )
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return TimestampType() if kind.tz is None else TimestamptzType()
    for matches, found in _TYPES:
        if matches(kind):
            return found
    raise TypeError(f"Iceberg has no type for {kind}")


def _numbers(kind: IcebergType) -> Iterator[int]:
    """Yield the numbers of a type's parts, in the order in which `_type` gives them."""
    if isinstance(kind, ListType):
        yield kind.element_id
        yield from _numbers(kind.element_type)
    elif isinstance(kind, StructType):
        for part in kind.fields:
            yield part.field_id
            yield from _numbers(part.field_type)


def stored(schema: pa.Schema, columns: Schema) -> pa.Schema:
    """Return columns as a data file has them: numbered, whole numbers in the widths that Iceberg has."""
    return pa.schema([_stored(field, column) for field, column in zip(schema, columns.fields, strict=True)])


def _stored(field: pa.Field, column: NestedField) -> pa.Field:
    kind = _stored_type(field.type, column.field_type)
    return pa.field(field.name, kind, metadata={ID: str(column.field_id).encode()})


def _stored_type(kind: pa.DataType, column: IcebergType) -> pa.DataType:
    if isinstance(column, ListType):
        return pa.list_(_stored(kind.value_field.with_name("element"), column.element_field))
    if isinstance(column, StructType):
        parts = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([_stored(part, field) for part, field in zip(parts, column.fields, strict=True)])
    return _WIDER.get(column, kind)  # type: ignore[call-overload]


def to_text(schema: pa.Schema) -> str:
    """Encode columns with their types and metadata as a text for a table's properties."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def from_text(text: str) -> pa.Schema:
    """Return the columns that `to_text` wrote."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
