"""Check that a column's type fits what the schema file declares. Pure."""

from __future__ import annotations

import math
import struct
from decimal import Decimal

from headrace.catalog.comparison import BUILT_IN, INTEGERS, is_foreign
from headrace.catalog.table import Column
from headrace.schema.language import READS, SCALARS, TEXTUAL
from headrace.schema.tree import ColumnField, Scalar

_ALIASES = {
    "smallint": "int2",
    "integer": "int4",
    "int": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
    "decimal": "numeric",
    "boolean": "bool",
    "character varying": "varchar",
    "character": "bpchar",
    "char": "bpchar",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
    "time without time zone": "time",
    "time with time zone": "timetz",
}
"""SQL's names of types, with PostgreSQL's own (pg_type.typname)."""

_WITHOUT_ORDER = frozenset({"json", "xml", "point", "box", "polygon", "path", "circle", "line", "lseg"})
_NUMBERS = frozenset({"short", "integer", "long", "float", "double", "decimal"})
_WHOLE = {
    "byte": (-(2**7), 2**7),
    "short": (-(2**15), 2**15),
    "integer": (-(2**31), 2**31),
    "long": (-(2**63), 2**63),
    "unsigned_long": (0, 2**64),
}
"""Types of whole numbers: the least one, and the first that is too large."""
_FRACTIONS = {"half_float": "<e", "float": "<f", "double": "<d", "scaled_float": "<d"}
"""Types of fractions, each with the format of `struct` that has its range."""


def is_text(column: Column) -> bool:
    """Return whether the column holds text or an enum."""
    return column.category in ("S", "E") or column.base_type == "citext"


def holds_texts(column: Column) -> bool:
    """Return whether the column is text or an enum, or an array of them."""
    return is_text(column) or column.element_category in ("S", "E")


def reads(tag: str, column: Column) -> bool:
    """Return whether the scalar type key `tag` reads `column`; of an array, each element."""
    value_type, category = column.base_type, column.element_category or column.category
    if column.element_category:
        value_type = value_type.removeprefix("_")
    return value_type in READS[tag] or (tag in TEXTUAL and category == "E")


def fitting_tags(column: Column) -> list[str]:
    """Return the type keys that read `column`, the most natural first."""
    order = ("keyword", *SCALARS)
    return [tag for tag in dict.fromkeys(order) if reads(tag, column)]


def custom_remedy(field: ColumnField, column: Column) -> str:
    """Return the remedy where no scalar reads `column`: a `custom` field with both types."""
    element = column.base_type.lstrip("_")
    known = [tag for tag in SCALARS if tag not in TEXTUAL and element in READS[tag]]
    kind = SCALARS[known[0]] if known else "keyword"
    shown = column.type.replace('"', "")
    return f'Write `custom: {field.key}` with `postgres: ["{shown}"]` and `opensearch: {kind}`.'


def accepts(kind: str, value: Scalar) -> bool:
    """Return whether an index accepts `value` for a field of type `kind`; True where that is not known."""
    if kind == "boolean":
        return isinstance(value, bool) or str(value) in {"true", "false", ""}
    if kind not in _WHOLE.keys() | _FRACTIONS:
        return True
    try:
        number = Decimal(str(value))
        if kind in _WHOLE:
            least, end = _WHOLE[kind]
            return least <= number < end and number % 1 == 0
        struct.pack(_FRACTIONS[kind], float(number))
    except (ArithmeticError, ValueError):  # no number, or one beyond the range
        return False
    return math.isfinite(float(number))


def reads_custom(declared: tuple[str, ...], column: Column) -> bool:
    """Return whether a `custom` field that accepts the types `declared` reads `column`."""
    names = {canonical(name) for name in declared}
    shown = canonical(column.type)
    bare = ("_" if shown.startswith("_") else "") + shown.rpartition(".")[2]
    return bool(names & {column.base_type, shown, *({bare} - BUILT_IN)})


def canonical(name: str) -> str:
    """Return pg_type's name of the SQL type `name`: no modifier, `_` before an array's element.

    Quotes are removed: `format_type` adds them to a user's type that is named like a built-in one.
    """
    text = " ".join(name.lower().replace('"', "").split())
    array = text.endswith("[]")
    text = text.removesuffix("[]").strip()
    before, _, after = text.partition("(")
    if after:
        text = (before.strip() + after.partition(")")[2]).strip()
    text = _ALIASES.get(text, text)
    return f"_{text}" if array else text


def is_ordered(column: Column) -> bool:
    """Return whether PostgreSQL can sort by the column."""
    return column.base_type.lstrip("_") not in _WITHOUT_ORDER


def are_comparable(left: Column, right: Column) -> bool:
    """Return whether a join can compare the two columns."""
    # PostgreSQL does not compare such columns either: neither collation goes before the other.
    are_unlike = left.collation and right.collation and left.collation != right.collation
    if are_unlike and (left.nondeterministic or right.nondeterministic):
        return False
    if left.base_type == right.base_type:
        return True
    # An extension's operators take its own types alone: `text = citext` is none of them.
    if is_foreign(left) or is_foreign(right):
        return False
    return left.category == right.category and left.category in ("N", "S", "D")


def reduces(op: str, value_type: str | None, column: Column) -> bool:
    """Return whether the aggregate `op` over `column` gives a `value_type`."""
    number = column.category == "N"
    if op == "avg":
        return number
    if value_type is None:
        return False
    if op == "sum":
        return number and value_type in _NUMBERS
    return (reads(value_type, column) and not column.element_category) or (number and value_type in _NUMBERS)


def collects(element_type: str, column: Column) -> bool:
    """Return whether `ids` can collect `column` as `element_type`; every key can become text."""
    if element_type in TEXTUAL or reads(element_type, column):
        return True
    return element_type in _NUMBERS - {"short", "integer"} and column.base_type in INTEGERS
