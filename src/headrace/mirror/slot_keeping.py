"""Keep the slot of a mirror alive while nobody reads it: tables are loaded, perhaps for hours."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from headrace.errors import HeadraceError
from headrace.postgres.connection import connect, execute

KEEP_SECONDS = 20.0
"""So often the slot is used: `idle_replication_slot_timeout` is at least a minute in practice."""

# Taking the slot, to where it stands, ends its idle time; nothing is confirmed, and nothing is read.
_USE = """
SELECT pg_replication_slot_advance(slot_name, confirmed_flush_lsn) FROM pg_replication_slots
WHERE slot_name = $1::text AND NOT active AND confirmed_flush_lsn IS NOT NULL AND wal_status <> 'lost'
"""


@contextlib.contextmanager
def slot_in_use(url: str, slot: str, seconds: float = KEEP_SECONDS) -> Iterator[None]:
    """Use a slot every few seconds between enter and exit.

    Args:
        url: the database.
        slot: the slot.
        seconds: between two uses.
    """
    ended = threading.Event()

    def use() -> None:
        while not ended.wait(seconds):
            # Whoever loads meets what is wrong, too.
            with (
                contextlib.suppress(HeadraceError),
                connect(url, application_name="headrace keep") as connection,
            ):
                execute(connection, _USE, (slot,))

    thread = threading.Thread(target=use, name="headrace keep", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
