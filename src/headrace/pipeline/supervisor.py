"""Supervise a running query until it must end.

The supervisor serves complete generations to readers, carries out control requests and keeps the board up to
date. It notices what ends the query: a failure, another process that took the slot, an altered table.

After an orderly end the last applied position is confirmed to the slot, so that the next start repeats
nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from headrace.catalog.needs import Needs
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model import Lsn
from headrace.pipeline.backfill import BackfillFailure, Backfills
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.health_monitor import HealthMonitor, short_timeout_client
from headrace.pipeline.project import Project
from headrace.pipeline.schema_drift import CatalogBaseline, SchemaDriftMonitor
from headrace.pipeline.secondary_sinks import SecondarySinks
from headrace.pipeline.stopping import Stopped, Stopping
from headrace.pipeline.stream.deferred_work import DeferredWork
from headrace.pipeline.stream.documents_query import DocumentsQuery
from headrace.pipeline.wal_budget import WalBudget
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection, connect
from headrace.postgres.locks import SlotLock
from headrace.postgres.slot import advance_slot
from headrace.reporter import Reporter
from headrace.sinks.opensearch import (
    ControlRequest,
    ControlRequests,
    Counters,
    DeferredKeys,
    GenerationState,
    MetaIndex,
)
from headrace.sinks.opensearch.lease import Lease
from headrace.spark.jobs import JobGate
from headrace.status.board import StatusBoard
from headrace.status.phases import Event

_LOOK_SECONDS = 0.25
_QUIET_SECONDS = 15.0
_REQUESTS_SECONDS = 1.0
_NOTED_SECONDS, _NOTED_POLL = 10.0, 0.05


@dataclass(frozen=True, slots=True)
class QueryEnd:
    """Why a query must end.

    Attributes:
        failure: the error that the query failed with; None where it did not fail.
        again: another query follows, perhaps with other generations; else the run ends.
        failed: the backfill that failed.
        requests: control requests that are carried out before the next query.
        replaced: generations whose index another one has replaced, frozen.
        secondary: what the secondary sinks need, as `SecondarySinks.look` returns it.
    """

    failure: HeadraceError | None = None
    again: bool = False
    failed: BackfillFailure | None = None
    requests: Sequence[ControlRequest] = ()
    replaced: Sequence[GenerationState] = ()
    secondary: Mapping[str, BackfillFailure | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A query, what it is planned for, and the jobs beside it.

    Attributes:
        generation_log: holds the generations that the query writes.
        known: the catalog that the plan was made for.
        altered: watches what changed in the catalog since.
        needs: what the plan needs of the log, as the query was started with.
    """

    query: DocumentsQuery
    generation_log: GenerationLog
    known: CatalogBaseline
    altered: SchemaDriftMonitor
    needs: Needs
    _: KW_ONLY
    beside: DeferredWork
    backfills: Backfills
    job_gate: JobGate


@dataclass(frozen=True, slots=True)
class RunContext:
    """What stays the same from one query of a run to the next.

    Attributes:
        live: called once the query has begun; its argument is whether any generation is still backfilled.
    """

    project: Project
    endpoints: Endpoints
    board: StatusBoard
    stopping: Stopping
    requests: ControlRequests
    secondary_sinks: SecondarySinks
    exported: HeldSnapshot
    lock: SlotLock
    lease: Lease | None
    budget: WalBudget
    live: Callable[[bool], None]


def needs_of(known: CatalogBaseline, generation_log: GenerationLog, secondary_sinks: SecondarySinks) -> Needs:
    """Return what the log must hold for all generations that are written."""
    named = [
        (generation_log.manager.name_of(generation), generation.as_of)
        for generation in generation_log.written
    ]
    return known.needs([*named, *secondary_sinks.needs()])


class Supervisor:
    """Supervises one running query; used from the main thread."""

    def __init__(self, context: RunContext, running: RunningQuery) -> None:
        self._context = context
        self._running = running
        self._generation_log = running.generation_log
        self._complete: list[tuple[GenerationState, int]] = []
        self._next_read = 0.0

    def run(self) -> QueryEnd:
        """Supervise the query while it runs; return why it must end.

        Raises:
            HeadraceError: SLOT_IN_USE: another Headrace took the slot while the server was away.
                SCHEMA_CHANGED or REPLICA_IDENTITY: a table was altered. Any other error that keeps an index
                without a served generation from being backfilled.
        """
        context, running, generation_log = self._context, self._running, self._generation_log
        query, backfills, stopping = running.query, running.backfills, context.stopping
        began, begun, live = time.monotonic(), False, False
        with HealthMonitor(
            context.endpoints,
            context.project,
            context.board,
            context.lock,
            catalog=running.altered,
            budget=context.budget,
            signals=query.signals,
        ) as watch:
            while not stopping.is_set():
                if not query.active:
                    unknown = HeadraceError(Kind.SPARK, "the query ended without a reason")
                    return QueryEnd(query.failure() or unknown)
                if (failure := running.beside.failure()) is not None:
                    return QueryEnd(failure)
                if context.lease is not None and (lost := context.lease.lost()) is not None:
                    raise lost
                self._publish()
                context.board.staged(query.stages)
                begun = begun or query.begun() or time.monotonic() - began > _QUIET_SECONDS
                if begun:
                    running.job_gate.begin()
                if begun and not live:
                    live = self._report_live()
                if (failed := backfills.failure()) is not None:
                    return self._handle_failed_backfill(failed)
                if begun:
                    watch.look()
                    if (ended := self._handle_requests()) is not None:
                        return ended
                    live = live and not generation_log.building
                stopping.wait(_LOOK_SECONDS)
        return QueryEnd()

    def _report_live(self) -> bool:
        """Report whether the backfill is over; once readers see what is followed, a gap is closed."""
        live = not self._generation_log.building
        self._context.live(not live)
        if live and self._generation_log.serves_all:
            self._context.board.close_gap()
        return live

    def _handle_requests(self) -> QueryEnd | None:
        """Carry out control requests; return an end where that is only possible between two queries."""
        requests = self._read_requests()
        if replaced := self._generation_log.freeze_replaced():
            return QueryEnd(again=True, requests=requests, replaced=replaced)
        secondary = self._context.secondary_sinks.look(self._generation_log.state)
        if self._running.altered.moved or secondary:
            return QueryEnd(again=True, requests=requests, secondary=secondary)
        if (requests or self._generation_log.must_drop) and not self.reloaded_plan(requests):
            return QueryEnd(again=True, requests=requests)
        return None

    def reloaded_plan(self, requests: Sequence[ControlRequest]) -> bool:
        """Give the running query a plan with the requested generations and without those to be dropped.

        Returns False where a new query is necessary for that. What was done for the requests then stays.
        """
        if self._context.secondary_sinks or self._context.exported.slot is not None:
            return False
        try:
            return self._reload_plan(requests)
        except Stopped:  # while waiting for the cluster; the query ends as usual
            return True

    def _reload_plan(self, requests: Sequence[ControlRequest]) -> bool:
        running, generation_log, stopping = self._running, self._generation_log, self._context.stopping
        before = {generation.generation for generation in generation_log.building}
        # Only waits for the cluster are interruptible: a call to the JVM would leave half an answer behind.
        with stopping.interrupting():
            # Also without requests: a generation that leaves the plan must not be in the state.
            done = generation_log.apply(requests)
        needs = needs_of(running.known, generation_log, self._context.secondary_sinks)
        if generation_log.to_drop & before or needs != running.needs:
            return False
        work = generation_log.manager.work(generation_log.written)
        running.beside.change(work)
        running.backfills.change(work)
        position = running.query.change(work, stopping)
        if position is None or not self._is_noted(position):
            return not running.query.active  # the caller finds out why it ended
        if new := [
            generation for generation in generation_log.building if generation.generation not in before
        ]:
            self._context.board.apply_event(Event.BACKFILLING)
            running.backfills.begin(work, new)
        with stopping.interrupting():
            generation_log.forget(done)
        if generation_log.to_drop and not running.job_gate.is_busy:  # a running job has the former plan
            with contextlib.suppress(HeadraceError):  # it is tried again at the next look
                generation_log.drop_unneeded()
        return True

    def _is_noted(self, position: Lsn) -> bool:
        """Wait a little until the state holds the position.

        The backfill then reads behind every change that was resolved with the former plan.
        """
        deadline = time.monotonic() + _NOTED_SECONDS
        while not self._generation_log.covers(position):
            if time.monotonic() > deadline or self._context.stopping.wait(_NOTED_POLL):
                return False
        return True

    def _publish(self) -> None:
        """Serve complete generations to readers; where the cluster does not answer, try again later."""
        self._complete += self._running.backfills.completed()
        if self._complete:
            self._generation_log.prepare([generation for generation, _ in self._complete])
        while self._complete:
            try:
                self._generation_log.complete(*self._complete[0])
            except HeadraceError as error:
                if error.retry is Retry.NEVER:
                    raise
                return
            del self._complete[0]
        if not self._generation_log.building:
            self._context.exported.close()
        elif self._context.exported.close_if_due():
            self._context.board.report.info(
                "the slot's snapshot is given up, so that VACUUM can go on; what is left is read as it is"
            )

    def _handle_failed_backfill(self, failed: BackfillFailure) -> QueryEnd:
        """Go on where readers have a generation of the index; else end the run."""
        if self._generation_log.state.served(failed.generation.index) is None:
            return QueryEnd(failed.error)
        self._context.board.record_error(failed.error)
        return QueryEnd(again=True, failed=failed)

    def _read_requests(self) -> list[ControlRequest]:
        """Read control requests once a second; the health monitor reports a cluster that does not answer."""
        if time.monotonic() < self._next_read:
            return []
        self._next_read = time.monotonic() + _REQUESTS_SECONDS
        with contextlib.suppress(HeadraceError):
            return self._context.requests.read(self._context.project.specs)
        return []


def settle(project: Project, endpoints: Endpoints, report: Reporter, *, is_same_server: bool) -> None:
    """Confirm the applied position to the slot; where that fails, the next start repeats a little.

    Args:
        project: the deployment.
        endpoints: its endpoints.
        report: warned where the position is not confirmed.
        is_same_server: whether the server was reachable all the time. One that was away may have been
            restored to an earlier time. Only the reader can notice that, so nothing is confirmed then.
    """
    if not is_same_server:
        return
    try:
        with contextlib.closing(short_timeout_client(endpoints)) as client:
            meta = MetaIndex(client, project.slot, project.prefix)
            state = meta.load()
            deferred = DeferredKeys(client, project.slot, project.prefix)
            if state is not None and state.ahead is not None and deferred.count() == 0:
                state = meta.advance(state.ahead, Counters())
        if state is not None:
            with connect(endpoints.database) as connection:
                confirm(connection, project.slot, state.applied)
    except HeadraceError as error:
        report.warning(f"the last position is not confirmed; the next start repeats a little ({error})")


def confirm(connection: Connection, slot: str, applied: Lsn) -> None:
    """Advance the slot to `applied`; wait some seconds until its reader has released it.

    Raises:
        HeadraceError: SLOT_IN_USE after some seconds, or another error of the server.
    """
    for attempt in Retrying(
        retry=retry_if_exception(
            lambda error: isinstance(error, HeadraceError) and error.kind is Kind.SLOT_IN_USE
        ),
        wait=wait_fixed(0.1),
        stop=stop_after_delay(5),
        reraise=True,
    ):
        with attempt:
            advance_slot(connection, slot, applied)
