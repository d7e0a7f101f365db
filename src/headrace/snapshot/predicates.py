"""Render the conditions on columns that the server can apply before it sends a row. Pure.

Spark applies each condition again, so the server's may let too many rows through; it must never drop one. So
only conditions are rendered for which that is certain: not the order of texts, which depends on collations,
no number that Spark reads as text, and no value that the server could reject.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from headrace.catalog.types import RowType
from headrace.model.types import ArrowForm
from headrace.postgres.quoting import identifier, literal

_NUMBERS = frozenset({20, 21, 23, 700, 701, 1700})
"""int8, int2, int4, float4, float8, numeric: oids of pg_type."""
_BOOLEAN, _DATE, _TIMESTAMP, _TIMESTAMPTZ, _UUID, _BYTES = 16, 1082, 1114, 1184, 2950, 17
_TEXTS = frozenset({25, 1043})
"""text, varchar."""
_EQUAL_ONLY = _TEXTS | {_BOOLEAN, _UUID, _BYTES}
_CANONICAL_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ColumnComparison(Enum):
    """The comparisons of a condition; the value is the SQL operator, where there is one."""

    EQUAL = "="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="
    STARTS_WITH = "starts_with"
    IS_NULL = "is null"
    IS_NOT_NULL = "is not null"


@dataclass(frozen=True, slots=True)
class PushedCondition:
    """A condition on one column.

    Attributes:
        column: the column's name.
        comparison: how the column is compared.
        values: Python values, one of which has to satisfy `comparison`; empty where it needs none.
    """

    column: str
    comparison: ColumnComparison
    values: tuple[object, ...] = ()


def render_condition(condition: PushedCondition, row_type: RowType) -> str | None:
    """Return the condition as SQL; None where the server must not apply it."""
    oid = next(
        (attribute.type for attribute in row_type.attributes if attribute.name == condition.column), None
    )
    if oid is None:
        return None
    sql = identifier(condition.column)
    match condition.comparison:
        case ColumnComparison.IS_NULL:
            # IS NULL of a composite value would ask whether all of its parts are NULL.
            return f"num_nulls({sql}) = 1"
        case ColumnComparison.IS_NOT_NULL:
            return f"num_nulls({sql}) = 0"
        case ColumnComparison.STARTS_WITH:
            return _starts_with(sql, oid, condition.values)
    is_text = row_type.columns[condition.column].form is ArrowForm.TEXT
    if oid in _NUMBERS and is_text:  # a numeric that is text to the reader
        return None
    return _compare(sql, oid, condition)


def _starts_with(sql: str, oid: int, values: tuple[object, ...]) -> str | None:
    literals = [_literal(oid, value) for value in values]
    if oid not in _TEXTS or len(literals) != 1 or literals[0] is None:
        return None
    # By bytes, as Spark compares texts; some collations support no such search.
    return f'starts_with({sql} COLLATE "C", {literals[0]})'


def _compare(sql: str, oid: int, condition: PushedCondition) -> str | None:
    literals = [_literal(oid, value) for value in condition.values]
    values = [text for text in literals if text is not None]
    if not values or len(values) < len(literals):
        return None
    if condition.comparison is ColumnComparison.EQUAL:
        return f"{sql} IN ({', '.join(values)})"
    return None if oid in _EQUAL_ONLY else f"{sql} {condition.comparison.value} {values[0]}"


def _literal(oid: int, value: object) -> str | None:
    """Return `value` as a literal of the type `oid`; None where it has none."""
    types, text = _text_of(value)
    return literal(text) if oid in types else None


def _text_of(value: object) -> tuple[Collection[int], str]:
    """Return the types that a value is compared with, and its text for them."""
    types: Collection[int] = ()
    text = ""
    match value:
        case bool():  # before int, which it is too
            types, text = {_BOOLEAN}, str(value).lower()
        case int() | float() | Decimal():
            types, text = _NUMBERS, str(value)
        case str():
            types, text = _types_of_text(value), value
        case bytes():
            types, text = {_BYTES}, f"\\x{value.hex()}"
        case dt.datetime():  # before date, which it is too
            types, text = {_TIMESTAMP if value.tzinfo is None else _TIMESTAMPTZ}, value.isoformat(" ")
        case dt.date():
            types, text = {_DATE}, value.isoformat()
    return types, text


def _types_of_text(value: str) -> Collection[int]:
    if _CANONICAL_UUID.fullmatch(value):
        return _TEXTS | {_UUID}
    # No value of the server's has a NUL, and it refuses a statement with one.
    return () if "\0" in value else _TEXTS
