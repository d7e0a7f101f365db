"""Run a query with the work beside it, and supervise it until it must end.

The supervisor serves complete generations to readers, carries out control requests and keeps the board up to
date. It notices what ends the query: a failure, another process that took the slot, an altered table.

After an orderly end the last applied position is confirmed to the slot, so that the next start repeats
nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from headrace.capture.signals import SignalFiles
from headrace.catalog.needs import Needs
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.lsn import Lsn
from headrace.pipeline.backfill import Backfill, BackfillFailure, BackfillRate, Backfills
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.file_reload import FileReload
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.health_monitor import HealthMonitor, short_timeout_client
from headrace.pipeline.project import Project
from headrace.pipeline.run_orders import carry_out
from headrace.pipeline.schema_drift import CatalogBaseline, SchemaDriftMonitor
from headrace.pipeline.secondary_sinks import SecondarySinks
from headrace.pipeline.stopping import Stopped, Stopping
from headrace.pipeline.stream.deferred_work import DeferredWork
from headrace.pipeline.stream.documents_query import DocumentsQuery
from headrace.pipeline.stream.documents_reader import Following
from headrace.pipeline.worker.plan import Endpoints, Work
from headrace.postgres.connection import Connection, connect
from headrace.postgres.slot import advance_slot
from headrace.reporter import Reporter
from headrace.spark.jobs import JobGate
from headrace.spark.session import LocalSpark
from headrace.state import ControlRequest, Counters, DeferredKeys, GenerationState, StateStore
from headrace.state.lease import Lease
from headrace.state.run_requests import RunRequests
from headrace.status.board import StatusBoard
from headrace.status.phases import Event
from headrace.status.traces import Traces

_LOOK_SECONDS = 0.25
_QUIET_SECONDS = 15.0
_OF_DOCUMENTS = frozenset({Kind.SINK_REJECTED, Kind.DATABASE})
"""Errors for a document that is refused or cannot be read."""
_REQUESTS_SECONDS = 1.0
_PUBLISH_SECONDS = 30.0
"""After the cluster has refused to publish a generation."""
_NOTED_SECONDS, _NOTED_POLL = 10.0, 0.05
_IDLE_SECONDS = 10.0
"""The slot follows an idle server this often, and several times within the time that counts as a stall."""


@dataclass(frozen=True, slots=True)
class QueryEnd:
    """Why a query must end.

    Attributes:
        failure: the error that the query failed with; None where it did not fail.
        again: another query follows, perhaps with other generations; else the run ends.
        reload: changed files are taken up before it.
        failed: the backfill that failed.
        requests: control requests that are carried out before the next query.
        replaced: generations whose index another one has replaced, frozen.
        secondary: what the secondary sinks need, as `SecondarySinks.look` returns it.
    """

    failure: HeadraceError | None = None
    again: bool = False
    reload: bool = False
    failed: BackfillFailure | None = None
    requests: Sequence[ControlRequest] = ()
    replaced: Sequence[GenerationState] = ()
    secondary: Mapping[str, BackfillFailure | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A query and the work beside it, which all have the same plan."""

    query: DocumentsQuery
    beside: DeferredWork
    backfills: Backfills
    job_gate: JobGate

    def failure(self) -> HeadraceError | None:
        """Return why the query or the writing of deferred documents has ended; None while both go on."""
        if not self.query.active:
            return self.query.failure() or HeadraceError(Kind.SPARK, "the query ended without a reason")
        return self.beside.failure()

    def change(self, work: Work, needs: Needs, stopping: Stopping) -> Lsn | None:
        """Give everything a new plan; return the first position that the query reads with it.

        Returns None where the query ended before it took the plan.
        """
        self.beside.change(work)
        self.backfills.change(work)
        return self.query.change(work, needs, stopping)


def needs_of(known: CatalogBaseline, generation_log: GenerationLog, secondary_sinks: SecondarySinks) -> Needs:
    """Return what the log must hold for all generations that are written."""
    named = [
        (generation_log.manager.name_of(generation), generation.as_of)
        for generation in generation_log.written
    ]
    return known.needs([*named, *secondary_sinks.needs()])


class Supervisor:
    """Supervises one query; used from the main thread.

    Args:
        catalog: the catalog that the query is planned for.
        generation_log: holds the generations that the query writes.
        exported: holds the slot's snapshot, which the backfill reads.
        lease: the lease of the cluster that keeps the state.
        run_requests: reads what other processes ask of the whole run.
        monitor_health: makes the monitor that looks at both servers while the query runs.
        on_live: called when the stream follows and every index is complete; perhaps more than once.
        files: takes up changed files.
        traces: records batches; None: they are not traced.

    Attributes:
        catalog: the catalog that the query is planned for now.
        drift: what changed in the catalog since it was planned.
    """

    def __init__(
        self,
        project: Project,
        board: StatusBoard,
        stopping: Stopping,
        catalog: CatalogBaseline,
        generation_log: GenerationLog,
        *,
        secondary_sinks: SecondarySinks,
        exported: HeldSnapshot,
        lease: Lease,
        run_requests: RunRequests,
        monitor_health: Callable[[SchemaDriftMonitor, SignalFiles], HealthMonitor],
        on_live: Callable[[], None],
        files: FileReload,
        traces: Traces | None = None,
    ) -> None:
        self.drift = catalog.watch()
        self._project = project
        self._board = board
        self._stopping = stopping
        self.catalog = catalog
        self._generation_log = generation_log
        self._secondary_sinks = secondary_sinks
        self._exported = exported
        self._lease = lease
        self._run_requests = run_requests
        self._monitor_health = monitor_health
        self._on_live = on_live
        self._files = files
        self._traces = traces
        self._needs = needs_of(catalog, generation_log, secondary_sinks)
        self._complete: list[tuple[GenerationState, int]] = []
        self._next_read = self._publish_from = 0.0

    def run(self, spark: LocalSpark) -> QueryEnd:
        """Run the query with the work beside it, until something must be done without it.

        Raises:
            HeadraceError: as for `supervise`; a table was altered that generations with readers need.
        """
        generation_log, state = self._generation_log, self._generation_log.state
        limits = self._project.deployment.backfill
        rate = BackfillRate(limits.rows_per_second, limits.connections)
        works = self._secondary_sinks.works(state)
        work = generation_log.manager.work(generation_log.written)
        if works:
            work = Work(work.plan, work.endpoints, works)
        following = Following(
            self._project.slot,
            self._project.publication,
            self._needs,
            state.place(),
            state.applied,
            deferred=state.ahead is not None,
            idle_seconds=min(_IDLE_SECONDS, self._project.deployment.source.stalled_after / 4),
        )
        to_fill = generation_log.building
        if to_fill:
            self._board.apply_event(Event.BACKFILLING)

        def backfill(work: Work, generations: Sequence[GenerationState]) -> Backfill:
            return Backfill(
                spark, work, generations, self._board, snapshot=self._exported, rate=rate, job_gate=job_gate
            )

        paused = self._board.control.paused is not None
        job_gate = JobGate(lambda: generation_log.is_read)
        with contextlib.ExitStack() as held:
            stopped_last = held.enter_context(contextlib.ExitStack())
            backfills = held.enter_context(Backfills(backfill))
            backfills.begin(work, to_fill)  # while the query starts
            try:
                query = DocumentsQuery(
                    spark.session, work, following, spark.scratch, paused=paused, traces=self._traces
                )
            except HeadraceError as error:  # Spark plans it in a Python process, which may be killed
                return QueryEnd(error)
            stopped_last.callback(query.stop)
            job_gate.batch_seconds = query.batch_seconds
            beside = held.enter_context(DeferredWork(spark.session, work, job_gate))
            held.enter_context(self._secondary_sinks.beside(spark, works, job_gate, rate))
            try:
                return self.supervise(RunningQuery(query, beside, backfills, job_gate))
            except HeadraceError as error:
                # A replica identity is set by setting up again, without giving up anything.
                if error.kind is not Kind.SCHEMA_CHANGED or not self._has_unread():
                    raise
                return QueryEnd(error)  # it may concern only generations that nobody reads

    def _has_unread(self) -> bool:
        """Whether the query writes generations that nobody reads, which it can go on without."""
        generation_logs = (self._generation_log, *self._secondary_sinks.generation_logs())
        return any(generation_log.unread for generation_log in generation_logs)

    def supervise(self, running: RunningQuery) -> QueryEnd:
        """Look after a query while it runs; return why it must end.

        Raises:
            HeadraceError: SLOT_IN_USE: another Headrace took the slot while the server was away.
                SCHEMA_CHANGED or REPLICA_IDENTITY: a table was altered.
        """
        query = running.query
        began, has_batch, begun, live = time.monotonic(), False, False, False
        with self._monitor_health(self.drift, query.signals) as watch:
            while not self._stopping.is_set():
                if (failure := running.failure()) is not None:
                    return QueryEnd(failure)
                if (lost := self._lease.lost()) is not None:
                    raise lost
                query.signals.set_paused(paused=self._board.control.paused is not None)
                self._publish(running.backfills)
                self._board.staged(query.stages)
                has_batch = has_batch or self._has_batch(query)
                begun = begun or has_batch or time.monotonic() - began > _QUIET_SECONDS
                if begun:
                    running.job_gate.begin()
                if begun and not live:
                    live = self._report_live()
                if (failed := running.backfills.failure()) is not None:
                    return self._handle_failed_backfill(failed)
                if begun:
                    watch.look()
                    if self._files.check(self._generation_log) and not self._reloaded_files(running, watch):
                        return QueryEnd(again=True, reload=True)
                    if (ended := self._handle_requests(running)) is not None:
                        return ended
                    live = live and not self._generation_log.building
                self._stopping.wait(_LOOK_SECONDS)
        return QueryEnd()

    def _has_batch(self, query: DocumentsQuery) -> bool:
        """Return whether the first batch is done, and tell the stall detector."""
        if query.begun():
            self._board.stall.note_first_batch()
            return True
        return False

    def _report_live(self) -> bool:
        """Report whether the backfill is over; once readers see what is followed, a gap is closed."""
        self._board.mark_following()
        if self._generation_log.building:
            return False
        self._board.apply_event(Event.FOLLOWING)
        self._on_live()
        if self._generation_log.serves_all:
            self._board.close_gap()
        return True

    def _handle_requests(self, running: RunningQuery) -> QueryEnd | None:
        """Carry out control requests; return an end where that is only possible between two queries."""
        before = self._building()
        requests = self._read_requests()
        if replaced := self._generation_log.freeze_replaced():
            return QueryEnd(again=True, requests=requests, replaced=replaced)
        secondary = self._secondary_sinks.look(self._generation_log.state)
        if self.drift.moved or secondary:
            return QueryEnd(again=True, requests=requests, secondary=secondary)
        try:
            with self._stopping.interrupting():
                made = self._generation_log.make_refused()
        except Stopped:
            return None
        is_due = requests or made or self._generation_log.must_drop
        if is_due and not self.reloaded_plan(running, requests, before):
            return QueryEnd(again=True, requests=requests)
        return None

    def _building(self) -> frozenset[str]:
        return frozenset(generation.generation for generation in self._generation_log.building)

    def reloaded_plan(
        self, running: RunningQuery, requests: Sequence[ControlRequest], before: Collection[str]
    ) -> bool:
        """Give the running query a plan with the new generations and without those to be dropped.

        Args:
            running: the query.
            requests: control requests that are carried out with that.
            before: the generations that are backfilled with the present plan.

        Returns False where a new query is necessary for that. What was done for the requests then stays.
        """
        if self._secondary_sinks or self._exported.slot is not None:
            return False
        try:
            return self._reload_plan(running, requests, before)
        except Stopped:  # while waiting for the cluster; the query ends as usual
            return True

    def _reload_plan(
        self, running: RunningQuery, requests: Sequence[ControlRequest], before: Collection[str]
    ) -> bool:
        generation_log, stopping = self._generation_log, self._stopping
        # Only waits for the cluster are interruptible: a call to the JVM would leave half an answer behind.
        with stopping.interrupting():
            # Also without requests: a generation that leaves the plan must not be in the state.
            done = generation_log.apply(requests)
        return self._change_plan(running, before, done)

    def _reloaded_files(self, running: RunningQuery, watch: HealthMonitor) -> bool:
        """Let the running query take up the files that were checked.

        Returns False where a new query is necessary for that, or to go on with the former files because a
        server has refused what these need. What was done for it then stays.
        """
        if self._secondary_sinks or self._exported.slot is not None:
            return False
        generation_log = self._generation_log
        before = self._building()
        try:
            with self._stopping.interrupting():
                replan = self._files.plan(generation_log)
            # First: a generation must not be in the state before the part of the catalog that it depends on.
            if replan is None or not running.query.save_catalog(replan.published, replan.text):
                return False
            with self._stopping.interrupting():
                generation_log.replan(replan)
            self.catalog = replan.catalog
            # A query that has failed with the former plan may have failed for an altered table.
            if (
                before - self._building()
                or not self._change_plan(running, before, [])
                or running.failure() is not None
            ):
                return False
        except Stopped:  # the query ends as usual
            return True
        except HeadraceError as error:
            if error.retry is Retry.BACK_OFF or self._files.refuse(error):
                return False
            raise
        self.drift.change(replan.catalog)
        self._project = self._files.adopt()
        watch.change_project(self._project)
        self._files.complete()
        return True

    def _change_plan(
        self, running: RunningQuery, before: Collection[str], done: Sequence[ControlRequest]
    ) -> bool:
        """Give the query the generations of the state.

        Args:
            running: the query.
            before: the generations that were backfilled with the former plan.
            done: the requests that are carried out with that.

        Returns False where a new query is necessary.
        """
        generation_log, stopping = self._generation_log, self._stopping
        if not generation_log.to_drop.isdisjoint(before):
            return False
        needs = needs_of(self.catalog, generation_log, self._secondary_sinks)
        work = generation_log.manager.work(generation_log.written)
        position = running.change(work, needs, stopping)
        if position is None or not self._is_noted(position):
            return not running.query.active  # the caller finds out why it ended
        if new := [
            generation for generation in generation_log.building if generation.generation not in before
        ]:
            self._board.apply_event(Event.BACKFILLING)
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
            if time.monotonic() > deadline or self._stopping.wait(_NOTED_POLL):
                return False
        return True

    def _publish(self, backfills: Backfills) -> None:
        """Serve complete generations to readers; what the cluster refuses is tried again later."""
        # Without what a request has dropped meanwhile; with what is served, and could not be noted.
        written = {generation.generation for generation in self._generation_log.written}
        self._complete = [
            (generation, documents)
            for generation, documents in (*self._complete, *backfills.completed())
            if generation.generation in written
        ]
        if self._complete and time.monotonic() >= self._publish_from:
            self._generation_log.prepare([generation for generation, _ in self._complete])
            for generation, documents in tuple(self._complete):
                try:
                    self._generation_log.complete(generation, documents)
                except HeadraceError as error:
                    if error.retry is Retry.BACK_OFF:
                        return
                    self._publish_from = time.monotonic() + _PUBLISH_SECONDS
                    self._generation_log.note_refused(generation.index, error.cause)
                else:
                    self._complete.remove((generation, documents))
        if not self._generation_log.building:
            self._exported.close()
        elif self._exported.close_if_due():
            self._board.report.info(
                "the slot's snapshot is given up, so that VACUUM can go on; what is left is read as it is"
            )

    def _handle_failed_backfill(self, failed: BackfillFailure) -> QueryEnd:
        """Go on without the generations whose backfill failed; else end the run.

        It ends where nothing else is left to follow, and for a document of an index that readers have never
        seen: that is what `on_error = "stop"` says.
        """
        served, names = self._generation_log.state.served, {entry.generation for entry in failed.generations}
        if any(served(generation.index) is None for generation in failed.generations) and (
            failed.error.kind in _OF_DOCUMENTS
            or all(generation.generation in names for generation in self._generation_log.written)
        ):
            return QueryEnd(failed.error)
        self._board.record_error(failed.error)
        return QueryEnd(again=True, failed=failed)

    def _read_requests(self) -> list[ControlRequest]:
        """Read control requests once a second, and carry out those for the whole run.

        The health monitor reports a cluster that does not answer.
        """
        if time.monotonic() < self._next_read:
            return []
        self._next_read = time.monotonic() + _REQUESTS_SECONDS
        with contextlib.suppress(HeadraceError):
            for request in self._run_requests.read():
                carry_out(self._board, request)
                self._run_requests.done(request)
            return self._generation_log.read_requests()
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
            meta = StateStore(client, project.key)
            state = meta.load()
            deferred = DeferredKeys(client, project.key)
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
