"""Find out in the server what a stream waits for: locks, commits, its reader."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.postgres.connection import Connection, query
from headrace.postgres.server import IN_TRANSACTION, SINCE, session_text

# pg_blocking_pids has 0 for a prepared transaction, which has no process: its locks tell which one it is.
_LOCKS = f"""
SELECT w.pid,
       (SELECT l.relation::regclass::text FROM pg_locks l WHERE l.pid = w.pid AND NOT l.granted LIMIT 1),
       ARRAY(SELECT {session_text("a.pid")} || {IN_TRANSACTION}
             FROM pg_stat_activity a WHERE a.pid = ANY (pg_blocking_pids(w.pid)))
       || ARRAY(SELECT 'the prepared transaction ' || quote_literal(p.gid) || ' since '
                       || {SINCE.format("p.prepared")}
                FROM pg_prepared_xacts p
                JOIN pg_locks x ON x.transactionid = p.transaction AND x.pid IS NULL
                JOIN pg_locks h ON h.virtualtransaction = x.virtualtransaction AND h.pid IS NULL
                JOIN pg_locks l ON (l.database, l.relation) = (h.database, h.relation)
                WHERE l.pid = w.pid AND NOT l.granted)
FROM pg_stat_activity w
WHERE w.datname = current_database() AND w.application_name = $1 AND w.wait_event_type = 'Lock'
      AND w.pid <> pg_backend_pid()
ORDER BY w.query_start
"""  # noqa: S608 - a fixed text
_COMMITS = f"""
SELECT {session_text("a.pid")} || coalesce(', since ' || {SINCE.format("a.xact_start")}, '')
FROM pg_stat_activity a
WHERE a.wait_event = 'SyncRep' AND clock_timestamp() - a.query_start > interval '5 seconds'
ORDER BY a.xact_start LIMIT 3
"""  # noqa: S608 - a fixed text
_READER = """
SELECT a.wait_event, extract(epoch FROM now() - r.reply_time)::float8
FROM pg_stat_replication r LEFT JOIN pg_stat_activity a USING (pid)
WHERE r.pid = (SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1)
"""


@dataclass(frozen=True, slots=True)
class LockWait:
    """A session of the stream that waits for a lock.

    Attributes:
        pid: the session.
        relation: the table; None where the lock is on something else.
        blockers: who holds the lock, for people.
    """

    pid: int
    relation: str | None
    blockers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamWaits:
    """What a stream waits for in the server.

    Attributes:
        locks: the sessions that wait for a lock, the longest first.
        unacknowledged: commits that wait for a synchronous standby for seconds, for people; their changes are
            in the log and not visible.
        walsender_waits_for: the wait event of the walsender; None where there is none, or where it works.
        silent_seconds: since the reader's last message to the walsender; None where unknown.
    """

    locks: tuple[LockWait, ...] = ()
    unacknowledged: tuple[str, ...] = ()
    walsender_waits_for: str | None = None
    silent_seconds: float | None = None


NO_WAITS = StreamWaits()


def read_stream_waits(connection: Connection, slot: str, application_name: str) -> StreamWaits:
    """Look at the sessions called `application_name`, and at the reader of `slot`.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    locks = query(connection, _LOCKS, (application_name,))
    commits = query(connection, _COMMITS)
    [(event, silent)] = query(connection, _READER, (slot,)) or [(None, None)]
    return StreamWaits(
        locks=tuple(LockWait(pid, relation, tuple(blockers)) for pid, relation, blockers in locks),
        unacknowledged=tuple(text for (text,) in commits),
        walsender_waits_for=event,
        silent_seconds=silent,
    )
