"""Read a slot in a thread: connect, decode, report confirmed positions, reconnect.

The thread owns the connection. It decodes into the buffer and reports only confirmed positions to the server.
A large backlog is read through SQL, which is several times as fast. The rest, and everything later, comes
through the replication stream (decision 0031). Both use the same translation, so positions are the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextlib import ExitStack

from headrace.capture.backlog import PASSING, BacklogFeed, backlog_end, open_readers
from headrace.capture.buffer import ChangeBuffer
from headrace.capture.continuity import (
    LogPositions,
    check_continuity,
    check_same_timeline,
    read_positions,
    temporary_gone,
)
from headrace.capture.feed import ChangeFeed
from headrace.capture.offset import Offset
from headrace.capture.settings import StreamSettings
from headrace.capture.streamed_transactions import Room, SpoolFullError, StreamedTransactions
from headrace.errors import HeadraceError, Kind, Patience, Retry, unexpected
from headrace.model.failpoints import reach
from headrace.model.lsn import Lsn, format_lsn
from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.frames import Frames, encode_status, split_frames
from headrace.postgres.locks import advance_claimed, claim_slot, with_reader
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.server_errors import RemovedLogError, slot_lost
from headrace.postgres.session import check_same_server

_LOG = logging.getLogger(__name__)

# The server drops a reader that is silent for wal_sender_timeout, 60 s where nobody has set it.
_STATUS_SECONDS = 10.0
_NUDGE_SECONDS = 1.0
_FULL_SECONDS = 0.5  # between two reports while the buffer is full and the server's requests are not read
_POLL_SECONDS = 0.25
_TIMEOUT = "SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'"  # milliseconds, 0: none
# A server that cannot go on says so within a moment of START_REPLICATION.
_SETTLED_SECONDS = 1.0
_CALM_SECONDS = 600.0
# A server that shuts down sends a keepalive after each of our answers; one that is well asks only a silent
# reader.
_STOPPING_REQUESTS, _STOPPING_SECONDS = 4, 0.5
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_SHORTEST_AGE, _LONGEST_AGE = 0.005, 0.25
_DEPTH_PER_SECOND = 20_000  # the server decodes a transaction again several times as fast


def give_back_after(seconds: float, depth: int) -> float:
    """Return after how many seconds without a taken change the connection is closed.

    The server then decodes the unfinished transaction from its beginning again. So the time grows with
    `depth`, the number of its changes that were read: repeated work stays small, and the wait stays bounded.
    """
    return max(seconds, depth / _DEPTH_PER_SECOND)


class LogReader:
    """Reads one slot after `start` into a buffer, in a thread; created by `ChangeStream`.

    Other threads set `confirmed`, the position up to which the server may drop the log. `server_mark` is that
    of the server that the log comes from, empty before the first connection. `is_waiting` is true while a
    transaction that describes a table is awaited, because it is not visible yet. `heard` is when the
    connection brought something, None without one; the server has sent through it all up to `sent` (bytes).
    """

    def __init__(self, settings: StreamSettings, start: Offset, buffer: ChangeBuffer) -> None:
        self._settings = settings
        self._buffer = buffer
        self.feed = ChangeFeed(settings, start, buffer, self._keep_waiting)
        self._streamed = StreamedTransactions(Room(settings.spool_bytes, settings.spool_folder))
        # A temporary slot ends with its connection, so nothing may make us connect again, as a full spool
        # would.
        self._accepts_streaming = settings.unfinished and settings.holder is None
        self._frames, self._frames_since = Frames(), 0.0
        # Never beyond what the driver allows: its state may be behind Spark's checkpoint after a crash.
        self.confirmed: Lsn = settings.confirmable(start.lsn)
        self.released = False
        self.heard: float | None = None
        self.sent: Lsn = 0
        self.server_mark = ""
        self.is_waiting = False
        self._streaming: ReplicationConnection | None = None
        self._received: Lsn = start.lsn
        self._patience, self._removed_tries = Patience(), 0
        self._began = time.monotonic()
        self._is_settled = False
        self._arrived = time.monotonic()
        self._longest_silence = settings.silence_seconds
        self._reported: tuple[Lsn, float] = (0, 0.0)
        self.origin = settings.origin
        self._streams_only = settings.backlog_bytes is None or settings.holder is not None
        self._holder_used = False
        self._backlog_failed_at: Lsn | None = None
        self._requests: deque[float] = deque(maxlen=_STOPPING_REQUESTS)
        self._closing = threading.Event()
        self._renewing = threading.Event()
        # A daemon: the process must end although the thread waits for the server.
        self._thread = threading.Thread(target=self._run, name="headrace capture", daemon=True)

    def open(self) -> None:
        """Start the reading thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading and release the slot; returns when the connection is closed."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def renew_connection(self) -> None:
        """Connect again, even while the buffer is full: reads have found another server than the log's.

        A server that was restarted counts as another one until the continuity of its log has been checked.
        """
        self._renewing.set()

    def wait_for_close(self, seconds: float) -> None:
        """Wait for `seconds`, or until `close` is called."""
        self._closing.wait(seconds)

    def _run(self) -> None:
        try:
            self._read_until_closed()
        except Exception as error:  # noqa: BLE001 - the thread that reads the buffer raises it
            # An error that ended only this thread would leave the query waiting for ever.
            self._buffer.fail(unexpected("reading the log failed", error))
        finally:
            self.feed.routing.close()

    def _read_until_closed(self) -> None:
        """Connect again after each retryable error; the pause grows while nothing arrives."""
        pause = _SHORTEST_PAUSE
        while not self._closing.is_set():
            received, self._began = self._received, time.monotonic()
            try:
                self._read_one_connection()
            except _UnreadConnectionError as error:
                _LOG.warning("%s; connecting again when they are taken", error)
                self._await_room()
            except SpoolFullError as error:
                _LOG.warning("%s The server keeps them from now on, until a restart", error)
                # Not for this connection alone: the same transaction would fill the spool again.
                self._accepts_streaming = False
            except HeadraceError as error:
                # A slot that gives something is not lost: its patience begins again.
                if self._received > received or time.monotonic() - self._began > _CALM_SECONDS:
                    self._patience.forget()
                    self._removed_tries = 0
                final = self._judge(error)
                if final is not error:
                    raise final from error
                if error.retry is Retry.NEVER:
                    raise
                if self._closing.is_set():  # which ends the wait for a transaction, too
                    return
                _LOG.warning("%s; connecting again", error)
                if self._settings.signals is not None:
                    self._settings.signals.report_error(error)
            pause = _SHORTEST_PAUSE if self._received > received else min(pause * 2, _LONGEST_PAUSE)
            # Not `sleep`: `close` ends the pause at once.
            self._closing.wait(pause)

    def _judge(self, error: HeadraceError) -> HeadraceError:
        """Return the error of a try, or where such errors have lasted too long, one that ends the tries.

        A piece of the log that is missing once can be there later, as in a failover. One that is missing
        again and again was removed, whatever the server shows of the slot. An outage ends such a row of
        tries: the server that comes back may be another one.
        """
        if isinstance(error, RemovedLogError):
            self._removed_tries += 1
            is_lost = self._removed_tries >= self._settings.removed_tries
            return slot_lost(self._settings.slot, error.cause) if is_lost else error
        if error.kind is Kind.CONNECTION:
            self._removed_tries = 0
        return self._patience.judge(error)

    def _clear_error(self) -> None:
        """Tell the other process that this one reads."""
        if self._settings.signals is not None:
            self._settings.signals.clear_error()

    def _await_room(self) -> None:
        """Wait without a connection until there is room, or until a connection is needed anyway."""
        while not self._closing.is_set() and not self._buffer.wait_for_room(_FULL_SECONDS):
            if self._renewing.is_set():
                return

    def _read_one_connection(self) -> None:
        settings = self._settings
        try:
            with self._connected() as connection:
                signals = settings.signals
                # Before anything is read: a second run of the deployment must not take the slot while ours
                # still holds its lock.
                claim_slot(connection, settings.slot, None if signals is None else signals.lock_session())
                positions = self._check_continuity(connection)
                self.heard, self._reported = time.monotonic(), (positions.confirmed or 0, 0.0)
                self.sent = 0
                # While it is read the log grows; what came meanwhile may be a backlog of its own.
                while (end := self._backlog_end(positions)) is not None:
                    self._read_backlog(connection, end)
                    positions = self._check_continuity(connection)
                self._stream(connection)
        finally:
            self.heard = None
            # A new connection sends unfinished transactions from their beginning.
            self._streamed.forget()

    def _connected(self) -> ReplicationConnection:
        """Return a new connection; for a temporary slot the one that holds it, once."""
        holder, slot = self._settings.holder, self._settings.slot
        if holder is None:
            return ReplicationConnection(self._settings.url, "headrace capture")
        if self._holder_used:
            raise temporary_gone(slot, self.feed.position.lsn)
        self._holder_used = True
        return holder

    def _check_continuity(self, connection: ReplicationConnection) -> LogPositions:
        slot = self._settings.slot
        positions = read_positions(connection, slot)
        self.server_mark = connection.server_mark
        # Only now: the server behind this connection is the one that is compared.
        self._renewing.clear()
        reached = max(self.feed.position.lsn, self.confirmed)
        before, known = self.origin, 0 if self._settings.read is None else self._settings.read.lsn
        check_continuity(positions, slot, reached, self.origin, known=known)
        if self._settings.same_timeline and self.origin is not None:
            check_same_timeline(positions.origin, self.origin)
        self.origin = positions.origin
        # From here on nothing is confirmed until the last transaction that was read has come again.
        self.feed.recognition.connected(positions.confirmed or 0, positions.left(before))
        return positions

    # The stream.

    def _stream(self, connection: ReplicationConnection) -> None:
        settings, begin = self._settings, self.feed.restart()
        # In the middle of a large transaction the server answers only when half of this time has passed.
        [(timeout,)] = connection.execute(_TIMEOUT)
        self._longest_silence = max(settings.silence_seconds, int(timeout or 0) / 1000)
        try:
            connection.start(
                settings.slot,
                begin,
                (settings.publication,),
                unfinished=self._accepts_streaming,
                holes=settings.documents is not None,  # their catalog is watched, and they are rebuilt
                messages=settings.trace_contexts,
            )
        except HeadraceError as error:
            raise with_reader(connection, settings.slot, error) from error
        self._frames, self._arrived = Frames(), time.monotonic()
        self._began, self._is_settled = self._arrived, False
        self._streaming = connection
        try:
            while not self._closing.is_set():
                # A former primary that is still alive would keep this connection for ever.
                self._check_renewal()
                self._read_some(connection)
        finally:
            self._streaming = None
        self._report(connection, force=True)

    def _read_some(self, connection: ReplicationConnection) -> None:
        """Collect what arrives; hand it over when it is enough, or when a thread waits for it."""
        # Few large chunks cost less than many small ones: decoding is columnar.
        data, most = self._frames.data, self._settings.chunk_bytes
        if not data:
            self._frames_since = time.monotonic()
        try:
            if connection.receive(self._frames, most - len(data)):
                self._arrived = time.monotonic()
        except HeadraceError:
            self._publish(connection)  # what came before the end
            raise
        if len(data) >= most or (data and self._is_due()):
            self._hand_over(connection)
        # Frames that are not due yet shorten the wait, so that they are handed over in time.
        elif not connection.wait(_SHORTEST_AGE if data else _POLL_SECONDS):
            self._report(connection)
            self._check_silence()

    def _note_reading(self, *, advances: bool = False) -> None:
        """Report that the log is read, once the stream gets on or lasts for a moment.

        A server with a fault takes START_REPLICATION, sends what it has, and only then finds that it cannot
        go on.
        """
        if not self._is_settled and (advances or time.monotonic() - self._began >= _SETTLED_SECONDS):
            self._is_settled = True
            self._clear_error()

    @property
    def _silence(self) -> float:
        """The time since the last message from the server (seconds)."""
        return time.monotonic() - self._arrived

    def _check_silence(self) -> None:
        """Raise an error if the server has not answered for too long.

        A half-open connection shows no error, so each report after a silence asks for an answer.
        """
        # Without this a cable that was pulled looks like a database without writers.
        if self._silence > self._longest_silence:
            raise HeadraceError(
                Kind.CONNECTION, f"the database server has not answered for {self._silence:.0f} s"
            )

    def _is_due(self) -> bool:
        """Return whether to hand over what was collected.

        Larger chunks cost less. So while no thread waits, the delay grows with the chunks in the buffer.
        """
        if self._buffer.is_awaited:
            return True
        delay = min(_SHORTEST_AGE * (1 + self._buffer.chunks), _LONGEST_AGE)
        return time.monotonic() - self._frames_since >= delay

    def _check_server_shutdown(self) -> None:
        """Close the connection when the server shuts down.

        A server that shuts down waits until its readers have confirmed all of the log, which can take long
        here, and asks again after every answer. At other times it asks only a reader that has been silent.
        """
        self._requests.append(time.monotonic())
        often = len(self._requests) == _STOPPING_REQUESTS
        if often and self._requests[-1] - self._requests[0] < _STOPPING_SECONDS:
            self._requests.clear()
            raise HeadraceError(Kind.CONNECTION, "the database server is shutting down")

    def _hand_over(self, connection: ReplicationConnection) -> None:
        """Publish, report, and wait while the buffer is full."""
        # The changes are in the buffer before the server hears of them: `received` is no promise, `durable`
        # is.
        reply_requested = self._publish(connection)
        self._report(connection, force=reply_requested)
        if reply_requested:
            self._check_server_shutdown()
        self._pause_while_full(connection)
        # The server was not heard because nothing was read: the wait for room is no silence of its own.
        self._arrived = time.monotonic()

    def _pause_while_full(self, connection: ReplicationConnection) -> None:
        """Wait for room in the buffer; report to the server meanwhile."""
        since = time.monotonic()
        while not self._buffer.wait_for_room(_FULL_SECONDS) and not self._closing.is_set():
            self._check_renewal()
            self._report(connection, force=True)
            idle = time.monotonic() - since
            if self._settings.holder is None and idle > give_back_after(
                self._settings.give_back_seconds, self.feed.translation.depth
            ):
                raise _UnreadConnectionError(Kind.CONNECTION, f"no changes were taken for {idle:.0f} s")

    def _publish(self, connection: ReplicationConnection) -> bool:
        """Decode what was collected into the buffer; return whether the server asks for an answer."""
        frames, self._frames = self._frames, Frames()
        batch, start, keepalives = split_frames(frames)
        received = self._received
        self.sent = max([self.sent, start, *(keepalive.wal_end for _, keepalive in keepalives)])
        # What is sent may lie after what was received before, after a reconnection.
        self._received = max(received, self.sent)
        # Only a keepalive after the last message says that no change lies before its position.
        before, last = keepalives[-1] if keepalives else (0, None)
        last = last if before == len(batch) else None
        self._note_reading(advances=self._received > received)
        if len(batch) or self._received > received:
            self.heard = time.monotonic()  # also without changes for this reader: the server makes progress
        if len(batch) and not self._translate_ended(batch, connection):
            return False
        self.feed.idle(None if last is None else last.wal_end)
        return any(keepalive.reply_requested for _, keepalive in keepalives)

    def _translate_ended(self, batch: MessageBatch, connection: ReplicationConnection) -> bool:
        """Translate the transactions that have ended; a streamed one part by part.

        Return False if the reader is closed before all are translated: nothing after them counts as read.
        """
        for part in self._streamed.take(batch):
            if self._closing.is_set():
                return False
            self._decode(part.messages, streamed=part.streamed)
            self.feed.translation.adopt(part.described)
            # A large transaction takes minutes, and the server drops a reader that is silent for so long.
            if part.streamed:
                self._report(connection)
                self._pause_while_full(connection)
        return True

    def _decode(self, batch: MessageBatch, *, streamed: bool = False) -> None:
        try:
            self.feed.decode(batch, streamed=streamed)
        finally:
            self.is_waiting, self.heard = False, time.monotonic()

    def _keep_waiting(self, server_mark: str) -> None:
        """Keep the connection while a transaction is awaited that may stay invisible for hours.

        Raises:
            HeadraceError: CONNECTION: another server is asked than sends the log, or the reader is closed.
        """
        self.is_waiting, self.heard = True, time.monotonic()
        if self._closing.is_set():
            raise HeadraceError(Kind.CONNECTION, "the reader was closed")
        self._check_renewal()
        check_same_server(server_mark, self.server_mark, self._settings.url)
        if self._streaming is not None:
            self._report(self._streaming, force=True)

    def _report(self, connection: ReplicationConnection, *, force: bool = False) -> None:
        """Report the confirmed position to the server: at once when it grew, else every second.

        An idle server under load has been seen to send a commit only after the next report.
        """
        reported, at = self._reported
        confirmed, now = self._confirmable(reported), time.monotonic()
        every = min(_STATUS_SECONDS, self._settings.silence_seconds / 4)
        if force or confirmed > reported or now - at >= min(every, _NUDGE_SECONDS):
            # What is durable was received, also before the first message of this connection.
            received, reply = max(self._received, confirmed), self._silence >= every
            reply = reply or self.feed.recognition.is_open
            status = encode_status(
                received=received, durable=confirmed, now_us=time.time_ns() // 1000, reply=reply
            )
            connection.put_copy_data(status)
            self._reported = (confirmed, now)
            self._reach_confirmed()
        self._note_reading()

    def _reach_confirmed(self) -> None:
        """Reach the failpoint once for each batch that was confirmed."""
        if self.released:
            self.released = False
            reach("confirmed")

    def _confirmable(self, reported: Lsn) -> Lsn:
        """Return the position to report; not a new one until the log is recognized as the same."""
        # A confirmation now would let the server drop what must be compared, and the wrong log be taken for
        # ours.
        return reported if self.feed.recognition.is_open else self.confirmed

    # The backlog.

    def _backlog_end(self, now: LogPositions) -> Lsn | None:
        """Return up to where the log is read through SQL; None where the stream is better."""
        least = self._settings.backlog_bytes
        if self._closing.is_set() or self._streams_only or least is None:
            return None
        return backlog_end(now, self.feed.position.lsn, least)

    def _read_backlog(self, connection: ReplicationConnection, end: Lsn) -> None:
        begin = self.feed.position.lsn
        try:
            self._read_backlog_upto(connection, end)
        except HeadraceError as error:
            # A second failure at the same place would repeat; streaming needs fewer sessions and privileges.
            # A server that was just restarted refuses sessions for a moment.
            if error.kind in PASSING and self._backlog_failed_at != begin:
                self._backlog_failed_at = begin
                raise
            _LOG.warning("%s The log is streamed from now on", error)
            self._streams_only = True
            if error.kind is Kind.CONNECTION:
                raise

    def _read_backlog_upto(self, connection: ReplicationConnection, end: Lsn) -> None:
        settings = self._settings
        with ExitStack() as stack:
            readers = open_readers(
                stack, settings.url, settings.slot, settings.publication, messages=settings.trace_contexts
            )
            if not readers:
                self._streams_only = True
                return
            # Behind an address with several hosts each session may lead to another one.
            for reader in readers:  # whose log may be another one than that which was recognised
                check_same_server(reader.server_mark, self.server_mark, settings.url)
            self._clear_error()
            begin = self.feed.restart()
            feed = stack.enter_context(BacklogFeed(readers, begin, end, settings.backlog_window))
            for item in feed:
                if self._closing.is_set():
                    return
                if item is not None:
                    self.heard = time.monotonic()
                if isinstance(item, MessageBatch):
                    self._decode(item)
                elif item is not None:
                    self.feed.restart()
                    # At the end of a window all that committed before it has come, so nothing lies between
                    # the last change and it.
                    self.feed.reach(item)
                self._wait_for_room(connection)
        self._advance(connection)

    def _wait_for_room(self, connection: ReplicationConnection) -> None:
        """Wait while the buffer is full; confirm from time to time."""
        while True:
            if time.monotonic() - self._reported[1] >= _STATUS_SECONDS:
                self._advance(connection)
            if self._buffer.wait_for_room(_FULL_SECONDS) or self._closing.is_set():
                return
            self._check_renewal()

    def _check_renewal(self) -> None:
        if self._renewing.is_set():
            raise HeadraceError(Kind.CONNECTION, "the database server was restarted or replaced")

    def _advance(self, connection: ReplicationConnection) -> None:
        reported = self._reported[0]
        confirmed = self._confirmable(reported)
        # No stream is open that could carry a report: here SQL moves the slot.
        if confirmed > reported:
            advance_claimed(connection, self._settings.slot, format_lsn(confirmed))
            self._reach_confirmed()
        self._reported = (max(confirmed, reported), time.monotonic())


class _UnreadConnectionError(HeadraceError):
    """The connection was closed because no changes are taken from the buffer."""
