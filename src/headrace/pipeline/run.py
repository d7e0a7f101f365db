"""Run a deployment from first start to shutdown, as a table of phases.

A first start creates the publication, then the slot, then reads from the slot's snapshot (decision 0009).
The stream begins at once. Generations that are not complete are backfilled beside it. A start after a kill
goes on with the ranges that are left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from headrace.capture.signals import SignalFiles
from headrace.config.deployment import OnGap
from headrace.errors import HeadraceError, Kind, Patience, Retry, retrying
from headrace.logs import LogFormat, LogLevel, WorkerLogs
from headrace.model.failpoints import reach
from headrace.pipeline.concerned import Concerned, find_concerned
from headrace.pipeline.continuity import GapError
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.file_reload import FileReload
from headrace.pipeline.fitting import NoIndexFitsError
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.health_monitor import HealthMonitor
from headrace.pipeline.inspection import Inspection
from headrace.pipeline.project import Project
from headrace.pipeline.reloading import ReloadRequests
from headrace.pipeline.run_phases import TRANSITIONS, PhaseOutcome, RunPhase
from headrace.pipeline.schema_drift import ALTERED, CatalogBaseline, SchemaDriftMonitor
from headrace.pipeline.secondary_sinks import SecondarySinks
from headrace.pipeline.slot_watch import SlotWatch
from headrace.pipeline.standby import Standby
from headrace.pipeline.start import SavedState, Start, check_cluster
from headrace.pipeline.stopping import Stopped, Stopping
from headrace.pipeline.stream.documents_source import READER
from headrace.pipeline.stream.record_classes import recorded_beside
from headrace.pipeline.stream.warm_up import warmed_up
from headrace.pipeline.supervisor import QueryEnd, Supervisor, settle
from headrace.pipeline.wal_budget import SlotReleased, WalBudget
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection, connect
from headrace.postgres.locks import SlotLock
from headrace.postgres.slot import drop_slot, read_slot
from headrace.sinks.opensearch import Client
from headrace.spark.background_session import BackgroundSpark
from headrace.spark.session import (
    LocalSpark,
    SparkSession,
    given_spark,
    local_spark,
    master_of,
)
from headrace.spark.settings import is_local
from headrace.state import PipelineState
from headrace.state.lease import Lease, read_slot_lease
from headrace.state.reload_request import ReloadRequest
from headrace.state.run_requests import RunRequests
from headrace.status.board import StatusBoard
from headrace.status.phases import Event
from headrace.status.traces import Traces

_SINK_SECONDS = 30.0
_MOST_RESTARTS = 5
_CALM_SECONDS = 300.0
_PAUSES = (1.0, 2.0, 5.0, 10.0)
_LONGEST_PAUSE = 30.0
_MISFIT_SECONDS = 2.0
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
_OF_CATALOG = frozenset({Kind.BINDING, Kind.PRIVILEGE})
"""Errors for a name or a privilege that reading the documents of an index lacks."""
_LOG_ERRORS = frozenset({Kind.CONTINUITY, Kind.OTHER_LOG, Kind.SLOT_LOST, Kind.SLOT_UNKNOWN})
"""Errors that say that the log cannot be followed from here on."""
_GAPS = frozenset({Kind.OTHER_LOG, Kind.SLOT_LOST})
"""Those of them that only reading the log shows, so that server and slot seem to be sound."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run that the deployment file does not hold.

    Attributes:
        conf: Spark settings of the user.
        on_gap: overrides `source.on_gap` of the deployment file.
        session: a Spark session that the caller created and stops. None: the run creates its own.
        standby: while another process runs this deployment, wait to take over instead of refusing to start.
    """

    master: str = "local[*]"
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.TEXT
    conf: Mapping[str, str] = field(default_factory=dict)
    on_gap: OnGap | None = None
    session: SparkSession | None = None
    standby: bool = False

    @property
    def is_local(self) -> bool:
        """Whether the run's tasks run on this machine, in the session that it is given or creates."""
        return is_local(self.master if self.session is None else master_of(self.session))

    def apply_to(self, project: Project) -> Project:
        """Return the project with the policy that the run was given."""
        if self.on_gap is None:
            return project
        source = project.deployment.source.model_copy(update={"on_gap": self.on_gap})
        deployment = project.deployment.model_copy(update={"source": source})
        return dataclasses.replace(project, deployment=deployment)


class PipelineRun:
    """One run of one deployment.

    Args:
        stopping: set to end the run; noticed at the next pause.
        reload_requests: what threads and signal handlers of this process ask for; None: the files stay.
        on_live: called once, when every index is complete and the stream follows.
        on_reload: called with the project once changed files are taken up.
        traces: records batches; None: they are not traced.
        address: the public address, for who asks the cluster for the run; empty for none.
    """

    _lock: SlotLock
    _connection: Connection
    _inspection: Inspection
    _catalog: CatalogBaseline
    _generation_log: GenerationLog
    _drift: SchemaDriftMonitor
    _ending: QueryEnd
    _failure: HeadraceError

    def __init__(
        self,
        project: Project,
        endpoints: Endpoints,
        board: StatusBoard,
        stopping: Stopping,
        *,
        options: RunOptions,
        reload_requests: ReloadRequests | None = None,
        on_live: Callable[[], None] = lambda: None,
        on_reload: Callable[[Project], None] = lambda _: None,
        traces: Traces | None = None,
        address: str = "",
    ) -> None:
        self._project = project = options.apply_to(project)
        self._endpoints = endpoints
        self._board = board
        self._stopping = stopping
        self._options = options
        self._on_live = on_live
        self._traces = traces
        self._held = contextlib.ExitStack()
        self._spark = BackgroundSpark(self._open_spark)
        self._client = Client(endpoints.sink)
        self._run_requests = RunRequests(self._client, project.key)
        self._secondary_sinks = SecondarySinks(project, endpoints, self._client, board)
        self._exported = HeldSnapshot(60.0 * project.deployment.backfill.snapshot_minutes)
        self._reseeds = project.deployment.source.on_gap == "reseed"
        self._budget = WalBudget(project.deployment.source, board, releases=self._reseeds)
        self._starter = Start(
            project,
            endpoints,
            self._client,
            board,
            secondary_sinks=self._secondary_sinks,
            exported=self._exported,
        )
        self._lease = Lease(self._client, project.key, [*project.specs], address=address)
        self._standby = Standby(endpoints.database, project.slot, self._lease, board, stopping)
        self._files = FileReload(
            project,
            endpoints,
            board,
            stopping,
            self._starter,
            lease=self._lease,
            requests=reload_requests,
            document=ReloadRequest(self._client, project.key),
            on_complete=on_reload,
        )
        self._announced = False
        self._set_up_at = 0.0
        self._restarts = 0
        self._restarted_for = ""
        self._query_began = 0.0
        self._failures = 0
        self._patience = Patience()
        self._actions: Mapping[RunPhase, Callable[[], PhaseOutcome]] = {
            RunPhase.STANDING_BY: self._stand_by,
            RunPhase.STARTING: self._start,
            RunPhase.SETTING_UP: self._set_up,
            RunPhase.FOLLOWING: self._follow,
            RunPhase.CHANGING_PLAN: self._change_plan,
            RunPhase.RELOADING: self._reload,
            RunPhase.DROPPING_UNREAD: self._drop_unread,
            RunPhase.RETRYING: self._retry,
            RunPhase.RESTARTING: self._restart,
            RunPhase.RESEEDING: self._reseed,
            RunPhase.STOPPING: self._stop,
        }

    def execute(self) -> None:
        """Backfill incomplete indexes and follow the log until stopping is requested.

        Raises:
            HeadraceError: the error that ended the run.
        """
        phase = RunPhase.STANDING_BY if self._options.standby else RunPhase.STARTING
        with contextlib.closing(self._spark), self._held:
            self._spark.begin()
            self._held.enter_context(contextlib.closing(self._client))
            self._held.enter_context(self._secondary_sinks)
            while phase is not RunPhase.STOPPED:
                phase = TRANSITIONS[phase][self._outcome(phase)]

    def _outcome(self, phase: RunPhase) -> PhaseOutcome:
        """Do what belongs to a phase; return how it ended.

        Raises:
            HeadraceError: the phase failed, and the table has no phase that follows on that.
            Stopped: a stop interrupted the phase, and the table has no phase that follows on that.
        """
        try:
            return self._actions[phase]()
        except Stopped:
            if PhaseOutcome.STOP not in TRANSITIONS[phase]:
                raise
            return PhaseOutcome.STOP
        except HeadraceError as error:
            outcome = self._outcome_of(error)
            if outcome is None or outcome not in TRANSITIONS[phase]:
                raise
            self._failure = error
            return outcome

    def _outcome_of(self, error: HeadraceError) -> PhaseOutcome | None:
        if error.kind in ALTERED:
            return PhaseOutcome.ALTERED
        if error.kind is Kind.SLOT_IN_USE and self._options.standby and self._standby.is_led():
            return PhaseOutcome.IN_USE
        return PhaseOutcome.GAP if isinstance(error, GapError) and self._reseeds else None

    def _stand_by(self) -> PhaseOutcome:
        with self._stopping.interrupting():
            self._ensure_spark()
        with warmed_up(self._spark.current):
            if not self._standby.wait():
                return PhaseOutcome.STOP
        self._files.read_again()  # the run before may have taken up changed files
        self._lease.choose(self._files.project.specs)
        return PhaseOutcome.DONE

    def _start(self) -> PhaseOutcome:
        with self._stopping.interrupting(), contextlib.ExitStack() as held:
            # Inspect only with the lock held: the half-saved state of a run that is just ending must not
            # look like a broken one.
            self._lock = held.enter_context(self._slot_lock())
            self._connection = held.enter_context(
                connect(self._endpoints.database, application_name="headrace run")
            )
            held.enter_context(SlotWatch(self._endpoints.database, self._project.slot, self._board))
            self._inspection = self._files.inspect_first(self._connection)
            self._client.wait_until_ready(_SINK_SECONDS)
            held.enter_context(self._lease)
            self._run_requests.forget()  # they were meant for an earlier run
            self._held.push(held.pop_all())
        return PhaseOutcome.DONE

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
                        holder = read_slot_lease(self._client, self._project.key).holder
                if holder is None:
                    raise
                raise HeadraceError(error.kind, f"{error.cause}: {holder}", error.remedy) from error
            yield lock

    def _set_up(self) -> PhaseOutcome:
        with self._stopping.interrupting():
            saved = self._starter.load(self._connection, self._inspection)
            self._ensure_spark()
            if not self._options.is_local:
                check_cluster(self._spark.current, self._project, self._endpoints, self._board.report)
            self._resume(self._connection, saved)
        return PhaseOutcome.DONE

    def _ensure_spark(self) -> None:
        if not self._spark.is_entered:
            with self._stopping.patient(), self._board.report.working("starting Spark …"):
                self._held.enter_context(self._spark)

    def _open_spark(self) -> contextlib.AbstractContextManager[LocalSpark]:
        options = self._options
        if options.session is not None:
            return given_spark(options.session)
        verbose = options.log_level is LogLevel.DEBUG
        return local_spark(
            master=options.master,
            log_level="info" if verbose else "warn",
            terminal=verbose,
            given=options.conf,
            logs=WorkerLogs(options.log_level, options.log_format, self._project.slot),
            preloaded=READER,
        )

    def _resume(self, connection: Connection, saved: SavedState, *, must_make: bool = False) -> None:
        self._catalog, self._generation_log = self._starter.resume(
            connection, saved, self._held, must_make=must_make
        )
        self._set_up_at = time.monotonic()
        self._failures = 0
        self._patience.forget()

    def _follow(self) -> PhaseOutcome:
        """Run one query until it must end."""
        if self._stopping.is_set():
            return PhaseOutcome.STOP
        self._query_began = time.monotonic()
        supervisor = self._supervisor()
        self._drift = supervisor.drift
        try:
            self._ending = ending = supervisor.run(self._spark.current)
        finally:
            self._catalog = supervisor.catalog
        if ending.reload:
            return PhaseOutcome.RELOAD
        if ending.failure is None:
            return PhaseOutcome.CHANGE if ending.again else PhaseOutcome.STOP
        self._failure = self._drift.explain(ending.failure)
        if self._failure.kind in ALTERED and self._failure is not ending.failure:
            return PhaseOutcome.ALTERED  # the catalog tells which generations are concerned
        if self._failure.kind in _FROM_ONE_GENERATION and self._concerned_unread():
            return PhaseOutcome.UNREAD_FAILED
        return PhaseOutcome.FAILED

    def _change_plan(self) -> PhaseOutcome:
        """Do what is not possible beside a query; every batch is applied."""
        generation_log, ending = self._generation_log, self._ending
        with self._stopping.interrupting():
            if self._drift.moved:
                self._note_partitions()
            if ending.failed is not None:
                error = ending.failed.error
                generation_log.freeze(ending.failed.generations, error.cause, error.remedy)
            for attempt in retrying():
                with attempt:
                    if ending.replaced:
                        generation_log.rebuild(ending.replaced)
                    generation_log.carry_out(ending.requests)
            self._secondary_sinks.apply(generation_log.state, ending.secondary)
        return PhaseOutcome.DONE

    def _reload(self) -> PhaseOutcome:
        """Take up changed files as a new start does."""
        if not self._files.is_refused:
            self._files.adopt()
        return self._set_up_until_done(is_reload=not self._files.is_refused)

    def _note_partitions(self) -> None:
        """Note that partitions were attached or detached, which the log does not report.

        Where one was detached, existing documents are assembled again first. So a start after a kill repeats
        that.
        """
        drift = self._drift
        self._catalog.baseline = drift.baseline
        self._secondary_sinks.note_partitions(drift.emptied, drift.baseline.to_text())
        for attempt in retrying():
            with attempt:
                self._generation_log.note_partitions(drift.emptied, drift.baseline.to_text())

    def _drop_unread(self) -> PhaseOutcome:
        with contextlib.suppress(HeadraceError):  # what fails is left to the next start
            self._generation_log.drop_unneeded()
        for generation_log, generation in self._concerned_unread():
            generation_log.freeze([generation], self._failure.cause, self._failure.remedy)
        state = self._check_still_continuous()
        self._catalog, self._generation_log = self._starter.follow_read(state)
        return PhaseOutcome.DONE

    def _concerned(self) -> Concerned:
        """Return the generations of all sinks that the failure concerns."""
        return find_concerned(self._failure, (self._generation_log, *self._secondary_sinks.generation_logs()))

    def _freeze_concerned(self) -> None:
        for generation_log, generation in self._concerned():
            generation_log.freeze([generation], self._failure.cause, self._failure.remedy)

    def _concerned_unread(self) -> Concerned:
        """Return those that nobody reads: the query can go on without them."""
        return [
            (generation_log, generation)
            for generation_log, generation in self._concerned()
            if generation in generation_log.unread
        ]

    def _retry(self) -> PhaseOutcome:
        """Wait after a failure that may pass, and check that the log can still be followed.

        Raises:
            HeadraceError: the failure does not pass.
        """
        failure = self._failure
        self._board.record_error(failure)
        is_calm = time.monotonic() - self._query_began > _CALM_SECONDS
        self._failures = 1 if is_calm else self._failures + 1
        if is_calm:
            self._patience.forget()
        if failure is self._ending.failure and failure.kind in ALTERED:
            # The next query would read the same change of the table from the log again.
            self._freeze_concerned()
        if failure.kind in _OF_CATALOG and failure.units:
            self._freeze_concerned()
            return PhaseOutcome.ALTERED  # setting up again tells whether the index must wait
        if failure.kind in _LOG_ERRORS:
            self._check_still_continuous()  # it may raise a more exact error
        if failure.kind in _GAPS:
            raise GapError(failure.kind, failure.cause) from failure
        failure = self._patience.judge(failure)
        if not _may_pass(failure, self._failures):
            raise failure
        self._board.report.warning(f"starting the stream again after {failure}")
        if self._stopping.wait(min(2.0**self._failures, 30.0)):
            return PhaseOutcome.STOP
        if failure.kind is Kind.WORKER_LOST and self._failures > 1 and self._options.session is None:
            # Where all are gone, Spark notices it for one after the other (decision 0092).
            with self._board.report.working("starting Spark again …"):
                self._spark.renew()
        self._generation_log.adopt(self._check_still_continuous())
        return PhaseOutcome.DONE

    def _reseed(self) -> PhaseOutcome:
        assert isinstance(self._failure, GapError)
        if isinstance(self._failure, SlotReleased):
            self._release_slot()
        self._starter.gap = self._failure
        return self._set_up_again()

    def _release_slot(self) -> None:
        """Drop the slot, also while the cluster is away: the primary's disk cannot wait for it."""
        self._board.set_budget_warning(f"{self._failure.cause}; everything is backfilled again afterwards")
        for attempt in retrying():
            with attempt, self._stopping.interrupting(), connect(self._endpoints.database) as connection:
                if read_slot(connection, self._project.slot) is not None:
                    drop_slot(connection, self._project.slot)
        reach("released")

    def _restart(self) -> PhaseOutcome:
        self._starter.gap = None
        return self._set_up_again()

    def _set_up_again(self) -> PhaseOutcome:
        """Set up as a new start does; retry for as long as the errors are retryable.

        Raises:
            HeadraceError: SLOT_IN_USE: another Headrace has the slot. The failure of the phase before: it
                comes too often. Other errors that are not retryable.
        """
        failure = self._failure
        is_calm = time.monotonic() - self._set_up_at > _CALM_SECONDS
        is_another = failure.cause != self._restarted_for
        self._restarts = 1 if is_calm or is_another else self._restarts + 1
        self._restarted_for = failure.cause
        if self._restarts > _MOST_RESTARTS:
            raise failure
        self._board.report.warning(f"[{failure.code}] {failure.cause}; beginning again from what is there")
        return self._set_up_until_done()

    def _set_up_until_done(self, *, is_reload: bool = False) -> PhaseOutcome:
        """Set up; retry for as long as the errors are retryable, or no schema file fits the database.

        Args:
            is_reload: whether somebody waits for the files to be taken up.

        Raises:
            HeadraceError: as for `_set_up_again`.
        """
        pauses = itertools.chain(_PAUSES, itertools.repeat(_LONGEST_PAUSE))
        while True:
            with self._stopping.interrupting():
                error = self._try_set_up(is_reload=is_reload)
            if error is None:
                if is_reload:
                    self._files.complete()
                return PhaseOutcome.DONE
            if isinstance(error, NoIndexFitsError):
                self._files.show_misfit(error)
                self._stopping.wait(_MISFIT_SECONDS)
                if self._files.check(self._generation_log):
                    self._files.adopt()
                    is_reload = True
                continue
            error = self._patience.judge(error)
            if error.retry is Retry.NEVER:
                if not is_reload or not self._files.refuse(error):
                    raise error
                is_reload = False
                continue
            self._board.record_error(error)
            self._board.report.warning(f"trying again after {error}")
            self._stopping.wait(next(pauses))

    def _try_set_up(self, *, is_reload: bool) -> HeadraceError | None:
        """Resume without the slot's snapshot, which is older than the tables; return what failed.

        Where somebody waits for files to be taken up, a generation that the sink refuses is a failure.
        """
        try:
            taken = self._lock.lost_to()
            if taken is None:
                with connect(self._endpoints.database, application_name="headrace run") as connection:
                    self._exported.close()
                    inspection = self._files.inspect_again(connection)
                    saved = self._starter.load(connection, inspection)
                    self._resume(connection, saved, must_make=is_reload)
                return None
        except HeadraceError as error:
            return error
        raise taken

    def _stop(self) -> PhaseOutcome:
        self._board.apply_event(Event.STOPPED)
        is_same_server = not self._lock.was_lost()
        settle(self._project, self._endpoints, self._board.report, is_same_server=is_same_server)
        return PhaseOutcome.DONE

    def _supervisor(self) -> Supervisor:
        return Supervisor(
            self._files.project,
            self._board,
            self._stopping,
            self._catalog,
            self._generation_log,
            secondary_sinks=self._secondary_sinks,
            exported=self._exported,
            lease=self._lease,
            run_requests=self._run_requests,
            monitor_health=self._monitor_health,
            on_live=self._announce,
            files=self._files,
            traces=self._traces,
        )

    def _monitor_health(self, drift: SchemaDriftMonitor, signals: SignalFiles) -> HealthMonitor:
        return HealthMonitor(
            self._endpoints,
            self._files.project,
            self._board,
            self._lock,
            catalog=drift,
            budget=self._budget,
            signals=signals,
        )

    def _announce(self) -> None:
        """Report once that the run is live."""
        if not self._announced:
            self._announced = True
            self._board.report.done("live: following the log")
            if self._options.session is None:
                self._held.enter_context(recorded_beside())
            self._on_live()

    def _check_still_continuous(self) -> PipelineState:
        with self._stopping.interrupting():
            return self._starter.check_still_continuous(self._lock)


def _may_pass(error: HeadraceError, failures: int) -> bool:
    """Whether starting again can help: always where the error is retryable, else a few times."""
    return error.retry is Retry.BACK_OFF or (error.kind is Kind.SPARK and failures <= _MOST_RESTARTS)
