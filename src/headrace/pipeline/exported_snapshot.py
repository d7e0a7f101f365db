"""Create a slot, and hold its snapshot while a backfill reads it, for some minutes at most.

While the snapshot exists, VACUUM removes no row of the database that has died since. So the time is limited.
Afterwards the backfill reads the rest from the current rows, as it does after a kill.
"""

from __future__ import annotations

import time

from headrace.errors import HeadraceError, Kind, Patience
from headrace.postgres.slot import ExportedSlot, create_slot
from headrace.status.board import StatusBoard

_FIRST_WAIT_SECONDS = 15.0
_WAIT_SECONDS = 600.0
_FAULT_SECONDS = 2.0


def wait_for_slot(
    url: str, name: str, board: StatusBoard, *, temporary: bool = False, failover: bool = False
) -> ExportedSlot:
    """Create a slot as `create_slot` does, and try for as long as it takes.

    The first wait is short, so that the delay is reported soon. The others are long, because each starts from
    the beginning.

    Raises:
        HeadraceError: an error of `create_slot` other than SLOT_WAIT, or a SERVER_FAULT that lasts.
    """
    seconds, patience = _FIRST_WAIT_SECONDS, Patience()
    while True:
        try:
            slot = create_slot(url, name, time_limit=seconds, temporary=temporary, failover=failover)
        except HeadraceError as failure:
            error = patience.judge(failure)
            if error.kind not in {Kind.SLOT_WAIT, Kind.SERVER_FAULT}:
                if error is failure:
                    raise
                raise error from failure
            board.record_error(error)
            if error.kind is Kind.SERVER_FAULT:
                time.sleep(_FAULT_SECONDS)
        else:
            board.recovered()
            return slot
        seconds = _WAIT_SECONDS


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
