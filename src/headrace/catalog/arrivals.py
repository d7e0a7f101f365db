"""Find partitions and files whose rows were written without the log, by the age of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.catalog.differences import Rewrite
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

# A row is older than a row of the catalog by its transaction, or by its command in the same transaction. The
# raw xmin stays when a row is frozen.
_OLDER = """
SELECT EXISTS (
    SELECT FROM {table} AS r, ({made}) AS made
    WHERE r.tableoid = $1::text::oid
      AND (age(r.xmin) > age(made.xmin)
           OR (r.xmin::text = made.xmin::text AND r.cmin::text::bigint < made.command))
)
"""
# The last attachment on the path to the root: attaching a partitioned partition brings its leaves' rows.
_ATTACHED = """
SELECT i.xmin, i.cmin::text::bigint AS command
FROM pg_partition_ancestors($1::text::oid) AS a JOIN pg_inherits i ON i.inhrelid = a.relid
ORDER BY age(i.xmin), command DESC LIMIT 1
"""
# An ALTER TABLE rewrites rows in the same command as the new file.
_REWRITTEN = "SELECT xmin, cmin::text::bigint + 1 AS command FROM pg_class WHERE oid = $1::text::oid"
_BEFORE = """
SELECT EXISTS (
    SELECT FROM {table} AS r WHERE r.tableoid = $1::text::oid AND age(r.xmin) > age($2::text::xid)
), pg_snapshot_xmin(pg_current_snapshot())::text::bigint - $3::text::bigint
"""
_COMPARABLE = 1 << 31
"""Transactions; 32 bits cannot distinguish more of them."""


def came_with_rows(session: ReadSession, root: TableName, leaf: TableName, oid: int) -> bool:
    """Return whether the partition holds a row that is older than its attachment.

    False also where it is no partition any more. A row that an older transaction wrote after the attachment
    counts too: a false alarm is better than a missed one. Where there is no such row, this reads the whole
    partition; the whole table where the role may read only that.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    return _has_older(session, (leaf, root), oid, _ATTACHED)


def may_have_been_unlogged(session: ReadSession, rewrite: Rewrite) -> bool | None:
    """Return whether rows may have been written while a table with a new file was unlogged.

    SET LOGGED writes all rows anew, each of them older than the catalog's row of the file; VACUUM FULL keeps
    their age. None: there is no row that old. The table was emptied by a TRUNCATE, or while it was unlogged.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    tables = (rewrite.part.name, rewrite.table)
    if rewrite.ended:
        wrapped = str(rewrite.ended % (1 << 32))
        [(has_kept_rows, transactions_since)] = _query_either(
            session, tables, _BEFORE, (str(rewrite.oid), wrapped, str(rewrite.ended))
        )
        if has_kept_rows and int(transactions_since) < _COMPARABLE:
            return False
    return _has_older(session, tables, rewrite.oid, _REWRITTEN) or None


def _has_older(session: ReadSession, tables: Sequence[TableName], oid: int, made: str) -> bool:
    [(has_older,)] = _query_either(session, tables, _OLDER.replace("{made}", made), (str(oid),))
    return bool(has_older)


def _query_either(
    session: ReadSession, tables: Sequence[TableName], sql: str, parameters: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    """Query the first of `tables`, or the second where the role may read only that."""
    first, second = tables
    try:
        return session.query(sql.format(table=quoted(first)), parameters)
    except HeadraceError as error:
        if error.kind is not Kind.PRIVILEGE:
            raise
        return session.query(sql.format(table=quoted(second)), parameters)
