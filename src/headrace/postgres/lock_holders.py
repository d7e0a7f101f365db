"""Name the sessions whose locks keep every reader from a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace.errors import HeadraceError, Kind, as_locked
from headrace.postgres.server import IN_TRANSACTION, session_text
from headrace.postgres.server_errors import OtherServerError

# Who only waits for this lock counts too: the server queues all later readers behind that session.
_HOLDERS = f"""
SELECT l.relation::regclass::text,
       CASE WHEN a.pid IS NULL THEN 'a prepared transaction'
            ELSE {session_text("a.pid")} || {IN_TRANSACTION} END,
       l.granted
FROM pg_locks l JOIN pg_class c ON c.oid = l.relation LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.mode = 'AccessExclusiveLock' AND l.pid IS DISTINCT FROM pg_backend_pid() AND c.relkind IN ('r', 'p')
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY l.granted DESC, a.xact_start LIMIT 3
"""  # noqa: S608 - a fixed text


class LockedError(HeadraceError):
    """A statement waited too long for a lock that somebody holds on a table."""


@contextmanager
def locks_of(unit: str) -> Iterator[None]:
    """Let a lock or another server that is not had end what is done for one unit: the others need not wait.

    Raises:
        HeadraceError: LOCKED, which names the unit.
    """
    try:
        yield
    except (LockedError, OtherServerError) as error:
        raise as_locked(error, [unit]) from error


def lock_error(query: Callable[[str], list[tuple[Any, ...]]], seconds: float) -> LockedError:
    """Return the error of a statement that has waited too long for a lock.

    Args:
        query: runs a statement in the same session, in a new transaction.
        seconds: how long it has waited.
    """
    found = [
        f"{table} is locked by {holder}" if granted else f"{holder} waits to lock {table}"
        for table, holder, granted in query(_HOLDERS)
    ]
    return LockedError(
        Kind.CONNECTION,
        f"the database was not read within {seconds:g} s, because of a lock"
        + (f": {'; '.join(found)}" if found else ", which is gone by now"),
        "Wait until that transaction ends, or end it, then try again.",
    )
