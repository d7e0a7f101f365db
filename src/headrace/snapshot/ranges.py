"""Plan the block ranges in which a table is read, so that no row is missed, and record which were read.

A range of blocks needs no scan to plan and a TID range scan to read. The last range has no end, because the
file may grow. A rewrite of the table (VACUUM FULL, CLUSTER, TRUNCATE) moves rows between blocks, so each
range names the file (filenode) that it was planned for.

Blocks that were read are stored as intervals, and adjacent intervals are joined: ranges are read nearly in
order, so there are never many. They too are valid for one file only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol, Self

from headrace.catalog.table import Catalog
from headrace.errors import HeadraceError, Kind
from headrace.model.names import CtidRange, TableName
from headrace.postgres.quoting import table as quoted

_FILENODES = "SELECT pg_relation_filenode(to_regclass(name))::bigint FROM unnest($1::text[]) AS name"


class Queries(Protocol):
    """A session for small queries."""

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a statement with `$1`-style parameters."""


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


def check_filenode(session: Queries, part: CtidRange) -> None:
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


def read_filenodes(session: Queries, tables: Sequence[TableName]) -> tuple[int | None, ...]:
    """Read the tables' filenodes; TRUNCATE and every other rewrite of a table gives it another.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    rows = session.query(_FILENODES, ([quoted(name) for name in tables],))
    return tuple(filenode for (filenode,) in rows)


def are_rewritten(session: Queries, tables: Sequence[TableName]) -> bool:
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


_Interval = tuple[int, int | None]
"""First and last block; None as last: all blocks from the first one on."""


@dataclass(frozen=True, slots=True)
class _File:
    """The blocks of one file that have been read."""

    filenode: int
    blocks: tuple[_Interval, ...] = ()


@dataclass(frozen=True, slots=True)
class RangesDone:
    """The blocks of an index's root table that have been read, leaf by leaf."""

    files: Mapping[TableName, _File] = field(default_factory=lambda: MappingProxyType({}))

    def done(self, part: CtidRange) -> Self:
        """Return the progress after `part` was read."""
        if part.table is None or part.filenode is None:
            return self
        known = self.files.get(part.table)
        if known is None or known.filenode != part.filenode:
            # Another file: blocks that were read of the one before mean other rows.
            known = _File(part.filenode)
        blocks = _merge((*known.blocks, (part.first_block, part.last_block)))
        return replace(self, files={**self.files, part.table: replace(known, blocks=blocks)})

    def left(self, planned: Iterable[CtidRange]) -> list[CtidRange]:
        """Return what of these ranges is still to be read."""
        return [unread for part in planned for unread in self._unread(part)]

    def _unread(self, part: CtidRange) -> Iterator[CtidRange]:
        known = None if part.table is None else self.files.get(part.table)
        if known is None or known.filenode != part.filenode:
            yield part
            return
        for first, last in _subtract((part.first_block, part.last_block), known.blocks):
            yield replace(part, first_block=first, last_block=last)

    def to_json(self) -> list[Any]:
        """Return the progress in JSON's types, as it is stored."""
        return [
            [table.schema, table.name, file.filenode, [list(interval) for interval in file.blocks]]
            for table, file in self.files.items()
        ]

    @classmethod
    def from_json(cls, stored: Iterable[Any]) -> Self:
        """Read what `to_json` returned.

        Raises:
            ValueError, TypeError: `to_json` did not write it.
        """
        return cls(
            {
                TableName(schema, table): _File(filenode, tuple((begin, end) for begin, end in blocks))
                for schema, table, filenode, blocks in stored
            }
        )


def _subtract(whole: _Interval, read: Iterable[_Interval]) -> Iterator[_Interval]:
    """Yield what of an interval is in none of `read`, which are in order and do not touch."""
    begin, end = whole[0], _number(whole[1])
    for first, last in read:
        if first > end:
            break
        if _number(last) < begin:
            continue
        if first > begin:
            yield begin, first - 1
        begin = _number(last) + 1
    if begin <= end:
        yield begin, whole[1]


def _number(last: int | None) -> int:
    """Return a last block as a number: a file has fewer than 2**32."""
    return 1 << 32 if last is None else last


def _merge(intervals: Iterable[_Interval]) -> tuple[_Interval, ...]:
    """Return the same blocks in order, with adjacent intervals joined."""
    merged: list[_Interval] = []
    for begin, end in sorted(intervals, key=lambda interval: interval[0]):
        if merged:
            before, last = merged[-1]
            # This one has no end: all that follow lie in it.
            if last is None:
                break
            if begin <= last + 1:
                merged[-1] = before, None if end is None else max(last, end)
                continue
        merged.append((begin, end))
    return tuple(merged)
