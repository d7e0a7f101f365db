"""How is a slot made where older transactions are in its way? They are waited for, and it is said."""

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
    """Make a slot as `create_slot` does; it is tried for as long as it takes.

    The first wait is short, so that it is said soon; the others are long, because each begins from nothing.

    Raises:
        HeadraceError: what `create_slot` raises besides SLOT_WAIT.
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
