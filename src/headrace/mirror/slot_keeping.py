"""Keep the slot of a mirror alive while nobody reads it: tables are loaded, perhaps for hours."""

from __future__ import annotations

import threading
from typing import Self

from headrace.errors import HeadraceError
from headrace.model.units import size
from headrace.postgres.connection import connect, execute
from headrace.reporter import Reporter

KEEP_SECONDS = 20.0
"""So often the slot is used: `idle_replication_slot_timeout` is at least a minute in practice."""
_LOW = 0.5

# Taking the slot, to where it stands, ends its idle time; nothing is confirmed, and nothing is read.
_USE = """
SELECT pg_replication_slot_advance(slot_name, confirmed_flush_lsn) FROM pg_replication_slots
WHERE slot_name = $1::text AND NOT active AND confirmed_flush_lsn IS NOT NULL AND wal_status <> 'lost'
"""
_SAFE = "SELECT safe_wal_size FROM pg_replication_slots WHERE slot_name = $1::text"


class SlotKeeper:
    """Uses a slot now and then between enter and exit, and tells early that the load may outlast its log.

    Args:
        url: the database.
        slot: the slot.
        report: is told that the server will remove log that the mirror needs.
        seconds: between two uses.
    """

    def __init__(self, url: str, slot: str, report: Reporter, seconds: float = KEEP_SECONDS) -> None:
        self._url = url
        self._slot = slot
        self._report = report
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="headrace keep", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        first: int | None = None
        is_told = False
        while not self._ended.wait(self._seconds):
            left = self._use()
            first = left if first is None else first
            if left is not None and first is not None and left < first * _LOW and not is_told:
                # Once is enough: what helps is a setting, and the load goes on either way.
                is_told = True
                self._report.warning(
                    f"the slot {self._slot} loses its log when the database has written {size(left)} more, "
                    "and tables are still being loaded: raise max_slot_wal_keep_size, or the load begins anew"
                )

    def _use(self) -> int | None:
        """Use the slot; return how much log (bytes) may be written before it is lost; None: not known."""
        try:
            with connect(self._url, application_name="headrace keep") as connection:
                execute(connection, _USE, (self._slot,))
                rows = execute(connection, _SAFE, (self._slot,))
        except HeadraceError:
            return None  # whoever loads meets it too
        return next((int(left) for (left,) in rows if left is not None), None)
