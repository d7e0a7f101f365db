"""What do the writers of all processes say together? A port hears their reports for as long as a run lives.

See `headrace.sinks.activity`. Who has said nothing for a while counts no more: its task has ended, or it.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from headrace.errors import HeadraceError
from headrace.sinks.activity import ActivityReport, Refusals, ReportTo

TROUBLE_SECONDS = 1.0
"""What ends within this time is the daily business of a busy cluster."""

_LARGEST = 65_507
_MOST_REFUSALS = 1_000


@dataclass(frozen=True, slots=True)
class SinkActivity:
    """What all writers of one sink do.

    Attributes:
        bulk_bytes: what the most careful of them puts into one request; None where nobody has written.
        in_flight: requests under way.
        retries: requests that were refused or not answered, since the run began.
        error: what one of them waits for.
    """

    name: str
    bulk_bytes: int | None = None
    in_flight: int = 0
    retries: int = 0
    error: HeadraceError | None = None


@dataclass(slots=True)
class _Heard:
    report: ActivityReport
    at: float
    since: float
    """When the trouble began that it tells of."""


@dataclass
class SinkReports:
    """The last report of each writer; thread-safe.

    Args:
        clock: monotonic seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _heard: dict[tuple[str, str], _Heard] = field(default_factory=dict)
    _gone: dict[str, int] = field(default_factory=dict)
    last: float = float("-inf")
    """When any writer was heard last."""
    _refusals: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_REFUSALS))

    def take(self, report: ActivityReport) -> None:
        """Note what a writer says."""
        with self._lock:
            key, now = (report.sink, report.writer), self.clock()
            self.last = now
            before = self._heard.get(key)
            goes_on = before is not None and before.report.trouble
            self._heard[key] = _Heard(report, now, before.since if before and goes_on else now)

    def refused(self, refusals: Refusals) -> None:
        """Note documents that a sink will not have; the oldest are forgotten where nobody takes them."""
        with self._lock:
            self._refusals.extend(refusals.lines)

    def take_refusals(self) -> list[str]:
        """What was noted of refused documents since the last call."""
        with self._lock:
            taken = list(self._refusals)
            self._refusals.clear()
        return taken

    def view(self) -> tuple[SinkActivity, ...]:
        """Every sink that was heard of, by name."""
        with self._lock:
            self._forget()
            names = {sink for sink, _ in self._heard} | set(self._gone)
            return tuple(self._of(name) for name in sorted(names))

    def _of(self, name: str) -> SinkActivity:
        heard = [one for (sink, _), one in self._heard.items() if sink == name]
        reports = [one.report for one in heard]
        lasting = [one.report for one in heard if self.clock() - one.since >= TROUBLE_SECONDS]
        return SinkActivity(
            name,
            min((one.bulk_bytes for one in reports), default=None),
            sum(one.in_flight for one in reports),
            self._gone.get(name, 0) + sum(one.retries for one in reports),
            next((one.error for one in lasting if one.error is not None), None),
        )

    def _forget(self) -> None:
        """What a silent writer counted stays; the rest was of its time."""
        for key, heard in list(self._heard.items()):
            if heard.at + heard.report.lasts < self.clock():
                del self._heard[key]
                self._gone[key[0]] = self._gone.get(key[0], 0) + heard.report.retries


class ReportsPort:
    """Hears reports on a free UDP port and hands them to `reports`; a context manager.

    Args:
        beside: host and port of something that the writers' machines reach too; None: they are this one.
    """

    def __init__(self, reports: SinkReports, *, beside: tuple[str, int] | None = None) -> None:
        self._reports = reports
        self._run = secrets.token_hex(16)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1" if beside is None else "", 0))
        self._host = "127.0.0.1" if beside is None else _own_address(beside)
        self._port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._listen, name="headrace reports", daemon=True)

    def to(self, sink: str) -> ReportTo:
        """Where the writers of `sink` report to."""
        return ReportTo(self._host, self._port, self._run, sink)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(self._run.encode(), ("127.0.0.1", self._port))
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while (data := self._socket.recv(_LARGEST)) != self._run.encode():
            heard = _heard(data)
            if heard is None or heard.run != self._run:
                continue
            if isinstance(heard, Refusals):
                self._reports.refused(heard)
            else:
                self._reports.take(heard)


def _heard(data: bytes) -> ActivityReport | Refusals | None:
    """What a datagram says; None where something else sent it."""
    for kind in (ActivityReport, Refusals):
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
            return kind.from_bytes(data)
    return None


def _own_address(other: tuple[str, int]) -> str:
    """The address under which `other` sees this machine; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(other)
        except OSError:
            return "127.0.0.1"
        host: str = probe.getsockname()[0]
        return host


def waiting_for(sinks: Iterable[SinkActivity]) -> HeadraceError | None:
    """What keeps one of `sinks` from taking documents."""
    return next((one.error for one in sinks if one.error is not None), None)
