"""Read the rows of one part of a table, and check that the part is still what was planned.

`docs/reference/types.md` defines each value by the text that PostgreSQL prints. A column is read in the
server's binary format only where it gives the value that the text stands for; all other columns are read as
text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.catalog.types import RowType
from headrace.errors import HeadraceError, Kind
from headrace.model.names import CtidRange, TableName
from headrace.model.types import ArrowForm
from headrace.model.value_type import ValueType
from headrace.pgoutput.copied import (
    DAYS,
    MICROSECONDS,
    NOT_A_NUMBER,
    NUMERIC,
    decimal_digits,
    is_decoded,
    is_text,
)
from headrace.postgres.copying import RowSession
from headrace.postgres.quoting import identifier, output_text
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession
from headrace.snapshot.ranges import check_filenode

if TYPE_CHECKING:
    from headrace.model.values.moments import MomentBounds


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The columns and rows of a table that are read.

    Attributes:
        row_type: the table's row type when the reading was planned.
        columns: the names of the columns, in order.
        conditions: SQL conditions, all of which a row must satisfy.
    """

    row_type: RowType
    columns: tuple[str, ...]
    conditions: tuple[str, ...] = ()

    @property
    def table(self) -> TableName:
        """The table."""
        return self.row_type.table


def select(selection: RowSelection, expressions: Sequence[str], part: CtidRange) -> str:
    """Return the statement for the rows of `part` (pure).

    A part that names a table has that table's own rows, without those of inheritance children. A condition
    may name the selected table, so a partition is read under that name. It is put in two pairs of
    parentheses, so that one that closes a parenthesis too many cannot escape.
    """
    bounds = []
    whole = part.filenode is None
    if not whole and part.first_block:
        # The first row of a block has the number 1: (block,0) lies before it.
        bounds.append(f"ctid >= '({part.first_block},0)'::tid")
    if not whole and part.last_block is not None:
        bounds.append(f"ctid < '({part.last_block + 1},0)'::tid")
    place = quoted(selection.table) if part.table is None else f"ONLY {quoted(part.table)}"
    if part.table not in (None, selection.table):
        place += f" AS {identifier(selection.table.name)}"
    conditions = [*bounds, *(f"((\n{condition}\n))" for condition in selection.conditions)]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {', '.join(expressions)} FROM {place}{where}"  # noqa: S608 (quoted)


def check_readable(session: ReadSession, selection: RowSelection) -> None:
    """Let the server check the statement and the privileges without reading a row.

    Raises:
        HeadraceError: PRIVILEGE; DATABASE where the conditions are not valid SQL; CONNECTION.
    """
    columns = [transfer.sql for transfer in transfers(selection.row_type, selection.columns)]
    session.query(f"{select(selection, columns, CtidRange(0, None))} LIMIT 0")


def read_part(
    session: RowSession, selection: RowSelection, part: CtidRange, schema: pa.Schema, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `part` in batches of about `batch_bytes`, in `schema`.

    Raises:
        HeadraceError: CONTINUITY where the table was rewritten or dropped meanwhile; VALUE where a column
            cannot hold a value; PRIVILEGE, DATABASE, CONNECTION.
    """
    columns = transfers(selection.row_type, selection.columns)
    try:
        for batch in session.read(
            select(selection, [transfer.sql for transfer in columns], part), batch_bytes
        ):
            yield pa.RecordBatch.from_arrays(
                [transfer.value(values) for transfer, values in zip(columns, batch.columns, strict=True)],
                schema=schema,
            )
        check_filenode(session, part)  # the statement has locked the table for the transaction
    except HeadraceError as error:
        raise _explain(error, selection.table) from None


def _explain(error: HeadraceError, table: TableName) -> HeadraceError:
    if error.sqlstate in ("42P01", "42703"):
        return HeadraceError(
            Kind.CONTINUITY,
            f"the table {table} was altered or dropped while it was being read: {error.cause}",
            "Load it again. If that fails alike: write conditions without the name of a schema.",
        )
    return error


_MOMENTS = frozenset({1082, 1114, 1184})
"""date, timestamp, timestamptz."""
_CAST_IS_PRINTED = frozenset({790, 1083, 1186, 1266, 1700, 2950, 3802})
"""money, time, interval, timetz, numeric, uuid, jsonb: a cast to text gives what PostgreSQL prints."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """How one column is read.

    Attributes:
        name: the column's name.
        sql: the expression that is selected.
        value: converts what the server sends to the column's values.
    """

    name: str
    sql: str
    value: Callable[[pa.Array], pa.Array]


def transfers(row_type: RowType, names: tuple[str, ...]) -> list[Transfer]:
    """Return how each of the columns is read, in order."""
    types = {attribute.name: attribute.type for attribute in row_type.attributes}
    return [_transfer(row_type.table, name, types[name], row_type.columns[name]) for name in names]


def _transfer(table: TableName, name: str, oid: int, kind: ValueType) -> Transfer:
    sql, column = identifier(name), f"{table}.{name}"
    if oid == NUMERIC and is_decoded(oid, decimal_digits(kind)):
        return Transfer(name, sql, lambda values: decimals(kind, values, column))
    as_printed = kind.form is ArrowForm.TEXT and not is_text(oid)
    if oid in _MOMENTS and not as_printed:
        return Transfer(name, sql, lambda values: moments(kind, values, column))
    if is_decoded(oid) and not as_printed:
        return Transfer(name, sql, lambda values: values)
    text = f"{sql}::text" if oid in _CAST_IS_PRINTED else output_text(sql)
    return Transfer(name, text, lambda values: _convert(kind, values, column))


def _convert(kind: ValueType, texts: pa.Array, column: str) -> pa.Array:
    from headrace.model.values import convert_all  # noqa: PLC0415 - slow to import, and planning does not need it

    return convert_all(kind, texts, column)


def decimals(kind: ValueType, values: pa.Array, column: str) -> pa.Array:
    """Return decimals as they are, of which none may be NaN.

    Raises:
        HeadraceError: VALUE where one is.
    """
    _, numbers = values.buffers()
    # A decimal128 is two words, the low one first, which has the mark of NaN.
    low = np.frombuffer(numbers, np.int64)[2 * values.offset :: 2][: len(values)]
    nan = low == NOT_A_NUMBER
    if nan.any():
        raise kind.unfit(int(nan.sum()), len(values), column)
    return values


def moments(kind: ValueType, values: pa.Array, column: str) -> pa.Array:
    """Replace the infinities in dates and timestamps by those of `headrace.model.values.moments`.

    Raises:
        HeadraceError: VALUE where a value does not fit.
    """
    from headrace.model.values.moments import DATE_ENDS, TIMESTAMP_ENDS  # noqa: PLC0415 - as above

    ends = DATE_ENDS if pa.types.is_date32(values.type) else TIMESTAMP_ENDS
    counted = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    least, greatest = pc.min_max(counted).values()
    if least.as_py() is None or (least.as_py() > ends.least and greatest.as_py() < ends.greatest):
        return values
    return _with_ends(kind, counted, ends, column).cast(values.type)


def _with_ends(kind: ValueType, counted: pa.Array, ends: MomentBounds, column: str) -> pa.Array:
    # Arrow's own buffers are read-only.
    numbers = counted.fill_null(0).to_numpy().copy()
    # The server's infinities are the ends of its own count, which begins in the year 2000.
    own = numbers - numbers.dtype.type(DAYS if pa.types.is_int32(counted.type) else MICROSECONDS)
    limits, known = np.iinfo(numbers.dtype), counted.is_valid().to_numpy(zero_copy_only=False)
    positive, negative = own == limits.max, own == limits.min
    unfit = known & ~positive & ~negative & ((numbers >= ends.greatest) | (numbers <= ends.least))
    if unfit.any():
        raise kind.unfit(int(unfit.sum()), len(counted), column)
    numbers[positive], numbers[negative] = ends.greatest, ends.least
    return pa.array(numbers, mask=~known)
