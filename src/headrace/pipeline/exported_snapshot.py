"""Hold the snapshot of a new slot while a backfill reads it, for some minutes at most.

While the snapshot exists, VACUUM removes no row of the database that has died since. So the time is limited.
Afterwards the backfill reads the rest from the current rows, as it does after a kill.
"""

from __future__ import annotations

import time

from headrace.postgres.slot import ExportedSlot


class HeldSnapshot:
    """Holds the snapshot of the slot that was created last; read by several threads, changed by one.

    Args:
        seconds: how long the snapshot is held at most.

    Attributes:
        slot: the slot with its snapshot; None once the snapshot is given up.
    """

    def __init__(self, seconds: float) -> None:
        self.slot: ExportedSlot | None = None
        self._seconds = seconds
        self._until = 0.0

    def hold(self, slot: ExportedSlot) -> None:
        """Hold the snapshot of a slot that was just created."""
        self.slot = slot
        self._until = time.monotonic() + self._seconds

    def close_if_due(self) -> bool:
        """Give the snapshot up where its time is over; return whether it was."""
        # VACUUM of the whole database waits for it, however slow the backfill is.
        due = self.slot is not None and time.monotonic() >= self._until
        if due:
            self.close()
        return due

    def close(self) -> None:
        """Give the snapshot up; a range that is being read keeps it until its end."""
        # Taken away first: no range that is planned from now on names it.
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.close()
