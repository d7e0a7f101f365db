"""Watch the server and the cluster every second, and keep the status board up to date."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from headrace.capture.signals import SignalFiles
from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind, Retry
from headrace.model.lsn import Lsn
from headrace.pipeline.continuity import check_continuity
from headrace.pipeline.held_log import HeldLog
from headrace.pipeline.project import Project
from headrace.pipeline.schema_drift import ALTERED, SchemaDriftMonitor
from headrace.pipeline.stall_monitor import Sighting, StallMonitor
from headrace.pipeline.wal_budget import SlotReleased, WalBudget
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.address import application_name
from headrace.postgres.connection import Connection, connect
from headrace.postgres.locks import LockSession, SlotLock
from headrace.postgres.server import inspect_server
from headrace.postgres.slot import SlotFacts, read_slot, slot_in_use
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.documents import index_sizes
from headrace.state import PipelineState, PositionRequest, Quarantine, StateStore
from headrace.state.verifications import Verifications
from headrace.status.board import Counts, Positions, StatusBoard
from headrace.status.phases import Event, Phase

_SECONDS = 1.0
_REQUEST_SECONDS = 0.5
_COUNT_SECONDS = 5.0
_MEASURE_SECONDS = 20.0
_TIMEOUT_SECONDS = 3.0
_HELD_BACK_SECONDS = 10.0
_ENDING = ALTERED | {Kind.SLOT_IN_USE}


def short_timeout_client(endpoints: Endpoints) -> Client:
    """Return a client with a short timeout, for a cluster that may hang while a caller waits."""
    return Client(endpoints.sink.with_timeout(_TIMEOUT_SECONDS), read_attempts=1, accepted=True)


class HealthMonitor:
    """Watches the server and the cluster while the query runs; a run is degraded when one does not answer.

    A run is also degraded while its source waits, which the source reports by `signals`.
    Beside that file the monitor leaves position requests for the source. The lock that keeps a second
    Headrace away is taken again after the server was away.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        project: Project,
        board: StatusBoard,
        lock: SlotLock,
        *,
        catalog: SchemaDriftMonitor,
        budget: WalBudget,
        signals: SignalFiles,
    ) -> None:
        self._endpoints = endpoints
        self._project = project
        self._board = board
        self._lock = lock
        self._catalog = catalog
        self._budget = budget
        self._held_log = HeldLog(board)
        self._signals = signals
        self._stall = StallMonitor(
            board,
            signals,
            endpoints.database,
            key=project.key,
            sink=project.primary.name,
            open_client=lambda: short_timeout_client(endpoints),
        )
        self._client = short_timeout_client(endpoints)
        self._meta = StateStore(self._client, project.key)
        self._verifications = Verifications(self._client, project.key)
        self._position_request = PositionRequest(self._client, project.key)
        self._quarantine = Quarantine(self._client, project.key)
        self._next_count = self._next_measure = 0.0
        self._passed_on: Lsn = 0
        self._next_request = 0.0
        self._connection: Connection | None = None
        self._next = 0.0
        self._shown: tuple[Kind, str] | None = None
        self._slot: SlotFacts | None = None
        self._confirmed: Lsn | None = None
        self._current: Lsn | None = None
        self._applied: Lsn | None = None
        self._state: PipelineState | None = None
        self._held_since: float | None = None
        self._named_session: LockSession | None = None

    def __enter__(self) -> Self:
        self._name_lock()
        self._stall.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stall.close()
        self._drop_connection()
        self._client.close()
        self._catalog.close()

    def change_project(self, project: Project) -> None:
        """Go on with changed files."""
        self._project = project

    def look(self) -> None:
        """Update the board, at most once a second.

        Raises:
            HeadraceError: SLOT_IN_USE: another Headrace has taken the slot. SCHEMA_CHANGED or
                REPLICA_IDENTITY: a table was altered. SlotReleased: the slot retains too much of the log.
        """
        self._pass_request_on()
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _SECONDS
        server = self._try(self._look_at_server)
        cluster = self._try(self._look_at_cluster)
        if server is None or self._slot is None:  # else the last ones stay, so that the lag in seconds grows
            self._board.set_positions(Positions(self._confirmed, self._applied, self._current))
        sighting = Sighting(slot=self._slot, state=self._state, server=server, cluster=cluster)
        self._stall.pass_on(sighting, self._connection)
        if self._stall.is_stalled:
            self._shown = None
        elif (error := server or cluster) is not None:
            self._show_failure(error)
        else:
            self._show_reader_status()

    def _try(self, look: Callable[[], None]) -> HeadraceError | None:
        """Return the error of a look; raise one that ends the run."""
        try:
            look()
        except HeadraceError as error:
            if error.kind in _ENDING or isinstance(error, SlotReleased):
                raise
            return error
        return None

    def _pass_request_on(self) -> None:
        """Pass a position request on to the source; `look` reports a cluster that does not answer."""
        if time.monotonic() < self._next_request:
            return
        self._next_request = time.monotonic() + _REQUEST_SECONDS
        with contextlib.suppress(HeadraceError):
            requested = self._position_request.read()
            if requested != self._passed_on:
                self._signals.request_lsn(requested)
                self._passed_on = requested

    def _show_failure(self, error: HeadraceError) -> None:
        forgotten = error.retry is Retry.BACK_OFF and self._board.phase is not Phase.DEGRADED
        if forgotten or (error.kind, error.cause) != self._shown:
            self._shown = (error.kind, error.cause)
            self._board.record_error(error)

    def _show_reader_status(self) -> None:
        """Show what the source waits for; without that the run has recovered."""
        waiting = self._signals.reader_error()
        if waiting is None and self._slot is not None and _is_read_by_another(self._slot):
            waiting = slot_in_use(self._slot)
        if waiting is None:
            waiting = self._held_back(time.monotonic())
        if waiting is not None:
            self._show_failure(waiting)
            return
        self._shown = None
        self._board.apply_event(Event.RECOVERED)

    def _held_back(self, now: float) -> HeadraceError | None:
        """Return an error where the server sends nothing because a standby must have the changes first."""
        if self._slot is None or not self._slot.awaits_standbys:
            self._held_since = None
            return None
        self._held_since = now if self._held_since is None else self._held_since
        if now - self._held_since < _HELD_BACK_SECONDS:
            return None
        return HeadraceError(
            Kind.CONNECTION,
            "the server sends no changes, because a standby that must have them first does not get them",
            "Start the standbys that synchronized_standby_slots names, or take out of it those that are gone "
            "and run SELECT pg_reload_conf().",
        )

    def _look_at_server(self) -> None:
        """Read the positions of slot and log, also while the cluster is away; keep the last on failure."""
        try:
            self._lock.hold()
            self._name_lock()
            if self._connection is None:
                self._connection = connect(self._endpoints.database, application_name="headrace watch")
            self._slot = read_slot(self._connection, self._project.slot)
            self._board.slot_seen(self._slot)
            if self._slot is None or self._slot.synced:
                self._confirmed = self._current = None
                raise self._without_slot(self._connection)
            self._confirmed, self._current = self._slot.confirmed_flush, self._slot.current
            self._catalog.look()
            self._held_log.look(self._connection, self._slot)
            self._budget.check(self._slot, self._board.view().lag_seconds)
        except HeadraceError:
            self._drop_connection()
            raise

    def _name_lock(self) -> None:
        """Tell the source which session has the lock: without it, it must not claim the slot again."""
        if self._lock.session is not None and self._lock.session != self._named_session:
            self._signals.set_lock_session(self._lock.session)
            self._named_session = self._lock.session

    def _without_slot(self, connection: Connection) -> HeadraceError:
        """Return why the slot is missing: the address may lead to another server now."""
        if self._state is not None and self._state.phase == "following":
            server = inspect_server(connection, self._endpoints.database)
            try:
                check_continuity(self._state, server, None)
            except HeadraceError as error:
                return error
        return _deleted("slot")

    def _look_at_cluster(self) -> None:
        """Read the state and its counters; keep the last on failure."""
        state = self._meta.load()
        if state is None:
            raise _deleted("state")
        self._applied, self._state = state.applied, state
        counters = state.counters
        self._board.set_counts(
            Counts(counters.changes, counters.upserts, counters.deletes, counters.batches, counters.rejected)
        )
        self._count_quarantine()
        self._measure_indexes(state)

    def _measure_indexes(self, state: PipelineState) -> None:
        """Show how many documents readers find in each index, and their size."""
        if time.monotonic() < self._next_measure:
            return
        self._next_measure = time.monotonic() + _MEASURE_SECONDS
        served = [generation for generation in state.generations if generation.published]
        sizes = index_sizes(self._client, [generation.generation for generation in served])
        results = self._verifications.results(generation.index for generation in served)
        for generation in served:
            documents, stored = sizes.get(generation.generation, (None, None))
            verification = results.get(generation.index)
            self._board.index(
                generation.index,
                held=documents,
                stored_bytes=stored,
                served_since=generation.served_at,
                verified=None if verification is None else verification.text,
                drift=None if verification is None else verification.drift,
            )

    def _count_quarantine(self) -> None:
        if not self._project.quarantine() or time.monotonic() < self._next_count:
            return
        self._next_count = time.monotonic() + _COUNT_SECONDS
        counts = self._quarantine.counts()
        for index in self._project.quarantine():
            self._board.index(index, quarantined=counts.get(index, 0))

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _deleted(what: str) -> HeadraceError:
    return HeadraceError(
        Kind.CONTINUITY, f"the {what} of this deployment was deleted while it runs", BACKFILL_AGAIN
    )


def _is_read_by_another(slot: SlotFacts) -> bool:
    """Whether a connection that is not a run's own reads the slot."""
    return slot.reader is not None and application_name(slot.name) not in slot.reader
