"""How a run is told to end, and what is interrupted for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Stopped(BaseException):
    """Ends a start or a seeding that was told to stop; unwinds what it made."""


class Stopping(threading.Event):
    """Set when the run is to end.

    Within `interrupting`, `stop` raises `Stopped`, because there is no loop that would notice.
    """

    def __init__(self) -> None:
        super().__init__()
        self._raising = False

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """The first signal raises `Stopped` here, in the main thread."""
        self._raising = True
        try:
            if self.is_set():
                raise Stopped
            yield
        finally:
            self._raising = False

    @contextlib.contextmanager
    def patient(self) -> Iterator[None]:
        """Within `interrupting`: here nothing is raised, only behind it; for what must not stop half-way."""
        self._raising = False
        yield
        self._raising = True
        if self.is_set():
            raise Stopped

    def stop(self) -> None:
        """End the work in order; called in the main thread, it also ends what is interrupted for it.

        Raises:
            Stopped: within `interrupting`.
        """
        self.set()
        if self._raising:
            raise Stopped
