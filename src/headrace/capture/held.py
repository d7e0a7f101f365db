"""Up to where may the slot be confirmed, while documents of changes that are read are still to be written?

Said through a file, by the process that knows what is durable, to the one that reads the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.capture.files import write_whole
from headrace.model import Lsn, format_lsn, parse_lsn


@dataclass(frozen=True, slots=True)
class HeldPosition:
    """The slot may be confirmed no further than the position in the file; without one there is no limit."""

    path: Path

    def set(self, position: Lsn | None) -> None:
        """Hold at `position` (bytes); None lets go. It holds when this returns."""
        if position is None:
            self.path.unlink(missing_ok=True)
            return
        write_whole(self.path, format_lsn(position))

    def limit(self, position: Lsn) -> Lsn:
        """`position`, or what it is held at."""
        try:
            return min(position, parse_lsn(self.path.read_text()))
        except FileNotFoundError:
            return position
