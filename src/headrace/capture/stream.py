"""Follow a slot: ask for offsets and changes, and confirm them.

These calls run on the caller's thread; `LogReader` reads the log in its own.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from headrace.capture.buffer import ChangeBuffer, Limit
from headrace.capture.continuity import LogOrigin
from headrace.capture.offset import Offset
from headrace.capture.reading import LogReader
from headrace.capture.settings import StreamSettings
from headrace.capture.visibility import await_visible
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.lsn import Lsn, format_lsn
from headrace.model.names import TableName
from headrace.model.trace import CommitContext
from headrace.pgoutput.batch import Numbers
from headrace.postgres.connection import connect
from headrace.postgres.session import KeptSession, ReadSession, check_same_server
from headrace.postgres.slot import held_back, read_slot

_LOG = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_LOOK_SECONDS = 30.0
_INVISIBLE = HeadraceError(
    Kind.CONNECTION,
    "changes have arrived whose commits are not visible yet: a synchronous standby has not confirmed them",
    "Start the standbys that synchronous_standby_names asks for, or take out of it those that are gone.",
)


class ChangeStream:
    """The changes of one slot after `start`; call `open`, then ask for offsets and changes.

    Guarantees: changes come in commit order, each exactly once between `open` and `close`; the slot is never
    confirmed beyond the offsets that `confirm` was called with.
    """

    def __init__(self, settings: StreamSettings, start: Offset) -> None:
        self._settings = settings
        self._buffer = ChangeBuffer(start, settings.buffer_bytes)
        self._reader = LogReader(settings, start, self._buffer)
        # Due at once: the first empty batch starts Spark's processes before the first change comes.
        self._idle_since = float("-inf") if settings.warm_up else time.monotonic()
        self._session = KeptSession(settings.url)
        self._is_waiting = False  # until transactions are visible
        self._held, self._next_look = "", time.monotonic() + _LOOK_SECONDS

    def open(self) -> None:
        """Start to read the log."""
        self._reader.open()

    def close(self) -> None:
        """Stop reading and release the slot; returns when the connection is closed."""
        self._reader.close()
        # After the reader: the first error counts, and the reader's own says more.
        self._buffer.fail(HeadraceError(Kind.CONNECTION, "the stream of changes was closed"))
        self._session.close()

    @property
    def origin(self) -> LogOrigin | None:
        """The system and timeline of the log; None before the first connection, if not known."""
        return self._reader.origin

    @property
    def truncated_partitions(self) -> Mapping[TableName, TableName]:
        """The table of each partition that was truncated by itself, by the partition's name in the log."""
        return self._reader.feed.routing.truncated_partitions

    def confirm(self, offset: Offset) -> None:
        """Confirm that everything up to `offset` is durable, so that buffer and server may drop it.

        The server only up to the limit of `SignalFiles.confirm_limit`.
        """
        # Spark repeats an offset after a restart; the slot never goes back.
        self._reader.confirmed = max(self._reader.confirmed, self._settings.confirmable(offset.lsn))
        if self._buffer.release(offset):
            self._reader.released = True

    def next_offset(self, start: Offset, limit: Limit, timeout: float) -> Offset:
        """Return where the next batch ends; `start` itself where none can end within `timeout` seconds.

        All transactions up to the result are visible to new snapshots of this server; this waits for one that
        a synchronous standby delays. While there are no changes the result is from time to time a later
        position without changes, so that the slot follows the server; at once where a client waits for it
        (see `SignalFiles.requested_lsn`). `start` must have been given to `confirm`.

        Raises:
            HeadraceError: the error that ended the reading thread.
        """
        deadline = time.monotonic() + timeout
        end = self._buffer.wait_for_cut(start, limit, timeout)
        if end is None:
            self._explain_wait(is_invisible=self._reader.is_waiting)
            self._report_visibility(is_visible=not self._reader.is_waiting)
            return self._idle_offset(start)
        is_visible = self._is_visible(self._buffer.xids(start, end), deadline)
        self._report_visibility(is_visible=is_visible)
        if not is_visible:
            # A promoted standby may have no such transaction at all.
            self._buffer.check_failed()  # on another log's server they would never be visible
            self._explain_wait(is_invisible=True)
            return start
        self._idle_since = time.monotonic()
        self._held, self._next_look = "", self._idle_since + _LOOK_SECONDS
        return replace(end, last=self._buffer.last_before(end) or start.last).not_before(start.lsn)

    def is_empty(self, start: Offset, upto: Lsn) -> bool:
        """Return whether it is known that no changes lie after `start` and before `upto`."""
        return self._buffer.is_empty_between(start, upto)

    def _idle_offset(self, start: Offset) -> Offset:
        idle = self._buffer.idle
        ahead = idle.lsn - start.lsn
        settings = self._settings
        quiet = time.monotonic() - self._idle_since
        due = quiet >= settings.idle_seconds or ahead >= settings.idle_bytes
        if settings.signals is not None:
            due = due or start.lsn < settings.signals.requested_lsn() <= idle.lsn
        # An empty batch is work for Spark too: only as often as the slot must follow the server.
        if start.transaction is not None or ahead <= 0 or not due or not self._buffer.is_empty_after(start):
            return start
        self._idle_since = time.monotonic()
        return replace(idle, last=idle.last or start.last)

    def _is_visible(self, xids: Numbers, deadline: float) -> bool:
        try:
            return await_visible(self._open_session(), xids, timeout=deadline - time.monotonic())
        except HeadraceError as error:
            if error.retry is Retry.NEVER:
                raise
            _LOG.warning("%s; asking again", error)
            self._reader.wait_for_close(max(0.0, min(_RETRY_SECONDS, deadline - time.monotonic())))
            return False

    def _explain_wait(self, *, is_invisible: bool) -> None:
        """Warn of a wait that only people can end, where no other process looks for it."""
        now = time.monotonic()
        if self._settings.signals is not None or now < self._next_look:
            return
        found = _INVISIBLE if is_invisible else self._find_held_back()
        cause = "" if found is None else found.cause
        # Two looks in a row must find it: the first may meet a wait that has just begun.
        is_held = bool(cause) and cause == self._held
        if is_held:
            _LOG.warning("%s The query waits for it", found)
        self._held, self._next_look = cause, math.inf if is_held else now + _LOOK_SECONDS

    def _find_held_back(self) -> HeadraceError | None:
        """Return why the server itself sends nothing, where it waits for standbys."""
        try:
            with connect(self._settings.url) as connection:
                facts = read_slot(connection, self._settings.slot)
        except HeadraceError:
            return None  # the reader reports a server that is away
        return held_back() if facts is not None and facts.awaits_standbys else None

    def _report_visibility(self, *, is_visible: bool) -> None:
        signals = self._settings.signals
        # The signal is a file: it is written only where it changes.
        if signals is not None and self._is_waiting is is_visible:
            self._is_waiting = not is_visible
            signals.set_invisible(waits=self._is_waiting)

    def _open_session(self) -> ReadSession:
        """Return a session on the server that the log comes from.

        Raises:
            HeadraceError: CONNECTION where the connection string leads to another server now.
        """
        session = self._session.get()
        # Visibility is a fact of one server: another one answers for other transactions.
        if session.server_mark != self._reader.server_mark:
            self._session.close()
            self._reader.renew_connection()
            check_same_server(session.server_mark, self._reader.server_mark, self._settings.url)
        return session

    def changes(self, start: Offset, end: Offset, timeout: float = 600) -> list[pa.RecordBatch]:
        """Return the changes in (start, end]; wait until they have arrived, as after a restart.

        Raises:
            HeadraceError: CONTINUITY where the server has sent more, and nothing comes for `timeout` seconds
                before they have arrived; INTERNAL where `start` lies before the confirmed offset.
        """
        begun = time.monotonic()
        while not self._buffer.wait_until(end, min(timeout, 1.0)):
            self._explain_wait(is_invisible=self._reader.is_waiting)
            heard = self._reader.heard
            # While there is no connection the reader itself decides how long it tries. A server that decodes
            # a long log, or waits for a standby, has not sent them yet, however long that takes.
            is_sent = self._reader.sent >= end.order[0]
            if heard is None or not is_sent or time.monotonic() - max(heard, begun) < timeout:
                continue
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the log up to {format_lsn(end.lsn)} did not arrive, nothing came for {timeout:.0f} s",
                "Start with a new checkpoint if the slot was recreated.",
            )
        return self._buffer.read(start, end)

    def contexts(self, start: Offset, end: Offset) -> list[CommitContext]:
        """Return trace contexts of the changes that `changes` returns; none without `trace_contexts`."""
        return self._buffer.contexts(start, end)
