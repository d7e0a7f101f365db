"""Plan the block ranges in which a table is read, so that no row is missed, and record which were read.

A range of blocks needs no scan to plan and a TID range scan to read. The last range has no end, because the
file may grow. A rewrite of the table (VACUUM FULL, CLUSTER, TRUNCATE) moves rows between blocks, so each
range names the file (filenode) that it was planned for.

Ranges are read in order, so one number for each file says which of its blocks were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

from headrace.catalog.table import Catalog
from headrace.errors import HeadraceError, Kind
from headrace.model.names import CtidRange, TableName
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

_FILENODES = "SELECT pg_relation_filenode(to_regclass(name))::bigint FROM unnest($1::text[]) AS name"


_REWRITTEN = """
SELECT coalesce(bool_or(c.relfilenode <> 0 AND c.relfilenode <> pg_relation_filenode(c.oid)), false)
FROM unnest($1::text[]) AS name JOIN pg_class c ON c.oid = to_regclass(name)
"""


def cut(blocks: int, step: int) -> Iterator[tuple[int, int | None]]:
    """Yield first and last block of each range of `step` blocks; the last range has no end (pure).

    A remainder of less than half a step joins the range before it.
    """
    first = 0
    while blocks - first >= step + (step + 1) // 2:
        yield first, first + step - 1
        first += step
    yield first, None


def check_filenode(session: ReadSession, part: CtidRange) -> None:
    """Raise an error if the table was rewritten or dropped since `part` was planned.

    Inside a transaction, call it before or after the rows are read: the first of the two statements locks the
    table until the transaction ends, so it cannot be rewritten. Without a transaction, call it after.

    Raises:
        HeadraceError: CONTINUITY: rows may be missing, and all ranges of the table must be planned and read
            again.
    """
    if part.table is None or part.filenode is None:
        return
    name = quoted(part.table)
    if session.query("SELECT to_regclass($1) IS NULL", (name,)) == [(True,)]:
        raise _changed(part.table, "dropped")
    # Takes the lock: from here to the end of the transaction nobody rewrites the table.
    session.query(f"SELECT FROM {name} LIMIT 0")
    sql = "SELECT pg_relation_filenode($1::regclass)::bigint"
    if session.query(sql, (name,)) != [(part.filenode,)]:
        raise _changed(part.table, "rewritten (VACUUM FULL, CLUSTER, TRUNCATE or ALTER TABLE)")


def files_of(tables: Iterable[TableName], catalog: Catalog) -> tuple[TableName, ...]:
    """Return the tables that hold the rows of `tables`: partitions in place of partitioned ones (pure)."""
    families = (catalog[name].partitions if catalog[name].kind == "p" else (name,) for name in tables)
    return tuple(sorted({leaf for leaves in families for leaf in leaves}, key=str))


def read_filenodes(session: ReadSession, tables: Sequence[TableName]) -> tuple[int | None, ...]:
    """Read the tables' filenodes; TRUNCATE and every other rewrite of a table gives it another.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    rows = session.query(_FILENODES, ([quoted(name) for name in tables],))
    return tuple(filenode for (filenode,) in rows)


def are_rewritten(session: ReadSession, tables: Sequence[TableName]) -> bool:
    """Return whether a table has another file than the transaction's snapshot sees.

    An ALTER TABLE that rewrites a table leaves no rows for older snapshots.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    [(rewritten,)] = session.query(_REWRITTEN, ([quoted(name) for name in tables],))
    return bool(rewritten)


def _changed(table: TableName, what: str) -> HeadraceError:
    return HeadraceError(
        Kind.CONTINUITY,
        f"the table {table} was {what} while it was being read",
        "Start again; keep such commands away until all of it has been read.",
    )


# Blocks of a file that has been read to its end, which may grow meanwhile; a file has fewer.
_WHOLE_FILE = 1 << 32


@dataclass(frozen=True, slots=True)
class RangesDone:
    """How far an index's root table has been read, leaf by leaf.

    Attributes:
        files: the filenode of each leaf, and how many of its blocks have been read, from the first one on.
    """

    files: Mapping[TableName, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))

    def done(self, part: CtidRange) -> Self:
        """Return the progress after `part` was read; one after blocks that were not read does not count."""
        read = self._blocks(part)
        if part.table is None or part.filenode is None or part.first_block > read:
            return self
        return replace(self, files={**self.files, part.table: (part.filenode, max(read, _end(part)))})

    def left(self, planned: Iterable[CtidRange]) -> list[CtidRange]:
        """Return what of these ranges is still to be read."""
        return [
            replace(part, first_block=max(part.first_block, self._blocks(part)))
            for part in planned
            if self._blocks(part) < _end(part)
        ]

    def _blocks(self, part: CtidRange) -> int:
        """Count the blocks of the part's file that have been read."""
        known = None if part.table is None else self.files.get(part.table)
        # Blocks that were read of another file mean other rows.
        return 0 if known is None or known[0] != part.filenode else known[1]

    def to_json(self) -> list[Any]:
        """Return the progress in JSON's types, as it is stored."""
        return [[table.schema, table.name, *file] for table, file in self.files.items()]

    @classmethod
    def from_json(cls, stored: Iterable[Any]) -> Self:
        """Read what `to_json` returned."""
        return cls(
            {TableName(schema, table): (filenode, blocks) for schema, table, filenode, blocks in stored}
        )


def _end(part: CtidRange) -> int:
    return _WHOLE_FILE if part.last_block is None else part.last_block + 1
