"""Can everyone see what the log already told? (decision 8)

A commit reaches the log before new snapshots see it, always so while a synchronous standby has not
answered. Whoever reads rows because of a change must wait.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from headrace.postgres.session import ReadSession

_VISIBLE = """
WITH now AS (
    SELECT pg_current_snapshot() AS snapshot,
           pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS top
), full_xids AS (
    SELECT top + ((x - (top & 4294967295) + 6442450944) & 4294967295) - 2147483648 AS xid, snapshot
    FROM now, unnest($1::bigint[]) AS x
)
SELECT pg_is_in_recovery() OR coalesce(bool_and(pg_visible_in_snapshot(xid::text::xid8, snapshot)), true)
FROM full_xids
"""
"""The log's 32-bit ids are completed to 64 bits: the full id nearest to the snapshot's upper end."""


def await_visible(
    session: ReadSession, xids: Sequence[int], *, timeout: float = math.inf, poll: float = 0.002
) -> bool:
    """Whether every transaction in `xids` (32-bit ids) is visible to new snapshots, within `timeout` s.

    On a standby this is true at once: there the reader waits for the replay of the log instead
    (`ReadSession.await_replay`).
    """
    deadline = time.monotonic() + timeout
    while xids:
        [(visible,)] = session.query(_VISIBLE, (list(xids),))
        if visible:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(max(0.0, min(poll, deadline - time.monotonic())))
        poll = min(poll * 2, 0.2)
    return True
