"""Plan the parts in which tables are read in parallel.

A table is cut by the blocks of its file, a partitioned table file by file. A relation without a heap file (a
view, a foreign table, another access method) is one part. So is a partitioned table whose partitions the role
may not read directly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.catalog.table import Table
from headrace.errors import HeadraceError, Kind
from headrace.model.names import CtidRange, TableName, name_arrays
from headrace.postgres.session import ReadSession
from headrace.postgres.sql_files import read_sql
from headrace.snapshot.ranges import cut

PARTITION_BYTES = 64 << 20
"""The default size of a part (bytes of the table's file)."""

_KINDS = {"S": "a sequence", "i": "an index", "I": "an index", "c": "a composite type", "t": "a TOAST table"}

_RELATION = """
SELECT wanted.nspname, wanted.relname, c.relkind::text, row_security_active(c.oid)
FROM unnest($1::text[], $2::text[]) AS wanted (nspname, relname)
JOIN pg_namespace n ON n.nspname = wanted.nspname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.relname
"""

_FILES = read_sql(__package__, "files")


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A part of a table that one task reads.

    Attributes:
        ranges: its ranges of rows.
        blocks: their approximate number of blocks; None where not known.
    """

    ranges: tuple[CtidRange, ...]
    blocks: int | None = None


@dataclass(frozen=True, slots=True)
class File:
    """The file with a table's own rows, without those of its inheritance children.

    Attributes:
        table: the table.
        blocks: the number of blocks; it counts only where there is a heap file.
        block_size: the size of a block (bytes).
        filenode: the file's filenode; None where the table has no heap file and is read as a whole.
    """

    table: TableName
    blocks: int
    block_size: int
    filenode: int | None


def plan_tables(
    session: ReadSession,
    tables: Sequence[TableName],
    *,
    count: int | None = None,
    target_bytes: int = PARTITION_BYTES,
    inheritance_children: bool = True,
) -> dict[TableName, list[PlannedPart]]:
    """Plan the parts of each of `tables`: together they hold every row once. Two queries in all.

    Args:
        session: a session in the snapshot, where there is one.
        tables: tables or views.
        count: the approximate number of parts.
        target_bytes: the approximate size of a part (bytes of file), where `count` is None.
        inheritance_children: whether rows of inheritance children count as the table's own, as in SQL.

    Raises:
        HeadraceError: BINDING where there is no such table or it has no rows; CONTINUITY where one was
            rewritten or dropped since the snapshot; CONNECTION, DATABASE.
    """
    guarded = _check_tables(session, tables)
    by_table = _files(
        session, [table for table in tables if not guarded[table]], inheritance_children=inheritance_children
    )
    parts: dict[TableName, list[PlannedPart]] = {}
    for table in tables:
        files = by_table.get(table)
        if not files:
            parts[table] = [PlannedPart((CtidRange(0, None),))]
            continue
        wanted = sum(file.blocks for file in files) / count if count else target_bytes / files[0].block_size
        parts[table] = list(group_files(files, max(1, math.ceil(wanted))))
    return parts


def plan_ranges(session: ReadSession, table: Table, target_bytes: int) -> list[CtidRange]:
    """Plan ranges of about `target_bytes` of file that together hold every row, leaf by leaf.

    A partitioned table without partitions has none.

    Raises:
        HeadraceError: BINDING where the table cannot be read by its blocks (dropped since, or a view);
            CONTINUITY as `plan_tables`; CONNECTION, DATABASE.
    """
    if table.kind == "p" and not table.partitions:
        return []
    planned = plan_tables(session, [table.name], target_bytes=target_bytes, inheritance_children=False)
    ranges = [range_ for part in planned[table.name] for range_ in part.ranges]
    if any(range_.filenode is None for range_ in ranges):
        raise HeadraceError(
            Kind.BINDING, f"{table.name} has no rows of its own to read", "Name an ordinary table."
        )
    return ranges


def check_table(session: ReadSession, table: TableName) -> bool:
    """Check that `table` can have rows; return whether row level security applies to it.

    Raises:
        HeadraceError: BINDING where there is no such table or it has no rows; CONNECTION, DATABASE.
    """
    return _check_tables(session, [table])[table]


def _check_tables(session: ReadSession, tables: Sequence[TableName]) -> dict[TableName, bool]:
    relations = {TableName(*row[:2]): row[2:] for row in session.query(_RELATION, name_arrays(tables))}
    for table in tables:
        if table not in relations:
            raise HeadraceError(
                Kind.BINDING, f"there is no table {table}", "Write schema.table as the database spells it."
            )
        kind = relations[table][0]
        if kind in _KINDS:
            raise HeadraceError(Kind.BINDING, f"{table} is {_KINDS[kind]}", "Name a table or a view.")
    return {table: bool(guarded) for table, (_, guarded) in relations.items()}


def _files(
    session: ReadSession, tables: Sequence[TableName], *, inheritance_children: bool
) -> dict[TableName, list[File] | None]:
    """Return the files with the rows of each table; None where the role may not read each file's table."""
    files_of: dict[TableName, list[File] | None] = {}
    for row in session.query(_FILES, (*name_arrays(tables), inheritance_children)):
        table, leaf = TableName(*row[:2]), TableName(*row[2:4])
        heap, readable, size, block_size, filenode, seen = row[4:]
        # The rows of one that is gone, or is empty to an older snapshot, would be missed silently.
        is_gone = None in (readable, size)
        if is_gone or (heap and seen not in {0, filenode}):
            what = "dropped" if is_gone else "rewritten"
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the table {leaf} was {what} since the snapshot was taken",
                "Take another snapshot.",
            )
        files = files_of.setdefault(table, [])
        if files is None:
            continue
        # A role may read a table and not its partitions: then the whole is one part.
        if not readable and leaf != table:
            files_of[table] = None
            continue
        files.append(File(leaf, -(-size // block_size), block_size, filenode if heap else None))
    return files_of


def group_files(files: Sequence[File], target: int) -> Iterator[PlannedPart]:
    """Cut files into parts of about `target` blocks; small files share a part (pure)."""
    waiting: list[CtidRange] = []
    remaining = target
    for file in files:
        if file.filenode is None:
            yield PlannedPart((CtidRange(0, None, file.table),))
            continue
        for first, last in cut(file.blocks, target):
            size = (file.blocks if last is None else last + 1) - first
            # Half a part more is taken in: small rests would have tasks of their own.
            if waiting and size > remaining + target // 2:
                yield PlannedPart(tuple(waiting), target - remaining)
                waiting, remaining = [], target
            waiting.append(CtidRange(first, last, file.table, file.filenode))
            remaining -= size
    if waiting:
        yield PlannedPart(tuple(waiting), target - remaining)
