"""Report to the driver what writers do, while their tasks run.

A writer lives in a worker process, perhaps on another machine, and its result arrives only when its task
ends: not while a cluster refuses what it sends. Until then the writer sends datagrams. A lost one costs
nothing: the next one repeats the state.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

from headrace.errors import HeadraceError, Kind
from headrace.model.stage import Stage

_PAUSE = 0.5
_LONGEST_TEXT = 1_000
_LONGEST_PAUSE = 30.0  # before a request is retried, including what is read from the database for it


_Operation = TypeVar("_Operation")


@dataclass(frozen=True, slots=True)
class ReportTo:
    """Address to which writers send their reports.

    Attributes:
        host, port: where the driver listens.
        run: id of the run, so that a driver ignores the writers of another run.
        sink: the sink's name in the deployment file.
    """

    host: str
    port: int
    run: str
    sink: str


@dataclass(frozen=True, slots=True)
class _Report:
    """What is sent in one datagram.

    Attributes:
        run, sink: as `ReportTo`.
    """

    run: str
    sink: str

    def to_bytes(self) -> bytes:
        """Encode as a datagram."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class ActivityReport(_Report):
    """State of one writer, as sent to the driver.

    Attributes:
        writer: id of the writer.
        bulk_bytes: current limit of one request.
        in_flight: requests that are under way.
        retries: requests that were sent again or refused, since the writer began.
        lasts: seconds; a writer that reports nothing for longer has ended.
        failure: kind (a name of `Kind`), cause and remedy of what it waits for; empty where it waits for
            nothing.
        accepted: requests that were accepted, since the writer began.
    """

    writer: str
    bulk_bytes: int
    in_flight: int
    retries: int
    lasts: float
    failure: tuple[str, str, str] | tuple[()] = ()
    accepted: int = 0

    @property
    def error(self) -> HeadraceError | None:
        """Return the error that the writer waits for, or None."""
        if not self.failure:
            return None
        kind, cause, remedy = self.failure
        return HeadraceError(Kind[kind], cause, remedy)


@dataclass(frozen=True, slots=True)
class RejectionsReport(_Report):
    """Documents that a sink refused and that the run continues without, one line for each."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StageReport(_Report):
    """The stage that a worker's task has come to; empty when the task is done.

    Attributes:
        worker: host and pid of the process.
        stage: a value of `Stage`.
    """

    worker: str
    stage: str


@dataclass(frozen=True, slots=True)
class BackfillReport(_Report):
    """How far one task of a backfill's job is.

    Attributes:
        job: the id of the job.
        task: the number of the task in it.
        written: by generation, how many documents the task has written, and how many ranges are finished.
    """

    job: str
    task: int
    written: Mapping[str, tuple[int, int]]


class BackfillCounter:
    """Counts what one task of a backfill writes, and reports it twice a second; used from one thread.

    Args:
        to: where reports go; without it nothing is sent.
        job, task: as `BackfillReport`.
    """

    def __init__(self, to: ReportTo | None, job: str, task: int) -> None:
        self._to = to
        self._job, self._task = job, task
        self._finished: dict[str, tuple[int, int]] = {}
        self._written: dict[str, tuple[int, int]] = {}
        self._next = time.monotonic() + _PAUSE

    def count(self, generation: str, operations: Iterable[_Operation]) -> Iterator[_Operation]:
        """Yield the operations of a range, and count each that is taken; a repeated range counts once.

        They are counted a moment before they are durable; `finish` knows better.
        """
        before, ranges = self._finished.get(generation, (0, 0))
        for number, operation in enumerate(operations, start=1):
            yield operation
            self._written[generation] = before + number, ranges
            if time.monotonic() >= self._next:
                self._report()

    def finish(self, generation: str, documents: int) -> None:
        """Count a finished range, of which so many documents were written."""
        before, ranges = self._finished.get(generation, (0, 0))
        self._finished[generation] = self._written[generation] = before + documents, ranges + 1
        self._report()

    def _report(self) -> None:
        self._next = time.monotonic() + _PAUSE
        if (to := self._to) is not None:
            _send(to, BackfillReport(to.run, to.sink, self._job, self._task, self._written))


def report_stage(to: ReportTo | None, stage: Stage | None) -> None:
    """Report the stage that this process's task has come to, None at its end; does nothing without `to`."""
    if to is not None:
        _send(to, StageReport(to.run, to.sink, f"{socket.gethostname()}:{os.getpid()}", stage or ""))


def report_rejections(to: ReportTo | None, lines: Sequence[str]) -> None:
    """Report documents that the run continues without; does nothing without `to`."""
    if to is not None and lines:
        # A line each: a datagram that is too large is lost.
        _send(to, *(RejectionsReport(to.run, to.sink, (line[:_LONGEST_TEXT],)) for line in lines))


def _send(to: ReportTo, *reports: _Report) -> None:
    # Datagrams: one that is lost costs nothing, and no writer waits for who reads them.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        for report in reports:
            with contextlib.suppress(OSError):  # nobody listens, or no network: nothing depends on it
                port.sendto(report.to_bytes(), (to.host, to.port))


class Activity:
    """Track what one writer does and report it; thread-safe. Without `to`, nothing is sent.

    Args:
        to: where reports go.
        bulk_bytes: as `ActivityReport`.
        timeout: seconds that one request may take.
    """

    def __init__(self, to: ReportTo | None, bulk_bytes: int, timeout: float) -> None:
        self._to = to
        # One process has several writers, and a restarted one the same pid perhaps.
        writer = f"{socket.gethostname()}:{os.getpid()}:{id(self):x}"
        run, sink = ("", "") if to is None else (to.run, to.sink)
        self._state = ActivityReport(run, sink, writer, bulk_bytes, 0, 0, timeout + _LONGEST_PAUSE)
        self._lock = threading.RLock()
        self._next = 0.0

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Count a request as in flight while the context is entered."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def accepted(self, bulk_bytes: int) -> None:
        """Note that a request was accepted; the next one may have `bulk_bytes`."""
        with self._lock:
            before = self._state
            self._state = replace(before, bulk_bytes=bulk_bytes, accepted=before.accepted + 1, failure=())
            # Without the report of an idle writer it would look as if it waited for an answer.
            self._tell(now=bool(before.failure) or not before.in_flight)

    def refused(self, error: HeadraceError, bulk_bytes: int) -> None:
        """Note that a request was refused; it, or its documents assembled again, will be sent again."""
        failure = error.kind.name, error.cause[:_LONGEST_TEXT], error.remedy
        with self._lock:
            retries = self._state.retries + 1
            self._state = replace(self._state, bulk_bytes=bulk_bytes, retries=retries, failure=failure)
            self._tell(now=True)

    def close(self) -> None:
        """Send a last report."""
        self._tell(now=True)

    def _count(self, requests: int) -> None:
        with self._lock:
            self._state = replace(self._state, in_flight=self._state.in_flight + requests)
            self._tell(now=False)

    def _tell(self, *, now: bool) -> None:
        with self._lock:
            # Twice a second is enough for people; what changes the state is told at once.
            if self._to is not None and (now or time.monotonic() >= self._next):
                self._next = time.monotonic() + _PAUSE
                _send(self._to, self._state)
