"""Where can a test stop the whole pipeline dead? At the named commit points, and only if it asks.

The names are the rows of the table of commit points: `planned` (a batch is planned, nothing written),
`bulk` (a bulk of a batch is durable), `applied` (the applied position is durable, not yet confirmed),
`confirmed` (the confirmation was sent), `made` (a generation that is ordered is in the state, the stream does
not write to it yet), `joined` (the stream does, the order is not forgotten yet), `range` (a seeding range is
written, not yet noted), `filled` (a generation is complete, the alias not yet swapped), `swapped` (the alias
is, the state does not say so yet), `deferred` (the documents of a deferred chunk are durable, and noted),
`created` (a first start has made its slot, the state does not say where), `known` (it does, there is no
index yet), `forgotten` (behind a gap the state says that there is no slot) and `slot` (there is one again,
and the state does not say so yet). A batch without changes reaches none.

The environment arms one of them, and every process of the pipeline inherits it:

- `HEADRACE_FAILPOINT=NAME` or `NAME:N`: the N-th time (the first by default) that a process reaches NAME.
- `HEADRACE_FAILPOINT_MARK=PATH`: write PATH, then stand still until killed. The test waits for PATH and
  kills the whole tree at once, as a lost machine does. Without it the process kills only itself.

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
    "planned",
    "bulk",
    "applied",
    "confirmed",
    "made",
    "joined",
    "range",
    "filled",
    "swapped",
    "deferred",
    "created",
    "known",
    "forgotten",
    "slot",
]


def reach(name: Name) -> None:
    """Say that this process has come to the commit point `name`; returns unless a test wants its end."""
    armed = _armed()
    if armed is not None and armed.wants(name):
        _die(name, armed.mark)


class _Armed:
    def __init__(self, name: str, times: int, mark: Path | None) -> None:
        self.name = name
        self.mark = mark
        self._left = times
        self._lock = threading.Lock()

    def wants(self, name: str) -> bool:
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
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        mark.write_text(f"{name} {os.getpid()}\n", encoding="utf-8")
    threading.Event().wait()
