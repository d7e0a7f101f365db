"""Find the open transactions that make the server keep log for every slot, and a new slot wait.

Decoding may have to begin where the oldest transaction that is still open wrote first, so a slot's
`restart_lsn` stands there however far its stream is. Transactions of all databases count.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.postgres.connection import Connection, query
from headrace.postgres.server import IN_TRANSACTION, SINCE, session_text

_OLDEST = f"""
SELECT holder, ending
FROM (SELECT {session_text("a.pid")} || coalesce(', in ' || a.datname, '') || {IN_TRANSACTION} AS holder,
             'COMMIT or ROLLBACK there, or SELECT pg_terminate_backend(' || a.pid || ')' AS ending,
             age(a.backend_xid) AS age
      FROM pg_stat_activity a WHERE a.backend_xid IS NOT NULL
      UNION ALL
      SELECT 'the prepared transaction ' || quote_literal(p.gid) || ' in ' || p.database || ', since '
             || {SINCE.format("p.prepared")},
             'COMMIT PREPARED or ROLLBACK PREPARED ' || quote_literal(p.gid) || ' there',
             age(p.transaction)
      FROM pg_prepared_xacts p) AS transactions
ORDER BY age DESC LIMIT $1
"""  # noqa: S608 - a fixed text


@dataclass(frozen=True, slots=True)
class LogHolder:
    """An open transaction with a transaction id.

    Attributes:
        holder: its session, or its name where it is prepared, for people; never its statements.
        ending: how to end it.
    """

    holder: str
    ending: str


def read_log_holders(connection: Connection, most: int = 1) -> list[LogHolder]:
    """Return the oldest open transactions that have written; none on a standby.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    return [LogHolder(*row) for row in query(connection, _OLDEST, (most,))]
