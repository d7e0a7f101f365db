"""What do Ctrl-C and SIGTERM do? The first ends the work in order, the second at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from headrace.cli import terminal

_AT_ONCE = 130
_HEARD = b" stopping \xe2\x80\xa6\r\n"
_LONGEST_SECONDS = 25.0
"""An orderly end that takes longer is cut off: whatever is not confirmed then repeats at the next start."""


class Stopped(BaseException):
    """Ends a start or a seeding that was told to stop; unwinds what it made."""


class Stopping(threading.Event):
    """Set by the first signal.

    Within `interrupting` the first signal raises `Stopped`, because there is no loop that would notice.
    """

    def __init__(self) -> None:
        super().__init__()
        self._raising = False

    def install(self) -> None:
        """Take over SIGINT and SIGTERM."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signalled)

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

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_set():
            os._exit(_AT_ONCE)
        self.set()
        if os.isatty(2):
            os.write(2, _HEARD)  # a print could be interrupting one
        watchdog = threading.Timer(_LONGEST_SECONDS, _cut_off)
        watchdog.daemon = True
        watchdog.start()
        if self._raising:
            raise Stopped


def _cut_off() -> None:
    """End without waiting any longer; the JVM and its workers end with this process."""
    terminal.warn("the end took too long and was cut off; the next start repeats what was not confirmed")
    os._exit(0)
