"""How does a deployment run, from nothing to following, and how does it end?

The order is publication, slot, snapshot (decision 0009). The stream begins at once; what is not seeded is
filled beside it, and a start after a kill goes on with what is left.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.config.deployment import OnGap
from headrace.errors import SEED_AGAIN, HeadraceError, Kind, Retry, patiently
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
from headrace.pipeline.project import Endpoints, Problems, Project
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
from headrace.pipeline.stream.documents_query import DocumentsQuery, Following
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
from headrace.sinks.opensearch.cautions import of_endpoints
from headrace.sinks.opensearch.lease import Lease, holder_of
from headrace.spark.job_gate import JobGate
from headrace.spark.session import LocalSpark, SparkSession, given_spark, local_spark, master_of
from headrace.spark.settings import is_local
from headrace.status.board import IndexPhase, StatusBoard
from headrace.status.phases import Event

_SINK_SECONDS = 30.0
_MOST_RESTARTS = 5
_CALM_SECONDS = 300.0
_BY_A_GENERATION = ALTERED | {
    Kind.SINK_REJECTED,
    Kind.DATABASE,
    Kind.TRANSFORM,
    Kind.VALUE,
    Kind.SCHEMA,
    Kind.BINDING,
    Kind.PRIVILEGE,
}
"""What one generation may be the only reason of."""
_OF_THE_LOG = frozenset({Kind.CONTINUITY, Kind.OTHER_LOG, Kind.SLOT_LOST, Kind.SLOT_UNKNOWN})
"""What is said where the log cannot be gone on from."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run uses this machine, and others.

    Attributes:
        conf: settings of Spark that the user gives.
        on_gap: over what the deployment file says.
        session: of the caller, who made it and stops it; None: the run makes one of its own.
    """

    master: str = "local[*]"
    log_level: str = "info"
    conf: Mapping[str, str] = field(default_factory=dict)
    on_gap: OnGap | None = None
    session: SparkSession | None = None


@dataclass(frozen=True, slots=True)
class _Beginning:
    """What a run begins from.

    Attributes:
        state: what earlier runs left; None where there is nothing to build on.
        orders: what was asked for while nothing ran.
    """

    inspection: Inspection
    state: PipelineState | None
    orders: Sequence[ControlRequest]


class PipelineRun:
    """One run of one deployment.

    Args:
        stopping: set by whoever wants the run to end; noticed at the next pause.
        on_live: called when every index is seeded and the stream follows.
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
        self._orders = ControlRequests(self._client, project.slot, project.prefix)
        self._secondary_sinks = SecondarySinks(project, endpoints, self._client, board)
        self._exported = HeldSnapshot(60.0 * project.deployment.seeding.snapshot_minutes)
        self._first = FirstStart(
            project, endpoints, self._client, self._meta, board=board, exported=self._exported
        )
        self._reseeding = Reseeding(endpoints, self._meta, board, self._secondary_sinks, self._exported)
        self._lease: Lease | None = None
        self._announced = False
        self._gap: GapError | None = None

    def execute(self) -> None:
        """Seed what is not seeded, follow meanwhile and afterwards, until told to stop.

        Raises:
            HeadraceError: what ended the run.
        """
        with contextlib.ExitStack() as held:
            held.enter_context(contextlib.closing(self._client))
            held.enter_context(self._secondary_sinks)
            with self._stopping.interrupting():
                # Behind the lock: what a run that is just ending leaves must not be taken for a broken past.
                lock = held.enter_context(self._slot_lock())
                connection = held.enter_context(
                    connect(self._endpoints.database, application_name="headrace run")
                )
                inspection = self._inspected(connection)
                self._client.wait_until_ready(_SINK_SECONDS)
                lease = Lease(self._client, self._project.slot, self._project.prefix, [*self._project.specs])
                self._lease = held.enter_context(lease)
            self._start(connection, inspection, lock)

    @contextlib.contextmanager
    def _slot_lock(self) -> Iterator[SlotLock]:
        """The lock in the database; where another run has it, the cluster may know more of that one."""
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
                beginning = self._beginning(connection, inspection)
                with self._stopping.patient(), self._board.report.working("starting Spark …"):
                    spark = running.enter_context(self._spark())
                if not is_local(self._master(spark)):
                    check_cluster(spark, self._project, self._endpoints, self._board.report)
                catalog, generation_log = self._take_up(connection, beginning, running)
            self._follow_on(spark, catalog, generation_log, lock, running)

    def _inspected(self, connection: Connection) -> Inspection:
        """What there is.

        Raises:
            Problems: what keeps the run from starting. That the slot is lost does not, where it is made anew.
        """
        inspection = inspect(self._project, self._endpoints, connection)
        wrong = [
            error for error in inspection.errors() if not self._reseeds or error.kind is not Kind.SLOT_LOST
        ]
        if wrong:
            raise Problems(tuple(wrong))
        return inspection

    @property
    def _reseeds(self) -> bool:
        """Whether a gap in the log is a reason to build everything anew, and not to end."""
        return (self._options.on_gap or self._project.deployment.source.on_gap) == "reseed"

    def _beginning(self, connection: Connection, inspection: Inspection) -> _Beginning:
        state = self._known_state(connection, inspection)
        if state is None:
            return _Beginning(inspection, None, ())
        orders = self._orders.read(self._project.specs)
        inspection, state = self._with_kept(connection, inspection, state)
        return _Beginning(inspection, state, orders)

    def _take_up(
        self, connection: Connection, beginning: _Beginning, running: contextlib.ExitStack
    ) -> tuple[CatalogBaseline, GenerationLog]:
        """Make what is missing, and go on from what is there; no query runs."""
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
            self._secondary_sinks.remember()
            self._secondary_sinks.take_up(inspection, catalog, generation_log.state, published, SchemaDrift())
            return catalog, generation_log
        found = SchemaDrift() if is_begun_anew(state) else catalog.since(state.catalog)
        if is_begun_anew(state):
            failover = self._project.deployment.source.failover
            text = catalog.baseline.to_text()
            with contextlib.ExitStack() as made:  # it can be repeated, with another slot then
                slot = made.enter_context(self._reseeding.slot(connection, state, failover=failover))
                state = self._reseeding.begin(slot, state, inspection.server, published, text)
                running.push(made.pop_all())
        generation_log = self._generation_log(inspection, state, catalog)
        # First: what is noted of tables when the other is taken up, is known no more then.
        self._secondary_sinks.take_up(inspection, catalog, state, published, found)
        generation_log.take_up(published, found, catalog.baseline.to_text(), beginning.orders)
        return catalog, generation_log

    def _follow_on(
        self,
        spark: LocalSpark,
        catalog: CatalogBaseline,
        generation_log: GenerationLog,
        lock: SlotLock,
        running: contextlib.ExitStack,
    ) -> None:
        """Follow until told to stop; begin anew behind a gap and where tables were altered.

        Raises:
            HeadraceError: what ended the run.
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
            again = Restart(lambda found: self._anew(found, running), lock, self._board, self._stopping)
            catalog, generation_log = again.behind(failure, self._endpoints)

    def _anew(
        self, connection: Connection, running: contextlib.ExitStack
    ) -> tuple[CatalogBaseline, GenerationLog]:
        """As a new start; the slot's snapshot is older than what the tables have become."""
        self._exported.close()
        return self._take_up(connection, self._beginning(connection, self._inspected(connection)), running)

    def _spark(self) -> contextlib.AbstractContextManager[LocalSpark]:
        options = self._options
        if options.session is not None:
            return given_spark(options.session)
        verbose = options.log_level == "debug"
        level = "info" if verbose else "warn"
        return local_spark(master=options.master, log_level=level, terminal=verbose, given=options.conf)

    def _master(self, spark: LocalSpark) -> str:
        return self._options.master if self._options.session is None else master_of(spark.session)

    def _known_state(self, connection: Connection, inspection: Inspection) -> PipelineState | None:
        """What earlier runs left, None where there is nothing to build on; checked against the server."""
        state = self._meta.load()
        try:
            check_origin(state, inspection.server, inspection.slot)
            if self._gap is not None:  # that only the log shows
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

    def _with_kept(
        self, connection: Connection, inspection: Inspection, state: PipelineState
    ) -> tuple[Inspection, PipelineState]:
        generations = Generations(self._client, self._project.prefix)
        self._secondary_sinks.remember()
        inspection, state = inspect_retained(inspection, self._endpoints, connection, generations, state)
        return self._secondary_sinks.inspected(connection, inspection), state

    def _set_up(self, connection: Connection, inspection: Inspection) -> Mapping[str, int]:
        """Alter what must be altered; returns the memberships of the publication, as the state keeps them."""
        sinks = [self._endpoints.sink, *(one.sink for one in self._endpoints.secondary.values())]
        warnings = (*inspection.setup.warnings, *of_endpoints(sinks))
        for warning in warnings:
            self._board.report.warning(warning)
        self._board.warned(warnings)
        execute_plan(
            inspection.setup, connection, lambda step: self._board.report.info(f"set-up: {step.why}")
        )
        tables = inspection.project.tables()
        found = read_memberships(connection, self._project.publication)
        return {str(table): member for table, member in found.items() if table in tables}

    def _generation_log(
        self, inspection: Inspection, state: PipelineState, catalog: CatalogBaseline
    ) -> GenerationLog:
        return GenerationLog(
            state,
            GenerationManager(inspection, self._endpoints, self._client, self._board),
            self._meta,
            self._orders,
            self._board,
            inspection=inspection,
            as_of=catalog.baseline.as_of,
            keep=self._project.deployment.generations.keep,
        )

    def _follow(
        self, spark: LocalSpark, catalog: CatalogBaseline, generation_log: GenerationLog, lock: SlotLock
    ) -> None:
        """Run the query until told to stop.

        Again after failures that may pass, and where it is to write other generations.

        Raises:
            HeadraceError: what does not pass; GapError, SCHEMA_CHANGED, REPLICA_IDENTITY: see `_follow_on`.
        """
        around = self._surroundings(lock)
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            ending, watch = self._one_query(spark, catalog, generation_log, around)
            if ending.failure is None and not ending.again:
                break
            if ending.failure is None:
                self._between(catalog, watch, generation_log, ending)
                continue
            failure = watch.explained(ending.failure)
            if failure.kind in _BY_A_GENERATION and self._has_bystanders(generation_log):
                catalog, generation_log = self._without(failure, generation_log, lock)
                continue
            self._board.failed(failure)
            failures = 1 if time.monotonic() - began > _CALM_SECONDS else failures + 1
            if failure is ending.failure and failure.kind in ALTERED:
                for other in (
                    generation_log,
                    *self._secondary_sinks.generation_logs(),
                ):  # the log will hold it again
                    other.give_up(other.written, failure.cause)
            if failure.kind in _OF_THE_LOG:
                self._still_continuous(lock)  # it may know better what has happened
            if failure.kind is Kind.OTHER_LOG:
                raise GapError(failure.kind, failure.cause) from failure
            if not _may_pass(failure, failures):
                raise failure
            self._board.report.warning(f"{failure}; starting the stream again")
            self._stopping.wait(min(2.0**failures, 30.0))
            generation_log.adopt(self._still_continuous(lock))
        self._board.happened(Event.STOPPED)
        settle(self._project, self._endpoints, self._board.report, is_same_server=not lock.was_lost())

    def _surroundings(self, lock: SlotLock) -> RunContext:
        return RunContext(
            self._project,
            self._endpoints,
            self._board,
            self._stopping,
            self._orders,
            self._secondary_sinks,
            self._exported,
            lock,
            self._lease,
            self._live,
        )

    def _one_query(
        self, spark: LocalSpark, catalog: CatalogBaseline, generation_log: GenerationLog, around: RunContext
    ) -> tuple[QueryEnd, SchemaDriftMonitor]:
        """The stream with what is beside it, until something is to be done without it."""
        written, state = generation_log.written, generation_log.state
        works = self._secondary_sinks.works(state)
        work = generation_log.seeding.work(written)
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
            self._board.happened(Event.SEEDING)

        def building(work: Work, generations: Sequence[GenerationState]) -> Backfill:
            return Backfill(
                spark,
                work,
                generations,
                self._board,
                snapshot=self._exported,
                pace=self._pace(),
                job_gate=job_gate,
            )

        query = DocumentsQuery(spark.session, work, following, spark.scratch)
        job_gate = JobGate(lambda: generation_log.is_read, query.batch_seconds)
        watch = catalog.watch()
        try:
            with (
                DeferredWork(spark.session, work, job_gate) as beside,
                Backfills(building) as filling,
                self._secondary_sinks.beside(spark, works, job_gate, self._pace()),
            ):
                filling.begin(work, to_fill)
                running = RunningQuery(
                    query,
                    generation_log,
                    catalog,
                    watch,
                    following.needs,
                    beside=beside,
                    filling=filling,
                    job_gate=job_gate,
                )
                return Supervisor(around, running).until_ended(), watch
        except HeadraceError as error:
            if error.kind not in ALTERED or not self._has_bystanders(generation_log):
                raise
            return QueryEnd(error), watch  # it may concern only what nobody reads
        finally:
            query.stop()

    def _pace(self) -> BackfillRate:
        given = self._project.deployment.seeding
        return BackfillRate(given.rows_per_second, given.connections)

    def _between(
        self,
        catalog: CatalogBaseline,
        watch: SchemaDriftMonitor,
        generation_log: GenerationLog,
        ending: QueryEnd,
    ) -> None:
        """No query runs, every batch is applied: do what could not be done beside one."""
        with self._stopping.interrupting():
            if watch.moved:
                self._renew(catalog, watch, generation_log)
            if ending.failed is not None:
                generation_log.give_up([ending.failed.generation], ending.failed.error.cause)
            for attempt in patiently():
                with attempt:
                    if ending.replaced:
                        generation_log.build_anew(ending.replaced)
                    generation_log.carry_out(ending.orders)
            self._secondary_sinks.between(generation_log.state, ending.secondary)

    def _renew(
        self, catalog: CatalogBaseline, watch: SchemaDriftMonitor, generation_log: GenerationLog
    ) -> None:
        """Partitions have come or gone, of which the log says nothing: keep that, and go on from the result.

        Where one has gone, what exists is assembled anew first, so that a start after a kill does it again.
        """
        catalog.baseline = watch.baseline
        self._secondary_sinks.renew(watch.emptied, watch.baseline.to_text())
        for attempt in patiently():
            with attempt:
                generation_log.altered(watch.emptied, watch.baseline.to_text())

    def _has_bystanders(self, generation_log: GenerationLog) -> bool:
        return bool(generation_log.bystanders or self._secondary_sinks.bystanders())

    def _without(
        self, failure: HeadraceError, generation_log: GenerationLog, lock: SlotLock
    ) -> tuple[CatalogBaseline, GenerationLog]:
        """Go on without generations that nobody reads: one of them may be what cannot be written.

        Raises:
            HeadraceError: SCHEMA_CHANGED, where what is read is not right any more either.
        """
        with contextlib.suppress(HeadraceError):  # else the next start does
            generation_log.drop_doomed()
        for other, given in [
            (generation_log, generation_log.bystanders),
            *self._secondary_sinks.bystanders(),
        ]:
            if given:
                other.give_up(given, failure.cause)
        state = self._still_continuous(lock)
        with connect(self._endpoints.database, application_name="headrace run") as connection:
            inspection = inspect(self._project, self._endpoints, connection)
            inspection, state = self._with_kept(connection, inspection, state)
        catalog = CatalogBaseline(inspection, self._endpoints)
        usage = inspection.usage()
        if wrong := [one for one in catalog.since(state.catalog).wrong if one.concerns(usage)]:
            raise schema_changed(wrong)
        if self._secondary_sinks:
            found = catalog.since(state.catalog)
            self._secondary_sinks.take_up(inspection, catalog, state, state.published, found)
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

    def _still_continuous(self, lock: SlotLock) -> PipelineState:
        """Before the slot is connected to again: does everything still belong together, and to us?"""
        for attempt in patiently():
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
                Kind.CONTINUITY, "the state of this deployment was deleted from the cluster", SEED_AGAIN
            )
        check_continuity(state, server, slot)
        return state


def _may_pass(error: HeadraceError, failures: int) -> bool:
    """Whether starting again can help: for ever where waiting does; what Spark fails of often passes."""
    return error.retry is Retry.BACK_OFF or (error.kind is Kind.SPARK and failures <= _MOST_RESTARTS)
