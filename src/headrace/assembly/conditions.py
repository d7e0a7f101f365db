"""How does a filter become an SQL condition?

Operands are untyped literals: PostgreSQL gives them the column's own type, domains followed, without the
type's length or precision (a cast would cut `'abcdef'` to `varchar(3)` and find the wrong rows).
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.assembly.plan import RowCondition
from headrace.catalog.comparison import is_foreign, operator, plain
from headrace.catalog.table import Column, Table
from headrace.errors import HeadraceError, Kind
from headrace.postgres.quoting import identifier, literal
from headrace.schema.tree import Filter, Scalar

_SYMBOLS = {
    "eq": "=",
    "neq": "<>",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
    "like": "~~",
    "ilike": "~~*",
}


def column_sql(alias: str, column: Column) -> str:
    """The column of the row called `alias`."""
    return plain(f"{alias}.{identifier(column.name)}", column)


def plain_conditions(conditions: Iterable[RowCondition], alias: str) -> list[str]:
    """The conditions that are not raw, on the row called `alias`."""
    return [_plain(one.filter, one.column, alias) for one in conditions if one.column is not None]


def raw_conditions(conditions: Iterable[RowCondition]) -> list[str]:
    """The raw conditions, each in parentheses; they need a scope where only their own table is in sight."""
    return [f"({one.filter.raw})" for one in conditions if one.column is None]


def row_conditions(table: Table, conditions: tuple[RowCondition, ...], alias: str) -> list[str]:
    """All conditions on one row that is already at hand as `alias`, raw ones in a scope of their own."""
    raw = raw_conditions(conditions)
    if raw:
        scope = f"(SELECT {alias}.*) AS {identifier(table.name.name)}"
        raw = [f"(SELECT {' AND '.join(raw)} FROM {scope})"]
    return plain_conditions(conditions, alias) + raw


def _plain(one: Filter, column: Column, alias: str) -> str:
    subject = column_sql(alias, column)
    values = [_operand(value) for value in one.values]
    match one.op:
        case "is_null":
            return f"{subject} IS NULL"
        case "is_not_null":
            return f"{subject} IS NOT NULL"
        case "in" | "not_in":
            return _membership(subject, column, values, negated=one.op == "not_in")
        case "between":
            low, high = _exactly(one, values, 2)
            return f"({subject} {operator(column, '>=')} {low} AND {subject} {operator(column, '<=')} {high})"
        case "raw":
            raise _unreadable(one)
        case _:
            (value,) = _exactly(one, values, 1)
            return f"{subject} {operator(column, _SYMBOLS[one.op])} {value}"


def _membership(subject: str, column: Column, values: list[str], *, negated: bool) -> str:
    if not values:
        return "true" if negated else "false"
    if not is_foreign(column):
        return f"{subject} {'NOT IN' if negated else 'IN'} ({', '.join(values)})"
    symbol, glue = ("<>", " AND ") if negated else ("=", " OR ")
    return f"({glue.join(f'{subject} {operator(column, symbol)} {value}' for value in values)})"


def _operand(value: Scalar) -> str:
    return literal(str(value).lower() if isinstance(value, bool) else value).strip()


def _exactly(one: Filter, values: list[str], count: int) -> list[str]:
    if len(values) != count:
        raise _unreadable(one)
    return values


def _unreadable(one: Filter) -> HeadraceError:
    return HeadraceError(
        Kind.SCHEMA, f"{one.place}: a filter {one.op} with {len(one.values)} values cannot be read"
    )
