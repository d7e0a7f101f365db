"""How does whoever runs the pipeline learn what its writers are doing, wherever they are?

A writer lives in a worker process, perhaps on another machine, and is heard from only when its task ends:
not while a cluster refuses what it sends. So it tells meanwhile, in datagrams: lost ones cost nothing, the
next says the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Self

from headrace.errors import HeadraceError, Kind

_PAUSE = 0.5
_LONGEST_TEXT = 1_000
_LONGEST_PAUSE = 30.0  # before a request is tried again, with what is read from the database for it


@dataclass(frozen=True, slots=True)
class ReportTo:
    """Where reports go.

    Attributes:
        host, port: of the run that listens.
        run: what it calls itself, so that it does not listen to another one's writers.
        sink: the sink's name in the deployment file.
    """

    host: str
    port: int
    run: str
    sink: str


@dataclass(frozen=True, slots=True)
class ActivityReport:
    """What one writer is doing.

    Attributes:
        writer: tells writers apart.
        bulk_bytes: what it puts into one request at most, right now.
        in_flight: requests that are under way.
        retries: requests that were sent again, or refused to be, since it began.
        lasts: seconds; a writer that says nothing for longer has ended.
        trouble: code and cause of what it waits for, as `Kind` names it; empty where it waits for nothing.
    """

    run: str
    sink: str
    writer: str
    bulk_bytes: int
    in_flight: int
    retries: int
    lasts: float
    trouble: tuple[str, str, str] | tuple[()] = ()

    def to_bytes(self) -> bytes:
        """As a datagram."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` made.

        Raises:
            ValueError, TypeError: something else sent it.
        """
        found = json.loads(data)
        return cls(**{**found, "trouble": tuple(found["trouble"])})

    @property
    def error(self) -> HeadraceError | None:
        """What it waits for."""
        if not self.trouble:
            return None
        kind, cause, remedy = self.trouble
        return HeadraceError(Kind[kind], cause, remedy)


@dataclass(frozen=True, slots=True)
class Refusals:
    """Documents that a sink will not have and that the run goes on without, each in one line."""

    run: str
    sink: str
    lines: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """As a datagram."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` made.

        Raises:
            ValueError, TypeError, KeyError: something else sent it.
        """
        found = json.loads(data)
        return cls(found["run"], found["sink"], tuple(map(str, found["lines"])))


def tell_refusals(to: ReportTo | None, lines: Sequence[str]) -> None:
    """Tell the run of documents that it goes on without; without `to`, nobody is told."""
    if to is None or not lines:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        for line in lines:
            refusals = Refusals(to.run, to.sink, (line[:_LONGEST_TEXT],))
            with contextlib.suppress(OSError):  # nobody listens, or no network: nothing depends on it
                port.sendto(refusals.to_bytes(), (to.host, to.port))


class Activity:
    """What one writer is doing; thread-safe. Without `to`, nobody is told.

    Args:
        bulk_bytes: as `ActivityReport`.
        timeout: seconds that one request may take.

    Attributes:
        retries: as `ActivityReport`.
    """

    def __init__(self, to: ReportTo | None, bulk_bytes: int, timeout: float) -> None:
        self._to = to
        self._lasts = timeout + _LONGEST_PAUSE
        self._writer = f"{socket.gethostname()}:{os.getpid()}:{id(self):x}"
        self._lock = threading.Lock()
        self._socket = None if to is None else socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._bulk_bytes = bulk_bytes
        self._in_flight = 0
        self._trouble: tuple[str, str, str] | tuple[()] = ()
        self._next = 0.0
        self.retries = 0

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """A request is under way for as long as this is entered."""
        self._change(in_flight=1)
        try:
            yield
        finally:
            self._change(in_flight=-1)

    def accepted(self, bulk_bytes: int) -> None:
        """A request was taken; the next may have `bulk_bytes`."""
        with self._lock:
            self._bulk_bytes = bulk_bytes
            healed, self._trouble = bool(self._trouble), ()
        self._tell(now=healed)

    def refused(self, error: HeadraceError, bulk_bytes: int) -> None:
        """A request was not taken; it, or its documents anew, will be sent again."""
        with self._lock:
            self.retries += 1
            self._bulk_bytes = bulk_bytes
            self._trouble = (error.kind.name, error.cause[:_LONGEST_TEXT], error.remedy)
        self._tell(now=True)

    def close(self) -> None:
        """Nobody is told any more."""
        if self._socket is not None:
            self._tell(now=True)
            self._socket.close()
            self._socket = None

    def _change(self, in_flight: int) -> None:
        with self._lock:
            self._in_flight += in_flight
        self._tell(now=False)

    def _tell(self, *, now: bool) -> None:
        to = self._to
        with self._lock:
            if to is None or self._socket is None or (not now and time.monotonic() < self._next):
                return
            self._next = time.monotonic() + _PAUSE
            report = ActivityReport(
                to.run,
                to.sink,
                self._writer,
                self._bulk_bytes,
                self._in_flight,
                self.retries,
                self._lasts,
                self._trouble,
            )
            with contextlib.suppress(OSError):  # nobody listens, or no network: nothing depends on it
                self._socket.sendto(report.to_bytes(), (to.host, to.port))
