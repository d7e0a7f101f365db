"""Keep the demo's shop busy, one transaction a second, and measure when its documents are there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headrace.demo.workload import Workload
from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn
from headrace.postgres.connection import Connection, connect, execute
from headrace.sinks.opensearch import Counters, MetaIndex, PipelineState

_PAUSE_SECONDS = 1.0
_LOOK_SECONDS = 0.005

Show = Callable[[str, str, float | None], None]
"""Is told what a transaction did, what came of it, and after how many seconds, if anything did."""


def keep_busy(database: str, meta: MetaIndex, stopping: threading.Event, show: Show) -> None:
    """Commit a random transaction each second and show its documents' latency, until told to stop.

    A transaction has arrived when the state of the pipeline counts its changes: by then each document that
    it touches is durable.

    Args:
        database: the shop's URL.
        meta: of the deployment that follows it; nobody else uses this object.

    Raises:
        HeadraceError: what keeps the transactions from running or from being watched.
    """
    with Workload(database, seed=1) as workload, connect(database, application_name="headrace demo") as eye:
        while not stopping.wait(_PAUSE_SECONDS):
            before = _state(meta).counters
            changes = workload.step()
            begin = time.monotonic()
            if not changes:
                show("a transaction is rolled back", "no document changes", None)
                continue
            counters = _arrived(meta, before, _position(eye), stopping)
            if counters is not None:
                changed = _documents(before, counters)
                show(", ".join(changes), changed, time.monotonic() - begin)


def _arrived(meta: MetaIndex, before: Counters, position: Lsn, stopping: threading.Event) -> Counters | None:
    """The counters behind the transaction that ended before `position`; None where told to stop."""
    while not stopping.is_set():
        state = _state(meta)
        if state.counters.changes > before.changes or state.applied >= position:
            return state.counters
        time.sleep(_LOOK_SECONDS)
    return None


def _state(meta: MetaIndex) -> PipelineState:
    state = meta.load()
    if state is None:
        raise HeadraceError(Kind.CONTINUITY, "the state of the demo was deleted from its cluster")
    return state


def _position(connection: Connection) -> Lsn:
    [(position,)] = execute(connection, "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint")
    return int(position)


def _documents(before: Counters, after: Counters) -> str:
    if after.changes == before.changes:
        return "no row is another than before"
    documents = after.upserts + after.deletes - before.upserts - before.deletes
    return f"{documents:,} {'document' if documents == 1 else 'documents'}"
