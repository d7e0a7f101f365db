"""Collect the reports of writers from all processes, over a UDP port that is open during a run.

`headrace.sinks.activity` sends them. A writer without a recent report does not count any more: its task has
ended, or its process.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from pydantic import TypeAdapter, ValidationError

from headrace.errors import HeadraceError
from headrace.model.stage import Stage
from headrace.sinks.activity import ActivityReport, BackfillReport, RejectionsReport, ReportTo, StageReport

SHOWN_AFTER_SECONDS = 1.0
"""A failure that ends within this time is normal for a busy cluster, and not shown."""

Report = ActivityReport | RejectionsReport | StageReport | BackfillReport
_REPORT: TypeAdapter[Report] = TypeAdapter(Report)
_MAX_DATAGRAM = 65_507
_MAX_REJECTIONS = 1_000


@dataclass(frozen=True, slots=True)
class SinkActivity:
    """What all writers of one sink do.

    Attributes:
        bulk_bytes: the smallest size of a request among the writers; None where nothing was written.
        in_flight: bulk requests under way.
        retries: requests that were refused or not answered, since the run began.
        error: the error for which one of the writers waits.
    """

    name: str
    bulk_bytes: int | None = None
    in_flight: int = 0
    retries: int = 0
    error: HeadraceError | None = None


@dataclass(frozen=True, slots=True)
class TaskActivity:
    """What a task of a worker does.

    Attributes:
        worker: host and pid of the process.
        stage: the stage that the task has come to.
        heard: when it reported last (the clock's seconds).
    """

    worker: str
    stage: Stage
    heard: float


@dataclass(slots=True)
class _LastReport:
    report: ActivityReport
    at: float
    since: float
    """When the reported failure began."""


@dataclass
class SinkReports:
    """The last report of each writer; thread-safe.

    Args:
        clock: monotonic seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _last_reports: dict[tuple[str, str], _LastReport] = field(default_factory=dict)
    _retries_of_ended: dict[str, int] = field(default_factory=dict)
    last: float = float("-inf")
    """When a task of the stream, or a writer in its process, reported progress last."""
    _tasks: dict[tuple[str, str], TaskActivity] = field(default_factory=dict)
    _jobs: dict[str, dict[int, Mapping[str, tuple[int, int]]]] = field(default_factory=dict)
    """What each task of a backfill's job has written, by the job's id."""
    _rejections: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_REJECTIONS))

    def take(self, report: ActivityReport) -> None:
        """Note a writer's report."""
        with self._lock:
            key, now = (report.sink, report.writer), self.clock()
            before = self._last_reports.get(key)
            # A backfill writes too. Its progress must not hide a stream that stands still.
            if report.accepted > (0 if before is None else before.report.accepted) and self._is_task(report):
                self.last = now
            # A failure lasts from its first report on, however often it is reported.
            goes_on = before is not None and before.report.failure
            self._last_reports[key] = _LastReport(report, now, before.since if before and goes_on else now)

    def take_stage(self, report: StageReport) -> None:
        """Note the stage of a task."""
        with self._lock:
            key, self.last = (report.sink, report.worker), self.clock()
            self._tasks.pop(key, None)
            if report.stage:
                self._tasks[key] = TaskActivity(report.worker, Stage(report.stage), self.last)

    def forget_tasks(self) -> None:
        """Forget the tasks of a query that has ended: a process that was killed reports no end."""
        with self._lock:
            self._tasks.clear()

    def oldest_task(self, sink: str) -> TaskActivity | None:
        """Return the task of a sink that has been silent for the longest time; None without any."""
        with self._lock:
            tasks = [task for (name, _), task in self._tasks.items() if name == sink]
            return min(tasks, key=lambda task: task.heard, default=None)

    @contextlib.contextmanager
    def backfill_job(self, job: str) -> Iterator[Callable[[str], tuple[int, int]]]:
        """Collect what the tasks of a job report while the context is entered.

        Yields:
            A function that returns how many documents of a generation the job has written, and how many
            ranges it has finished.
        """
        with self._lock:
            tasks = self._jobs[job] = {}

        def written(generation: str) -> tuple[int, int]:
            with self._lock:
                counts = [found.get(generation, (0, 0)) for found in tasks.values()]
            return sum(documents for documents, _ in counts), sum(ranges for _, ranges in counts)

        try:
            yield written
        finally:
            with self._lock:
                del self._jobs[job]

    def take_backfill(self, report: BackfillReport) -> None:
        """Note how far a task of a backfill is; a job that has ended is not known any more."""
        with self._lock:
            if report.job in self._jobs:
                self._jobs[report.job][report.task] = report.written

    def rejected(self, rejections: RejectionsReport) -> None:
        """Note documents that a sink refuses; the oldest are dropped where nothing takes them."""
        with self._lock:
            self._rejections.extend(rejections.lines)

    def take_rejections(self) -> list[str]:
        """Return the refused documents that were noted since the last call."""
        with self._lock:
            taken = list(self._rejections)
            self._rejections.clear()
        return taken

    def view(self) -> tuple[SinkActivity, ...]:
        """Return the activity of every sink that has reported, by name."""
        with self._lock:
            self._forget()
            names = {sink for sink, _ in self._last_reports} | set(self._retries_of_ended)
            return tuple(self._sum(name, self._of_sink(name)) for name in sorted(names))

    def of_tasks(self, name: str) -> SinkActivity | None:
        """Return what the writers of a sink do in the stream's tasks; None where there are none."""
        with self._lock:
            self._forget()
            reports = [last for last in self._of_sink(name) if self._is_task(last.report)]
            return self._sum(name, reports) if reports else None

    def _is_task(self, report: ActivityReport) -> bool:
        """Whether a writer's process has a task of the stream; else it works for a job beside it."""
        process = report.writer.rpartition(":")[0]
        return any(worker == process for _, worker in self._tasks)

    def _of_sink(self, name: str) -> list[_LastReport]:
        return [last for (sink, _), last in self._last_reports.items() if sink == name]

    def _sum(self, name: str, last_reports: Sequence[_LastReport]) -> SinkActivity:
        reports = [last.report for last in last_reports]
        lasting = [last.report for last in last_reports if self.clock() - last.since >= SHOWN_AFTER_SECONDS]
        return SinkActivity(
            name,
            min((report.bulk_bytes for report in reports), default=None),
            sum(report.in_flight for report in reports),
            self._retries_of_ended.get(name, 0) + sum(report.retries for report in reports),
            next((report.error for report in lasting if report.error is not None), None),
        )

    def _forget(self) -> None:
        """Remove silent writers; only their retries still count."""
        for key, last in list(self._last_reports.items()):
            if last.at + last.report.lasts < self.clock():
                del self._last_reports[key]
                self._retries_of_ended[key[0]] = self._retries_of_ended.get(key[0], 0) + last.report.retries


class ReportsPort:
    """Receive reports on a free UDP port and pass them to `reports`; a context manager.

    Args:
        beside: host and port that the writers' machines reach too; None: the writers run on this machine.
    """

    def __init__(self, reports: SinkReports, *, beside: tuple[str, int] | None = None) -> None:
        self._reports = reports
        # A task of an earlier run, or a stranger, may send to the same port.
        self._run = secrets.token_hex(16)
        # UDP: a report that is lost costs a figure, and no task ever waits for one to be taken.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # Where all writers are local, nobody else reaches the port.
        self._socket.bind(("127.0.0.1" if beside is None else "", 0))
        self._host = "127.0.0.1" if beside is None else _own_address(beside)
        self._port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._listen, name="headrace reports", daemon=True)

    def to(self, sink: str) -> ReportTo:
        """Return the address that the writers of `sink` report to."""
        return ReportTo(self._host, self._port, self._run, sink)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            # It wakes the thread, which waits for a datagram.
            last.sendto(self._run.encode(), ("127.0.0.1", self._port))
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while (data := self._socket.recv(_MAX_DATAGRAM)) != self._run.encode():
            report = parse_report(data)
            if report is None or report.run != self._run:
                continue
            if isinstance(report, RejectionsReport):
                self._reports.rejected(report)
            elif isinstance(report, StageReport):
                self._reports.take_stage(report)
            elif isinstance(report, BackfillReport):
                self._reports.take_backfill(report)
            else:
                self._reports.take(report)


def parse_report(data: bytes) -> Report | None:
    """Parse a datagram; None where it is no report."""
    with contextlib.suppress(ValidationError):
        return _REPORT.validate_json(data)
    return None


def _own_address(other: tuple[str, int]) -> str:
    """Return the address under which `other` sees this machine; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(other)
        except OSError:
            return "127.0.0.1"
        host: str = probe.getsockname()[0]
        return host


def first_error(sinks: Iterable[SinkActivity]) -> HeadraceError | None:
    """Return the first error for which one of `sinks` takes no documents; None without one."""
    return next((sink.error for sink in sinks if sink.error is not None), None)
