"""Watch the server and the cluster every second, and keep the status board up to date."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from headrace.capture.signals import SignalFiles
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.lsn import Lsn
from headrace.pipeline.held_log import HeldLog
from headrace.pipeline.project import Project
from headrace.pipeline.stall_monitor import StallMonitor, short_timeout_client, show_positions
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.address import application_name
from headrace.postgres.connection import Connection, connect
from headrace.postgres.locks import LockSession, SlotLock
from headrace.postgres.server import ServerFacts, inspect_server, is_in_recovery
from headrace.postgres.slot import SlotFacts, held_back, read_slot
from headrace.sinks.opensearch.client import path
from headrace.sinks.opensearch.documents import index_sizes
from headrace.state import PipelineState, PositionRequest, Quarantine, StateStore
from headrace.state.verifications import Verifications
from headrace.status.board import StatusBoard
from headrace.status.phases import Phase

_SECONDS = 1.0
_REQUEST_SECONDS = 0.5
_MEASURE_SECONDS = 5.0
_HELD_BACK_SECONDS = 10.0


@dataclass(eq=False)
class HealthMonitor:
    """Watches the server and the cluster of a run, once a second, and keeps the board up to date.

    A run is degraded when one of them does not answer, and while its source waits, which the source reports
    by signals. Beside those the monitor leaves position requests for the source. The lock that keeps a second
    Headrace away is taken again after the server was away. Used from the run's thread.

    Args:
        endpoints: of the deployment.
        read_project: returns the files that hold now.
        board: shows what is seen.
        lock: of the slot.
        store: the state of the pipeline.

    Attributes:
        slot: the slot at the last look; None where the server has none of its name.
        standby: whether the server was in recovery when the slot was looked at.
        error: why the server could not be looked at; None where it was.
        lost: why the lock is another process's; None while it is this one's.
    """

    endpoints: Endpoints
    read_project: Callable[[], Project]
    board: StatusBoard
    lock: SlotLock
    store: StateStore
    slot: SlotFacts | None = field(default=None, init=False)
    standby: bool = field(default=False, init=False)
    error: HeadraceError | None = field(default=None, init=False)
    lost: HeadraceError | None = field(default=None, init=False)
    _signals: SignalFiles | None = field(default=None, init=False)
    _stall: StallMonitor | None = field(default=None, init=False)
    _passed_on: Lsn = field(default=0, init=False)
    _connection: Connection | None = field(default=None, init=False)
    _facts: ServerFacts | None = field(default=None, init=False)
    _next: float = field(default=0.0, init=False)
    _next_measure: float = field(default=0.0, init=False)
    _next_request: float = field(default=0.0, init=False)
    _shown: tuple[Kind, str] | None = field(default=None, init=False)
    _held_since: float | None = field(default=None, init=False)
    _named_session: LockSession | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._key = key = self.read_project().key
        self._held_log = HeldLog(self.board)
        self._client = short_timeout_client(self.endpoints)
        self._verifications = Verifications(self._client, key)
        self._position_request = PositionRequest(self._client, key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.watch(None)
        self._drop_connection()
        self._client.close()

    def watch(self, signals: SignalFiles | None) -> None:
        """Watch the query that has these signals; None: none runs."""
        if signals == self._signals:
            return
        if self._stall is not None:
            self._stall.close()
            self._stall = None
        # Another query has other files, so it is told everything again.
        self._signals, self._named_session, self._passed_on = signals, None, 0
        if signals is not None:
            self._name_lock()
            self._stall = StallMonitor(
                self.board,
                signals,
                self.endpoints,
                key=self._key,
                store=self.store,
                sink=self.read_project().primary.name,
            )
            self._stall.open()

    def look(self, waits_for: HeadraceError | None = None) -> None:
        """Look at the server and the cluster, at most once a second, and show what is seen.

        Args:
            waits_for: what the run waits for, beside what is seen here; None for nothing.
        """
        # More often than the rest: somebody waits for the position.
        self._pass_request_on()
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _SECONDS
        self.error = self._try(self._look_at_server)
        cluster = self._try(self._look_at_cluster)
        if self.error is None and self._stall is None:  # while a query runs, the stall monitor shows them
            show_positions(self.board, self.slot, self.store)
        self._show(cluster or waits_for)

    def _show(self, error: HeadraceError | None) -> None:
        """Show what is wrong: with the server, an `error` beside it, or what the source waits for."""
        if self._stall is not None and self._stall.is_stalled:
            # A stall says more of the same cause. What is still wrong behind it is told again.
            self._shown = None
        elif (found := self.error or error or self._reader_error()) is not None:
            self._show_failure(found)
        elif self._signals is not None or self._shown is not None:
            self._shown = None
            self.board.recovered()

    def forget(self) -> None:
        """Look again at once."""
        self._next = 0.0

    def facts(self, *, fresh: bool) -> ServerFacts:
        """Return the facts of the server, of a moment after the last look at the slot where `fresh`.

        A session that lives shows that the server is the same one as when the facts were read.

        Raises:
            HeadraceError: CONNECTION, AUTHENTICATION, DATABASE.
        """
        if self.error is not None:
            raise self.error
        if self._facts is None or fresh:
            try:
                self._facts = inspect_server(self.connection, self.endpoints.database)
            except HeadraceError as error:
                # A new session may be with another server: the slot must be looked at there first.
                self.error = error
                self.forget()
                self._drop_connection()
                raise
        return self._facts

    @property
    def seconds_behind(self) -> float | None:
        """Since when the slot's position has not been the server's newest (seconds)."""
        return self.board.view().lag_seconds

    @property
    def read_by_another(self) -> str:
        """Who reads the slot, where that is not a run of this deployment; else empty."""
        reader = "" if self.slot is None else self.slot.reader or ""
        return "" if application_name(self._key.slot) in reader else reader

    @property
    def connection(self) -> Connection:
        """The connection over which the server is watched.

        Raises:
            HeadraceError: CONNECTION, AUTHENTICATION.
        """
        if self._connection is None:
            self._connection = connect(self.endpoints.database, application_name="headrace watch")
        return self._connection

    def _try(self, look: Callable[[], None]) -> HeadraceError | None:
        """Return the error of a look."""
        try:
            look()
        except HeadraceError as error:
            return error
        return None

    def _pass_request_on(self) -> None:
        """Pass a position request on to the source; `look` reports a cluster that does not answer."""
        if self._signals is None or time.monotonic() < self._next_request:
            return
        self._next_request = time.monotonic() + _REQUEST_SECONDS
        with contextlib.suppress(HeadraceError):
            requested = self._position_request.read()
            if requested != self._passed_on:
                self._signals.request_lsn(requested)
                self._passed_on = requested

    def _show_failure(self, error: HeadraceError) -> None:
        # While no query runs, the run waits for it, whatever it is.
        degrades = error.retry is Retry.BACK_OFF or self._signals is None
        forgotten = degrades and self.board.phase is not Phase.DEGRADED
        # Once for each failure, and again where the run has recovered in between.
        if forgotten or (error.kind, error.cause) != self._shown:
            self._shown = (error.kind, error.cause)
            self.board.record_error(error, degrades=degrades)

    def _reader_error(self) -> HeadraceError | None:
        """Return what the source waits for; None for nothing, and where no query runs."""
        if self._signals is None:
            return None
        if (waiting := self._signals.reader_error()) is not None:
            return waiting
        return self._held_back(time.monotonic())

    def _held_back(self, now: float) -> HeadraceError | None:
        """Return an error where the server sends nothing because a standby must have the changes first."""
        if self.slot is None or not self.slot.awaits_standbys:
            self._held_since = None
            return None
        self._held_since = now if self._held_since is None else self._held_since
        if now - self._held_since < _HELD_BACK_SECONDS:
            return None
        return held_back()

    def _look_at_server(self) -> None:
        """Read the slot, also while the cluster is away; keep the last on failure."""
        try:
            # First of all: with its session a run has lost the lock, and another one may have begun.
            self.lost = self.lock.lost_to()
            self._name_lock()
            # Before the slot: one that a standby lacks is not gone, and a promotion may come in between.
            self.standby = is_in_recovery(self.connection)
            slot = read_slot(self.connection, self._key.slot)
            self.slot = None if slot is None or slot.synced else slot  # a standby's copy is nobody's to read
            self.board.note(slot=slot)
            if self.slot is not None:
                self._held_log.look(self.connection, self.slot)
        except HeadraceError:
            self._drop_connection()
            raise

    def _name_lock(self) -> None:
        """Tell the source which session has the lock: without it, it must not claim the slot again."""
        session = self.lock.session
        if self._signals is not None and session is not None and session != self._named_session:
            self._signals.set_lock_session(session)
            self._named_session = session

    def _look_at_cluster(self) -> None:
        """Look whether the cluster answers; show counters, quarantine and sizes."""
        state = self.store.current
        if state is None:
            return
        # The query may save its state seldom, and in another thread.
        self._client.read(path(self.store.index, "_doc", self._key.id), allow=(404,))
        self.board.set_counts(state.counters)
        if time.monotonic() >= self._next_measure:
            self._next_measure = time.monotonic() + _MEASURE_SECONDS
            self._count_quarantine(state)
            self._measure_indexes(state)

    def _measure_indexes(self, state: PipelineState) -> None:
        """Show how many documents readers find in each index, and their size."""
        served = [generation for generation in state.in_sink("").generations if generation.published]
        sizes = index_sizes(self._client, [generation.generation for generation in served])
        results = self._verifications.results(generation.index for generation in served)
        for generation in served:
            documents, stored = sizes.get(generation.generation, (None, None))
            verification = results.get(generation.index)
            self.board.index(
                generation.index,
                held=documents,
                stored_bytes=stored,
                served_since=generation.served_at,
                verified=None if verification is None else verification.text,
                drift=None if verification is None else verification.drift,
            )

    def _count_quarantine(self, state: PipelineState) -> None:
        """Show how many documents each index lacks in each sink, whatever `on_error` says now."""
        for target in self.read_project().targets.values():
            sink = target.key.sink
            counts = Quarantine(self._client, target.key).counts()
            for index in {generation.index for generation in state.in_sink(sink).generations}:
                self.board.index(index, sink=sink, quarantined=counts.get(index, 0))

    def _drop_connection(self) -> None:
        self._facts = None  # a new session may be with another server at the same address
        if self._connection is not None:
            self._connection.close()
            self._connection = None
