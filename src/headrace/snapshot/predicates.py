"""Which conditions can the server look at before a row is sent?

Pure. A condition may let rows through that the reader does not want, for the reader looks again; it must
never hold one back. So only those are rendered for which that is certain: not the order of texts, which
depends on collations, no text of a number, no value that the server could refuse to read.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from headrace.catalog.types import RowType
from headrace.model.types import ArrowForm
from headrace.postgres.quoting import identifier, literal

_NUMBERS = frozenset({20, 21, 23, 700, 701, 1700})
"""int8, int2, int4, float4, float8, numeric: by their numbers in pg_type."""
_BOOLEAN, _DATE, _TIMESTAMP, _TIMESTAMPTZ, _UUID, _BYTES = 16, 1082, 1114, 1184, 2950, 17
_TEXTS = frozenset({25, 1043})
"""text, varchar."""
_EQUAL_ONLY = _TEXTS | {_BOOLEAN, _UUID, _BYTES}
_CANONICAL_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ColumnComparison(Enum):
    """What a condition says of a column; the value is the operator, where there is one."""

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
        values: of which one has to satisfy `comparison`; Python's own, none where none is needed.
    """

    column: str
    comparison: ColumnComparison
    values: tuple[object, ...] = ()


def rendered(condition: PushedCondition, row_type: RowType) -> str | None:
    """The condition as SQL; None where the server must not decide it."""
    oid = next((one.type for one in row_type.attributes if one.name == condition.column), None)
    if oid is None:
        return None
    sql = identifier(condition.column)
    match condition.comparison:
        case ColumnComparison.IS_NULL:
            return f"num_nulls({sql}) = 1"
        case ColumnComparison.IS_NOT_NULL:
            return f"num_nulls({sql}) = 0"
        case ColumnComparison.STARTS_WITH:
            return _begins(sql, oid, condition.values)
    is_text = row_type.columns[condition.column].form is ArrowForm.TEXT
    if oid in _NUMBERS and is_text:  # a numeric that is text to the reader
        return None
    return _compared(sql, oid, condition)


def _begins(sql: str, oid: int, values: tuple[object, ...]) -> str | None:
    found = [_literal(oid, value) for value in values]
    if oid not in _TEXTS or len(found) != 1 or found[0] is None:
        return None
    return f'starts_with({sql} COLLATE "C", {found[0]})'


def _compared(sql: str, oid: int, condition: PushedCondition) -> str | None:
    found = [_literal(oid, value) for value in condition.values]
    values = [one for one in found if one is not None]
    if not values or len(values) < len(found):
        return None
    if condition.comparison is ColumnComparison.EQUAL:
        return f"{sql} IN ({', '.join(values)})"
    return None if oid in _EQUAL_ONLY else f"{sql} {condition.comparison.value} {values[0]}"


def _literal(oid: int, value: object) -> str | None:
    """`value` as a literal of that type, or None where it is none."""
    text: str | None = None
    match value:
        case bool():
            text = str(value).lower() if oid == _BOOLEAN else None
        case int() | float() | Decimal():
            text = str(value) if oid in _NUMBERS else None
        case str():
            plain = oid in _TEXTS and "\0" not in value
            text = value if plain or (oid == _UUID and _CANONICAL_UUID.fullmatch(value)) else None
        case bytes():
            text = f"\\x{value.hex()}" if oid == _BYTES else None
        case dt.datetime():
            wanted = _TIMESTAMP if value.tzinfo is None else _TIMESTAMPTZ
            text = value.isoformat(" ") if oid == wanted else None
        case dt.date():
            text = value.isoformat() if oid == _DATE else None
    return None if text is None else literal(text)
