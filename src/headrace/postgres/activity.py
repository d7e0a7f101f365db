"""Ask the server which sessions are at work."""

from __future__ import annotations

import psycopg

from headrace.postgres.connection import Connection, execute
from headrace.postgres.session import database_error

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
    try:
        [(active,)] = execute(connection, _AT_WORK, (application_name,))
    except psycopg.Error as error:
        raise database_error(error, connection.info.dsn) from error
    return bool(active)
