"""Read the rows of one part of a table, and check that the part is still what was planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headrace.catalog.types import RowType
from headrace.errors import HeadraceError, Kind
from headrace.model import CtidRange, TableName
from headrace.postgres.quoting import table as quoted
from headrace.snapshot.columns import INFINITIES, Transfer, knows_infinities, transfers
from headrace.snapshot.ranges import Queries, check_filenode


class RowReader(Queries, Protocol):
    """A session that reads many rows as columns, as `headrace.postgres.adbc.RowSession` does."""

    def read(self, sql: str, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a statement in batches of about `batch_bytes`."""


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

    A part with blocks belongs to one table's own file, without the rows of inheritance children. A condition
    is put in two pairs of parentheses, so that one that closes a parenthesis too many cannot escape.
    """
    whole = part.filenode is None
    bounds = []
    if not whole and part.first_block:
        bounds.append(f"ctid >= '({part.first_block},0)'::tid")
    if not whole and part.last_block is not None:
        bounds.append(f"ctid < '({part.last_block + 1},0)'::tid")
    place = f"{'' if whole else 'ONLY '}{quoted(part.table or selection.table)}"
    conditions = [*bounds, *(f"((\n{condition}\n))" for condition in selection.conditions)]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {', '.join(expressions)} FROM {place}{where}"  # noqa: S608 (quoted)


def check_readable(session: Queries, selection: RowSelection) -> None:
    """Let the server check the statement and the privileges without reading a row.

    Raises:
        HeadraceError: PRIVILEGE; DATABASE where the conditions are not valid SQL; CONNECTION.
    """
    columns = [transfer.sql for transfer in transfers(selection.row_type, selection.columns)]
    session.query(f"{select(selection, columns, CtidRange(0, None))} LIMIT 0")


def read_part(
    session: RowReader, selection: RowSelection, part: CtidRange, schema: pa.Schema, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `part` in batches of about `batch_bytes`, in `schema`.

    Raises:
        HeadraceError: CONTINUITY where the table was rewritten or dropped meanwhile; VALUE where a column
            cannot hold a value; PRIVILEGE, DATABASE, CONNECTION.
    """
    columns = _transfers(session, selection)
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


def _transfers(session: RowReader, selection: RowSelection) -> list[Transfer]:
    [known] = session.read(INFINITIES, 1 << 20)
    return transfers(selection.row_type, selection.columns, binary_moments=knows_infinities(known))


def _explain(error: HeadraceError, table: TableName) -> HeadraceError:
    if error.kind is Kind.DATABASE and error.cause.endswith(("(SQLSTATE 42P01)", "(SQLSTATE 42703)")):
        return HeadraceError(
            Kind.CONTINUITY,
            f"the table {table} was altered or dropped while it was being read: {error.cause}",
            "Load it again.",
        )
    return error
