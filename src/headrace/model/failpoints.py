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
import itertools
import os
import signal
import threading
from pathlib import Path
from typing import Literal

_Batch = Literal["early", "planned", "bulk", "applied", "confirmed", "deferred"]
_Generation = Literal["checked", "made", "joined", "range", "filled", "swapped"]
_Slot = Literal["created", "known", "released", "forgotten"]
_Mirror = Literal["mirror_unit", "mirror_commit", "mirror_committed", "mirror_noted"]
Name = _Batch | _Generation | _Slot | _Mirror

_arrivals = itertools.count(1)
"""How often this process has reached the armed point; `next` is one step for all threads."""


def reach(name: Name) -> None:
    """Mark that this process has reached the commit point `name`; returns unless a test armed it."""
    armed, times = _armed()
    if name == armed and next(_arrivals) >= times:
        _die(name)


@functools.cache
def _armed() -> tuple[str, int]:
    name, _, times = os.environ.get("HEADRACE_FAILPOINT", "").partition(":")
    return name, int(times or 1)


def _die(name: str) -> None:
    mark = os.environ.get("HEADRACE_FAILPOINT_MARK")
    if mark:
        Path(mark).write_text(f"{name} {os.getpid()}\n", encoding="utf-8")
    else:
        # As a crash: no handler, no finally, no flush.
        os.kill(os.getpid(), signal.SIGKILL)
    # Nothing may be done between the mark and the kill.
    threading.Event().wait()
