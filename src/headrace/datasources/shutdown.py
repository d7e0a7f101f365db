"""End the planning process of a query when Spark ends it, and tell the user about the slot that it leaves.

Spark's JVM ends the process by SIGTERM, never calls `stop`, and closes its end of the process's standard
error at the same time (measured, PySpark 4.3), so a line written there is lost. Where /proc gives access to
the standard error of the JVM itself, which is the user's terminal or notebook, the line goes there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from headrace.postgres.quoting import literal


def exit_on_sigterm() -> None:
    """Let SIGTERM end this process in order, which releases the slot at once."""
    signal.signal(signal.SIGTERM, _exit)


def is_ended_by_sigterm() -> bool:
    """Whether this process ends because of SIGTERM."""
    return signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def _exit(_number: int, _frame: FrameType | None) -> None:
    """Exit, and nothing else.

    The signal may arrive inside `stop`, because the socket is closed at the same time, and taking a lock in
    the handler could then wait for ever.
    """
    # A second one would end the process before the slot is released.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def slot_notice(slot: str) -> str:
    """Return the line about the slot that a stopped query leaves."""
    return (
        f"headrace: the stopped query leaves its replication slot {slot!r}, for which the server keeps its "
        f"log; if the query will not go on: SELECT pg_drop_replication_slot({literal(slot)}), or "
        f"headrace slots drop {slot} --database URL"
    )


def print_notice(line: str, *, unheard: bool) -> None:
    """Write a line to standard error; never fails.

    Args:
        line: without its end.
        unheard: this process's own standard error is not read any more.
    """
    # A parent of the number 1 is no JVM: that has ended, and init has this process by now.
    parent = Path(f"/proc/{os.getppid()}/fd/2")
    if unheard and os.getppid() > 1 and parent.exists():
        with contextlib.suppress(OSError), parent.open("a") as theirs:
            theirs.write(f"{line}\n")
            return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
