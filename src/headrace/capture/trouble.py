"""What keeps the reader from reading? Said to other processes of this machine through a file.

The reader lives in a process of Spark's; whoever shows the state of a run does not. The file is there for as
long as nothing can be read.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from headrace.capture.files import write_whole
from headrace.errors import HeadraceError


class TroubleNote:
    """The last error in a file; nowhere where `path` is None. A note that cannot be written is left out."""

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
        """It works again."""
        if self._path is not None and self._written:
            self._path.unlink(missing_ok=True)
            self._written = False


def read_trouble(path: Path) -> HeadraceError | None:
    """What the reader that was given `path` is waiting for; None where it reads."""
    try:
        return HeadraceError.find(path.read_text())
    except OSError:
        return None
