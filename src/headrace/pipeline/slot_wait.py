"""Create a slot, and report when older transactions delay it."""

from __future__ import annotations

from headrace.errors import HeadraceError, Kind
from headrace.postgres.slot import ExportedSlot, create_slot
from headrace.status.board import StatusBoard
from headrace.status.phases import Event

_FIRST_WAIT_SECONDS = 15.0
_WAIT_SECONDS = 600.0


def wait_for_slot(
    url: str, name: str, board: StatusBoard, *, temporary: bool = False, failover: bool = False
) -> ExportedSlot:
    """Create a slot as `create_slot` does, and try for as long as it takes.

    The first wait is short, so that the delay is reported soon. The others are long, because each starts from
    the beginning.

    Raises:
        HeadraceError: an error of `create_slot` other than SLOT_WAIT.
    """
    seconds = _FIRST_WAIT_SECONDS
    while True:
        try:
            slot = create_slot(url, name, time_limit=seconds, temporary=temporary, failover=failover)
        except HeadraceError as error:
            if error.kind is not Kind.SLOT_WAIT:
                raise
            board.failed(error)
        else:
            board.happened(Event.RECOVERED)
            return slot
        seconds = _WAIT_SECONDS
