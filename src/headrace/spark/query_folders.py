"""Give each query of a session a folder, and remove those of former ones."""

from __future__ import annotations

import shutil
from pathlib import Path

_QUERY = "query-"


def make_folder(scratch: Path) -> Path:
    """Create a folder for a query; remove all older ones but the last.

    A process of the query that was just stopped may still read its files for a moment.
    """
    queries = sorted(scratch.glob(f"{_QUERY}*"))
    for left in queries[:-1]:
        shutil.rmtree(left, ignore_errors=True)
    last = int(queries[-1].name.removeprefix(_QUERY)) if queries else 0
    folder = scratch / f"{_QUERY}{last + 1:09}"
    folder.mkdir()
    return folder
