"""Into which ranges of rows is a table cut, so that they can be read apart and none is missed?

A range is cut by blocks: it costs no scan to plan and a tid range scan to read. The last one has no end,
because the file may grow. A rewrite of the table (VACUUM FULL, CLUSTER, TRUNCATE) moves rows between blocks:
each range names the file that it was cut for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from headrace.catalog.table import Catalog, Table
from headrace.errors import HeadraceError, Kind
from headrace.model import CtidRange, TableName
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

_FILES = """
SELECT wanted.schema, wanted.name, pg_relation_size(c.oid), current_setting('block_size')::int,
       pg_relation_filenode(c.oid)::bigint
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted (schema, name, place)
LEFT JOIN pg_namespace n ON n.nspname = wanted.schema
LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name AND c.relkind IN ('r', 'm')
ORDER BY wanted.place
"""


_FILENODES = "SELECT pg_relation_filenode(to_regclass(name))::bigint FROM unnest($1::text[]) AS name"


class Queries(Protocol):
    """A session that answers small questions."""

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement with `$1`-style parameters."""


def plan_ranges(session: ReadSession, table: Table, target_bytes: int) -> list[CtidRange]:
    """Ranges of about `target_bytes` of table file that together hold every row, leaf by leaf.

    A partitioned table without partitions has none.

    Raises:
        HeadraceError: BINDING where the table has no file (dropped since, or a view); CONNECTION, DATABASE.
    """
    leaves = table.partitions if table.kind == "p" else (table.name,)
    schemas, names = [leaf.schema for leaf in leaves], [leaf.name for leaf in leaves]
    found: list[CtidRange] = []
    for schema, name, size, block_size, filenode in session.query(_FILES, (schemas, names)):
        leaf = TableName(schema, name)
        if filenode is None:
            raise HeadraceError(
                Kind.BINDING, f"{leaf} has no rows of its own to read", "Name an ordinary table."
            )
        found.extend(
            CtidRange(first, last, leaf, filenode)
            for first, last in cut(-(-size // block_size), max(1, target_bytes // block_size))
        )
    return found


_REWRITTEN = """
SELECT coalesce(bool_or(c.relfilenode <> 0 AND c.relfilenode <> pg_relation_filenode(c.oid)), false)
FROM unnest($1::text[]) AS name JOIN pg_class c ON c.oid = to_regclass(name)
"""


def cut(blocks: int, step: int) -> Iterator[tuple[int, int | None]]:
    """First and last block of each range of `step` blocks; the last range has no end (pure).

    A remainder of less than half a step joins the range before it.
    """
    first = 0
    while blocks - first >= step + (step + 1) // 2:
        yield first, first + step - 1
        first += step
    yield first, None


def check_filenode(session: Queries, part: CtidRange) -> None:
    """Make sure that `part` still means what it was planned for.

    In a transaction, call it before or after its rows are read: the first of the two holds the table for the
    rest of the transaction, and nobody can rewrite it. Without one, call it after they were read.

    Raises:
        HeadraceError: CONTINUITY, where the table was rewritten or dropped: what is read with the plan may
            lack rows, and all of the table's ranges must be planned and read again.
    """
    if part.table is None or part.filenode is None:
        return
    name = quoted(part.table)
    if session.query("SELECT to_regclass($1) IS NULL", (name,)) == [(True,)]:
        raise _changed(part.table, "dropped")
    session.query(f"SELECT FROM {name} LIMIT 0")
    sql = "SELECT pg_relation_filenode($1::regclass)::bigint"
    if session.query(sql, (name,)) != [(part.filenode,)]:
        raise _changed(part.table, "rewritten (VACUUM FULL, CLUSTER, TRUNCATE or ALTER TABLE)")


def files_of(tables: Iterable[TableName], catalog: Catalog) -> tuple[TableName, ...]:
    """The tables that hold the rows of these: their partitions, where they have some (pure)."""
    found = (catalog[name].partitions if catalog[name].kind == "p" else (name,) for name in tables)
    return tuple(sorted({leaf for leaves in found for leaf in leaves}, key=str))


def read_filenodes(session: Queries, tables: Sequence[TableName]) -> tuple[int | None, ...]:
    """Which files hold their rows now; TRUNCATE and whatever rewrites a table gives it another.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    rows = session.query(_FILENODES, ([quoted(name) for name in tables],))
    return tuple(filenode for (filenode,) in rows)


def are_rewritten(session: Queries, tables: Sequence[TableName]) -> bool:
    """Whether a table has another file than the transaction's snapshot sees, where it has no rows then.

    An ALTER TABLE that writes a table anew leaves nothing for older snapshots.

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
