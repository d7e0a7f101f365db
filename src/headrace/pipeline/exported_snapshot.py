"""How long is the new slot's snapshot kept?

While it lives, VACUUM removes no row of any table of the database that has died since. So it is kept while an
index is filled from it, and for some minutes at most; what is left then is read as it is there, like after a
kill.
"""

from __future__ import annotations

import time

from headrace.postgres.slot import ExportedSlot


class HeldSnapshot:
    """The snapshot of the slot that was made last; read by several threads, changed by one.

    Args:
        seconds: how long it is kept at most.

    Attributes:
        slot: None where there is none any more.
    """

    def __init__(self, seconds: float) -> None:
        self.slot: ExportedSlot | None = None
        self._seconds = seconds
        self._until = 0.0

    def hold(self, slot: ExportedSlot) -> None:
        """Keep the snapshot of a slot that was made a moment ago."""
        self.slot = slot
        self._until = time.monotonic() + self._seconds

    def close_if_due(self) -> bool:
        """Let it go where it was kept long enough; whether it was."""
        due = self.slot is not None and time.monotonic() >= self._until
        if due:
            self.close()
        return due

    def close(self) -> None:
        """Let it go: nothing is filled from it any more. A range that is being read keeps it for itself."""
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.close()
