"""Wait until transactions of the log are visible to new snapshots (decision 0012).

A commit reaches the log before new snapshots see it, and stays invisible while a synchronous standby has not
answered. A reader that queries rows because of a change must wait.
"""

from __future__ import annotations

import math
import time

import numpy as np

from headrace.pgoutput.batch import Numbers
from headrace.postgres.session import ReadSession

_SNAPSHOT = "SELECT pg_is_in_recovery(), pg_current_snapshot()::text"
_HALF = 1 << 31
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.002, 0.2


def are_visible(xids: Numbers, snapshot: str) -> bool:
    """Return whether the snapshot `xmin:xmax:xip,…` sees all committed transactions in `xids` (32-bit ids).

    Each id is extended to 64 bits: the full id nearest to the snapshot's xmax.
    """
    lowest, top, running = snapshot.split(":")
    highest = int(top)
    # The log has 32 bits of each id. The open ones lie within 2**31 of one another, or the server stops.
    full = highest + ((xids - highest + _HALF) & (2 * _HALF - 1)) - _HALF
    recent = full[full >= int(lowest)]
    in_flight = [int(xid) for xid in running.split(",") if xid]
    return bool((recent < highest).all()) and not np.isin(recent, in_flight).any()


def await_visible(session: ReadSession, xids: Numbers, *, timeout: float = math.inf) -> bool:
    """Wait until new snapshots see all transactions in `xids` (32-bit ids); False after `timeout` seconds.

    On a standby it returns True at once: its readers wait for the replay of the log instead
    (`ReadSession.await_replay`).
    """
    deadline, poll = time.monotonic() + timeout, _SHORTEST_PAUSE
    while len(xids):
        [(in_recovery, snapshot)] = session.query(_SNAPSHOT)
        # On a standby the log comes from replay: what was sent is decoded after it was replayed.
        if in_recovery or are_visible(xids, snapshot):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(max(0.0, min(poll, deadline - time.monotonic())))
        # Mostly visible within a millisecond; a synchronous standby that is away may take hours.
        poll = min(poll * 2, _LONGEST_PAUSE)
    return True
