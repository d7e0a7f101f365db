"""Up to which place in the log lies everything that somebody has just read?

A commit is in the log before anyone sees it, and on disk before anyone sees it where it waits for that
(`synchronous_commit`). One that does not is on disk at most three rounds of the WAL writer later; what is
still not on disk then are no commits.
"""

from __future__ import annotations

import time

from headrace.model import Lsn
from headrace.postgres.session import ReadSession

_POSITIONS = """
SELECT CASE WHEN pg_is_in_recovery() THEN (pg_last_wal_replay_lsn() - '0/0')::bigint
            ELSE (pg_current_wal_insert_lsn() - '0/0')::bigint END,
       CASE WHEN pg_is_in_recovery() THEN (pg_last_wal_replay_lsn() - '0/0')::bigint
            ELSE (pg_current_wal_flush_lsn() - '0/0')::bigint END,
       (SELECT setting::float8 / 1000 FROM pg_settings WHERE name = 'wal_writer_delay')
"""
_ROUNDS = 3
_SPARE_SECONDS = 0.5
_POLL_SECONDS = 0.02


def position_of_reads(session: ReadSession) -> Lsn:
    """A place on disk behind every commit that any earlier statement has seen (bytes); waits about a second.

    On a standby, the place that is replayed.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    [(written, flushed, delay)] = session.query(_POSITIONS)
    deadline = time.monotonic() + _ROUNDS * delay + _SPARE_SECONDS
    while flushed < written and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        [(_, flushed, _)] = session.query(_POSITIONS)
    return int(min(written, flushed))
