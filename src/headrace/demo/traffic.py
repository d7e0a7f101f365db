"""Commit a transaction a second to the demo's shop, and measure the latency of its documents."""

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
_POLL_SECONDS = 0.005

Show = Callable[[str, str, float | None], None]
"""Called with a transaction's changes, its effect, and the latency (seconds; None without an effect)."""


def keep_busy(database: str, meta: MetaIndex, stopping: threading.Event, show: Show) -> None:
    """Commit a random transaction each second and show its documents' latency, until `stopping` is set.

    A transaction has arrived when the state of the pipeline counts its changes: by then each of its documents
    is durable.

    Args:
        database: the shop's URL.
        meta: the meta index of the deployment; not for use by other threads.
        stopping: ends the loop once it is set.
        show: receives each transaction's result.

    Raises:
        HeadraceError: the errors of the database and of the cluster.
    """
    with (
        Workload(database, seed=1) as workload,
        connect(database, application_name="headrace demo") as observer,
    ):
        while not stopping.wait(_PAUSE_SECONDS):
            before = _state(meta).counters
            changes = workload.step()
            begin = time.monotonic()
            if not changes:
                show("a transaction is rolled back", "no document changes", None)
                continue
            counters = _await_arrival(meta, before, _position(observer), stopping)
            if counters is not None:
                effect = _describe_effect(before, counters)
                show(", ".join(changes), effect, time.monotonic() - begin)


def _await_arrival(
    meta: MetaIndex, before: Counters, position: Lsn, stopping: threading.Event
) -> Counters | None:
    """Return the counters after the transaction that ended before `position`; None when stopped."""
    while not stopping.is_set():
        state = _state(meta)
        if state.counters.changes > before.changes or state.applied >= position:
            return state.counters
        time.sleep(_POLL_SECONDS)
    return None


def _state(meta: MetaIndex) -> PipelineState:
    state = meta.load()
    if state is None:
        raise HeadraceError(Kind.CONTINUITY, "the state of the demo was deleted from its cluster")
    return state


def _position(connection: Connection) -> Lsn:
    [(position,)] = execute(connection, "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint")
    return int(position)


def _describe_effect(before: Counters, after: Counters) -> str:
    if after.changes == before.changes:
        return "no row is another than before"
    documents = after.upserts + after.deletes - before.upserts - before.deletes
    return f"{documents:,} {'document' if documents == 1 else 'documents'}"
