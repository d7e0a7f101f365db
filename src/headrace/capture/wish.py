"""For which place in the log does somebody wait? The reader is told so in a file, as it tells its troubles.

The reader lives in a process of Spark's, and hears of nothing but changes and batches. A place is worth a
batch of its own only when the server has reached it without changes.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from headrace.capture.files import write_whole
from headrace.model import Lsn, format_lsn, parse_lsn


def write_wish(trouble: Path, lsn: Lsn) -> None:
    """Let the reader that was given the file `trouble` hear of `lsn`; left out where it cannot be written."""
    with contextlib.suppress(OSError):
        write_whole(_file(trouble), format_lsn(lsn))


def read_wish(trouble: Path | None) -> Lsn:
    """What the reader was told last; 0 where nothing."""
    if trouble is None:
        return 0
    try:
        return parse_lsn(_file(trouble).read_text())
    except (OSError, ValueError):
        return 0


def _file(trouble: Path) -> Path:
    return trouble.with_suffix(".wish")
