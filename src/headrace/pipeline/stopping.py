"""Signal a run to end, and interrupt waits for it."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator


class Stopped(KeyboardInterrupt):
    """Ends a start or a backfill when stopping is requested; unwinding undoes what it created.

    An interrupt by its kind, so that it is never taken for a failure of the code of a user.
    """


class Stopping(threading.Event):
    """An event that ends the run (decision 0053).

    Within `interrupting`, `stop` raises `Stopped` in the thread that runs: code there has no loop that would
    notice the event.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._interrupted: int | None = None

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Let `stop` raise `Stopped` in this block; a thread that sleeps gets it when it wakes."""
        self._interrupted = threading.get_ident()
        try:
            # A stop that came before has found no thread to interrupt.
            if self.is_set():
                raise Stopped
            yield
        finally:
            self._spare()

    @contextlib.contextmanager
    def patient(self) -> Iterator[None]:
        """Within `interrupting`, delay `Stopped` to the end of this block: it must not stop half-way."""
        self._spare()
        yield
        self._interrupted = threading.get_ident()
        if self.is_set():
            raise Stopped

    def stop(self) -> None:
        """Request the end of the run, from a signal handler or another thread. A second call does nothing.

        Raises:
            Stopped: when called in the thread that runs, within `interrupting`.
        """
        # Held while `Stopped` is raised: `_spare` waits for it, so that it never arrives after the block.
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
        """Interrupt no more; a pending interrupt arrives before this returns."""
        with self._lock:
            self._interrupted = None
