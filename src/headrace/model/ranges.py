"""Which part of a table does one piece of a seeding read?"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.names import TableName


@dataclass(frozen=True, slots=True)
class CtidRange:
    """The rows of whole blocks; picklable.

    Attributes:
        first_block: the first block, counted from 0.
        last_block: the last block, itself included; None reads on to the table's end, whatever it is then.
        table: the leaf partition where the root table is partitioned, None for the root table itself.
        filenode: the file that the blocks were counted in; a rewrite of the table makes another. None where
            nothing was counted: the range is the whole table.
    """

    first_block: int
    last_block: int | None
    table: TableName | None = None
    filenode: int | None = None
