"""Which part of a table is read at once?"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.names import TableName


@dataclass(frozen=True, slots=True)
class CtidRange:
    """The rows in some blocks of one table's file; picklable.

    Attributes:
        table: a table with a file of its own (a leaf, where it is partitioned).
        first_block: the first block, from 0.
        last_block: the last block, inclusive; None reads to wherever the file then ends.
        filenode: the file for which the blocks were counted; the range means nothing in another one.
    """

    table: TableName
    first_block: int
    last_block: int | None
    filenode: int

    @property
    def lower(self) -> str:
        """The least ctid of the range, as text."""
        return f"({self.first_block},0)"

    @property
    def upper(self) -> str | None:
        """The ctid that all of the range are less than, as text; None without an end."""
        return None if self.last_block is None else f"({self.last_block + 1},0)"
