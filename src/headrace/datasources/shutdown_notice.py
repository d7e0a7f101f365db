"""Tell the user who stops a query about the slot that it leaves.

Spark's JVM ends the source's process by SIGTERM and closes its end of the process's standard error at the
same time (measured, PySpark 4.3), so a line written there is lost. Where /proc gives access to the standard
error of the JVM itself, which is the user's terminal or notebook, the line goes there.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from headrace.postgres.quoting import literal


def slot_notice(slot: str) -> str:
    """Return the line about the slot that a stopped query leaves."""
    return (
        f"headrace: the stopped query leaves its replication slot {slot!r}, for which the server keeps its "
        f"log; if the query will not go on: SELECT pg_drop_replication_slot({literal(slot)}), or "
        f"headrace slots drop {slot}"
    )


def print_notice(line: str, *, unheard: bool) -> None:
    """Write a line to standard error; never fails.

    Args:
        line: without its end.
        unheard: this process's own standard error is not read any more.
    """
    parent = Path(f"/proc/{os.getppid()}/fd/2")
    if unheard and os.getppid() > 1 and parent.exists():
        with contextlib.suppress(OSError), parent.open("a") as theirs:
            theirs.write(f"{line}\n")
            return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
