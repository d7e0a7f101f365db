"""Evaluate the declared filters of a row, in three-valued logic as SQL: None is unknown."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

from headrace.schema.tree import Filter
from support.oracle.raw import holds
from support.oracle.tables import Row, Table
from support.oracle.values import Type

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}


def passes(row: Row, table: Table, filters: Iterable[Filter]) -> bool:
    """Whether every filter is true of the row; one that is unknown is not."""
    return all(_is_true(row, table, one) for one in filters)


def _is_true(row: Row, table: Table, one: Filter) -> bool:  # noqa: PLR0911, one for each kind
    if one.op == "raw":
        return holds(one.raw or "", row, table) is True
    assert one.column is not None
    value, kind = row[one.column], table.types[one.column]
    if one.op in ("is_null", "is_not_null"):
        return (value is None) == (one.op == "is_null")
    if one.op in ("in", "not_in") and not one.values:
        return one.op == "not_in"
    if value is None:
        return False
    operands = [kind.read(literal) for literal in one.values]
    if one.op in ("like", "ilike"):
        return _like(value, operands[0], kind, folded=one.op == "ilike")
    found, ranks = kind.rank(value), [kind.rank(operand) for operand in operands]
    match one.op:
        case "in" | "not_in":
            return (found in ranks) == (one.op == "in")
        case "between":
            return bool(ranks[0] <= found <= ranks[1])
        case _:
            return _COMPARISONS[one.op](found, ranks[0])


def _like(value: str, pattern: str, kind: Type, *, folded: bool) -> bool:
    parts, escaped = [], False
    for character in pattern:
        if not escaped and character == "\\":
            escaped = True
            continue
        wild = {"%": ".*", "_": "."}.get(character)
        parts.append(wild if wild and not escaped else re.escape(character))
        escaped = False
    flags = re.DOTALL | (re.IGNORECASE if folded or kind.name == "citext" else 0)
    return re.fullmatch("".join(parts), value, flags) is not None
