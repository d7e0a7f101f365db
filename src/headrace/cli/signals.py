"""Handle Ctrl-C and SIGTERM: the first ends the work in order, the second at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from headrace.cli import terminal
from headrace.pipeline.stopping import Stopping

_INTERRUPTED = 130
_HEARD = b" stopping \xe2\x80\xa6\r\n"
_LONGEST_SECONDS = 25.0
"""An orderly end that takes longer is cut off; the next start repeats what was not confirmed."""


def stopping_by_signals() -> Stopping:
    """Handle SIGINT and SIGTERM; return the event that the first of them sets."""
    stopping = Stopping()

    def signalled(_number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            os._exit(_INTERRUPTED)
        if os.isatty(2):
            os.write(2, _HEARD)  # not `print`: the signal may have interrupted one
        watchdog = threading.Timer(_LONGEST_SECONDS, _cut_off)
        watchdog.daemon = True
        watchdog.start()
        stopping.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signalled)
    return stopping


def _cut_off() -> None:
    """Exit at once; the JVM and its workers end with this process."""
    terminal.warn("the end took too long and was cut off; the next start repeats what was not confirmed")
    os._exit(0)
