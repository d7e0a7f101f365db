"""Run a deployment from its start to its end: open what a run needs, then let the controller go round.

There is no hot and no cold: a start is the loop with nothing running. What becomes of slot, generations,
query and backfills is decided in `pipeline/controller` alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from headrace.errors import HeadraceError, Kind, Retry
from headrace.logs import LogLevel, WorkerLogs
from headrace.pipeline.answers import Answers
from headrace.pipeline.claim import Claim
from headrace.pipeline.cluster_tasks import check_cluster
from headrace.pipeline.controller.actions import Action, EndRun
from headrace.pipeline.controller.loop import Controller
from headrace.pipeline.controller.observe import Observer
from headrace.pipeline.controller.ports import Ports
from headrace.pipeline.deferred_documents import DeferredDocuments
from headrace.pipeline.definitions import Definitions
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.health_monitor import HealthMonitor
from headrace.pipeline.order_desk import OrderDesk
from headrace.pipeline.planning import Plans
from headrace.pipeline.project import Project
from headrace.pipeline.reloads import Load, Reloads
from headrace.pipeline.run_board import RunBoard
from headrace.pipeline.run_options import RunOptions
from headrace.pipeline.run_sinks import open_relays, open_sinks
from headrace.pipeline.source_of_run import RunSource
from headrace.pipeline.stall_monitor import short_timeout_client
from headrace.pipeline.stopping import Stopped, Stopping
from headrace.pipeline.stream.documents_source import READER
from headrace.pipeline.stream.record_classes import recorded_beside
from headrace.pipeline.stream.run_stream import RunStream
from headrace.pipeline.stream.warm_up import warmed_up
from headrace.pipeline.wal_budget import WalBudget
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import connect
from headrace.postgres.locks import SlotLock
from headrace.postgres.slot import advance_slot
from headrace.sinks.opensearch import Client
from headrace.spark.background_session import BackgroundSpark
from headrace.spark.environment import FIRST_OF_DOCUMENTS, check_version
from headrace.spark.session import LocalSpark, given_spark, local_spark
from headrace.state import PipelineState, StateStore
from headrace.state.lease import Lease
from headrace.status.board import StatusBoard
from headrace.status.phases import Phase
from headrace.status.traces import Traces

_ROUND_SECONDS = 0.25
_REQUEST_SECONDS = 10.0


@dataclass(eq=False)
class PipelineRun:
    """One run of one deployment.

    Args:
        project: the deployment.
        endpoints: of the deployment.
        options: of the run.
        board: shows the run.
        stopping: set to end the run; noticed at the next pause.
        desk: has the orders of the run.
        load: reads the deployment's files again.
        on_live: called once, when every index is complete and the stream follows.
        on_reload: called with the project that the run follows, whenever that is another one.
        traces: records batches; None: they are not traced.
        address: the public address, for who asks the cluster for the run; empty for none.
    """

    project: Project
    endpoints: Endpoints
    options: RunOptions
    board: StatusBoard
    stopping: Stopping
    desk: OrderDesk
    load: Load
    on_live: Callable[[], None]
    on_reload: Callable[[Project], None]
    traces: Traces | None
    address: str

    def __post_init__(self) -> None:
        self.project = self.options.apply_to(self.project)
        self._spark = BackgroundSpark(self._open_spark)
        self._held = contextlib.ExitStack()
        self._is_live = False
        self._version = 0  # of the definitions that were shown last
        self._checked: LocalSpark | None = None
        self._shown = RunBoard(self.board, self._note_live)

    def execute(self) -> None:
        """Backfill incomplete indexes and follow the log until stopping is requested.

        Raises:
            HeadraceError: the error that ended the run.
            Stopped: a stop came before anything was begun.
        """
        with contextlib.ExitStack() as spark, self._held:
            # It opens beside the rest. At its exit an error that its dead Java explains is told as that.
            spark.push(self._spark)
            self._spark.begin()
            client = self._held.enter_context(contextlib.closing(Client(self.endpoints.sink)))
            claim = Claim(
                self.project,
                self.endpoints,
                client,
                self.board,
                self.stopping,
                self.load,
                Lease(client, self.project.key, [*self.project.specs], address=self.address),
            )
            lock = self._take(claim)
            if lock is not None:
                self._follow(claim, lock)

    def _take(self, claim: Claim) -> SlotLock | None:
        """Wait for this run's turn and claim the deployment; None where a stop came first."""
        stopping = self.stopping
        while True:
            if self.options.standby:
                with stopping.interrupting(), stopping.patient():
                    spark = self._spark.current
                with warmed_up(spark):
                    if not claim.wait():
                        return None
            try:
                return claim.take(self._held)
            except HeadraceError as error:
                # Two that stood by have seen the same free lock: the slower one stands by again.
                if not (self.options.standby and claim.is_led(error)):
                    raise

    def _open_spark(self) -> contextlib.AbstractContextManager[LocalSpark]:
        check_version("a run of documents", FIRST_OF_DOCUMENTS)
        options = self.options
        if options.session is not None:
            return given_spark(options.session)
        verbose = options.log_level is LogLevel.DEBUG
        return local_spark(
            master=options.master,
            log_level="info" if verbose else "warn",
            terminal=verbose,
            given=options.conf,
            logs=WorkerLogs(options.log_level, options.log_format, self.project.slot),
            preloaded=READER,
        )

    def _follow(self, claim: Claim, lock: SlotLock) -> None:
        """Let the controller decide and act until the run ends.

        Raises:
            HeadraceError: the error that ended it.
        """
        self._check_first(claim.project)
        with contextlib.ExitStack() as held:
            observer, controller = self._open_controller(claim, lock, held)
            while (end := self._go_round(observer, controller)) is None:
                pass
        if end.error is not None:
            raise end.error
        self.board.enter(Phase.STOPPED)
        # Who has lost the lock may have lost the slot, too: its position is not to be moved from here.
        if not lock.was_lost():
            confirm_applied(self.project, self.endpoints, self.board)

    def _open_controller(
        self, claim: Claim, lock: SlotLock, held: contextlib.ExitStack
    ) -> tuple[Observer, Controller]:
        """Open what the controller looks at and acts on; `held` closes it."""
        project, board, stopping = claim.project, self.board, self.stopping
        self.desk.begin()
        endpoints = open_relays(project, self.endpoints, board.report, held)
        # One thread looks at everything, so a cluster that hangs must not hold it for long.
        endpoint = endpoints.sink.with_timeout(_REQUEST_SECONDS)
        state = Client(endpoint, read_attempts=1, accepted=True)
        held.callback(state.close)
        store = StateStore(state, project.key)
        snapshot = HeldSnapshot(60.0 * project.deployment.backfill.snapshot_minutes)
        held.callback(snapshot.close)
        definitions = Definitions(project, endpoints)
        sinks = open_sinks(project, endpoints, state, definitions, report=board.report, held=held)
        stream = RunStream(
            self._spark,
            Plans(definitions, endpoints),
            store,
            board=board,
            snapshot=snapshot,
            traces=self.traces,
            check=lambda spark: self._check_spark(spark, project),
        )
        held.callback(stream.close)
        health = held.enter_context(HealthMonitor(endpoints, lambda: definitions.project, board, lock, store))
        reloads = Reloads(self.load, definitions, endpoints, claim.lease, store, board, sinks)
        orders = Answers(self.desk, reloads)
        observer = Observer(
            health,
            store,
            definitions,
            sinks,
            stream,
            WalBudget(project.deployment.source, board, releases=project.reseeds),
            reloads,
            self.desk,
            claim.lease,
            stopping,
        )
        database = RunSource(endpoints, definitions, board=board, snapshot=snapshot, stopping=stopping)
        plain = [name for name, target in project.secondary.items() if target.is_plain]
        deferral = DeferredDocuments(
            state, project.key, store, [*project.secondary], plain, definitions.spec_of
        )
        by_name = {name: watch.sink for name, watch in sinks.items()}
        ports = Ports(store, database, by_name, stream, deferral, orders)

        def tell(action: Action) -> None:
            observer.note(action)
            self._shown.announce(action)

        controller = Controller(
            observer.look, ports, tell=tell, report=self._shown.tell, clock=time.monotonic
        )
        return observer, controller

    def _go_round(self, observer: Observer, controller: Controller) -> EndRun | None:
        """Go round once, and rest where nothing was to be done; return why the run ends, where it does."""
        try:
            end = controller.go_round()
        except Stopped:  # a look or a step was interrupted
            return EndRun("it was asked to end")
        if end is None:
            assert controller.seen is not None, "a round begins with a look"
            has_begun = observer.stream.tend()
            self._note_followed(observer.definitions, observer.lease)
            self._tend_snapshot(observer.store.current, observer.stream.snapshot)
            # What was done is not in what was seen, and leads to the next step: that is looked for at once.
            if not controller.has_acted:
                self._shown.show(*controller.seen, has_begun=has_begun)
                self.stopping.wait(_ROUND_SECONDS)
        return end

    def _check_first(self, project: Project) -> None:
        """Check the executors of a cluster before anything is made that would be left behind."""
        stopping = self.stopping
        if self.options.is_local:
            return
        try:
            with stopping.interrupting(), stopping.patient():
                self._check_spark(self._spark.current, project)
        except HeadraceError as error:
            if error.retry is Retry.NEVER:
                raise
            # What passes by itself is waited for where the query starts, which checks them again.

    def _check_spark(self, spark: LocalSpark, project: Project) -> None:
        """Check the executors of a session once; one that is opened later may have others."""
        if not self.options.is_local and spark is not self._checked:
            check_cluster(spark, project, self.endpoints, self.board.report)
            self._checked = spark

    def _note_followed(self, definitions: Definitions, lease: Lease) -> None:
        """Note which indexes the run follows, once it is known and whenever they are others."""
        if not definitions.is_known or definitions.version == self._version:
            return
        self._version = definitions.version
        self.board.note(tables=definitions.inspection.coverage)
        self.project = project = definitions.inspection.project
        names = (*project.specs, *project.waiting)
        lease.release_others(names)
        self.board.set_indexes(names)
        self.on_reload(project)

    def _tend_snapshot(self, state: PipelineState | None, snapshot: HeldSnapshot) -> None:
        """Give the slot's snapshot up once nothing is filled, or its time is over."""
        if state is None or snapshot.slot is None:
            return
        # Without any generation the first ones are still to come, and will read it.
        if state.generations and not any(generation.backfilling for generation in state.generations):
            snapshot.close()
        elif snapshot.close_if_due():
            self.board.report.info(
                "the slot's snapshot is released, so that VACUUM can go on; what is left is read without it"
            )

    def _note_live(self) -> None:
        """Report once that the run is live."""
        if not self._is_live:
            self._is_live = True
            self.board.report.done("live: following the log")
            if self.options.session is None:
                self._held.enter_context(recorded_beside())
            self.on_live()


def confirm_applied(project: Project, endpoints: Endpoints, board: StatusBoard) -> None:
    """Confirm the applied position to the slot; where that fails, the next start repeats a little."""
    try:
        with contextlib.closing(short_timeout_client(endpoints)) as client:
            state = StateStore(client, project.key).load()
        if state is None or state.phase != "following":
            return
        with connect(endpoints.database) as connection:
            for attempt in _while_in_use():
                with attempt:
                    advance_slot(connection, project.slot, state.applied)
    except HeadraceError as error:
        board.report.warning(f"the last position is not confirmed; the next start repeats a little ({error})")


def _while_in_use() -> Retrying:
    """Return the attempts of some seconds: the slot's reader has to let go of it."""
    return Retrying(
        retry=retry_if_exception(
            lambda error: isinstance(error, HeadraceError) and error.kind is Kind.SLOT_IN_USE
        ),
        wait=wait_fixed(0.1),
        stop=stop_after_delay(5),
        reraise=True,
    )
