"""How is a slot followed for hours: connect, read, report, reconnect?

One thread owns the replication connection. It decodes into the buffer and reports only confirmed
positions; everything else runs on the caller's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.capture.buffer import ChangeBuffer, Limit
from headrace.capture.columns import changes_batch
from headrace.capture.offset import Offset
from headrace.capture.translation import Translation
from headrace.capture.visibility import await_visible
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model import Lsn, TableName, format_lsn
from headrace.model.failpoints import reach
from headrace.pgoutput import Keepalive, MessageBatch, encode_status, split_frames
from headrace.pgoutput.batch import Numbers
from headrace.postgres.quoting import literal
from headrace.postgres.replication import ReplicationConnection, replication_connection
from headrace.postgres.session import ReadSession

_LOG = logging.getLogger(__name__)

_STATUS_SECONDS = 10.0
_FULL_SECONDS = 0.5  # between two reports while the buffer is full and the server's requests are not read
_POLL_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_STOPPING_REQUESTS, _STOPPING_SECONDS = 4, 0.5
_POSITIONS = """
    SELECT (SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = {slot}),
           CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_flush_lsn() - '0/0')::bigint END
"""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 10.0
_SHORTEST_AGE, _LONGEST_AGE = 0.005, 0.25


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What to follow, and how much may wait in memory.

    Attributes:
        url: the database; never printed.
        tables: the tables whose changes are kept, all of the publication where empty.
        needed: the columns that old rows must carry, by table.
        warm_up: hand out the first quiet moment at once, so that everything behind is up before a change.
        buffer_bytes: the reader waits when the buffer holds this much (Arrow's bytes); it may hold one
            chunk more.
        chunk_bytes: the log is handed over in chunks of about this much; a large transaction is cut
            between two of them.
        idle_seconds: how often, at most, a position without changes ends a batch in a quiet time.
        idle_bytes: a position so far ahead ends one sooner.
    """

    url: str = field(repr=False)
    slot: str
    publication: str
    tables: frozenset[TableName] = frozenset()
    needed: Mapping[TableName, frozenset[str]] = field(default_factory=dict)
    buffer_bytes: int = 256 << 20
    warm_up: bool = False
    chunk_bytes: int = 4 << 20
    idle_seconds: float = 10.0
    idle_bytes: int = 16 << 20


class ChangeStream:
    """The changes of one slot behind `start`; call `open`, then ask for offsets and changes.

    Guarantees: changes come in commit order, each exactly once in one life of the stream; the slot is never
    told of a position that `confirm` was not called with.
    """

    def __init__(self, settings: StreamSettings, start: Offset) -> None:
        self._settings = settings
        self._buffer = ChangeBuffer(start, settings.buffer_bytes)
        self._translation = Translation(start, settings.tables, settings.needed)
        self._frames = _Frames()
        self._confirmed: Lsn = start.lsn
        self._released = False
        self._received: Lsn = start.lsn
        self._reported: tuple[Lsn, float] = (0, 0.0)
        self._idle_since = float("-inf") if settings.warm_up else time.monotonic()
        self._system: str | None = None
        self._heard: float | None = None
        self._requests: deque[float] = deque(maxlen=_STOPPING_REQUESTS)
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
        self._released = self._buffer.release(offset)

    def next_offset(self, start: Offset, limit: Limit, timeout: float) -> Offset:
        """Where the next batch ends; `start` itself where none can end within `timeout` seconds.

        Every transaction up to the result is visible to new snapshots of this server; one that a
        synchronous standby holds up is waited for. In a quiet time the result is now and then a position
        without changes, so that the slot follows the server. `start` must have been given to `confirm`.

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
        return end

    def _idle_offset(self, start: Offset) -> Offset:
        reached = self._buffer.keepalive
        ahead = reached - start.lsn
        settings = self._settings
        quiet = time.monotonic() - self._idle_since
        due = quiet >= settings.idle_seconds or ahead >= settings.idle_bytes
        if start.transaction is not None or ahead <= 0 or not due or not self._buffer.is_empty_after(start):
            return start
        self._idle_since = time.monotonic()
        return Offset(reached)

    def _is_visible(self, xids: Numbers, deadline: float) -> bool:
        try:
            if self._session is None or self._session.closed:
                self._session = ReadSession(self._settings.url)
            return await_visible(self._session, xids, timeout=deadline - time.monotonic())
        except HeadraceError as error:
            if error.retry is Retry.NEVER:
                raise
            _LOG.warning("%s; asking again", error)
            self._closing.wait(max(0.0, min(_RETRY_SECONDS, deadline - time.monotonic())))
            return False

    def changes(self, start: Offset, end: Offset, timeout: float = 600) -> list[pa.RecordBatch]:
        """The changes in (start, end]; waits until they have arrived, as after a restart they must.

        Raises:
            HeadraceError: CONTINUITY where the server is connected and sends nothing for `timeout` seconds
                before they have arrived; INTERNAL where `start` lies before what was confirmed.
        """
        asked = time.monotonic()
        while not self._buffer.wait_until(end, min(timeout, 1.0)):
            heard = self._heard
            if heard is None or time.monotonic() - max(heard, asked) < timeout:
                continue
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the log up to {format_lsn(end.lsn)} did not arrive, nothing came for {timeout:.0f} s",
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
        try:
            with replication_connection(self._settings.url, "headrace capture") as connection:
                self._check_continuity(connection, max(resume.lsn, self._confirmed))
                connection.start(self._settings.slot, resume.lsn, (self._settings.publication,))
                self._translation.restart(resume)
                self._frames = _Frames()
                self._reported, self._heard = (0, 0.0), time.monotonic()
                while not self._closing.is_set():
                    self._read_some(connection)
                self._report(connection, force=True)
        finally:
            self._heard = None

    def _check_continuity(self, connection: ReplicationConnection, reached: Lsn) -> None:
        """The connection must lead to the system, the log and the slot that `reached` belongs to.

        The server itself would not complain: it begins at the slot's position where that is later
        (decision 14).
        """
        [(system, *_)] = connection.execute("IDENTIFY_SYSTEM")
        if self._system is not None and system != self._system:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the connection leads to another database system now ({system}, before {self._system})",
                "Positions of one system mean nothing on another: seed new generations.",
            )
        self._system = system
        [(confirmed, written)] = connection.execute(_POSITIONS.format(slot=literal(self._settings.slot)))
        if confirmed is not None and int(confirmed) > reached:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the slot {self._settings.slot!r} stands at {format_lsn(int(confirmed))}, beyond "
                f"{format_lsn(reached)}, which was read last: what lies between is lost",
                "It was recreated or moved by someone else: start with a new checkpoint and seed again.",
            )
        if written is not None and int(written) < reached:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the server's log ends at {format_lsn(int(written))}, before the position "
                f"{format_lsn(reached)} that was read already",
                "The database was restored to an earlier time: start with a new checkpoint and seed again.",
            )

    def _read_some(self, connection: ReplicationConnection) -> None:
        """Collect what arrives; hand it over when there is enough of it, or when somebody waits for it."""
        frames, settings = self._frames, self._settings
        try:
            frames.collect(connection, settings.chunk_bytes)
        except HeadraceError:
            self._publish()  # what came before the end
            raise
        if frames.bytes >= settings.chunk_bytes or (frames.bytes and self._is_due()):
            self._hand_over(connection)
        elif not connection.wait(_POLL_SECONDS if not frames.bytes else _SHORTEST_AGE):
            self._report(connection)

    def _is_due(self) -> bool:
        """Larger chunks cost less, and nobody waits: the more there is to do already, the more patience."""
        if self._buffer.is_awaited:
            return True
        patience = min(_SHORTEST_AGE * (1 + self._buffer.chunks), _LONGEST_AGE)
        return self._frames.age >= patience

    def _let_the_server_stop(self) -> None:
        """Hang up when the server shuts down.

        It waits then until its readers have confirmed all of the log, which ours may not do for long, and
        asks again after every answer; in any other time it asks only a reader that has been silent.
        """
        self._requests.append(time.monotonic())
        often = len(self._requests) == _STOPPING_REQUESTS
        if often and self._requests[-1] - self._requests[0] < _STOPPING_SECONDS:
            self._requests.clear()
            raise HeadraceError(Kind.CONNECTION, "the database server is shutting down")

    def _hand_over(self, connection: ReplicationConnection) -> None:
        """Publish, report, and wait while the buffer is full; the server must hear from us meanwhile."""
        asked = self._publish()
        self._report(connection, force=asked)
        if asked:
            self._let_the_server_stop()
        while not self._buffer.wait_for_room(_FULL_SECONDS) and not self._closing.is_set():
            self._report(connection, force=True)

    def _publish(self) -> bool:
        """Decode what was collected and hand it to the buffer; whether the server asks for an answer."""
        batch, start, keepalives = split_frames(self._frames.take())
        self._received = max(self._received, start)
        last: Keepalive | None = None
        for before, keepalive in keepalives:
            self._received = max(self._received, keepalive.wal_end)
            last = keepalive if before == len(batch) else None
        if len(batch):
            self._translate(batch)
        translation = self._translation
        if translation.xid is None and translation.position.transaction is None:
            self._buffer.idle_at(translation.position.lsn)
            if last is not None:
                self._buffer.idle_at(last.wal_end)
        return any(keepalive.reply_requested for _, keepalive in keepalives)

    def _translate(self, batch: MessageBatch) -> None:
        rows, ends = self._translation.take(batch)
        if len(rows) or len(ends):
            self._buffer.put(changes_batch(rows), int(rows.weight.sum()), ends)
            self._heard = time.monotonic()

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
            if self._released:
                reach("confirmed")


class _Frames:
    """What has arrived and is not decoded yet."""

    def __init__(self) -> None:
        self.bytes = 0
        self._frames: list[bytes | memoryview] = []
        self._since = 0.0

    def collect(self, connection: ReplicationConnection, limit: int) -> None:
        """Take what has arrived, up to about `limit` bytes in all."""
        arrived = connection.receive(self._frames, limit - self.bytes)
        if arrived and not self.bytes:
            self._since = time.monotonic()
        self.bytes += arrived

    @property
    def age(self) -> float:
        """How long the first has waited (seconds)."""
        return time.monotonic() - self._since

    def take(self) -> list[bytes | memoryview]:
        """All of it."""
        taken, self._frames, self.bytes = self._frames, [], 0
        return taken
