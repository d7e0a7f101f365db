"""Run a pipeline in this process: start it, ask for its status, stop it."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from headrace.errors import HeadraceError, Kind, Retry
from headrace.model import Lsn
from headrace.pipeline.applied_position import AppliedPosition, parse_position, wait_until_applied
from headrace.pipeline.explain import Explainer
from headrace.pipeline.generation_states import request_generation, wait_until_served
from headrace.pipeline.project import Project
from headrace.pipeline.run import PipelineRun, RunOptions
from headrace.pipeline.stopping import Stopped, Stopping
from headrace.pipeline.verification.report import Report
from headrace.pipeline.verification.verify import VerifyOptions, verify
from headrace.pipeline.wait_service import WaitService
from headrace.pipeline.worker.plan import Endpoints
from headrace.reporter import Reporter
from headrace.status.board import StatusBoard
from headrace.status.server import StatusServer
from headrace.status.sinks import ReportsPort

_LOOK_SECONDS = 0.05


class RunningPipeline:
    """One run of a pipeline; leaving its context stops the run in order.

    Args:
        project: the deployment and its schemas.
        reporter: receives progress and warnings.
        options: the options of the run.
        address: `HOST:PORT` that serves /status and the other endpoints; None serves nothing.
        stopping: set to end the run; the caller then calls `execute`. None: the run has a thread of its own
            while the context is entered.

    Attributes:
        board: the status, kept up to date by the run.
        address: where the status is served; None where it is not.
    """

    def __init__(
        self,
        project: Project,
        reporter: Reporter,
        options: RunOptions,
        *,
        address: str | None = None,
        stopping: Stopping | None = None,
    ) -> None:
        self.board = StatusBoard(project.specs, secondary=project.secondary, reporter=reporter)
        self.address: str | None = None
        self._project = project
        self._endpoints = project.resolve()
        self._reporter = reporter
        self._options = options
        self._wanted_address = address
        self._stopping = Stopping() if stopping is None else stopping
        self._is_threaded = stopping is None
        self._live = threading.Event()
        self._held = contextlib.ExitStack()
        self._thread: threading.Thread | None = None
        self._failure: HeadraceError | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as held:
            endpoints, project = self._endpoints, self._project
            if self._wanted_address is not None:
                waits = held.enter_context(WaitService(self._applied))
                status = held.enter_context(
                    StatusServer(self.board, self._wanted_address, waits, Explainer(project, endpoints))
                )
                self.address = status.address
            port = held.enter_context(
                ReportsPort(self.board.sinks, beside=_local_address(self._options, endpoints))
            )
            self._project = dataclasses.replace(project, reports=port.to(project.sink_name))
            self._held = held.pop_all()
        if self._is_threaded:
            self._thread = threading.Thread(target=self._execute, name="headrace run")
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._thread is not None:
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
            self.board,
            self._stopping,
            options=self._options,
            on_live=self._live.set,
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

    def _execute(self) -> None:
        try:
            self.execute()
        except HeadraceError as error:
            self._failure = error
        except Exception as bug:  # noqa: BLE001 - leaving the context raises it
            self._failure = HeadraceError(Kind.INTERNAL, f"a bug: {type(bug).__name__}: {bug}")

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
        """Return the status now: the JSON of /status, as `docs/operations.md` describes it."""
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
            wait_until_applied(applied, awaited, self._project.slot, timeout=timeout, searchable=searchable)
        return awaited

    def reindex(self, index: str, *, timeout: float = 3600.0) -> str:
        """Build an index again beside the served generation; return the generation that readers see then.

        Args:
            index: the name of the index.
            timeout: seconds until the new generation must be served.

        Raises:
            HeadraceError: USAGE for an unknown index; BEHIND, SINK_REJECTED; CONNECTION, SINK_UNREACHABLE.
        """
        with self._applied() as applied:
            return wait_until_served(
                applied, request_generation(applied, self._project, index, "reindex"), timeout
            )

    def rollback(self, index: str, *, timeout: float = 60.0) -> str:
        """Serve the former generation of an index; return its name.

        Raises:
            HeadraceError: as for `reindex`; USAGE: there is no generation to roll back to.
        """
        with self._applied() as applied:
            return wait_until_served(
                applied, request_generation(applied, self._project, index, "rollback"), timeout
            )

    def verify(self, index: str, *, repair: bool = False, percent: float | None = None) -> Report:
        """Compare an index with the database, beside the stream.

        Args:
            index: the name of the index.
            repair: build wrong documents again.
            percent: compare only this percentage of the documents; None: all.

        Raises:
            HeadraceError: USAGE for an unknown index; an error of either server.
        """
        return verify(self._project, index, VerifyOptions(repair, percent), self._reporter)

    def _applied(self) -> AppliedPosition:
        return AppliedPosition(self._endpoints, self._project.slot, self._project.prefix)


def _local_address(options: RunOptions, endpoints: Endpoints) -> tuple[str, int] | None:
    """Return the cluster's address, which shows the workers' route to this machine; None for local Spark."""
    if options.is_local:
        return None
    url = urlsplit(endpoints.sink.urls[0])
    return url.hostname or "localhost", url.port or 9200
