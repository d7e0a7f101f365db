"""Name a table, and a range of its blocks that is read as one part."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table's schema and name, both as the catalog holds them (case kept, never quoted)."""

    schema: str
    name: str

    def __str__(self) -> str:
        """Return the name for people: without `public`, and with quotes where a part needs them."""
        parts = (self.name,) if self.schema == "public" else (self.schema, self.name)
        return ".".join(map(quote_if_needed, parts))


def quote_if_needed(part: str) -> str:
    """Return a name as SQL spells it: in quotes where it would be folded."""
    return part if _PLAIN.fullmatch(part) else '"' + part.replace('"', '""') + '"'


def name_arrays(tables: Collection[TableName]) -> tuple[list[str], list[str]]:
    """Return schemas and names as two arrays, which a statement joins again by `unnest`."""
    return [table.schema for table in tables], [table.name for table in tables]


@dataclass(frozen=True, slots=True)
class CtidRange:
    """The rows of a range of blocks; picklable.

    Attributes:
        first_block: the first block, from 0.
        last_block: the last block, inclusive; None: up to the end that the table has when it is read.
        table: the table whose own rows it has, as a leaf partition; None: the root table with its children.
        filenode: the file that the blocks were counted in; a rewrite of the table creates another. None: the
            range is the whole table.
    """

    first_block: int
    last_block: int | None
    table: TableName | None = None
    filenode: int | None = None
