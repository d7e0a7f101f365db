"""Handle signals: the first Ctrl-C or SIGTERM ends the work in order, the second at once; SIGHUP reloads."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from headrace.cli import terminal
from headrace.pipeline.stopping import Stopping

_INTERRUPTED = 130
_HEARD = b" stopping \xe2\x80\xa6\r\n"
_LONGEST_SECONDS = 25.0
"""An orderly end that takes longer is cut off; the next start repeats what was not confirmed."""


def stopping_by_signals(*, cut_off_code: int = 0) -> Stopping:
    """Handle SIGINT and SIGTERM; return the event that the first of them sets.

    Args:
        cut_off_code: the exit code where an orderly end takes too long.
    """
    stopping = Stopping()

    def signalled(_number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            # Whoever sends a second signal does not want to wait for Spark or for a server.
            os._exit(_INTERRUPTED)
        if os.isatty(2):
            os.write(2, _HEARD)  # not `print`: the signal may have interrupted one
        # Orchestrators kill after 30 seconds without a word. A step that hangs is cut off before that, and
        # the log says so.
        watchdog = threading.Timer(_LONGEST_SECONDS, _cut_off, [cut_off_code])
        watchdog.daemon = True
        watchdog.start()
        stopping.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signalled)
    return stopping


def reload_by_signal(reload: Callable[[], object], stopping: Stopping) -> None:
    """Let SIGHUP ask for a reload; where it says that the terminal was closed, end the run in order."""
    # A terminal that closes sends SIGHUP too. A service has no terminal, and `nohup` is to outlive it: it can
    # only mean a reload.
    began_in_terminal = _has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    def signalled(_number: int, _frame: FrameType | None) -> None:
        if began_in_terminal and not _has_terminal():
            stopping.stop()
        else:
            reload()

    signal.signal(signal.SIGHUP, signalled)


def _has_terminal() -> bool:
    """Whether the process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _cut_off(code: int) -> None:
    """Exit at once; the JVM and its workers end with this process."""
    terminal.warn("the end took too long and was cut off; the next start repeats what was not confirmed")
    os._exit(code)
