"""Of which table is a row that the log reports under a partition's name?

Without publish_via_partition_root the log names the leaf that holds a row, so that a truncated leaf is seen.
Whoever asked for a partitioned table means all of its leaves, also those that are made later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headrace.model import TableName
from headrace.postgres.session import ReadSession

_ROOTS = """
SELECT n.nspname::text, c.relname::text, rn.nspname::text, rc.relname::text
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
    SELECT a.relid
    FROM pg_partition_ancestors(c.oid) WITH ORDINALITY AS a (relid, distance)
    JOIN pg_class ac ON ac.oid = a.relid JOIN pg_namespace an ON an.oid = ac.relnamespace
    LEFT JOIN unnest($1::text[], $2::text[]) AS wanted (schema, name)
         ON an.nspname = wanted.schema AND ac.relname = wanted.name
    ORDER BY wanted.name IS NULL, CASE WHEN wanted.name IS NULL THEN -a.distance ELSE a.distance END
    LIMIT 1
) AS root
JOIN pg_class rc ON rc.oid = root.relid JOIN pg_namespace rn ON rn.oid = rc.relnamespace
WHERE c.relispartition AND c.relkind IN ('r', 'p', 'f') AND c.oid <> root.relid
"""

Roots = Mapping[TableName, TableName]
"""For each partition the table that it stands for; ordinary tables are absent."""


def read_roots(session: ReadSession, wanted: Iterable[TableName] = ()) -> Roots:
    """The partitions of the database as they are now.

    A partition stands for its nearest ancestor in `wanted`, itself counted; where none is, for the topmost.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    names = sorted(set(wanted))
    rows = session.query(_ROOTS, ([one.schema for one in names], [one.name for one in names]))
    return {TableName(*row[:2]): TableName(*row[2:]) for row in rows}


class PartitionRoots:
    """What partitions stand for, read again when a name comes that is new; not for two threads at once.

    Args:
        read: the partitions as they are now, as `read_roots` gives them; its errors pass through.
    """

    def __init__(self, read: Callable[[], Roots]) -> None:
        self._read = read
        self._roots: dict[TableName, TableName] = {}

    def root_of(self, table: TableName) -> TableName:
        """The table that `table` stands for; itself where it is no partition, or is gone already."""
        if table not in self._roots:
            self._roots.update(self._read())
            self._roots.setdefault(table, table)
        return self._roots[table]

    def forget(self) -> None:
        """Read everything again: a table was altered, or a connection is new."""
        self._roots.clear()
