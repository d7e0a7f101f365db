"""Did a new partition bring rows with it, of which the log tells nothing?"""

from __future__ import annotations

from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

# A row is older than the attachment by its transaction, or by its place in the same transaction. The raw xmin
# stays when a row is frozen.
_OLDER = """
SELECT EXISTS (
    SELECT FROM {table} AS r, (SELECT xmin, cmin FROM pg_inherits WHERE inhrelid = $1::text::oid) AS attached
    WHERE r.tableoid = $1::text::oid
      AND (age(r.xmin) > age(attached.xmin)
           OR (r.xmin::text = attached.xmin::text AND r.cmin::text::bigint < attached.cmin::text::bigint))
)
"""


def came_with_rows(session: ReadSession, root: TableName, leaf: TableName, oid: int) -> bool:
    """Whether the partition holds a row that is older than its attachment.

    False also for one that is no partition any more. A row of a transaction that is older than the
    attachment and wrote after it counts too: it is rather said once too often. Reads the whole partition
    where there is none; the whole table, where the role may read only that.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    try:
        [(found,)] = session.query(_OLDER.format(table=quoted(leaf)), (str(oid),))
    except HeadraceError as error:
        if error.kind is not Kind.PRIVILEGE:
            raise
        [(found,)] = session.query(_OLDER.format(table=quoted(root)), (str(oid),))
    return bool(found)
