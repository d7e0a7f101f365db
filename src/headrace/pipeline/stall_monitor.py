"""Watch whether a running query makes progress, and explain where it does not.

The health monitor passes on what it sees each second. It shares its thread with work that may wait for a
cluster for minutes, so a thread looks by itself where nothing was passed on for a while.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from headrace.capture.signals import SignalFiles
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.stall_diagnosis import StallFacts, diagnose_stall
from headrace.postgres.address import stream_name
from headrace.postgres.connection import Connection, connect
from headrace.postgres.reachability import is_reachable
from headrace.postgres.server import is_at_work
from headrace.postgres.slot import SlotFacts, read_slot
from headrace.postgres.stream_waits import NO_WAITS, StreamWaits, read_stream_waits
from headrace.sinks.opensearch import Client
from headrace.state import PipelineState, StateKey, StateStore
from headrace.status.board import Positions, StatusBoard
from headrace.status.sinks import SinkActivity
from headrace.status.stall import Diagnosis

_SECONDS = 1.0
_ALONE_AFTER_SECONDS = 5.0
_QUIET_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What a look at the server and the cluster found; after an error the last known value.

    Attributes:
        slot: the slot.
        state: the state of the pipeline.
        server: the error of the look at the server.
        cluster: the error of the look at the cluster.
    """

    slot: SlotFacts | None = None
    state: PipelineState | None = None
    server: HeadraceError | None = None
    cluster: HeadraceError | None = None

    def reached(self) -> dict[str, int]:
        """Return what grows while the stream moves; nothing of a server that does not answer."""
        slot, state = self.slot, self.state
        found = {} if state is None else {"applied": state.applied, "batches": state.counters.batches}
        if slot is not None and self.server is None:
            found |= {"confirmed": slot.confirmed_flush or 0, "sent": slot.sent or 0}
        return found


@dataclass(eq=False, slots=True)
class StallMonitor:
    """Tells the board of progress, and diagnoses a stall, from `open` to `close`.

    Args:
        board: its detector decides; a stall is an error there.
        signals: between the driver and the source.
        url: the database.
        key: of the pipeline's state.
        sink: the name of the primary sink.
        open_client: opens a client of the cluster that keeps the state, which gives up soon.
    """

    board: StatusBoard
    signals: SignalFiles
    url: str
    key: StateKey
    sink: str
    open_client: Callable[[], Client]
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _passed_at: float = field(default_factory=time.monotonic, init=False)
    _answered_at: float = field(default_factory=time.monotonic, init=False)
    _last: Sighting = field(default_factory=Sighting, init=False)
    _diagnosis: Diagnosis | None = field(default=None, init=False)
    _ending: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="headrace stalls", daemon=True)

    def open(self) -> None:
        """Begin to watch a query."""
        self.board.sinks.forget_tasks()
        self.board.stall.watch(self.signals.seconds_since_beat)
        self._thread.start()

    def close(self) -> None:
        """End the watch."""
        self._ending.set()
        self.board.stall.watch(None)
        self._thread.join(timeout=_ALONE_AFTER_SECONDS)

    @property
    def is_stalled(self) -> bool:
        """Whether the board shows a stall, as an error."""
        return self._diagnosis is not None

    def pass_on(self, sighting: Sighting, connection: Connection | None) -> None:
        """Take what the health monitor has seen, with its connection to the server, if it has one."""
        self._passed_at = time.monotonic()
        with self._lock:
            self._judge(sighting, connection)

    def _run(self) -> None:
        """Look by itself, once a second, for as long as nothing is passed on."""
        with contextlib.ExitStack() as held:
            own: _Looker | None = None
            while not self._ending.wait(_SECONDS):
                is_passed_on = time.monotonic() - self._passed_at < _ALONE_AFTER_SECONDS
                if is_passed_on or self.signals.seconds_since_beat() is None:
                    held.close()
                    own = None
                    continue
                if own is None:
                    own = _Looker(self.url, self.key, self.open_client)
                    held.callback(own.close)
                sighting = own.look(self._last)
                with self._lock:
                    self._judge(sighting, own.connection)
                    self._show_positions(sighting)

    def _show_positions(self, sighting: Sighting) -> None:
        """Show the slot's position, so that the lag is that of now."""
        if sighting.slot is not None and sighting.server is None:
            known = self.board.view().positions
            self.board.set_positions(
                Positions(sighting.slot.confirmed_flush, known.applied, sighting.slot.current)
            )

    def _judge(self, sighting: Sighting, connection: Connection | None) -> None:
        self._last = sighting
        self._note_progress(sighting)
        waits = NO_WAITS
        if connection is not None and sighting.server is None:
            try:
                waits = self._read_waits(connection)
            except HeadraceError as error:
                sighting = replace(sighting, server=error)
        still, limit = self.board.stall.still_seconds(self.board.sinks.last), self.board.stall.limit
        is_near = still > limit / 2  # so that the diagnosis is there when the stall is shown
        diagnosis = self._diagnose(sighting, waits) if is_near else None
        self.board.stall.diagnosis = diagnosis
        shown, self._diagnosis = self._diagnosis, diagnosis if still > limit else None
        if self._diagnosis is not None and self._diagnosis != shown:
            self.board.record_error(self._diagnosis.error)

    def _note_progress(self, sighting: Sighting) -> None:
        reached, behind = sighting.reached(), self.board.view().lag_seconds
        if sighting.server is None:
            self._answered_at = time.monotonic()
        else:
            behind = max(behind or 0.0, time.monotonic() - self._answered_at)
        decodes = sighting.server is None and sighting.slot is not None and sighting.slot.decodes
        if self.signals.is_invisible():  # then it is no progress that the server sends more
            decodes = False
            reached.pop("sent", None)
        elif decodes and not self.signals.is_planned():  # a batch of an earlier process may be sent again
            self.board.stall.note_work()
        self.board.stall.note_look(reached, behind, decodes=decodes)
        if self.board.paused is not None:
            self.board.stall.note_pause()

    def _read_waits(self, connection: Connection) -> StreamWaits:
        """Ask the server what the stream waits for, where nothing has moved for a while.

        Raises:
            HeadraceError: CONNECTION, DATABASE.
        """
        still = self.board.stall.still_seconds(self.board.sinks.last)
        if still < min(_QUIET_SECONDS, self.board.stall.limit / 4):
            return NO_WAITS
        name, activity = stream_name(self.key.slot), self._activity()
        waits = read_stream_waits(connection, self.key.slot, name)
        is_refused = activity is not None and activity.error is not None  # it assembles again and again
        if not is_refused and is_at_work(connection, name):
            self.board.stall.note_work()
        return waits

    def _activity(self) -> SinkActivity | None:
        """Return what the stream's writers do, without those of jobs beside it."""
        return self.board.sinks.of_tasks(self.sink)

    def _diagnose(self, sighting: Sighting, waits: StreamWaits) -> Diagnosis:
        server, state = sighting.server, sighting.state
        is_unreachable = server is not None and server.kind is Kind.CONNECTION and not is_reachable(self.url)
        return diagnose_stall(
            StallFacts(
                asked_seconds=self.signals.seconds_since_beat(),
                planned=self.signals.is_planned(),
                is_invisible=self.signals.is_invisible(),
                task=self.board.sinks.oldest_task(self.sink),
                sink=self._activity(),
                slot=sighting.slot,
                waits=waits,
                applied=None if state is None else state.applied,
                reached=None if state is None else state.ahead,
                server=server,
                is_unreachable=is_unreachable,
                reader=self.signals.reader_error(),
                cluster=sighting.cluster,
            )
        )


class _Looker:
    """Looks at the server and the cluster over connections of its own."""

    def __init__(self, url: str, key: StateKey, open_client: Callable[[], Client]) -> None:
        self._url = url
        self._slot = key.slot
        self._client = open_client()
        self._meta = StateStore(self._client, key)
        self.connection: Connection | None = None

    def look(self, before: Sighting) -> Sighting:
        """Return what is seen now."""
        slot, state, server, cluster = before.slot, before.state, None, None
        try:
            if self.connection is None:
                self.connection = connect(self._url, application_name="headrace watch")
            slot = read_slot(self.connection, self._slot)
        except HeadraceError as error:
            server = error
            self._disconnect()
        try:
            state = self._meta.load()
        except HeadraceError as error:
            cluster = error
        return Sighting(slot=slot, state=state, server=server, cluster=cluster)

    def close(self) -> None:
        """Close the connections."""
        self._disconnect()
        self._client.close()

    def _disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
