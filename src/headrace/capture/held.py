"""Up to where may the slot be confirmed, where another process knows what is durable?

That process says it to the one that reads the log, through a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.capture.files import write_whole
from headrace.model import Lsn, format_lsn, parse_lsn


@dataclass(frozen=True, slots=True)
class HeldPosition:
    """The slot may be confirmed no further than the position in the file; without one not at all."""

    path: Path

    def set(self, position: Lsn) -> None:
        """Hold at `position` (bytes). It holds when this returns."""
        write_whole(self.path, format_lsn(position))

    def limit(self, position: Lsn) -> Lsn:
        """`position`, or what it is held at."""
        try:
            return min(position, parse_lsn(self.path.read_text()))
        except FileNotFoundError:
            return 0
