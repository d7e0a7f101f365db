"""Stop the pipeline at a named commit point, for tests of crashes.

The commit points:

- `early`: a small batch is durable that Spark does not know of yet.
- `planned`: a batch is planned; nothing is written, unless it was written early.
- `bulk`: a bulk request of a batch is durable.
- `applied`: the applied position is durable, not yet confirmed.
- `confirmed`: the confirmation was sent.
- `checked`: changed files are checked, and publication and replica identities extended for them.
- `made`: a new generation is in the state, the stream does not write to it yet.
- `joined`: the stream has another plan, which writes to it.
- `range`: a range of a backfill is written, not yet recorded.
- `filled`: a generation is complete, the alias is not switched yet.
- `swapped`: the alias is switched, the state does not show it yet.
- `deferred`: the documents of a deferred chunk are durable and recorded.
- `created`: the slot is created, the state does not hold its position.
- `known`: the state holds it, nothing is filled from there yet.
- `released`: the slot that retained too much log is dropped, the state still holds its position.
- `forgotten`: after a gap in the log the state holds no slot.
- `mirror_unit`: a unit of a table's load is read; others, and the commit, may lack.
- `mirror_commit`: a lake table's changes are ready, its commit is not sent.
- `mirror_committed`: they are durable; other tables of the batch, and the positions, may lack.
- `mirror_noted`: the positions of a mirror's tables are durable, not yet confirmed.

A batch without changes reaches none of them.

The environment arms one of them, and every process of the pipeline inherits it:

- `HEADRACE_FAILPOINT=NAME` or `NAME:N`: the N-th time (the first by default) that a process reaches NAME.
- `HEADRACE_FAILPOINT_MARK=PATH`: write PATH, then wait until killed. The test waits for PATH and kills the
  whole process tree at once, as the loss of a machine does. Without it the process kills only itself.

Nothing is armed in production: `reach` then costs one comparison.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from pathlib import Path
from typing import Literal

Name = Literal[
    "early",
    "planned",
    "bulk",
    "applied",
    "confirmed",
    "checked",
    "made",
    "joined",
    "range",
    "filled",
    "swapped",
    "deferred",
    "created",
    "known",
    "released",
    "forgotten",
    "mirror_unit",
    "mirror_commit",
    "mirror_committed",
    "mirror_noted",
]


def reach(name: Name) -> None:
    """Mark that this process has reached the commit point `name`; returns unless a test armed it."""
    armed = _armed()
    if armed is not None and armed.is_due(name):
        _die(name, armed.mark)


class _Armed:
    def __init__(self, name: str, times: int, mark: Path | None) -> None:
        self.name = name
        self.mark = mark
        self._left = times
        self._lock = threading.Lock()

    def is_due(self, name: str) -> bool:
        if name != self.name:
            return False
        with self._lock:
            self._left -= 1
            return self._left <= 0


@functools.cache
def _armed() -> _Armed | None:
    name, _, times = os.environ.get("HEADRACE_FAILPOINT", "").partition(":")
    mark = os.environ.get("HEADRACE_FAILPOINT_MARK")
    return _Armed(name, int(times or 1), Path(mark) if mark else None) if name else None


def _die(name: str, mark: Path | None) -> None:
    if mark is None:
        # As a crash: no handler, no finally, no flush.
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        mark.write_text(f"{name} {os.getpid()}\n", encoding="utf-8")
    # Nothing may be done between the mark and the kill.
    threading.Event().wait()
