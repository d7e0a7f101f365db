"""Keep the slot in use while tables are loaded: a server drops one that nobody reads for a while."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from headrace.errors import HeadraceError
from headrace.model.units import size
from headrace.postgres.connection import connect, execute
from headrace.reporter import Reporter

KEEP_SECONDS = 20.0
"""So often the slot is used: `idle_replication_slot_timeout` is at least a minute in practice."""
_LOW = 0.5
"""Of the log that the server lets the slot keep, as it was at first: with less left, it is told."""

# Taking the slot, to where it stands, ends its idle time; nothing is confirmed, and nothing is read.
_USE = """
SELECT pg_replication_slot_advance(slot_name, confirmed_flush_lsn) FROM pg_replication_slots
WHERE slot_name = $1::text AND NOT active AND confirmed_flush_lsn IS NOT NULL AND wal_status <> 'lost'
"""
_LEFT = "SELECT safe_wal_size FROM pg_replication_slots WHERE slot_name = $1 AND safe_wal_size IS NOT NULL"


@contextlib.contextmanager
def keep_slot(url: str, slot: str, report: Reporter, seconds: float = KEEP_SECONDS) -> Iterator[None]:
    """Use a slot every few seconds between enter and exit; tell early that a load may outlast its log.

    Args:
        url: the database.
        slot: the slot.
        report: is told that the server will remove log that the mirror needs.
        seconds: between two uses.
    """
    ended = threading.Event()

    def keep() -> None:
        first: int | None = None
        while not ended.wait(seconds):
            left = _use(url, slot)
            if left is None:
                continue
            first = left if first is None else first
            if left < first * _LOW:
                first = 0  # once is enough: the load goes on either way
                report.warning(
                    f"the slot {slot} loses its log when the database has written {size(left)} more, and "
                    "tables are still being loaded: raise max_slot_wal_keep_size, or the load begins again"
                )

    thread = threading.Thread(target=keep, name="headrace keep", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _use(url: str, slot: str) -> int | None:
    """Use the slot; return how much log (bytes) it may yet fall behind; None: not known, or no limit."""
    # Whoever loads meets what is wrong, too.
    with contextlib.suppress(HeadraceError), connect(url, application_name="headrace keep") as connection:
        execute(connection, _USE, (slot,))
        for (left,) in execute(connection, _LEFT, (slot,)):
            return max(0, int(left))
    return None
