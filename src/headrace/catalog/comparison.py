"""Render SQL that casts a text back to a column's type, and compares such values.

Reading sessions pin `search_path` to `pg_catalog`. There the operators of an extension's type (citext, ltree)
are not found by their bare symbol, and citext would silently be compared as text. So they are named with
their schema.
"""

from __future__ import annotations

from headrace.catalog.table import Column
from headrace.postgres.quoting import identifier

_WIDTHS = {"int2": 2, "int4": 4, "int8": 8}
INTEGERS = frozenset(_WIDTHS)
_TEXTS = frozenset({"text", "varchar"})
_FAMILIES = (
    INTEGERS,
    _TEXTS,
    frozenset({"float4", "float8"}),
    frozenset({"date", "timestamp", "timestamptz"}),
)
"""Types that are compared with each other without a cast."""
_CAST_TO = {
    "numeric": INTEGERS,
    "float4": INTEGERS | {"numeric"},
    "float8": INTEGERS | {"numeric"},
    "oid": INTEGERS,
    "text": {"bpchar", "name"},
    "varchar": {"name"},
    "bpchar": {"varchar"},
    "name": _TEXTS | {"bpchar"},
    "timetz": {"time"},
}
"""The types whose values are cast before they are compared with one of this type."""
BUILT_IN = frozenset(
    "bit bool bpchar bytea char cidr date float4 float8 inet int2 int4 int8 interval json jsonb macaddr "
    "macaddr8 money name numeric oid point text time timestamp timestamptz timetz tsvector uuid varbit "
    "varchar xml xid xid8 pg_lsn".split()
)
_CATEGORIES_WITH_OPERATORS = "SUNDTGIVZ"


def cast_type(column: Column) -> str:
    """Return the type, as SQL, that a text is cast to before it is compared with `column`.

    PostgreSQL's own types come without the modifier: `'abcdef'::varchar(3)` would silently cut the value. For
    a domain it is the base type: an unchecked reference may hold what the domain refuses, and matches no row.
    """
    if column.type_schema == "pg_catalog" or column.base_type in BUILT_IN:
        return f"pg_catalog.{identifier(column.base_type)}"
    if column.domain and column.category == "E":
        return column.base_type
    return column.type


def plain(sql: str, column: Column) -> str:
    """Return `sql` without its enum domain: operators of enums accept no domains."""
    if column.domain and column.category == "E":
        return f"{sql}::{column.base_type}"
    return sql


def operator(column: Column, symbol: str) -> str:
    """Return the operator `symbol` of the column's type, as SQL that needs no search path."""
    return f"OPERATOR({identifier(column.home)}.{symbol})" if is_foreign(column) else symbol


def is_foreign(column: Column) -> bool:
    """Return whether the type, domains followed, is neither PostgreSQL's own nor built from such types."""
    return (
        column.type_schema != "pg_catalog"
        and column.category in _CATEGORIES_WITH_OPERATORS
        and column.base_type not in BUILT_IN
    )


def equal(left: str, left_column: Column, right: str, right_column: Column) -> str:
    """Return the condition that two values are the same key, as SQL.

    The collation is a nondeterministic one of either side, else the left one, whose index may serve. It is
    explicit: PostgreSQL does not compare texts of two collations without one, a parameter has none, and a
    semijoin removes duplicates by the collation of the expression, not by that of the comparison.
    """
    typed = left_column if is_foreign(left_column) else right_column
    if right_column.nondeterministic and left_column.collation != right_column.collation:
        left = f"({left} COLLATE {right_column.collation})"
    elif left_column.collation not in ("", right_column.collation):
        right = f"({right} COLLATE {left_column.collation})"
    return f"{left} {operator(typed, '=')} {right}"


def same_text(left: Column, right: Column) -> bool:
    """Return whether a value of `left` is the same key in `right` when only its text is passed on.

    A larger integer type may hold values outside the other type's range. Where only one of the two columns
    takes `Ann` and `ANN` for equal, another spelling may be meant.
    """
    if left.nondeterministic != right.nondeterministic:
        return False
    if left.base_type in _WIDTHS and right.base_type in _WIDTHS:
        return _WIDTHS[left.base_type] <= _WIDTHS[right.base_type]
    return left.base_type == right.base_type or {left.base_type, right.base_type} <= _TEXTS


def as_stored(column: Column, other: Column) -> bool:
    """Return whether `equal` compares the values of `column` without a cast, and by its own collation.

    Then its indexes serve the comparison, and its unique values stay unique.
    """
    if other.collation and not column.collation:
        return False
    base_type, other_type = column.base_type, other.base_type
    if base_type == other_type or other_type in _CAST_TO.get(base_type, ()):
        return True
    return any(base_type in family and other_type in family for family in _FAMILIES)


def is_hashed(left: Column, right: Column) -> bool:
    """Return whether `equal` can join sets: an extension's operator may support single values only."""
    foreign = [column for column in (left, right) if is_foreign(column)]
    return all(column.base_type == "citext" or column.category == "E" for column in foreign)
