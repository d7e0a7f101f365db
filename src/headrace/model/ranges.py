"""A range of a table's blocks, read as one part of a backfill or snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.names import TableName


@dataclass(frozen=True, slots=True)
class CtidRange:
    """The rows of a range of blocks; picklable.

    Attributes:
        first_block: the first block, from 0.
        last_block: the last block, inclusive; None: up to the end that the table has when it is read.
        table: the leaf partition of a partitioned root table; None for the root table itself.
        filenode: the file that the blocks were counted in; a rewrite of the table creates another. None: the
            range is the whole table.
    """

    first_block: int
    last_block: int | None
    table: TableName | None = None
    filenode: int | None = None
