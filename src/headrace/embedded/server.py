"""The life cycle of an embedded server: enter, start, stop, kill, close."""

from __future__ import annotations

import abc
import atexit
import contextlib
import re
import shutil
import signal
from pathlib import Path
from typing import Self

from headrace.embedded.processes import GuardedProcess, free_port, port_is_free, tail, until
from headrace.errors import HeadraceError, Kind

READY_WITHIN = 240.0
"""Seconds; an idle machine needs 4."""

_ATTEMPTS = 5
_PORT_TAKEN = re.compile("Address already in use|BindException|Failed to bind")


def disk_error(cause: object, place: object) -> HeadraceError:
    """Return the user's error for a failed file operation, or for a server's output that tells of one."""
    if "No space left" in str(cause):
        return HeadraceError(Kind.DISK, f"the disk of {place} is full", "Free some space, or set TMPDIR.")
    return HeadraceError(Kind.DISK, f"{place} cannot be written: {cause}", "Set TMPDIR.")


class EmbeddedServer(abc.ABC):
    """A server on a free loopback port with a temporary folder, as a context manager.

    Data and port survive `stop`, `kill` and `start`. `close` removes the folder; the end of the context and
    of this process call it. A kill -9 of this process ends the server too.

    Args:
        folder: the server's folder, which `close` removes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "server.log"
        self._port = 0
        self._process: GuardedProcess | None = None

    def __enter__(self) -> Self:
        atexit.register(self.close)
        try:
            self._prepare()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The TCP port, the same for as long as this object lives; 0 before the first start."""
        return self._port

    @property
    def running(self) -> bool:
        """Whether the server runs."""
        return self._process is not None and self._process.running

    def start(self) -> None:
        """Start the server on its data and, once it has one, on its port; return when it answers.

        Raises:
            HeadraceError: PORT_IN_USE, DISK, or the reason why the server does not start.
        """
        if self.running:
            return
        if self._port:
            until(lambda: port_is_free(self._port), 5)
            self._launch(self._port)
            return
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._launch(self._find_port())
            except HeadraceError as error:
                # Between the look for a free port and the start another program may take it.
                if error.kind is not Kind.PORT_IN_USE or attempt == _ATTEMPTS:
                    raise
            else:
                return

    @abc.abstractmethod
    def stop(self) -> None:
        """Shut the server down; kill it if it does not end in time."""

    def kill(self) -> None:
        """Kill -9 the server with all its processes, as a crash of the machine would."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def close(self) -> None:
        """Stop the server and remove its folder; idempotent."""
        atexit.unregister(self.close)
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def log(self, lines: int = 50) -> str:
        """Return the last lines of the server's log."""
        return tail(self._log, lines)

    def _prepare(self) -> None:  # noqa: B027 - not every server has data to create
        """Create the data before the first start."""

    def _find_port(self) -> int:
        """Return a port that is free now."""
        return free_port()

    def _launch(self, port: int) -> None:
        """Start the server on this port; return when it answers."""
        before, self._port = self._port, port
        with contextlib.ExitStack() as not_started:
            not_started.callback(setattr, self, "_port", before)
            self._log.write_bytes(b"")
            self._process = self._spawn()
            until(lambda: not self.running or self._moved() or self._ready(), READY_WITHIN)
            if not self.running or self._moved() or not self._ready():
                self.kill()
                raise self._start_error()
            not_started.pop_all()

    @abc.abstractmethod
    def _spawn(self) -> GuardedProcess:
        """Start the server's process, which is to listen on `port`."""

    @abc.abstractmethod
    def _ready(self) -> bool:
        """Return whether this server, not another one on its port, answers."""

    def _moved(self) -> bool:
        """Return whether the server listens on another port, because its own was taken."""
        return False

    def _start_error(self) -> HeadraceError:
        output = self.log(10_000)
        if self._moved() or _PORT_TAKEN.search(output) or not port_is_free(self._port):
            taken = f"port {self._port} on 127.0.0.1 is taken by another program"
            return HeadraceError(Kind.PORT_IN_USE, taken)
        return disk_error(output, self._folder) if "No space left" in output else self._failure(output)

    @abc.abstractmethod
    def _failure(self, output: str) -> HeadraceError:
        """Return the error of a server that did not start, from what it said."""

    def _end(self, number: signal.Signals, seconds: float) -> None:
        """Send the server a signal, and kill it if it does not end in time."""
        if self._process is not None:
            self._process.signal(number)
            if not self._process.wait(seconds):
                self._process.kill()
            self._process = None
