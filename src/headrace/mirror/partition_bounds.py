"""Tell which rows of a partitioned table are in a partition, by its bounds. Pure.

A partition that was dropped, detached, truncated or attached changes the lake by the rows within its bounds
alone. What is on the short list here is proved; of every other partition the table is read again: by hash,
DEFAULT, of expressions, of several columns, ranges of texts, with a collation of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.value_type import ValueType
from headrace.model.values import convert_all
from headrace.postgres.quoting import identifier, literal

_TOKEN = re.compile(r"'(?:[^']|'')*'|[^\s,()]+")
_RANGE = re.compile(r"FOR VALUES FROM \((.*)\) TO \((.*)\)", re.DOTALL)
_LIST = re.compile(r"FOR VALUES IN \((.*)\)", re.DOTALL)
_OPEN = frozenset({"MINVALUE", "MAXVALUE"})
_NULL = "NULL"
# Bounds show a boolean as true or false, rows show it as t or f.
_FLAGS = {"true": "t", "false": "f"}
_ORDERED: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_date32,
    pa.types.is_timestamp,
)
_TEXTS = frozenset({"text", "varchar", "uuid"})


@dataclass(frozen=True, slots=True)
class Bound:
    """What one level of partitions says of a row.

    Attributes:
        column: the number of the column, in the partitioned table.
        kind: `range`: from `values[0]` up to `values[1]`; `list`: one of the values.
        values: as PostgreSQL prints them; None: without an end, or in a list NULL.
    """

    column: int
    kind: Literal["range", "list"]
    values: tuple[str | None, ...]


Bounds = tuple[Bound, ...]
"""Of each level of partitions one; a row is in the partition where all hold."""


Columns = Mapping[int, tuple[str, ValueType]]
"""The name and the type of columns, by number."""

Leaves = Mapping[int, Bounds | None]
"""The bounds of the partitions of a table that hold rows, by oid; None: they cannot be told."""


def parse_bounds(levels: Sequence[tuple[int, str, str]]) -> Bounds | None:
    """Return the bounds of a partition; None: they cannot be told.

    Args:
        levels: from the root down, the number of the root's column (0: none, or it is compared otherwise than
            by its type), the strategy (`r`, `l`, `h`), and the partition's bound as PostgreSQL prints it.
    """
    bounds = [_parse(*level) for level in levels]
    known = tuple(bound for bound in bounds if bound is not None)
    return known if known and len(known) == len(bounds) else None


def _parse(column: int, strategy: str, text: str) -> Bound | None:
    is_range = strategy == "r"
    match = (_RANGE if is_range else _LIST).fullmatch(text) if column and strategy in "rl" else None
    if match is None:
        return None
    values = [_TOKEN.findall(part) for part in match.groups()]
    if not is_range:
        return Bound(column, "list", tuple(map(_value, values[0])))
    if any(len(ends) != 1 for ends in values):
        return None
    return Bound(column, "range", tuple(None if ends[0] in _OPEN else _value(ends[0]) for ends in values))


def _value(token: str) -> str | None:
    if token.startswith("'"):
        return token[1:-1].replace("''", "'")
    return None if token == _NULL else _FLAGS.get(token, token)


def can_tell(bounds: Bounds | None, columns: Columns) -> bool:
    """Tell whether rows within bounds can be told from others by the values that the lake has.

    Args:
        bounds: the bounds.
        columns: those that the lake has unchanged.
    """
    return bounds is not None and all(
        level.column in columns and _compares(level, columns[level.column][1]) for level in bounds
    )


def _compares(level: Bound, kind: ValueType) -> bool:
    # Texts are ordered by a collation that is not known here; whether two are the same is.
    is_ordered = any(matches(kind.arrow) for matches in _ORDERED)
    return is_ordered or (level.kind == "list" and (kind.name in _TEXTS or pa.types.is_boolean(kind.arrow)))


def rows_within(rows: pa.RecordBatch | pa.Table, bounds: Bounds, columns: Columns) -> pa.Array:
    """Tell which rows are within bounds for which `can_tell` holds.

    Args:
        rows: the rows.
        bounds: the bounds.
        columns: the columns.
    """
    return reduce(pc.and_, (_within(rows, level, *columns[level.column]) for level in bounds))


def _within(rows: pa.RecordBatch | pa.Table, level: Bound, name: str, kind: ValueType) -> Any:
    column = rows.column(name)
    if level.kind == "list":
        return pc.is_in(column, value_set=_converted(level.values, kind, name).cast(column.type))
    # NULL is in no range: PostgreSQL puts it into the DEFAULT partition, or refuses it.
    within = column.is_valid()
    for value, compare in zip(level.values, (pc.greater_equal, pc.less), strict=True):
        if value is not None:
            end = _converted((value,), kind, name).cast(column.type)[0]
            within = pc.and_(within, compare(column, end).fill_null(False))  # noqa: FBT003 - PyArrow's
    return within


def _converted(values: Sequence[str | None], kind: ValueType, name: str) -> pa.Array:
    return convert_all(kind, pa.array(values, pa.string()), name)


def condition(bounds: Bounds, columns: Columns) -> str:
    """Return SQL that the rows within bounds satisfy.

    Args:
        bounds: the bounds.
        columns: the columns.
    """
    parts = []
    for level in bounds:
        column = identifier(columns[level.column][0])
        if level.kind == "list":
            known = [literal(value) for value in level.values if value is not None]
            either = [f"{column} IN ({', '.join(known)})"] if known else []
            either += [f"{column} IS NULL"] if None in level.values else []
            parts.append(f"({' OR '.join(either)})")
        else:
            ends = zip((">=", "<"), level.values, strict=True)
            given = [f"{column} {sign} {literal(value)}" for sign, value in ends if value is not None]
            parts += [f"{column} IS NOT NULL", *given]
    return " AND ".join(parts)


@dataclass(frozen=True, slots=True)
class Ahead:
    """A part of a table that the lake has as it was after the table's own position.

    Attributes:
        start: the first position in the log (bytes) whose commits the part's rows do not show.
        bounds: of the part.
    """

    start: int
    bounds: Bounds
