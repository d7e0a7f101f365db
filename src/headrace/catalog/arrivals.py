"""Does a partition or a file hold rows of which the log tells nothing? Its rows say how old they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.catalog.differences import Rewrite
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

# A row is older than a row of the catalog by its transaction, or by its place in the same transaction. The
# raw xmin stays when a row is frozen.
_OLDER = """
SELECT EXISTS (
    SELECT FROM {table} AS r, ({made}) AS made
    WHERE r.tableoid = $1::text::oid
      AND (age(r.xmin) > age(made.xmin)
           OR (r.xmin::text = made.xmin::text AND r.cmin::text::bigint < made.command))
)
"""
# The last attachment on the way up: that of a partition that itself is partitioned brings its leaves' rows.
_ATTACHED = """
SELECT i.xmin, i.cmin::text::bigint AS command
FROM pg_partition_ancestors($1::text::oid) AS a JOIN pg_inherits i ON i.inhrelid = a.relid
ORDER BY age(i.xmin), command DESC LIMIT 1
"""
# Rows that an ALTER TABLE writes anew are of the same command as the new file.
_WRITTEN = "SELECT xmin, cmin::text::bigint + 1 AS command FROM pg_class WHERE oid = $1::text::oid"
_BEFORE = """
SELECT EXISTS (
    SELECT FROM {table} AS r WHERE r.tableoid = $1::text::oid AND age(r.xmin) > age($2::text::xid)
), pg_snapshot_xmin(pg_current_snapshot())::text::bigint - $3::text::bigint
"""
_COMPARABLE = 1 << 31
"""Transactions; 32 bits tell no more of them apart."""


def came_with_rows(session: ReadSession, root: TableName, leaf: TableName, oid: int) -> bool:
    """Whether the partition holds a row that is older than its attachment.

    False also for one that is no partition any more. A row of a transaction that is older than the
    attachment and wrote after it counts too: it is rather said once too often. Reads the whole partition
    where there is none; the whole table, where the role may read only that.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    return _has_older(session, (leaf, root), oid, _ATTACHED)


def may_have_been_unlogged(session: ReadSession, rewrite: Rewrite) -> bool | None:
    """Whether rows may have been written while a table was unlogged that has another file now.

    SET LOGGED makes all rows anew, each of them older than what the catalog says of the file then; VACUUM
    FULL leaves them as old as they were. None: there is no row that old. It was emptied by a TRUNCATE, or
    while it was unlogged.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    tables = (rewrite.part.name, rewrite.table)
    if rewrite.ended:
        wrapped = str(rewrite.ended % (1 << 32))
        [(kept, passed)] = _asked(session, tables, _BEFORE, (str(rewrite.oid), wrapped, str(rewrite.ended)))
        if kept and int(passed) < _COMPARABLE:
            return False
    return _has_older(session, tables, rewrite.oid, _WRITTEN) or None


def _has_older(session: ReadSession, tables: Sequence[TableName], oid: int, made: str) -> bool:
    [(found,)] = _asked(session, tables, _OLDER.replace("{made}", made), (str(oid),))
    return bool(found)


def _asked(
    session: ReadSession, tables: Sequence[TableName], sql: str, parameters: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    """Of the first of `tables`, or of the second where the role may read only that."""
    first, second = tables
    try:
        return session.query(sql.format(table=quoted(first)), parameters)
    except HeadraceError as error:
        if error.kind is not Kind.PRIVILEGE:
            raise
        return session.query(sql.format(table=quoted(second)), parameters)
