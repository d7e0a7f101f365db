"""Watch whether a running query makes progress, and explain where it does not.

The health monitor shares its thread with work that may wait for a cluster for minutes. So a thread of its own
looks here, over connections of its own.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field

from headrace.capture.signals import SignalFiles
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.address import stream_name
from headrace.postgres.connection import Connection, connect
from headrace.postgres.reachability import is_reachable
from headrace.postgres.server import is_at_work
from headrace.postgres.slot import SlotFacts, read_slot
from headrace.postgres.stream_waits import NO_WAITS, StreamWaits, read_stream_waits
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.client import path
from headrace.state import StateKey, StateStore
from headrace.status.board import Positions, StatusBoard
from headrace.status.sinks import SinkActivity
from headrace.status.stall import Diagnosis
from headrace.status.stall_diagnosis import StallFacts, diagnose_stall

_SECONDS = 1.0
_END_SECONDS = _PATIENCE_SECONDS = 5.0
_QUIET_SECONDS = 10.0
_TIMEOUT_SECONDS = 3.0
_SILENT = HeadraceError(Kind.CONNECTION, "the database server has not answered for some seconds")


def short_timeout_client(endpoints: Endpoints) -> Client:
    """Return a client with a short timeout, for a cluster that may hang while a caller waits."""
    return Client(endpoints.sink.with_timeout(_TIMEOUT_SECONDS), read_attempts=1, accepted=True)


def show_positions(board: StatusBoard, slot: SlotFacts | None, store: StateStore) -> None:
    """Show the positions that were just seen; else the last ones stay, so that the lag in seconds grows."""
    applied = None if store.current is None else store.current.applied
    if slot is None:
        board.set_positions(Positions(None, applied, None))
    else:
        board.set_positions(Positions(slot.confirmed_flush, applied, slot.current))


@dataclass(eq=False, slots=True)
class StallMonitor:
    """Tells the board of positions and progress, and diagnoses a stall, from `open` to `close`.

    Args:
        board: its detector decides; a stall is an error there.
        signals: between the driver and the source.
        endpoints: of the deployment.
        key: of the pipeline's state.
        store: the state of the pipeline.
        sink: the name of the primary sink.
    """

    board: StatusBoard
    signals: SignalFiles
    endpoints: Endpoints
    key: StateKey
    store: StateStore
    sink: str
    _connection: Connection | None = field(default=None, init=False)
    # As it was seen last, also after an error.
    _slot: SlotFacts | None = field(default=None, init=False)
    _waits: StreamWaits = field(default=NO_WAITS, init=False)
    _answered_at: float = field(default_factory=time.monotonic, init=False)
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
        self._thread.join(timeout=_END_SECONDS)

    @property
    def is_stalled(self) -> bool:
        """Whether the board shows a stall, as an error."""
        return self._diagnosis is not None

    def _run(self) -> None:
        """Look once a second; while a look at the server hangs, it is said not to answer."""
        with contextlib.closing(short_timeout_client(self.endpoints)) as client:
            while not self._ending.is_set():
                cluster = self._ask_cluster(client)
                looking = threading.Thread(
                    target=self._look, args=(cluster,), name="headrace look", daemon=True
                )
                looking.start()
                # A connection that forwards nothing is noticed by itself only after a minute.
                looking.join(_PATIENCE_SECONDS)
                while looking.is_alive():
                    self._judge(_SILENT, cluster, NO_WAITS)
                    looking.join(_SECONDS)
                self._ending.wait(_SECONDS)
            self._disconnect()

    def _ask_cluster(self, client: Client) -> HeadraceError | None:
        """Return why the cluster that keeps the state does not answer; None where it does."""
        try:
            client.read(path(self.store.index, "_doc", self.key.id), allow=(404,))
        except HeadraceError as error:
            return error
        return None

    def _look(self, cluster: HeadraceError | None) -> None:
        """Look at the server, and judge."""
        server, waits = None, NO_WAITS
        try:
            if self._connection is None:
                self._connection = connect(self.endpoints.database, application_name="headrace watch")
            self._slot = read_slot(self._connection, self.key.slot)
        except HeadraceError as error:
            server = error
        if self._connection is not None and server is None:
            show_positions(self.board, self._slot, self.store)
            try:
                waits = self._read_waits(self._connection)
            except HeadraceError as error:
                server = error
        if server is not None:
            self._disconnect()
        self._judge(server, cluster, waits)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _judge(self, server: HeadraceError | None, cluster: HeadraceError | None, waits: StreamWaits) -> None:
        if self._ending.is_set():
            return  # the board may have another query by now
        self._note_progress(server)
        still, limit = self.board.stall.still_seconds(self.board.sinks.last), self.board.stall.limit
        is_near = still > limit / 2  # so that the diagnosis is there when the stall is shown
        diagnosis = self._diagnose(server, cluster, waits) if is_near else None
        self.board.stall.diagnosis = diagnosis
        shown, self._diagnosis = self._diagnosis, diagnosis if still > limit else None
        if self._diagnosis is not None and self._diagnosis != shown:
            self.board.record_error(self._diagnosis.error)

    def _note_progress(self, server: HeadraceError | None) -> None:
        slot, state, behind = self._slot, self.store.current, self.board.view().lag_seconds
        reached = {} if state is None else {"applied": state.applied, "batches": state.counters.batches}
        decodes = False
        if server is not None:
            behind = max(behind or 0.0, time.monotonic() - self._answered_at)
        else:
            self._answered_at = time.monotonic()
            if slot is not None:
                reached["confirmed"] = slot.confirmed_flush or 0
                # While changes are not visible yet, it is no progress that the server sends more.
                if not self.signals.is_invisible():
                    reached["sent"], decodes = slot.sent or 0, slot.decodes
        if decodes and not self.signals.is_planned():  # a batch of an earlier process may be sent again
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
        before, self._waits = self._waits, read_stream_waits(connection, self.key.slot, name)
        is_refused = activity is not None and activity.error is not None  # it assembles again and again
        # Between two waits for a lock it connects again, which is no work either.
        is_locked = bool(before.locks or self._waits.locks)
        if not is_refused and not is_locked and is_at_work(connection, name):
            self.board.stall.note_work()
        return self._waits

    def _activity(self) -> SinkActivity | None:
        """Return what the stream's writers do, without those of jobs beside it."""
        return self.board.sinks.of_tasks(self.sink)

    def _diagnose(
        self, server: HeadraceError | None, cluster: HeadraceError | None, waits: StreamWaits
    ) -> Diagnosis:
        state = self.store.current
        url = self.endpoints.database
        is_unreachable = server is not None and server.kind is Kind.CONNECTION and not is_reachable(url)
        return diagnose_stall(
            StallFacts(
                asked_seconds=self.signals.seconds_since_beat(),
                planned=self.signals.is_planned(),
                is_invisible=self.signals.is_invisible(),
                task=self.board.sinks.oldest_task(self.sink),
                sink=self._activity(),
                slot=self._slot,
                waits=waits,
                applied=None if state is None else state.applied,
                reached=None if state is None else state.ahead,
                server=server,
                is_unreachable=is_unreachable,
                reader=self.signals.reader_error(),
                cluster=cluster,
            )
        )
