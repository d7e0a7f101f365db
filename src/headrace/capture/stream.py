"""How is a slot followed for hours: connect, read, report, reconnect?

One thread owns the replication connection. It decodes into the buffer and reports only confirmed
positions; everything else runs on the caller's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.capture.buffer import ChangeBuffer, Limit
from headrace.capture.offset import Offset
from headrace.capture.translation import Translation
from headrace.capture.visibility import await_visible
from headrace.errors import HeadraceError, Kind, Retry, patiently
from headrace.model import Lsn, TableName, format_lsn
from headrace.pgoutput import Keepalive, decode_frame, decode_message, encode_status
from headrace.postgres.replication import ReplicationConnection, replication_connection
from headrace.postgres.session import ReadSession

_LOG = logging.getLogger(__name__)

_CHUNK_BYTES = 4 << 20
_STATUS_SECONDS = 10.0
_POLL_SECONDS = 0.25
_IDLE_SECONDS = 10.0
_IDLE_BYTES = 16 << 20
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 10.0


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What to follow, and how much may wait in memory.

    Attributes:
        url: the database; never printed.
        tables: the tables whose changes are kept, all of the publication where empty.
        needed: the columns that old rows must carry, by table.
        buffer_bytes: the reader waits when the buffer holds this much.
    """

    url: str = field(repr=False)
    slot: str
    publication: str
    tables: frozenset[TableName] = frozenset()
    needed: Mapping[TableName, frozenset[str]] = field(default_factory=dict)
    buffer_bytes: int = 256 << 20


class ChangeStream:
    """The changes of one slot behind `start`; call `open`, then ask for offsets and changes.

    Guarantees: changes come in commit order, each exactly once in one life of the stream; the slot is never
    told of a position that `confirm` was not called with.
    """

    def __init__(self, settings: StreamSettings, start: Offset) -> None:
        self._settings = settings
        self._buffer = ChangeBuffer(start, settings.buffer_bytes)
        self._translation = Translation(start, settings.tables, settings.needed)
        self._ends: list[tuple[Offset, int, int, int, bool]] = []
        self._confirmed: Lsn = start.lsn
        self._received: Lsn = start.lsn
        self._reported: tuple[Lsn, float] = (0, 0.0)
        self._idle_since = time.monotonic()
        self._system: str | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="headrace capture", daemon=True)
        self._session: ReadSession | None = None

    def open(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading and give the slot back; returns when the connection is closed."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        if self._session is not None:
            self._session.close()

    def confirm(self, offset: Offset) -> None:
        """Everything up to `offset` is durable: its transactions may be forgotten by both sides."""
        self._confirmed = max(self._confirmed, offset.lsn)
        self._buffer.release(offset)

    def next_offset(self, start: Offset, limit: Limit, timeout: float) -> Offset:
        """Where the next batch ends; `start` itself where nothing comes within `timeout` seconds.

        Every transaction up to the result is visible to new snapshots of this server. In a quiet time the
        result is now and then a position without changes, so that the slot follows the server.

        Raises:
            HeadraceError: what ended the reading thread.
        """
        end = self._buffer.wait_for_cut(start, limit, timeout)
        if end is not None:
            self._await_visible(start, end)
            self._idle_since = time.monotonic()
            return end
        return self._idle_offset(start)

    def _idle_offset(self, start: Offset) -> Offset:
        reached = self._buffer.keepalive
        ahead = reached - start.lsn
        due = time.monotonic() - self._idle_since >= _IDLE_SECONDS or ahead >= _IDLE_BYTES
        if start.transaction is not None or ahead <= 0 or not due or not self._buffer.is_empty_after(start):
            return start
        self._idle_since = time.monotonic()
        return Offset(reached)

    def _await_visible(self, start: Offset, end: Offset) -> None:
        xids = self._buffer.xids(start, end)
        for attempt in patiently():
            with attempt:
                if self._session is None or self._session.closed:
                    self._session = ReadSession(self._settings.url)
                await_visible(self._session, xids)

    def changes(self, start: Offset, end: Offset, timeout: float = 600) -> list[pa.RecordBatch]:
        """The changes in (start, end]; waits until they have arrived, as after a restart they must.

        Raises:
            HeadraceError: CONTINUITY where they do not arrive in `timeout` seconds.
        """
        if not self._buffer.wait_until(end, timeout):
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the log up to {format_lsn(end.lsn)} did not arrive within {timeout:.0f} s",
                "Start with a new checkpoint if the slot was recreated.",
            )
        return self._buffer.read(start, end)

    # The reading thread.

    def _follow(self) -> None:
        try:
            self._follow_for_ever()
        except HeadraceError as error:
            self._buffer.fail(error)
        except Exception as error:  # noqa: BLE001 - a thread's last words: whoever asks next gets them
            self._buffer.fail(HeadraceError(Kind.INTERNAL, f"reading the log failed: {error!r}"))

    def _follow_for_ever(self) -> None:
        """Connect again and again; the pause grows while nothing arrives."""
        pause = _SHORTEST_PAUSE
        while not self._closing.is_set():
            received = self._received
            try:
                self._read_one_connection()
            except HeadraceError as error:
                if error.retry is Retry.NEVER:
                    raise
                _LOG.warning("%s; connecting again", error)
            pause = _SHORTEST_PAUSE if self._received > received else min(pause * 2, _LONGEST_PAUSE)
            self._closing.wait(pause)

    def _read_one_connection(self) -> None:
        resume = self._translation.position
        with replication_connection(self._settings.url, "headrace capture") as connection:
            self._check_system(connection)
            connection.start(self._settings.slot, resume.lsn, (self._settings.publication,))
            self._translation.restart(resume)
            self._reported = (0, 0.0)
            while not self._closing.is_set():
                self._read_some(connection)
            self._report(connection, force=True)

    def _check_system(self, connection: ReplicationConnection) -> None:
        """A reconnect must lead to the server that the positions belong to (decision 14)."""
        [(system, *_)] = connection.execute("IDENTIFY_SYSTEM")
        if self._system is not None and system != self._system:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the connection leads to another database system now ({system}, before {self._system})",
                "Positions of one system mean nothing on another: seed new generations.",
            )
        self._system = system

    def _read_some(self, connection: ReplicationConnection) -> None:
        frame = connection.get_copy_data(0)
        if frame is None:
            self._publish()
            self._report(connection)
            frame = connection.get_copy_data(_POLL_SECONDS)
        if frame is None:
            return
        decoded = decode_frame(frame)
        if isinstance(decoded, Keepalive):
            self._keepalive(decoded)
            self._report(connection, force=decoded.reply_requested)
            return
        self._received = max(self._received, decoded.start)
        self._take(decoded.payload)
        if self._translation.chunk.bytes >= _CHUNK_BYTES:
            self._publish()
            self._wait_for_room(connection)

    def _take(self, payload: bytes) -> None:
        translation = self._translation
        xid = translation.take(decode_message(payload), len(payload))
        if xid is not None and translation.position.transaction is None:
            self._end(xid, whole=True)

    def _end(self, xid: int, *, whole: bool) -> None:
        chunk = self._translation.chunk
        self._ends.append((self._translation.position, xid, chunk.bytes, len(chunk), whole))

    def _keepalive(self, keepalive: Keepalive) -> None:
        self._received = max(self._received, keepalive.wal_end)
        if self._translation.xid is None:
            self._publish()
            self._buffer.idle_at(keepalive.wal_end)

    def _publish(self) -> None:
        """Hand what was read to the buffer; a long transaction may be cut behind its last change."""
        chunk, xid = self._translation.chunk, self._translation.xid
        if xid is not None and chunk.bytes >= _CHUNK_BYTES:
            self._end(xid, whole=False)
        if self._ends or len(chunk):
            size = chunk.bytes
            self._buffer.put(chunk.seal(), size, self._ends)
            self._ends = []

    def _wait_for_room(self, connection: ReplicationConnection) -> None:
        while not self._buffer.wait_for_room(timeout=1.0) and not self._closing.is_set():
            self._report(connection)

    def _report(self, connection: ReplicationConnection, *, force: bool = False) -> None:
        """Tell the server what is confirmed: at once when it grew, else every ten seconds."""
        confirmed, now = self._confirmed, time.monotonic()
        reported, at = self._reported
        if force or confirmed > reported or now - at >= _STATUS_SECONDS:
            status = encode_status(
                received=max(self._received, confirmed), durable=confirmed, now_us=time.time_ns() // 1000
            )
            connection.put_copy_data(status)
            self._reported = (confirmed, now)
