"""Does the source still go round? It says so in a file each time that Spark asks it for the next batch.

Spark asks again when a batch is done, and several times a second where there is none. So a source that has
not been asked for long is in the middle of one batch, or hangs itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_NANOSECONDS = 1_000_000_000


def beat(trouble: Path | None) -> None:
    """Say that the source, which was given the file `trouble`, is asked; left out where that cannot be."""
    if trouble is None:
        return
    file, now = _file(trouble), time.monotonic_ns()
    with contextlib.suppress(OSError):
        try:
            os.utime(file, ns=(now, now))  # of the clock that no operator sets
        except FileNotFoundError:
            file.touch()
            os.utime(file, ns=(now, now))


def seconds_since_beat(trouble: Path) -> float | None:
    """How long ago that was; None where it has not happened yet."""
    try:
        return time.monotonic() - _file(trouble).stat().st_mtime_ns / _NANOSECONDS
    except OSError:
        return None


def _file(trouble: Path) -> Path:
    return trouble.with_suffix(".beat")
