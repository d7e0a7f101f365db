"""Did a new partition bring rows with it, of which the log tells nothing?"""

from __future__ import annotations

from headrace.model import TableName
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

# A row is older than the attachment by its transaction, or by its place in the same transaction. The raw xmin
# stays when a row is frozen.
_OLDER = """
SELECT EXISTS (
    SELECT FROM {table} AS r, (SELECT xmin, cmin FROM pg_inherits WHERE inhrelid = $1::text::oid) AS attached
    WHERE age(r.xmin) > age(attached.xmin)
       OR (r.xmin::text = attached.xmin::text AND r.cmin::text::bigint < attached.cmin::text::bigint)
)
"""


def came_with_rows(session: ReadSession, leaf: TableName, oid: int) -> bool:
    """Whether the partition holds a row that is older than its attachment.

    False also for one that is no partition any more. A row of a transaction that is older than the
    attachment and wrote after it counts too: it is rather said once too often. Reads the whole partition
    where there is none.

    Raises:
        HeadraceError: CONNECTION, DATABASE, PRIVILEGE.
    """
    [(found,)] = session.query(_OLDER.format(table=quoted(leaf)), (str(oid),))
    return bool(found)
