"""What Ctrl-C and SIGTERM do: the first ends the work in order, the second at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from headrace.cli import terminal
from headrace.pipeline.stopping import Stopping

_AT_ONCE = 130
_HEARD = b" stopping \xe2\x80\xa6\r\n"
_LONGEST_SECONDS = 25.0
"""An orderly end that takes longer is cut off: whatever is not confirmed then repeats at the next start."""


def stopping_by_signals() -> Stopping:
    """Take over SIGINT and SIGTERM; the first of them sets what is returned."""
    stopping = Stopping()

    def signalled(_number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            os._exit(_AT_ONCE)
        if os.isatty(2):
            os.write(2, _HEARD)  # a print could be interrupting one
        watchdog = threading.Timer(_LONGEST_SECONDS, _cut_off)
        watchdog.daemon = True
        watchdog.start()
        stopping.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signalled)
    return stopping


def _cut_off() -> None:
    """End without waiting any longer; the JVM and its workers end with this process."""
    terminal.warn("the end took too long and was cut off; the next start repeats what was not confirmed")
    os._exit(0)
