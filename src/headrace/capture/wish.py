"""For which place in the log does somebody wait? The reader is told so in a file, as it tells its troubles.

The reader lives in a process of Spark's, and hears of nothing but changes and batches. A place is worth a
batch of its own only when the server has reached it without changes.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from headrace.model import Lsn, format_lsn, parse_lsn


def write_wish(trouble: Path, lsn: Lsn) -> None:
    """Let the reader that was given the file `trouble` hear of `lsn`; left out where it cannot be written."""
    beside = trouble.with_suffix(".wished")
    with contextlib.suppress(OSError):
        beside.write_text(format_lsn(lsn))
        os.replace(beside, _file(trouble))  # noqa: PTH105 - whole or not at all


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
