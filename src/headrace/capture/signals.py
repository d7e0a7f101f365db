"""What processes of one machine tell each other about a slot: small files, each read whole or not at all.

The reader of the log lives in a process of Spark's, and hears of nothing but changes and batches. Whoever
runs it tells it how far it may confirm and which position somebody waits for; it tells what keeps it from
reading, and that Spark still asks it for batches.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.model import Lsn, format_lsn, parse_lsn

_NANOSECONDS = 1_000_000_000


def write_whole(path: Path, text: str) -> None:
    """Put `text` into `path`, in the place of what was there.

    Raises:
        OSError: it cannot be written; what was there still is.
    """
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text)
    os.replace(beside, path)  # noqa: PTH105 - whole or not at all


@dataclass(frozen=True, slots=True)
class ConfirmLimit:
    """The slot may be confirmed no further than the position in the file; without one not at all."""

    path: Path

    def set(self, position: Lsn) -> None:
        """Allow confirmation up to `position` (bytes). It is the limit when this returns."""
        write_whole(self.path, format_lsn(position))

    def limit(self, position: Lsn) -> Lsn:
        """`position`, or the limit where that is lower."""
        try:
            return min(position, parse_lsn(self.path.read_text()))
        except FileNotFoundError:
            return 0


class ReaderStatus:
    """What keeps the reader from reading; the file is there for as long as nothing can be read.

    Args:
        path: of the file; None tells nobody. A status that cannot be written is left out.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._written = True  # perhaps by a process before us

    def write(self, error: HeadraceError) -> None:
        """Reading has failed, and is tried again."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            write_whole(self._path, str(error))
            self._written = True

    def clear(self) -> None:
        """Reading works again."""
        if self._path is not None and self._written:
            self._path.unlink(missing_ok=True)
            self._written = False


def read_reader_status(path: Path) -> HeadraceError | None:
    """What the reader that was given `path` is waiting for; None where it reads."""
    try:
        return HeadraceError.find(path.read_text())
    except OSError:
        return None


def write_requested_lsn(status: Path, lsn: Lsn) -> None:
    """Tell the reader with that status file that somebody waits for `lsn`; left out where that cannot be.

    A position is worth a batch of its own only where the server has reached it without changes.
    """
    with contextlib.suppress(OSError):
        write_whole(status.with_suffix(".requested"), format_lsn(lsn))


def read_requested_lsn(status: Path | None) -> Lsn:
    """The position that the reader was told last; 0 where none was."""
    if status is None:
        return 0
    try:
        return parse_lsn(status.with_suffix(".requested").read_text())
    except (OSError, ValueError):
        return 0


def beat(status: Path | None) -> None:
    """Say that Spark asks the reader with that status file for a batch; left out where that cannot be.

    Spark asks again when a batch is done, and several times a second where there is none. So a reader that
    has not been asked for long is in the middle of one batch, or hangs.
    """
    if status is None:
        return
    file, now = status.with_suffix(".beat"), time.monotonic_ns()
    with contextlib.suppress(OSError):
        try:
            os.utime(file, ns=(now, now))  # of the clock that no operator sets
        except FileNotFoundError:
            file.touch()
            os.utime(file, ns=(now, now))


def seconds_since_beat(status: Path) -> float | None:
    """How long ago the last beat was; None where there was none yet."""
    try:
        return time.monotonic() - status.with_suffix(".beat").stat().st_mtime_ns / _NANOSECONDS
    except OSError:
        return None
