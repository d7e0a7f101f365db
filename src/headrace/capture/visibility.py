"""Can everyone see what the log already told? (decision 0012)

A commit reaches the log before new snapshots see it, always so while a synchronous standby has not
answered. Whoever reads rows because of a change must wait.
"""

from __future__ import annotations

import math
import time

import numpy as np

from headrace.pgoutput.batch import Numbers
from headrace.postgres.session import ReadSession

_SNAPSHOT = "SELECT pg_is_in_recovery(), pg_current_snapshot()::text"
_HALF = 1 << 31


def are_visible(xids: Numbers, snapshot: str) -> bool:
    """Whether the snapshot `xmin:xmax:xip,…` sees every committed transaction in `xids` (32-bit ids).

    The log's ids are completed to 64 bits: the full id nearest to the snapshot's upper end.
    """
    lowest, top, running = snapshot.split(":")
    highest = int(top)
    full = highest + ((xids - highest + _HALF) & (2 * _HALF - 1)) - _HALF
    recent = full[full >= int(lowest)]
    in_flight = [int(xid) for xid in running.split(",") if xid]
    return bool((recent < highest).all()) and not np.isin(recent, in_flight).any()


def await_visible(
    session: ReadSession, xids: Numbers, *, timeout: float = math.inf, poll: float = 0.002
) -> bool:
    """Whether every transaction in `xids` (32-bit ids) is visible to new snapshots, within `timeout` s.

    On a standby this is true at once: there the reader waits for the replay of the log instead
    (`ReadSession.await_replay`).
    """
    deadline = time.monotonic() + timeout
    while len(xids):
        [(in_recovery, snapshot)] = session.query(_SNAPSHOT)
        if in_recovery or are_visible(xids, snapshot):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(max(0.0, min(poll, deadline - time.monotonic())))
        poll = min(poll * 2, 0.2)
    return True
