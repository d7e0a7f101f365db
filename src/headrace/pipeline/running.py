"""A pipeline that runs in this process: begun, asked how it stands, and ended."""

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
from headrace.pipeline.applied_position import AppliedPosition, awaited_position, wait_until_applied
from headrace.pipeline.generation_requests import ask, wait_until_served
from headrace.pipeline.project import Endpoints, Project
from headrace.pipeline.run import PipelineRun, RunOptions
from headrace.pipeline.stopping import Stopped, Stopping
from headrace.pipeline.verification.report import Report
from headrace.pipeline.verification.verify import VerifyOptions, verify
from headrace.pipeline.wait_service import WaitService
from headrace.reporter import Reporter
from headrace.spark.session import master_of
from headrace.spark.settings import is_local
from headrace.status.board import StatusBoard
from headrace.status.server import StatusServer
from headrace.status.sinks import ReportsPort

_LOOK_SECONDS = 0.05


class RunningPipeline:
    """One run of a pipeline; leaving its context ends it in order.

    Args:
        address: `HOST:PORT` that serves /status and its like; None serves nothing.
        stopping: set where the run is to end. None: it runs in a thread of its own, from the context's
            beginning to its end; else whoever has it calls `execute`.

    Attributes:
        board: how it stands, kept up to date by the run.
        address: where it serves its status; None where it does not.
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
                status = held.enter_context(StatusServer(self.board, self._wanted_address, waits))
                self.address = status.address
            port = held.enter_context(
                ReportsPort(self.board.sinks, beside=_reached(self._options, endpoints))
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
        """Run in this thread, until told to stop.

        Raises:
            HeadraceError: what ended the run.
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
                return  # what was waited for when it was told to stop
            self.board.failed(error)
            raise

    def _execute(self) -> None:
        try:
            self.execute()
        except HeadraceError as error:
            self._failure = error
        except Exception as bug:  # noqa: BLE001 - whoever leaves the context hears of it
            self._failure = HeadraceError(Kind.INTERNAL, f"a bug: {type(bug).__name__}: {bug}")

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Return once every index is filled and the stream follows.

        Args:
            timeout: seconds.

        Raises:
            HeadraceError: BEHIND where that is not within `timeout`; what ended the run.
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
        """How it stands now: the JSON of /status, as `docs/operations.md` describes it."""
        return self.board.snapshot()

    def wait(self, lsn: str | None = None, *, searchable: bool = False, timeout: float = 60.0) -> Lsn:
        """Return once everything that is committed before `lsn` is in the documents of every index.

        Args:
            lsn: as PostgreSQL prints it; None is the end of the server's log now.
            searchable: refresh the indexes then, so that a search finds it.
            timeout: seconds.

        Returns:
            The place in the log that was waited for, in bytes.

        Raises:
            HeadraceError: BEHIND where it is not within `timeout`; USAGE, CONNECTION, SINK_UNREACHABLE.
        """
        with self._applied() as applied:
            awaited = applied.end_of_log() if lsn is None else awaited_position(lsn)
            wait_until_applied(applied, awaited, self._project.slot, timeout=timeout, searchable=searchable)
        return awaited

    def reindex(self, index: str, *, timeout: float = 3600.0) -> str:
        """Build an index anew beside what is served; the generation that readers see then.

        Args:
            timeout: seconds until it is to be served.

        Raises:
            HeadraceError: USAGE for an unknown index; BEHIND, SINK_REJECTED; CONNECTION, SINK_UNREACHABLE.
        """
        with self._applied() as applied:
            return wait_until_served(applied, ask(applied, self._project, index, "reindex"), timeout)

    def rollback(self, index: str, *, timeout: float = 60.0) -> str:
        """Let readers see the generation before; which one that is.

        Raises:
            HeadraceError: as `reindex`; USAGE where there is none to go back to.
        """
        with self._applied() as applied:
            return wait_until_served(applied, ask(applied, self._project, index, "rollback"), timeout)

    def verify(self, index: str, *, repair: bool = False, percent: float | None = None) -> Report:
        """Compare an index with the database, beside the stream.

        Args:
            repair: build anew what is wrong.
            percent: compare only so many of a hundred documents; None: all.

        Raises:
            HeadraceError: USAGE for an unknown index; what either side does not bear.
        """
        return verify(self._project, index, VerifyOptions(repair, percent), self._reporter)

    def _applied(self) -> AppliedPosition:
        return AppliedPosition(self._endpoints, self._project.slot, self._project.prefix)


def _reached(options: RunOptions, endpoints: Endpoints) -> tuple[str, int] | None:
    """What the machines of the workers reach as we do, the search cluster; None where they are this one."""
    master = options.master if options.session is None else master_of(options.session)
    if is_local(master):
        return None
    url = urlsplit(endpoints.sink.urls[0])
    return url.hostname or "localhost", url.port or 9200
