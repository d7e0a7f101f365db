"""Plan batches of a slot's changes, in the process of a query that Spark asks for them.

Order of Spark's calls (measured, PySpark 4.3): commit log N → latestOffset(start = end N) → offset log N+1 →
partitions → read. So `start` is durable when `latestOffset` is called, and only there is the slot confirmed.
"""

from __future__ import annotations

import contextlib

from headrace.capture import ChangeStream, LogOrigin, Offset, StreamSettings
from headrace.capture.buffer import Limit
from headrace.datasources.shutdown import exit_on_sigterm
from headrace.errors import HeadraceError
from headrace.model.lsn import Lsn
from headrace.postgres.provision import PreparedSlot
from headrace.postgres.session import ReadSession
from headrace.postgres.wal_position import end_of_commits

_LONG_POLL_SECONDS = 0.25


class ChangePlanner:
    """Confirms a stream of changes, and cuts it into batches.

    It can be pickled until it is used.

    Args:
        url: the database.
        max_bytes: the size of a batch.
    """

    def __init__(self, url: str, max_bytes: int) -> None:
        self._url = url
        self._max_bytes = max_bytes
        self._stream: ChangeStream | None = None
        self._stop_at: Lsn | None = None
        self._has_looked = False

    def stop_at_present_end(self) -> None:
        """Plan no batch beyond what is committed now (trigger `availableNow`)."""
        self._stop_at = self._committed_position()

    @property
    def is_open(self) -> bool:
        """Whether the stream is open."""
        return self._stream is not None

    def open(self, settings: StreamSettings, start: Offset) -> None:
        """Open the stream of the changes after `start`."""
        self._stream = ChangeStream(settings, start)
        exit_on_sigterm()
        self._stream.open()

    def close(self) -> None:
        """Close the stream and release the slot; it may be opened again."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    @property
    def stream(self) -> ChangeStream:
        """The stream, which must be open."""
        assert self._stream is not None
        return self._stream

    def next_offset(
        self, begin: Offset, max_rows: int | None = None, timeout: float = _LONG_POLL_SECONDS
    ) -> Offset:
        """Return where the batch after `begin` ends; `begin` itself if none ends within `timeout` seconds.

        The first batch of a process contains all that is committed: a query that is started for one batch
        gets it.
        """
        if self._stop_at is not None and begin.order[0] >= self._stop_at:
            return begin
        stream, awaited = self.stream, self._awaited_position()
        limit = Limit(self._max_bytes, max_rows, self._stop_at)
        end = stream.next_offset(begin, limit, timeout)
        while awaited is not None and end == begin and not stream.is_empty(begin, awaited):
            end = stream.next_offset(begin, limit, timeout)
        self._has_looked = True
        # An offset without an origin could not be recognised by the process that reads it.
        return begin if stream.origin is None else end

    def _awaited_position(self) -> Lsn | None:
        """Return the position up to which changes are awaited; None: a short wait is enough."""
        if self._stop_at is None and not self._has_looked:
            with contextlib.suppress(HeadraceError):  # the reader retries while the server is away
                return self._committed_position()
        return self._stop_at

    def _committed_position(self) -> Lsn:
        """Return a position after all commits (bytes)."""
        with ReadSession(self._url) as session:
            return end_of_commits(session.query)


def origin_of(prepared: PreparedSlot) -> LogOrigin:
    """Return the identity of the log that a slot reads."""
    server = prepared.server
    return LogOrigin(str(server.system_identifier), server.timeline, server.database_oid)
