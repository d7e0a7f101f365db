"""Is all that a session has read on the server's disk, so that no crash takes it back?

A commit is on disk before anyone sees it, except with `synchronous_commit = off`: one that is seen may never
have happened once the server has crashed, and no change in the log tells of that. A standby shows only what
its primary and itself have on disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn

SEEN = """pg_current_snapshot()::text,
       CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_insert_lsn() - '0/0')::bigint END,
       CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_flush_lsn() - '0/0')::bigint END"""
"""What `FlushedReads.note` is told, as columns of a statement."""

_LOOK = f"SELECT {SEEN}"

# A commit that waits for the disk puts all on it that was written before. Every role may call it by default.
_FLUSH = "SELECT pg_logical_emit_message(true, 'headrace', '')"

_EMPTY_TRANSACTION = "SELECT pg_current_xact_id()"
"""Its commit makes the WAL writer flush within three of its rounds (`wal_writer_delay`, 0.2 s each)."""

_PATIENCE_SECONDS = 0.005
"""Where others commit, their next flush comes sooner than that."""
_POLL_SECONDS = 0.001

Query = Callable[[str], list[tuple[Any, ...]]]
"""Runs a statement in a transaction of its own; gives its rows."""


class FlushedReads:
    """Waits until what a session has read is on disk.

    Reading itself writes to the log (pruned pages, hint bits), and so does whoever has not committed yet: the
    log's end is often not on disk, and nobody hurries. So what counts are commits. Where the same ones are
    visible as at a moment when all of the log was on disk, those that were read are too.

    Args:
        query: the session's; `synchronous_commit` is at least `local` there.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._flushed: str | None = None

    def look(self) -> Lsn | None:
        """The end of the log where a commit that is visible now may not be on disk (bytes); else None.

        Raises:
            what `query` does.
        """
        [(snapshot, end, flushed)] = self._query(_LOOK)
        return self.note(snapshot, end, flushed)

    def note(self, snapshot: str, end: Lsn | None, flushed: Lsn | None) -> Lsn | None:
        """As `look`, for what a statement of the session said just now.

        Args:
            snapshot: the transactions that it sees.
            end: of the log then (bytes); None on a standby.
            flushed: how far that is on disk.
        """
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
        end = self.look()
        if end is None or self._reached(end, _PATIENCE_SECONDS):
            return
        try:
            self._query(_FLUSH)
        except HeadraceError as error:
            if error.kind is not Kind.PRIVILEGE:
                raise
            self._query(_EMPTY_TRANSACTION)
            self._reached(end)
        else:
            self.look()

    def _reached(self, end: Lsn, seconds: float | None = None) -> bool:
        """Whether the log is on disk up to `end`, at the latest after `seconds`."""
        latest = None if seconds is None else time.monotonic() + seconds
        while latest is None or time.monotonic() < latest:
            time.sleep(_POLL_SECONDS)
            [(snapshot, now, flushed)] = self._query(_LOOK)
            if self.note(snapshot, now, flushed) is None or flushed >= end:
                return True
        return False
