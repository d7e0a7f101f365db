"""Evaluate a condition in SQL on a row: a small part of SQL, enough for the conditions that tests write.

OR, AND, NOT, parentheses, comparisons, IS [NOT] NULL; operands are columns (also after their table's name),
texts, numbers, true, false, and the functions lower, coalesce and length.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from support.oracle.tables import Row, Table
from support.oracle.values import Type

_TOKEN = re.compile(
    r"""\s*(?: (?P<text>'(?:[^']|'')*') | (?P<quoted>"(?:[^"]|"")*") | (?P<number>\d+(?:\.\d+)?)
    | (?P<word>\w+) | (?P<sign><>|<=|>=|[=<>().,]) )""",
    re.VERBOSE,
)
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_Operand = tuple[Any, Type | None]
"""A value and its type; a literal has none and takes the other side's."""


def holds(sql: str, row: Row, table: Table) -> bool | None:
    """Whether the condition is true of the row; None where that is unknown.

    Raises:
        ValueError: it is no such condition.
    """
    parser = _Parser(sql, row, table)
    found = parser.disjunction()
    if parser.ahead:
        raise ValueError(f"not understood: {sql}")
    return found


class _Parser:
    """Evaluates while it reads; everything is read, whatever is known already."""

    def __init__(self, sql: str, row: Row, table: Table) -> None:
        self._row = row
        self._table = table
        self._tokens: list[tuple[str, str]] = []
        position, text = 0, sql.strip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None or found.lastgroup is None:
                raise ValueError(f"not understood: {sql}")
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            position = found.end()

    @property
    def ahead(self) -> str:
        """The next token in lower case; empty at the end."""
        return self._tokens[0][1].lower() if self._tokens else ""

    def _take(self) -> tuple[str, str]:
        return self._tokens.pop(0)

    def _skip(self, word: str) -> bool:
        if self.ahead != word:
            return False
        self._take()
        return True

    def disjunction(self) -> bool | None:
        """Terms between OR."""
        found = self._conjunction()
        while self._skip("or"):
            other = self._conjunction()
            found = True if True in (found, other) else None if None in (found, other) else False
        return found

    def _conjunction(self) -> bool | None:
        found = self._factor()
        while self._skip("and"):
            other = self._factor()
            found = False if False in (found, other) else None if None in (found, other) else True
        return found

    def _factor(self) -> bool | None:
        if self._skip("not"):
            inner = self._factor()
            return None if inner is None else not inner
        if self._skip("("):
            found = self.disjunction()
            if not self._skip(")"):
                raise ValueError("a parenthesis is not closed")
            return found
        return self._comparison()

    def _comparison(self) -> bool | None:
        left, kind = self._operand()
        if self._skip("is"):
            wanted = not self._skip("not")
            self._take()
            return (left is None) == wanted
        if self.ahead not in _SIGNS:
            return None if left is None else bool(left)
        sign = _SIGNS[self._take()[1]]
        right, other = self._operand()
        if left is None or right is None:
            return None
        return sign(_ranked(left, kind, other), _ranked(right, other, kind))

    def _operand(self) -> _Operand:
        kind, token = self._take()
        if kind == "text":
            return token[1:-1].replace("''", "'"), None
        if kind == "number":
            return Decimal(token), None
        if kind == "word" and token.lower() in ("true", "false"):
            return token.lower() == "true", Type("bool")
        if kind == "word" and self._skip("("):
            return self._called(token.lower())
        if self._skip("."):
            kind, token = self._take()
        name = token[1:-1].replace('""', '"') if kind == "quoted" else token.lower()
        return self._row[name], self._table.types[name]

    def _called(self, function: str) -> _Operand:
        operands = [self._operand()]
        while self._skip(","):
            operands.append(self._operand())
        if not self._skip(")"):
            raise ValueError("a parenthesis is not closed")
        value, kind = operands[0]
        match function:
            case "lower":
                return (None if value is None else value.lower()), Type("text")
            case "length":
                return (None if value is None else len(value)), Type("int4")
            case "coalesce":
                other, its = operands[1]
                return (_read(other, its, kind) if value is None else value), kind
            case _:
                raise ValueError(f"the function {function}")


def _read(value: Any, kind: Type | None, other: Type | None) -> Any:
    """A text literal takes the type of what it stands beside."""
    return other.read(value) if kind is None and other is not None and isinstance(value, str) else value


def _ranked(value: Any, kind: Type | None, other: Type | None) -> Any:
    return (kind or other or Type("text")).rank(_read(value, kind, other))
