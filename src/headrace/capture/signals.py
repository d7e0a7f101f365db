"""Exchange a slot's state between processes of one machine, in small files that are replaced atomically.

The reader of the log runs in a process of Spark's that only sees changes and batches. The driver writes how
far the reader may confirm and which position a client waits for. The reader writes which error keeps it from
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
    """Replace the content of `path` by `text`, atomically.

    Raises:
        OSError: the file cannot be written; the old content is still there.
    """
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text)
    os.replace(beside, path)  # noqa: PTH105 - atomic


@dataclass(frozen=True, slots=True)
class ConfirmLimit:
    """A file with the position up to which the slot may be confirmed; without the file it may not be."""

    path: Path

    def set(self, position: Lsn) -> None:
        """Allow confirmation up to `position` (bytes); the limit holds when this returns."""
        write_whole(self.path, format_lsn(position))

    def limit(self, position: Lsn) -> Lsn:
        """Return `position`, or the limit where that is lower."""
        try:
            return min(position, parse_lsn(self.path.read_text()))
        except FileNotFoundError:
            return 0


class ReaderStatus:
    """A file with the error that keeps the reader from reading; it exists only while reading fails.

    Args:
        path: the file; None: no status is written. A file that cannot be written is ignored.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._written = True  # perhaps by an earlier process

    def write(self, error: HeadraceError) -> None:
        """Report that reading failed with `error` and is tried again."""
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            write_whole(self._path, str(error))
            self._written = True

    def clear(self) -> None:
        """Report that reading works again."""
        if self._path is not None and self._written:
            self._path.unlink(missing_ok=True)
            self._written = False


def read_reader_status(path: Path) -> HeadraceError | None:
    """Return the error that keeps the reader with this status file from reading; None while it reads."""
    try:
        return HeadraceError.find(path.read_text())
    except OSError:
        return None


def write_requested_lsn(status: Path, lsn: Lsn) -> None:
    """Tell the reader with this status file that a client waits for `lsn`; a failed write is ignored.

    A position gets a batch of its own only where the server has reached it without changes.
    """
    with contextlib.suppress(OSError):
        write_whole(status.with_suffix(".requested"), format_lsn(lsn))


def read_requested_lsn(status: Path | None) -> Lsn:
    """Return the position that was requested last; 0 where none was."""
    if status is None:
        return 0
    try:
        return parse_lsn(status.with_suffix(".requested").read_text())
    except (OSError, ValueError):
        return 0


def beat(status: Path | None) -> None:
    """Note that Spark asks the reader with this status file for a batch; a failed write is ignored.

    Spark asks again when a batch is done, and several times a second while there is none. So a reader that
    has not been asked for long is in the middle of a batch, or hangs.
    """
    if status is None:
        return
    file, now = status.with_suffix(".beat"), time.monotonic_ns()
    with contextlib.suppress(OSError):
        try:
            os.utime(file, ns=(now, now))  # monotonic: the system time can be changed
        except FileNotFoundError:
            file.touch()
            os.utime(file, ns=(now, now))


def seconds_since_beat(status: Path) -> float | None:
    """Return the time since the last beat (seconds); None where there was none yet."""
    try:
        return time.monotonic() - status.with_suffix(".beat").stat().st_mtime_ns / _NANOSECONDS
    except OSError:
        return None
