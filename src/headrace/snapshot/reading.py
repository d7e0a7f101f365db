"""How are the rows of one part of a table read, and when is that part not what was planned any more?"""

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
    """A session that gives many rows as columns: `headrace.postgres.rows.RowSession`, which loads slowly."""

    def read(self, sql: str, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows of a statement."""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Which columns and which rows of a table are wanted.

    Attributes:
        row_type: the table's, as it was when the reading was planned.
        columns: their names, in the order in which they are wanted.
        conditions: SQL; all of them hold for every row that is wanted.
    """

    row_type: RowType
    columns: tuple[str, ...]
    conditions: tuple[str, ...] = ()

    @property
    def table(self) -> TableName:
        """The table."""
        return self.row_type.table


def select(selection: RowSelection, expressions: Sequence[str], part: CtidRange) -> str:
    """The statement for the rows of `part` (pure).

    A part that was cut by blocks is of one table's own file; rows of what inherits from it are not in there.
    A condition stands in two pairs of parentheses, so that a pair that is closed too early does not free it.
    """
    whole = part.filenode is None
    bounds = []
    if not whole and part.first_block:
        bounds.append(f"ctid >= '({part.first_block},0)'::tid")
    if not whole and part.last_block is not None:
        bounds.append(f"ctid < '({part.last_block + 1},0)'::tid")
    place = f"{'' if whole else 'ONLY '}{quoted(part.table or selection.table)}"
    conditions = [*bounds, *(f"((\n{one}\n))" for one in selection.conditions)]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {', '.join(expressions)} FROM {place}{where}"  # noqa: S608 (quoted)


def check_readable(session: Queries, selection: RowSelection) -> None:
    """Let the server look at the statement and at the privileges, without reading a row.

    Raises:
        HeadraceError: PRIVILEGE; DATABASE, where it does not understand the conditions; CONNECTION.
    """
    columns = [one.sql for one in transfers(selection.row_type, selection.columns)]
    session.query(f"{select(selection, columns, CtidRange(0, None))} LIMIT 0")


def read_part(
    session: RowReader, selection: RowSelection, part: CtidRange, schema: pa.Schema, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The rows of `part` in batches of about `batch_bytes`, of the columns of `schema`.

    Raises:
        HeadraceError: CONTINUITY, the table was rewritten or dropped meanwhile; VALUE, a value that its
            column cannot hold; PRIVILEGE, DATABASE, CONNECTION.
    """
    columns = _transfers(session, selection)
    try:
        for batch in session.read(select(selection, [one.sql for one in columns], part), batch_bytes):
            yield pa.RecordBatch.from_arrays(
                [one.value(values) for one, values in zip(columns, batch.columns, strict=True)], schema=schema
            )
        check_filenode(session, part)  # the transaction holds the table since the statement began
    except HeadraceError as error:
        raise _explained(error, selection.table) from None


def _transfers(session: RowReader, selection: RowSelection) -> list[Transfer]:
    [known] = session.read(INFINITIES, 1 << 20)
    return transfers(selection.row_type, selection.columns, binary_moments=knows_infinities(known))


def _explained(error: HeadraceError, table: TableName) -> HeadraceError:
    if error.kind is Kind.DATABASE and error.cause.endswith(("(SQLSTATE 42P01)", "(SQLSTATE 42703)")):
        return HeadraceError(
            Kind.CONTINUITY,
            f"the table {table} was altered or dropped while it was being read: {error.cause}",
            "Load it again.",
        )
    return error
