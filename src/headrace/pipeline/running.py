"""Run a pipeline in this process: start it, ask for its status, stop it."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Self
from urllib.parse import urlsplit

from headrace.errors import HeadraceError, Kind, Retry, unexpected
from headrace.model.lsn import Lsn
from headrace.pipeline.control.server import ControlServer
from headrace.pipeline.order_desk import LogLevelName, OrderDesk
from headrace.pipeline.ordering import follow, follow_at_once, result_of
from headrace.pipeline.project import Project
from headrace.pipeline.reloads import Load, ReloadResult
from headrace.pipeline.run import PipelineRun
from headrace.pipeline.run_options import RunOptions
from headrace.pipeline.stopping import Stopped, Stopping
from headrace.pipeline.worker.plan import Endpoints
from headrace.reporter import Reporter
from headrace.sinks.opensearch import Client
from headrace.state import Mailbox, Order, OrderKind, Quarantined
from headrace.state.orders import OF_GENERATIONS, new_order
from headrace.status.board import StatusBoard
from headrace.status.server import StatusServer
from headrace.status.sinks import ReportsPort
from headrace.status.traces import open_traces
from headrace.tools.applied_position import AppliedPosition, parse_position, wait_until_applied
from headrace.tools.errands import do_errand
from headrace.tools.explain import Explainer
from headrace.tools.generation_orders import check_generation_order
from headrace.tools.quarantined_documents import RetriedDocuments, list_quarantined
from headrace.tools.verification.report import Report, report_of
from headrace.tools.wait_service import WaitService

_BY = "this program"
_TAKEN_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_REQUEST_SECONDS = 10.0


class RunningPipeline:
    """One run of a pipeline; leaving its context stops the run in order.

    Args:
        project: the deployment and its schemas.
        reporter: receives progress and warnings.
        options: the options of the run.
        load: reads the deployment's files again, for `reload`.
        address: `HOST:PORT` that serves /status and the other endpoints; None serves nothing.
        hosts: names that the pages of `address` are asked by, besides those of the deployment file.
        private_address: `HOST:PORT` that takes orders from holders of the deployment's tokens; None: nothing
            does.
        stopping: set to end the run; the caller then calls `execute`. None: the run has a thread of its own
            while the context is entered.

    Attributes:
        board: the status, kept up to date by the run.
        desk: the orders of the run.
        address: where the status is served; None where it is not.
        private_address: where orders are taken; None where they are not.
        on_live: called in the run's thread, once every index is complete and the stream follows.
    """

    def __init__(
        self,
        project: Project,
        reporter: Reporter,
        options: RunOptions,
        *,
        load: Load,
        address: str | None = None,
        hosts: Collection[str] = (),
        private_address: str | None = None,
        stopping: Stopping | None = None,
    ) -> None:
        self.board = StatusBoard(
            project.specs,
            secondary=project.secondary,
            reporter=reporter,
            stalled_after=project.deployment.source.stalled_after,
        )
        self.address: str | None = None
        self._project = project
        self._endpoints = project.resolve()
        self._reporter = reporter
        self._options = options
        self._load = load
        # The run's thread reads orders in each round: a cluster that hangs must not hold it for minutes.
        keeps_state = self._endpoints.keeps_state
        seconds = min(keeps_state.timeout, _REQUEST_SECONDS)
        self._client = Client(keeps_state.with_timeout(seconds), read_attempts=2)
        self.desk = OrderDesk(
            Mailbox(self._client, project.key),
            self.board,
            lambda order: do_errand(order, self._project, self._endpoints),
        )
        self._explainer = Explainer(project, self._endpoints)
        self._wanted_address = address
        self._hosts = (*project.deployment.server.public_hosts, *hosts)
        self.private_address: str | None = None
        self._wanted_private_address = private_address
        self._stopping = Stopping() if stopping is None else stopping
        self._is_threaded = stopping is None
        self.on_live: Callable[[], None] = lambda: None
        self._live = threading.Event()
        self._has_ended = False
        self._held = contextlib.ExitStack()
        self._thread: threading.Thread | None = None
        self._failure: HeadraceError | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            endpoints, project = self._endpoints, self._project
            held.enter_context(contextlib.closing(self._client))
            held.enter_context(self.desk)
            if self._wanted_address is not None:
                waits = held.enter_context(WaitService(self._applied()))
                status = held.enter_context(
                    StatusServer(self.board, self._wanted_address, waits, self._explainer, self._hosts)
                )
                self.address = status.address
            if self._wanted_private_address is not None:
                control = ControlServer(self, project.deployment, self._wanted_private_address)
                self.private_address = held.enter_context(control).address
            port = held.enter_context(
                ReportsPort(self.board.sinks, beside=_local_address(self._options, endpoints))
            )
            self._traces = held.enter_context(open_traces(os.environ, project.slot, self._reporter))
            self._reports_of = port.to
            self._project = project.with_reports(port.to)
            # An error before closes what is open; from here on, leaving the context does.
            self._held = held.pop_all()
        if self._is_threaded:
            self._thread = threading.Thread(target=self._execute, name="headrace run")
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._thread is not None:
                # First the run ends, then what it uses is closed.
                self._stopping.stop()
                self._thread.join()
        finally:
            self._held.close()
        if kind is None and self._failure is not None:
            raise self._failure

    def execute(self) -> None:
        """Run in this thread until stopping is requested.

        Raises:
            HeadraceError: the error that ended the run.
        """
        run = PipelineRun(
            self._project,
            self._endpoints,
            self._options,
            self.board,
            self._stopping,
            self.desk,
            self._load_with_reports,
            on_live=self._note_live,
            on_reload=self._adopt,
            traces=self._traces,
            address=self.address or "",
        )
        try:
            run.execute()
        except Stopped:
            pass
        except HeadraceError as error:
            if self._stopping.is_set() and error.retry is Retry.BACK_OFF:
                return  # it was being waited out when the stop came
            self.board.ended(error)
            raise
        finally:
            self._has_ended = True

    def _load_with_reports(self) -> tuple[Project | None, tuple[HeadraceError, ...]]:
        project, errors = self._load()
        if project is not None:
            project = self._options.apply_to(project.with_reports(self._reports_of))
        return project, errors

    def _note_live(self) -> None:
        self._live.set()
        self.on_live()

    def _adopt(self, project: Project) -> None:
        """Answer questions about the indexes that the run follows now."""
        self._project = self._explainer.project = project

    def _execute(self) -> None:
        try:
            self.execute()
        except Exception as failure:  # noqa: BLE001 - leaving the context raises it
            self._failure = unexpected("a bug", failure)

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait until every index is complete and the stream follows.

        Args:
            timeout: seconds.

        Raises:
            HeadraceError: BEHIND after `timeout`; the error that ended the run.
        """
        end = time.monotonic() + timeout
        while not (self._live.is_set() and self.board.ready):
            if self._thread is None or not self._thread.is_alive():
                raise self._failure or HeadraceError(Kind.BEHIND, "the pipeline does not run")
            if time.monotonic() > end:
                reason = self.board.view().unready
                raise HeadraceError(
                    Kind.BEHIND, f"the pipeline is not ready after {timeout:g} s: {reason}", "Wait longer."
                )
            time.sleep(_LOOK_SECONDS)

    def status(self) -> dict[str, Any]:
        """Return the status now: the JSON of /status, as `docs/guides/monitoring.md` describes it."""
        return self.board.snapshot()

    def wait(self, lsn: str | None = None, *, searchable: bool = False, timeout: float = 60.0) -> Lsn:
        """Wait until everything committed before `lsn` is in the documents of every index.

        Args:
            lsn: a position as PostgreSQL prints it; None: the end of the server's log now.
            searchable: refresh the indexes then, so that a search finds the changes.
            timeout: seconds.

        Returns:
            The position that was awaited, in bytes.

        Raises:
            HeadraceError: BEHIND after `timeout`; USAGE, CONNECTION, SINK_UNREACHABLE.
        """
        with self._applied() as applied:
            awaited = applied.end_of_log() if lsn is None else parse_position(lsn)
            wait_until_applied(applied, awaited, timeout=timeout, searchable=searchable)
        return awaited

    def submit(self, order: Order) -> Order:
        """Submit an order, without waiting for it; return the order whose answer to wait for.

        Raises:
            HeadraceError: USAGE: what is ordered is known to be impossible, or the same is ordered already.
                An error of either server.
        """
        if order.kind in OF_GENERATIONS:
            with self._applied() as applied:
                check_generation_order(applied, self._project, order)
        return self.desk.submit(order)

    def reindex(self, index: str, *, timeout: float = 3600.0) -> str:
        """Build an index again beside the served generation; return the generation that readers see then.

        Args:
            index: the name of the index.
            timeout: seconds until the new generation must be served.

        Raises:
            HeadraceError: USAGE for an unknown index; BEHIND, SINK_REJECTED; CONNECTION, SINK_UNREACHABLE.
        """
        return str(self._order(new_order(OrderKind.REINDEX, index, by=_BY), timeout)["generation"])

    def rollback(self, index: str, *, timeout: float = 60.0) -> str:
        """Serve the former generation of an index; return its name.

        Raises:
            HeadraceError: as for `reindex`; USAGE: there is no generation to roll back to.
        """
        return str(self._order(new_order(OrderKind.ROLLBACK, index, by=_BY), timeout)["generation"])

    def reload(self, *, timeout: float = 120.0) -> ReloadResult:
        """Read the deployment's files again and apply what has changed in schemas, indexes and policies.

        The files are checked first. Where anything is wrong, nothing changes. New generations are built
        beside the ones that are served; this returns when that has begun.

        Args:
            timeout: seconds.

        Returns:
            The indexes that were added, removed, are built again, or get other settings.

        Raises:
            HeadraceError: every mistake, as an `ErrorGroup`: CONFIG, SCHEMA, BINDING …, also for a setting
                that needs a restart. BEHIND after `timeout`; an error of either server.
        """
        result = self._order(new_order(OrderKind.RELOAD, by=_BY), timeout)
        return ReloadResult(**{name: tuple(indexes) for name, indexes in result.items()})

    def verify(self, index: str, *, repair: bool = False, percent: float | None = None) -> Report:
        """Compare an index with the database, beside the stream.

        Args:
            index: the name of the index.
            repair: build wrong documents again.
            percent: compare only this percentage of the documents; None: all.

        Raises:
            HeadraceError: USAGE for an unknown index; an error of either server.
        """
        options = {"repair": repair, "percent": percent}
        return report_of(self._order(new_order(OrderKind.VERIFY, index, options=options, by=_BY)))

    def quarantined(self, index: str | None = None, document: str | None = None) -> list[Quarantined]:
        """Return the documents in quarantine, oldest first: all, those of an index, or the one with this id.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        return list_quarantined(self._endpoints, self._project.key, index, document)

    def retry_quarantined(self, index: str | None = None, document: str | None = None) -> RetriedDocuments:
        """Build quarantined documents again; those that are accepted leave the quarantine.

        Of very many that are refused again, only the first are named.

        Raises:
            HeadraceError: SCHEMA_CHANGED; an error of either server.
        """
        options = {"id": document}
        result = self._order(new_order(OrderKind.QUARANTINE_RETRY, index, options=options, by=_BY))
        return RetriedDocuments(result["found"], [Quarantined.from_json(entry) for entry in result["left"]])

    def drop_quarantined(self, index: str | None = None, document: str | None = None) -> list[Quarantined]:
        """Forget documents in quarantine until they change again; return those that are forgotten.

        Of very many, only the first are returned.

        Raises:
            HeadraceError: as for `quarantined`.
        """
        options = {"id": document}
        result = self._order(new_order(OrderKind.QUARANTINE_DROP, index, options=options, by=_BY))
        return [Quarantined.from_json(entry) for entry in result["dropped"]]

    def pause(self, by: str = _BY) -> None:
        """Plan no further batch until `resume`; the batch that runs is finished.

        Changes wait in the log, which the slot retains. The pause lasts through retries and ends with this
        run. Where this run stands by, it is the run that works which pauses.

        Args:
            by: who pauses, for the log and `/status`.

        Raises:
            HeadraceError: BEHIND: no run has taken the order; SINK_UNREACHABLE, SINK_BUSY.
        """
        self._order_at_once(new_order(OrderKind.PAUSE, by=by))

    def resume(self, by: str = _BY) -> None:
        """Plan batches again.

        Raises:
            HeadraceError: as for `pause`.
        """
        self._order_at_once(new_order(OrderKind.RESUME, by=by))

    def set_log_level(self, level: LogLevelName, by: str = _BY) -> None:
        """Log messages of the process that runs from `level` on.

        Raises:
            HeadraceError: USAGE for an unknown level; as for `pause`.
        """
        self._order_at_once(new_order(OrderKind.LOG_LEVEL, options={"level": level}, by=by))

    def _order_at_once(self, order: Order) -> None:
        follow_at_once(self.desk.mailbox, self.submit(order), _TAKEN_SECONDS)

    def _order(self, order: Order, timeout: float = math.inf) -> Any:
        """Submit an order, wait for its answer and return its result."""
        order = follow(self.desk.mailbox, self.submit(order), timeout, is_alive=lambda: not self._has_ended)
        if not order.has_ended:
            what = f"{order.kind.value} {order.index or ''}".rstrip()
            if self._has_ended:
                raise HeadraceError(Kind.BEHIND, f"the run ended before {what} was done")
            raise HeadraceError(
                Kind.BEHIND, f"{what} is not done after {timeout:g} s", "/status shows what the run does."
            )
        return result_of(order)

    def _applied(self) -> AppliedPosition:
        return AppliedPosition(self._endpoints, self._project.key)


def _local_address(options: RunOptions, endpoints: Endpoints) -> tuple[str, int] | None:
    """Return the cluster's address, which shows the workers' route to this machine; None for local Spark."""
    if options.is_local:
        return None
    url = urlsplit(endpoints.sink.urls[0])
    return url.hostname or "localhost", url.port or 9200
