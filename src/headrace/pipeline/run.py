"""Run a deployment from first start to shutdown.

A first start creates the publication, then the slot, then reads from the slot's snapshot (decision 0009).
The stream begins at once. Generations that are not complete are backfilled beside it. A start after a kill
goes on with the ranges that are left.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.config.deployment import OnGap
from headrace.errors import BACKFILL_AGAIN, ErrorGroup, HeadraceError, Kind, Retry, retrying
from headrace.pipeline.backfill import Backfill, BackfillRate, Backfills
from headrace.pipeline.cluster_check import check_cluster
from headrace.pipeline.continuity import (
    GapError,
    check_begun,
    check_continuity,
    check_origin,
    check_promoted,
)
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.first_start import FirstStart
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.generations import GenerationManager
from headrace.pipeline.inspection import Inspection, inspect
from headrace.pipeline.project import Endpoints, Project
from headrace.pipeline.reseeding import Reseeding, is_begun_anew
from headrace.pipeline.restart import Restart
from headrace.pipeline.retained_generations import inspect_retained
from headrace.pipeline.schema_drift import (
    ALTERED,
    CatalogBaseline,
    SchemaDrift,
    SchemaDriftMonitor,
    schema_changed,
)
from headrace.pipeline.secondary_sinks import SecondarySinks
from headrace.pipeline.shutdown import settle
from headrace.pipeline.stopping import Stopping
from headrace.pipeline.stream.deferred_work import DeferredWork
from headrace.pipeline.stream.documents_query import DocumentsQuery
from headrace.pipeline.stream.documents_source import Following
from headrace.pipeline.supervisor import QueryEnd, RunContext, RunningQuery, Supervisor, needs_of
from headrace.pipeline.worker.plan import Work
from headrace.postgres.connection import Connection, connect
from headrace.postgres.ddl_plan import execute_plan
from headrace.postgres.locks import SlotLock
from headrace.postgres.publication import read_memberships
from headrace.postgres.server import inspect_server
from headrace.postgres.slot import drop_slot, read_slot
from headrace.sinks.opensearch import (
    Client,
    ControlRequest,
    ControlRequests,
    Generations,
    GenerationState,
    MetaIndex,
    PipelineState,
)
from headrace.sinks.opensearch.endpoint import connection_warnings
from headrace.sinks.opensearch.lease import Lease, holder_of
from headrace.spark.jobs import JobGate
from headrace.spark.session import LocalSpark, SparkSession, given_spark, local_spark, master_of
from headrace.spark.settings import is_local
from headrace.status.board import IndexPhase, StatusBoard
from headrace.status.phases import Event

_SINK_SECONDS = 30.0
_MOST_RESTARTS = 5
_CALM_SECONDS = 300.0
_FROM_ONE_GENERATION = ALTERED | {
    Kind.SINK_REJECTED,
    Kind.DATABASE,
    Kind.TRANSFORM,
    Kind.VALUE,
    Kind.SCHEMA,
    Kind.BINDING,
    Kind.PRIVILEGE,
}
"""Errors that may come from one generation alone."""
_LOG_ERRORS = frozenset({Kind.CONTINUITY, Kind.OTHER_LOG, Kind.SLOT_LOST, Kind.SLOT_UNKNOWN})
"""Errors that say that the log cannot be followed from here on."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run that the deployment file does not hold.

    Attributes:
        conf: Spark settings of the user.
        on_gap: overrides `source.on_gap` of the deployment file.
        session: a Spark session that the caller created and stops. None: the run creates its own.
    """

    master: str = "local[*]"
    log_level: str = "info"
    conf: Mapping[str, str] = field(default_factory=dict)
    on_gap: OnGap | None = None
    session: SparkSession | None = None

    @property
    def is_local(self) -> bool:
        """Whether the run's tasks run on this machine, in the session that it is given or creates."""
        return is_local(self.master if self.session is None else master_of(self.session))


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The state that a run begins from.

    Attributes:
        state: the state that earlier runs saved. None: there is nothing to build on.
        requests: control requests that arrived while nothing ran.
    """

    inspection: Inspection
    state: PipelineState | None
    requests: Sequence[ControlRequest]


class PipelineRun:
    """One run of one deployment.

    Args:
        stopping: set to end the run; noticed at the next pause.
        on_live: called once, when every index is complete and the stream follows.
    """

    def __init__(
        self,
        project: Project,
        endpoints: Endpoints,
        board: StatusBoard,
        stopping: Stopping,
        *,
        options: RunOptions,
        on_live: Callable[[], None] = lambda: None,
    ) -> None:
        self._project = project
        self._endpoints = endpoints
        self._board = board
        self._stopping = stopping
        self._options = options
        self._on_live = on_live
        self._client = Client(endpoints.sink)
        self._meta = MetaIndex(self._client, project.slot, project.prefix)
        self._requests = ControlRequests(self._client, project.slot, project.prefix)
        self._secondary_sinks = SecondarySinks(project, endpoints, self._client, board)
        self._exported = HeldSnapshot(60.0 * project.deployment.backfill.snapshot_minutes)
        self._first = FirstStart(
            project, endpoints, self._client, self._meta, board=board, exported=self._exported
        )
        self._reseeding = Reseeding(endpoints, self._meta, board, self._secondary_sinks, self._exported)
        self._lease: Lease | None = None
        self._announced = False
        self._gap: GapError | None = None

    def execute(self) -> None:
        """Backfill incomplete indexes and follow the log until stopping is requested.

        Raises:
            HeadraceError: the error that ended the run.
        """
        with contextlib.ExitStack() as held:
            held.enter_context(contextlib.closing(self._client))
            held.enter_context(self._secondary_sinks)
            with self._stopping.interrupting():
                # Inspect only with the lock held: the half-saved state of a run that is just ending must not
                # look like a broken one.
                lock = held.enter_context(self._slot_lock())
                connection = held.enter_context(
                    connect(self._endpoints.database, application_name="headrace run")
                )
                inspection = self._inspect(connection)
                self._client.wait_until_ready(_SINK_SECONDS)
                lease = Lease(self._client, self._project.slot, self._project.prefix, [*self._project.specs])
                self._lease = held.enter_context(lease)
            self._start(connection, inspection, lock)

    @contextlib.contextmanager
    def _slot_lock(self) -> Iterator[SlotLock]:
        """Hold the lock of the slot in the database; where it is taken, name the holder."""
        with contextlib.ExitStack() as held:
            try:
                lock = held.enter_context(SlotLock(self._endpoints.database, self._project.slot))
            except HeadraceError as error:
                holder = None
                if error.kind is Kind.SLOT_IN_USE:
                    with contextlib.suppress(HeadraceError):
                        holder = holder_of(self._client, self._project.slot, self._project.prefix)
                if holder is None:
                    raise
                raise HeadraceError(error.kind, f"{error.cause}: {holder}", error.remedy) from error
            yield lock

    def _start(self, connection: Connection, inspection: Inspection, lock: SlotLock) -> None:
        with contextlib.ExitStack() as running:
            with self._stopping.interrupting():
                beginning = self._load_beginning(connection, inspection)
                with self._stopping.patient(), self._board.report.working("starting Spark …"):
                    spark = running.enter_context(self._spark())
                if not self._options.is_local:
                    check_cluster(spark, self._project, self._endpoints, self._board.report)
                catalog, generation_log = self._take_up(connection, beginning, running)
            self._follow_until_stopped(spark, catalog, generation_log, lock, running)

    def _inspect(self, connection: Connection) -> Inspection:
        """Inspect both servers.

        Raises:
            ErrorGroup: what keeps the run from starting. A lost slot does not, where the run reseeds.
        """
        inspection = inspect(self._project, self._endpoints, connection)
        wrong = [
            error for error in inspection.errors() if not self._reseeds or error.kind is not Kind.SLOT_LOST
        ]
        if wrong:
            raise ErrorGroup(tuple(wrong))
        return inspection

    @property
    def _reseeds(self) -> bool:
        """Whether a gap in the log leads to a reseed instead of ending the run."""
        return (self._options.on_gap or self._project.deployment.source.on_gap) == "reseed"

    def _load_beginning(self, connection: Connection, inspection: Inspection) -> _Beginning:
        state = self._known_state(connection, inspection)
        if state is None:
            return _Beginning(inspection, None, ())
        requests = self._requests.read(self._project.specs)
        inspection, state = self._with_retained(connection, inspection, state)
        return _Beginning(inspection, state, requests)

    def _take_up(
        self, connection: Connection, beginning: _Beginning, running: contextlib.ExitStack
    ) -> tuple[CatalogBaseline, GenerationLog]:
        """Create what is missing and go on from what exists; no query runs."""
        inspection, state = beginning.inspection, beginning.state
        published = self._set_up(connection, inspection)
        catalog = CatalogBaseline(inspection, self._endpoints)
        for name in self._project.specs:
            self._board.index(name, phase=IndexPhase.PENDING)
        if state is None:
            generation_log = self._first.begin(
                inspection,
                published,
                catalog,
                running,
                lambda new: self._generation_log(inspection, new, catalog),
            )
            self._secondary_sinks.forget_former()
            self._secondary_sinks.take_up(inspection, catalog, generation_log.state, published, SchemaDrift())
            return catalog, generation_log
        drift = SchemaDrift() if is_begun_anew(state) else catalog.since(state.catalog)
        if is_begun_anew(state):
            failover = self._project.deployment.source.failover
            text = catalog.baseline.to_text()
            with contextlib.ExitStack() as slot_held:  # it can be repeated, with another slot
                slot = slot_held.enter_context(self._reseeding.slot(connection, state, failover=failover))
                state = self._reseeding.begin(slot, state, inspection.server, published, text)
                running.push(slot_held.pop_all())
        generation_log = self._generation_log(inspection, state, catalog)
        # Secondary sinks first: taking up the primary sink replaces the catalog that they are compared with.
        self._secondary_sinks.take_up(inspection, catalog, state, published, drift)
        generation_log.take_up(published, drift, catalog.baseline.to_text(), beginning.requests)
        return catalog, generation_log

    def _follow_until_stopped(
        self,
        spark: LocalSpark,
        catalog: CatalogBaseline,
        generation_log: GenerationLog,
        lock: SlotLock,
        running: contextlib.ExitStack,
    ) -> None:
        """Follow until stopping is requested; take up again after a gap or an altered table.

        Raises:
            HeadraceError: the error that ended the run.
        """
        restarts = 0
        while True:
            began = time.monotonic()
            try:
                self._follow(spark, catalog, generation_log, lock)
            except HeadraceError as error:
                if not (error.kind in ALTERED or (isinstance(error, GapError) and self._reseeds)):
                    raise
                failure = error
            else:
                return
            restarts = 1 if time.monotonic() - began > _CALM_SECONDS else restarts + 1
            if restarts > _MOST_RESTARTS:
                raise failure
            self._gap = failure if isinstance(failure, GapError) else None
            restart = Restart(
                lambda connection: self._take_up_again(connection, running), lock, self._board, self._stopping
            )
            catalog, generation_log = restart.run(failure, self._endpoints)

    def _take_up_again(
        self, connection: Connection, running: contextlib.ExitStack
    ) -> tuple[CatalogBaseline, GenerationLog]:
        """Take up as a new start does, without the slot's snapshot: it is older than the tables."""
        self._exported.close()
        return self._take_up(connection, self._load_beginning(connection, self._inspect(connection)), running)

    def _spark(self) -> contextlib.AbstractContextManager[LocalSpark]:
        options = self._options
        if options.session is not None:
            return given_spark(options.session)
        verbose = options.log_level == "debug"
        level = "info" if verbose else "warn"
        return local_spark(master=options.master, log_level=level, terminal=verbose, given=options.conf)

    def _known_state(self, connection: Connection, inspection: Inspection) -> PipelineState | None:
        """Load the state of earlier runs, checked; None where there is nothing to build on."""
        state = self._meta.load()
        try:
            check_origin(state, inspection.server, inspection.slot)
            if self._gap is not None:  # only reading the log has shown it
                raise self._gap
        except GapError as gap:
            if state is None or not self._reseeds:
                raise
            state = self._reseeding.forget(gap, state)
            self._gap = None
            return state
        if state is None or state.phase == "following" or is_begun_anew(state):
            return state
        check_begun(state, inspection.slot)
        self._board.report.info("the last start ended before its indexes were made; beginning again")
        if inspection.slot is not None:
            drop_slot(connection, self._project.slot)
        self._first.discard(state.generations)
        self._meta.delete()
        return None

    def _with_retained(
        self, connection: Connection, inspection: Inspection, state: PipelineState
    ) -> tuple[Inspection, PipelineState]:
        generations = Generations(self._client, self._project.prefix)
        self._secondary_sinks.forget_former()
        inspection, state = inspect_retained(inspection, self._endpoints, connection, generations, state)
        return self._secondary_sinks.inspect(connection, inspection), state

    def _set_up(self, connection: Connection, inspection: Inspection) -> Mapping[str, int]:
        """Execute the set-up plan; return the publication's memberships as the state keeps them."""
        sinks = [self._endpoints.sink, *(target.sink for target in self._endpoints.secondary.values())]
        warnings = (*inspection.setup.warnings, *connection_warnings(sinks))
        for warning in warnings:
            self._board.report.warning(warning)
        self._board.warned(warnings)
        execute_plan(
            inspection.setup, connection, lambda step: self._board.report.info(f"set-up: {step.why}")
        )
        tables = inspection.project.tables()
        memberships = read_memberships(connection, self._project.publication)
        return {str(table): member for table, member in memberships.items() if table in tables}

    def _generation_log(
        self, inspection: Inspection, state: PipelineState, catalog: CatalogBaseline
    ) -> GenerationLog:
        return GenerationLog(
            state,
            GenerationManager(inspection, self._endpoints, self._client, self._board),
            self._meta,
            self._requests,
            self._board,
            inspection=inspection,
            as_of=catalog.baseline.as_of,
            keep=self._project.deployment.generations.keep,
        )

    def _follow(
        self, spark: LocalSpark, catalog: CatalogBaseline, generation_log: GenerationLog, lock: SlotLock
    ) -> None:
        """Run the query until stopping is requested.

        It is started again after failures that may pass, and to write other generations.

        Raises:
            HeadraceError: the failure does not pass. For GapError, SCHEMA_CHANGED and REPLICA_IDENTITY see
                `_follow_until_stopped`.
        """
        context = self._context(lock)
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            ending, watch = self._run_query(spark, catalog, generation_log, context)
            if ending.failure is None and not ending.again:
                break
            if ending.failure is None:
                self._apply_query_end(catalog, watch, generation_log, ending)
                continue
            failure = watch.explain(ending.failure)
            if failure.kind in _FROM_ONE_GENERATION and self._has_bystanders(generation_log):
                catalog, generation_log = self._go_on_without_unread(failure, generation_log, lock)
                continue
            self._board.failed(failure)
            failures = 1 if time.monotonic() - began > _CALM_SECONDS else failures + 1
            if failure is ending.failure and failure.kind in ALTERED:
                # The next query would read the same change of the table from the log again.
                for other in (generation_log, *self._secondary_sinks.generation_logs()):
                    other.give_up(other.written, failure.cause)
            if failure.kind in _LOG_ERRORS:
                self._check_still_continuous(lock)  # it may raise a more exact error
            if failure.kind is Kind.OTHER_LOG:
                raise GapError(failure.kind, failure.cause) from failure
            if not _may_pass(failure, failures):
                raise failure
            self._board.report.warning(f"{failure}; starting the stream again")
            self._stopping.wait(min(2.0**failures, 30.0))
            generation_log.adopt(self._check_still_continuous(lock))
        self._board.happened(Event.STOPPED)
        settle(self._project, self._endpoints, self._board.report, is_same_server=not lock.was_lost())

    def _context(self, lock: SlotLock) -> RunContext:
        return RunContext(
            self._project,
            self._endpoints,
            self._board,
            self._stopping,
            self._requests,
            self._secondary_sinks,
            self._exported,
            lock,
            self._lease,
            self._live,
        )

    def _run_query(
        self, spark: LocalSpark, catalog: CatalogBaseline, generation_log: GenerationLog, context: RunContext
    ) -> tuple[QueryEnd, SchemaDriftMonitor]:
        """Run one query with the work beside it, until something must be done without it."""
        written, state = generation_log.written, generation_log.state
        works = self._secondary_sinks.works(state)
        work = generation_log.manager.work(written)
        if works:
            work = work.beside(works)
        following = Following(
            self._project.slot,
            self._project.publication,
            needs_of(catalog, generation_log, self._secondary_sinks),
            state.place(),
            state.applied,
            deferred=state.ahead is not None,
        )
        to_fill = generation_log.building
        if to_fill:
            self._board.happened(Event.BACKFILLING)

        def backfill(work: Work, generations: Sequence[GenerationState]) -> Backfill:
            return Backfill(
                spark,
                work,
                generations,
                self._board,
                snapshot=self._exported,
                rate=self._rate(),
                job_gate=job_gate,
            )

        query = DocumentsQuery(spark.session, work, following, spark.scratch)
        job_gate = JobGate(lambda: generation_log.is_read, query.batch_seconds)
        watch = catalog.watch()
        try:
            with (
                DeferredWork(spark.session, work, job_gate) as beside,
                Backfills(backfill) as backfills,
                self._secondary_sinks.beside(spark, works, job_gate, self._rate()),
            ):
                backfills.begin(work, to_fill)
                running = RunningQuery(
                    query,
                    generation_log,
                    catalog,
                    watch,
                    following.needs,
                    beside=beside,
                    backfills=backfills,
                    job_gate=job_gate,
                )
                return Supervisor(context, running).run(), watch
        except HeadraceError as error:
            if error.kind not in ALTERED or not self._has_bystanders(generation_log):
                raise
            return QueryEnd(error), watch  # it may concern only generations that nobody reads
        finally:
            query.stop()

    def _rate(self) -> BackfillRate:
        limits = self._project.deployment.backfill
        return BackfillRate(limits.rows_per_second, limits.connections)

    def _apply_query_end(
        self,
        catalog: CatalogBaseline,
        watch: SchemaDriftMonitor,
        generation_log: GenerationLog,
        ending: QueryEnd,
    ) -> None:
        """Do what is not possible beside a query; none runs now, and every batch is applied."""
        with self._stopping.interrupting():
            if watch.moved:
                self._note_partitions(catalog, watch, generation_log)
            if ending.failed is not None:
                generation_log.give_up([ending.failed.generation], ending.failed.error.cause)
            for attempt in retrying():
                with attempt:
                    if ending.replaced:
                        generation_log.build_anew(ending.replaced)
                    generation_log.carry_out(ending.requests)
            self._secondary_sinks.apply(generation_log.state, ending.secondary)

    def _note_partitions(
        self, catalog: CatalogBaseline, watch: SchemaDriftMonitor, generation_log: GenerationLog
    ) -> None:
        """Note that partitions were attached or detached, which the log does not report.

        Where one was detached, existing documents are assembled again first. So a start after a kill repeats
        that.
        """
        catalog.baseline = watch.baseline
        self._secondary_sinks.note_partitions(watch.emptied, watch.baseline.to_text())
        for attempt in retrying():
            with attempt:
                generation_log.note_partitions(watch.emptied, watch.baseline.to_text())

    def _has_bystanders(self, generation_log: GenerationLog) -> bool:
        return bool(generation_log.bystanders or self._secondary_sinks.bystanders())

    def _go_on_without_unread(
        self, failure: HeadraceError, generation_log: GenerationLog, lock: SlotLock
    ) -> tuple[CatalogBaseline, GenerationLog]:
        """Give up generations that nobody reads, because one of them may have failed the query.

        Raises:
            HeadraceError: SCHEMA_CHANGED, where generations that are read do not fit the tables either.
        """
        with contextlib.suppress(HeadraceError):  # what fails is left to the next start
            generation_log.drop_doomed()
        for other, unread in [
            (generation_log, generation_log.bystanders),
            *self._secondary_sinks.bystanders(),
        ]:
            if unread:
                other.give_up(unread, failure.cause)
        state = self._check_still_continuous(lock)
        with connect(self._endpoints.database, application_name="headrace run") as connection:
            inspection = inspect(self._project, self._endpoints, connection)
            inspection, state = self._with_retained(connection, inspection, state)
        catalog = CatalogBaseline(inspection, self._endpoints)
        usage = inspection.usage()
        if wrong := [change for change in catalog.since(state.catalog).wrong if change.concerns(usage)]:
            raise schema_changed(wrong)
        if self._secondary_sinks:
            drift = catalog.since(state.catalog)
            self._secondary_sinks.take_up(inspection, catalog, state, state.published, drift)
        return catalog, self._generation_log(inspection, state, catalog)

    def _live(self, building: bool) -> None:
        self._board.followed()
        if building:
            return
        self._board.happened(Event.FOLLOWING)
        if not self._announced:
            self._announced = True
            self._board.report.done("live: following the log")
            self._on_live()

    def _check_still_continuous(self, lock: SlotLock) -> PipelineState:
        """Check that lock, server, slot and state belong together before the slot is read again."""
        for attempt in retrying():
            with attempt, self._stopping.interrupting(), connect(self._endpoints.database) as connection:
                taken = lock.lost_to()
                server = inspect_server(connection, self._endpoints.database)
                slot = read_slot(connection, self._project.slot)
                state = self._meta.load()
                if state is not None:
                    check_promoted(state, server)
        if taken is not None:
            raise taken
        if state is None:
            raise HeadraceError(
                Kind.CONTINUITY, "the state of this deployment was deleted from the cluster", BACKFILL_AGAIN
            )
        check_continuity(state, server, slot)
        return state


def _may_pass(error: HeadraceError, failures: int) -> bool:
    """Whether starting again can help: always where the error is retryable, else a few times."""
    return error.retry is Retry.BACK_OFF or (error.kind is Kind.SPARK and failures <= _MOST_RESTARTS)
