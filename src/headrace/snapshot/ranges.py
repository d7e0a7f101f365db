"""Into which ranges of rows is a table cut, so that they can be read apart and none is missed?

A range is cut by blocks: it costs no scan to plan and a tid range scan to read. The last one has no end,
because the file may grow. A rewrite of the table (VACUUM FULL, CLUSTER, TRUNCATE) moves rows between blocks:
each range names the file it was cut for, and is checked once it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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


def plan_ranges(session: ReadSession, leaves: Iterable[TableName], target_bytes: int) -> list[CtidRange]:
    """Ranges of about `target_bytes` of table file that together hold every row of `leaves`, in order.

    Raises:
        HeadraceError: BINDING where a table has no file (absent, a view, a partitioned table itself).
    """
    names = list(leaves)
    schemas, tables = [name.schema for name in names], [name.name for name in names]
    found: list[CtidRange] = []
    for schema, name, size, block_size, filenode in session.query(_FILES, (schemas, tables)):
        table = TableName(schema, name)
        if filenode is None:
            raise HeadraceError(
                Kind.BINDING, f"{table} has no rows of its own to read", "Name an ordinary table."
            )
        found.extend(
            CtidRange(table, first, last, filenode)
            for first, last in cut(-(-size // block_size), max(1, target_bytes // block_size))
        )
    return found


def cut(blocks: int, step: int) -> Iterator[tuple[int, int | None]]:
    """First and last block of each range of `step` blocks; the last range has no end (pure).

    A remainder of less than half a step joins the range before it.
    """
    first = 0
    while blocks - first >= step + (step + 1) // 2:
        yield first, first + step - 1
        first += step
    yield first, None


def check_filenode(session: ReadSession, part: CtidRange) -> None:
    """Make sure that `part` still meant what it was planned for; call it after its rows were read.

    Raises:
        HeadraceError: CONTINUITY, where the table was rewritten or dropped: what was read with the plan
            may lack rows, and all of the table's ranges must be planned and read again.
    """
    [(filenode,)] = session.query(
        "SELECT pg_relation_filenode(to_regclass($1))::bigint", (quoted(part.table),)
    )
    if filenode != part.filenode:
        what = "dropped" if filenode is None else "rewritten (VACUUM FULL, CLUSTER, TRUNCATE or ALTER TABLE)"
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the table {part.table} was {what} while it was being read",
            "Seed again; keep such commands away until the seeding has ended.",
        )
