"""What does someone who follows a slot ask for, and what is promised?

Offsets, changes and confirmations on the caller's thread; the reading is `LogReader`'s.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import pyarrow as pa

from headrace.capture.buffer import ChangeBuffer, Limit
from headrace.capture.continuity import LogOrigin
from headrace.capture.offset import Offset
from headrace.capture.reading import LogReader, StreamSettings
from headrace.capture.rows import Absence
from headrace.capture.signals import read_requested_lsn
from headrace.capture.visibility import await_visible
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model import Lsn, format_lsn
from headrace.pgoutput.batch import Numbers
from headrace.postgres.session import ReadSession

_LOG = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0


class ChangeStream:
    """The changes of one slot behind `start`; call `open`, then ask for offsets and changes.

    Guarantees: changes come in commit order, each exactly once in one life of the stream; the slot is never
    told of a position that `confirm` was not called with.
    """

    def __init__(self, settings: StreamSettings, start: Offset) -> None:
        self._settings = settings
        self._buffer = ChangeBuffer(start, settings.buffer_bytes)
        self._reader = LogReader(settings, start, self._buffer)
        self._idle_since = float("-inf") if settings.warm_up else time.monotonic()
        self._session: ReadSession | None = None

    def open(self) -> None:
        """Begin to read."""
        self._reader.open()

    def close(self) -> None:
        """Stop reading and give the slot back; returns when the connection is closed."""
        self._reader.close()
        self._buffer.fail(HeadraceError(Kind.CONNECTION, "the stream of changes was closed"))
        if self._session is not None:
            self._session.close()

    @property
    def origin(self) -> LogOrigin | None:
        """Whose log it is; None until the first connection has said so."""
        return self._reader.origin

    @property
    def absences(self) -> tuple[Absence, ...]:
        """Which of the columns that were asked for the log lacked, and from where on; in order."""
        return self._reader.absences

    def confirm(self, offset: Offset) -> None:
        """Everything up to `offset` is durable: its transactions may be forgotten by both sides.

        By the server only up to where they are not held (`StreamSettings.held`).
        """
        self._reader.confirmed = max(self._reader.confirmed, self._settings.confirmable(offset.lsn))
        self._reader.released = self._buffer.release(offset)

    def next_offset(self, start: Offset, limit: Limit, timeout: float) -> Offset:
        """Where the next batch ends; `start` itself where none can end within `timeout` seconds.

        Every transaction up to the result is visible to new snapshots of this server; one that a
        synchronous standby holds up is waited for. In a quiet time the result is now and then a position
        without changes, so that the slot follows the server, and at once where somebody waits for it (see
        `position_request`). `start` must have been given to `confirm`.

        Raises:
            HeadraceError: what ended the reading thread.
        """
        deadline = time.monotonic() + timeout
        end = self._buffer.wait_for_cut(start, limit, timeout)
        if end is None:
            return self._idle_offset(start)
        if not self._is_visible(self._buffer.xids(start, end), deadline):
            return start
        self._idle_since = time.monotonic()
        return replace(end, last=self._buffer.last_before(end) or start.last).not_before(start.lsn)

    def is_empty(self, start: Offset, upto: Lsn) -> bool:
        """Whether it is known that no changes lie behind `start` and before `upto`."""
        return self._buffer.is_empty_between(start, upto)

    def _idle_offset(self, start: Offset) -> Offset:
        idle = self._buffer.idle
        ahead = idle.lsn - start.lsn
        settings = self._settings
        quiet = time.monotonic() - self._idle_since
        due = quiet >= settings.idle_seconds or ahead >= settings.idle_bytes
        due = due or start.lsn < read_requested_lsn(settings.trouble) <= idle.lsn
        if start.transaction is not None or ahead <= 0 or not due or not self._buffer.is_empty_after(start):
            return start
        self._idle_since = time.monotonic()
        return replace(idle, last=idle.last or start.last)

    def _is_visible(self, xids: Numbers, deadline: float) -> bool:
        try:
            if self._session is None or self._session.closed:
                self._session = ReadSession(self._settings.url)
            return await_visible(self._session, xids, timeout=deadline - time.monotonic())
        except HeadraceError as error:
            if error.retry is Retry.NEVER:
                raise
            _LOG.warning("%s; asking again", error)
            self._reader.wait_for_close(max(0.0, min(_RETRY_SECONDS, deadline - time.monotonic())))
            return False

    def changes(self, start: Offset, end: Offset, timeout: float = 600) -> list[pa.RecordBatch]:
        """The changes in (start, end]; waits until they have arrived, as after a restart they must.

        Raises:
            HeadraceError: CONTINUITY where the server is connected and sends nothing for `timeout` seconds
                before they have arrived; INTERNAL where `start` lies before what was confirmed.
        """
        asked = time.monotonic()
        while not self._buffer.wait_until(end, min(timeout, 1.0)):
            heard = self._reader.heard
            if heard is None or time.monotonic() - max(heard, asked) < timeout:
                continue
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the log up to {format_lsn(end.lsn)} did not arrive, nothing came for {timeout:.0f} s",
                "Start with a new checkpoint if the slot was recreated.",
            )
        return self._buffer.read(start, end)
