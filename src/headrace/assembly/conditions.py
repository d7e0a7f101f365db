"""Turn filters into SQL conditions.

Operands are untyped literals: PostgreSQL gives them the column's own type, domains followed, without the
type's length or precision (a cast would cut `'abcdef'` to `varchar(3)` and find the wrong rows).
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.assembly.plan import RowCondition
from headrace.catalog.comparison import is_foreign, operator, plain
from headrace.catalog.table import Column, Table
from headrace.errors import Kind, LocatedError
from headrace.model.units import quantity
from headrace.postgres.quoting import identifier, literal
from headrace.schema.core_type import core_type
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
    """Render a column of the row called `alias`."""
    return plain(f"{alias}.{identifier(column.name)}", column)


def plain_conditions(conditions: Iterable[RowCondition], alias: str) -> list[str]:
    """Render the conditions that are not raw, on the row called `alias`."""
    columns = ((condition.filter, condition.column) for condition in conditions)
    return [_plain(filter_, column, alias) for filter_, column in columns if column is not None]


def raw_conditions(conditions: Iterable[RowCondition]) -> list[str]:
    """Render the raw conditions, each in parentheses; their scope must contain only their own table."""
    return [f"({condition.filter.raw})" for condition in conditions if condition.column is None]


def row_conditions(table: Table, conditions: tuple[RowCondition, ...], alias: str) -> list[str]:
    """Render all conditions on one row that is available as `alias`, raw ones in a scope of their own."""
    raw = raw_conditions(conditions)
    if raw:
        # A raw condition names columns without an alias, or by the table's name: so the row is called.
        scope = f"(SELECT {alias}.*) AS {identifier(table.name.name)}"
        raw = [f"(SELECT {' AND '.join(raw)} FROM {scope})"]
    return plain_conditions(conditions, alias) + raw


def _plain(filter_: Filter, column: Column, alias: str) -> str:
    subject = column_sql(alias, column)
    values = [_operand(value, column) for value in filter_.values]
    match filter_.op:
        case "is_null":
            return f"{subject} IS NULL"
        case "is_not_null":
            return f"{subject} IS NOT NULL"
        case "in" | "not_in":
            return _membership(subject, column, values, negated=filter_.op == "not_in")
        case "between":
            low, high = _check_count(filter_, values, 2)
            return f"({subject} {operator(column, '>=')} {low} AND {subject} {operator(column, '<=')} {high})"
        case "raw":
            raise _filter_error(filter_)
        case _:
            (value,) = _check_count(filter_, values, 1)
            return f"{subject} {operator(column, _SYMBOLS[filter_.op])} {value}"


def _membership(subject: str, column: Column, values: list[str], *, negated: bool) -> str:
    if not values:
        # `IN ()` is no SQL.
        return "true" if negated else "false"
    if not is_foreign(column):
        return f"{subject} {'NOT IN' if negated else 'IN'} ({', '.join(values)})"
    symbol, glue = ("<>", " AND ") if negated else ("=", " OR ")
    return f"({glue.join(f'{subject} {operator(column, symbol)} {value}' for value in values)})"


def _operand(value: Scalar, column: Column) -> str:
    # PostgreSQL reads no 0x1F before version 16.
    if column.category == "N" and isinstance(value, str) and core_type(value) == "int":
        value = int(value, 0)
    return literal(str(value).lower() if isinstance(value, bool) else value).strip()


def _check_count(filter_: Filter, values: list[str], count: int) -> list[str]:
    if len(values) != count:
        raise _filter_error(filter_)
    return values


def _filter_error(filter_: Filter) -> LocatedError:
    given = quantity(len(filter_.values), "value")
    return LocatedError(Kind.SCHEMA, filter_.place, f"a filter {filter_.op} with {given} cannot be read")
