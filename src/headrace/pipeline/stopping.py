"""How a run is told to end, and what is interrupted for it."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator


class Stopped(BaseException):
    """Ends a start or a seeding that was told to stop; unwinds what it made."""


class Stopping(threading.Event):
    """Set when the run is to end (decision 0053).

    Within `interrupting`, `stop` raises `Stopped` in the thread that runs: no loop would notice there.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._interrupted: int | None = None

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within, `stop` raises `Stopped` here; a thread that sleeps hears of it when it wakes."""
        self._interrupted = threading.get_ident()
        try:
            if self.is_set():
                raise Stopped
            yield
        finally:
            self._spare()

    @contextlib.contextmanager
    def patient(self) -> Iterator[None]:
        """Within `interrupting`: here nothing is raised, only behind it; for what must not stop half-way."""
        self._spare()
        yield
        self._interrupted = threading.get_ident()
        if self.is_set():
            raise Stopped

    def stop(self) -> None:
        """End the work in order; from a signal's handler or from another thread. A second call does nothing.

        Raises:
            Stopped: called in the thread that runs, within `interrupting`.
        """
        with self._lock:
            if self.is_set():
                return
            self.set()
            if self._interrupted == threading.get_ident():
                raise Stopped
            if self._interrupted is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._interrupted), ctypes.py_object(Stopped)
                )

    def _spare(self) -> None:
        """Interrupt no more; who is about to be, is before this returns."""
        with self._lock:
            self._interrupted = None
