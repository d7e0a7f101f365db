"""Find how far the log is on the server's disk, and wait until all that a session has read is on disk.

A commit is on disk before anyone sees it, except with `synchronous_commit = off`. Such a commit may be seen,
and then be undone by a crash of the server; no change in the log shows that. A standby shows only what its
primary and the standby itself have on disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.postgres.connection import Connection, query

SEEN = """pg_current_snapshot()::text,
       CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_insert_lsn() - '0/0')::bigint END,
       CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_flush_lsn() - '0/0')::bigint END"""
"""The columns of a statement that give the arguments of `FlushedReads.note`."""

_LOOK = f"SELECT {SEEN}"

# A commit that waits for the disk flushes all that was written before. Every role may call this by default.
_FLUSH = "SELECT pg_logical_emit_message(true, 'headrace', '')"

_EMPTY_TRANSACTION = "SELECT pg_current_xact_id()"
"""Its commit makes the WAL writer flush within three of its rounds (`wal_writer_delay`, 0.2 s each)."""

_NEXT_FLUSH_SECONDS = 0.005
"""Where other sessions commit, their next flush comes sooner than that."""
_POLL_SECONDS = 0.001

Query = Callable[[str], list[tuple[Any, ...]]]
"""Run a statement in a transaction of its own and return its rows."""


class FlushedReads:
    """Wait until what a session has read is on disk.

    Reads write to the log (pruned pages, hint bits), and so do open transactions: the end of the log is often
    not on disk, and nothing flushes it soon. So only commits count. If the visible commits are the same as at
    a moment when the whole log was on disk, they are on disk.

    Args:
        query: runs a statement in the session, whose `synchronous_commit` is at least `local`.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._flushed: str | None = None

    def look(self) -> Lsn | None:
        """Return the end of the log (bytes) where a visible commit may not be on disk; else None.

        Raises:
            what `query` does.
        """
        [(snapshot, end, flushed)] = self._query(_LOOK)
        return self.note(snapshot, end, flushed)

    def note(self, snapshot: str, end: Lsn | None, flushed: Lsn | None) -> Lsn | None:
        """As `look`, for values that a statement of the session has just returned.

        Args:
            snapshot: the transactions that the statement sees.
            end: the end of the log at that moment (bytes); None on a standby.
            flushed: how far the log is on disk (bytes); None on a standby.
        """
        # The same visible commits as when the whole log was on disk: they are on disk.
        if end is None or flushed is None or snapshot == self._flushed:
            return None
        if flushed < end:
            return end
        self._flushed = snapshot
        return None

    def wait(self) -> None:
        """Return once every commit that is visible now is on disk.

        Raises:
            what `query` does.
        """
        # Mostly on disk already: commits flush, and so do the WAL writer and other sessions.
        end = self.look()
        if end is None or self._reached(end, _NEXT_FLUSH_SECONDS):
            return
        try:
            self._query(_FLUSH)
        except HeadraceError as error:
            if error.kind is not Kind.PRIVILEGE:
                raise
            # A role that may not emit a message: its commit is asynchronous, so the disk is waited for.
            self._query(_EMPTY_TRANSACTION)
            self._reached(end)
        else:
            # Noted now, so that the next wait for the same commits needs no flush.
            self.look()

    def _reached(self, end: Lsn, seconds: float | None = None) -> bool:
        """Return whether the log is on disk up to `end`, at the latest after `seconds`."""
        latest = None if seconds is None else time.monotonic() + seconds
        while latest is None or time.monotonic() < latest:
            time.sleep(_POLL_SECONDS)
            [(snapshot, now, flushed)] = self._query(_LOOK)
            if self.note(snapshot, now, flushed) is None or flushed >= end:
                return True
        return False


_ENDS = """
SELECT CASE WHEN pg_is_in_recovery() THEN (pg_last_wal_replay_lsn() - '0/0')::bigint
            ELSE (pg_current_wal_insert_lsn() - '0/0')::bigint END,
       NOT pg_is_in_recovery() AND pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()
"""


def end_of_commits(query: Query) -> Lsn:
    """Return a position (bytes) after every visible commit, which readers of the log soon reach.

    On a standby, this is the replayed position. On a primary the end of the log may be on disk in part: up to
    the end of a page, in the middle of a record. Readers then stop at the beginning of that record until
    another session commits. So an empty transaction is committed; the WAL writer flushes it within three of
    its rounds (`wal_writer_delay`, 0.2 s each).

    Raises:
        what `query` does.
    """
    [(end, is_unfinished)] = query(_ENDS)
    if is_unfinished:
        query(_EMPTY_TRANSACTION)
    return int(end)


_END = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
        - '0/0')::bigint
"""


def end_of_log(connection: Connection) -> Lsn:
    """Return how far the log is flushed to disk (bytes); on a standby, replayed.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    [(end,)] = query(connection, _END)
    return int(end)
