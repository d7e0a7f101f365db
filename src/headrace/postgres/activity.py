"""Ask the server which sessions are at work."""

from __future__ import annotations

from headrace.postgres.connection import Connection, query

_AT_WORK = """
SELECT EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid()
      AND backend_type IN ('client backend', 'parallel worker')
      AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Lock'
      AND wait_event IS DISTINCT FROM 'ClientWrite'
)
"""


def is_at_work(connection: Connection, application_name: str) -> bool:
    """Return whether the server executes a statement of another session with that application name.

    A session that waits for a lock, or for its client to take rows, is not at work.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    [(active,)] = query(connection, _AT_WORK, (application_name,))
    return bool(active)
