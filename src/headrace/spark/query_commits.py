"""Read which batches of a query are done, from its checkpoint.

Format: `commits/N` exists when batch N is done; `offsets/N` holds a line with its version, one with Spark's
metadata of the batch, and one with the end of each source, as JSON (Spark's OffsetSeqLog).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_SOURCE_LINE = 2


class CommitLog:
    """The checkpoint of a query with one source, in a local folder."""

    def __init__(self, checkpoint: Path) -> None:
        self._commits = checkpoint / "commits"
        self._offsets = checkpoint / "offsets"

    def last(self) -> int:
        """Return the last batch that is done; -1 where none is."""
        try:
            names = [file.name for file in self._commits.iterdir()]
        except FileNotFoundError:
            return -1
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def end_of(self, batch: int) -> dict[str, Any]:
        """Return the source's offset at the end of a batch; Spark keeps the last batches only."""
        lines = (self._offsets / str(batch)).read_text(encoding="utf-8").splitlines()
        found: dict[str, Any] = json.loads(lines[_SOURCE_LINE])
        return found
