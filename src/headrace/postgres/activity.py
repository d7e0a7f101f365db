"""What do the server's own lists say of our sessions?"""

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
    """Whether the server executes a statement of other sessions of that name.

    One that waits for a lock, or for its client to take rows, does not get on.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    try:
        [(found,)] = execute(connection, _AT_WORK, (application_name,))
    except psycopg.Error as error:
        raise database_error(error, connection.info.dsn) from error
    return bool(found)
