"""Choose the types of the lake's columns, and keep values out that a type does not hold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.config.mirror import LakeType, OnValue
from headrace.errors import HeadraceError, Kind
from headrace.mirror.columns import has_part
from headrace.mirror.keys import whole
from headrace.mirror.python_values import python_rows, shown_value
from headrace.model.names import TableName
from headrace.model.value_type import ValueType
from headrace.model.values import convert_fitting
from headrace.model.values.moments import DATE_ENDS, TIMESTAMP_ENDS

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)
_INSTANT = pa.timestamp("us", tz="UTC")
_EXAMPLES = 3
_NAMES_OF_OBJECTS = frozenset(
    "aclitem regclass regcollation regconfig regdictionary regnamespace regoper regoperator regproc "
    "regprocedure regrole regtype".split()
)
"""Types whose values are shown by the name of a catalog object, which RENAME changes in no row and no log."""


def shows_names(kind: ValueType) -> bool:
    """Tell whether values of a type, or parts of them, are shown by names that a RENAME alters."""
    return kind.name in _NAMES_OF_OBJECTS or any(map(shows_names, kind.parts))


def read_type(kind: ValueType, chosen: LakeType | OnValue | None, *, is_key: bool) -> ValueType:
    """Return the type in which a column is read: text where the lake has text, or where values may not fit.

    Intervals and times of day have no type in Delta and are texts. So are arrays and ranges of a key: rows
    are looked up by it, which no engine does by nested values.
    """
    is_fit = not has_part(kind.arrow, _is_in_no_lake) and not (is_key and pa.types.is_nested(kind.arrow))
    return kind if is_fit and chosen not in {"text", "null"} else kind.as_text


def lake_type(
    kind: ValueType, read: ValueType, chosen: LakeType | OnValue | None, *, is_key: bool
) -> ValueType:
    """Return the type of a column in the lake, of one that is read as `read_type` says."""
    if chosen == "timestamptz":
        return replace(kind, arrow=_INSTANT)
    return read_type(kind, None, is_key=is_key) if chosen == "null" else read


def _is_in_no_lake(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_time(arrow) or pa.types.is_duration(arrow) or pa.types.is_interval(arrow))


def in_types(
    kinds: Mapping[str, ValueType],
    rows: _Rows,
    table: TableName,
    key: Sequence[str],
    tell: Callable[[str], object],
) -> _Rows:
    """Return rows in the lake's types; a value that does not fit, or is infinite, is NULL.

    Args:
        kinds: the type in the lake of each column that has another one than that in which it is read.
        rows: as they were read.
        table: the table, for messages.
        key: the columns that name a row in messages.
        tell: is told which values are NULL in the lake.
    """
    for name, kind in kinds.items():
        at = rows.schema.get_field_index(name)
        if at < 0:
            continue
        column = rows.column(at)
        if not pa.types.is_string(column.type):  # a timestamp that is to be an instant
            values = column.cast(kind.arrow)
        else:
            values, unfit = _converted(kind, column, f"{table}.{name}")
            if len(unfit):
                unheld = _describe_unfit(rows, table, name, key, unfit)
                tell(f"the lake's type cannot hold {unheld}: NULL is in the lake (on_value)")
        rows = rows.set_column(at, rows.schema.field(at).with_type(kind.arrow), values)
    return rows


def _converted(
    kind: ValueType, column: pa.Array | pa.ChunkedArray, name: str
) -> tuple[pa.Array, np.typing.NDArray[np.int64]]:
    texts = whole(column) if isinstance(column, pa.ChunkedArray) else column
    converted = convert_fitting(kind, texts, name)
    # No reader knows infinity: each would show another far moment, and compare it.
    infinite = _infinite(converted.values)
    values = pc.if_else(pa.array(infinite), pa.scalar(None, kind.arrow), converted.values)
    return values, np.union1d(converted.unfit, np.flatnonzero(infinite))


def _infinite(values: pa.Array) -> np.typing.NDArray[np.bool_]:
    """Tell which dates and timestamps stand for infinity, which no reader knows."""
    is_day = pa.types.is_date32(values.type)
    if not (is_day or pa.types.is_timestamp(values.type)):
        return np.zeros(len(values), np.bool_)
    numbers, ends = values.cast(pa.int32() if is_day else pa.int64()), DATE_ENDS if is_day else TIMESTAMP_ENDS
    found = pc.or_(pc.less_equal(numbers, ends.least), pc.greater_equal(numbers, ends.greatest))
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)  # noqa: FBT003 - PyArrow's


def _describe_unfit(
    rows: pa.RecordBatch | pa.Table,
    table: TableName,
    column: str,
    key: Sequence[str],
    unfit: np.typing.NDArray[np.int64],
) -> str:
    """Name values that do not fit their column's type, the first ones by the keys of their rows."""
    # Not every batch has the key: `changes` may leave it out, and a default is of one column alone.
    present = [name for name in key if name in rows.schema.names]
    examples = rows.select(present).take(pa.array(unfit[:_EXAMPLES]))
    keys = python_rows(examples) if present else []
    types = examples.schema.types
    named = ", ".join(
        " ".join(
            f"{name} = {shown_value(key[name], kind)}" for name, kind in zip(present, types, strict=True)
        )
        for key in keys
    )
    more = " …" if named and len(unfit) > len(keys) else ""
    places = f" ({named}{more})" if named else ""
    number = f"{len(unfit)} values" if len(unfit) > 1 else "a value"
    return f"{number} of {table}.{column}{places}"


def explain_unfit(
    texts: pa.RecordBatch | pa.Table, kinds: Mapping[str, ValueType], table: TableName, key: Sequence[str]
) -> HeadraceError | None:
    """Return the error of the first column with a value that its type does not hold; None: all fit.

    Args:
        texts: the rows as PostgreSQL prints them.
        kinds: the columns' types.
        table: the table.
        key: the columns that name a row.
    """
    for name, kind in kinds.items():
        unfit = convert_fitting(kind, texts.column(name), f"{table}.{name}").unfit
        # The first column is enough: its remedy names it, and the next try finds the next one.
        if len(unfit):
            unheld = _describe_unfit(texts, table, name, key, unfit)
            null = "" if name in key else f'on_value = {{ {name} = "null" }}, or '
            return HeadraceError(
                Kind.VALUE,
                f"the lake's type for {kind.name} cannot hold {unheld}",
                f'Correct it in the database. Or write {null}types = {{ {name} = "text" }} into the '
                "first [[mirror.tables]] that matches the table, and start the mirror again.",
            )
    return None
