"""Notice that the slot keeps log for an old transaction while its stream moves, and name the transaction."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.model.lsn import Lsn
from headrace.model.units import size
from headrace.postgres.connection import Connection
from headrace.postgres.log_holder import read_log_holders
from headrace.postgres.slot import SlotFacts
from headrace.status.board import StatusBoard

# What the server keeps behind the confirmed position; less is normal between two of its checkpoints.
_LEAST_BYTES = 64 << 20
_STANDS_SECONDS = 60.0


class HeldLog:
    """Warns while a transaction holds the slot's `restart_lsn` far behind its confirmed position.

    Args:
        board: shows the warning.
        least_bytes: the distance from which on there is one.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        board: StatusBoard,
        *,
        least_bytes: int = _LEAST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._board = board
        self._least_bytes = least_bytes
        self._clock = clock
        self._restart: Lsn | None = None
        self._since = clock()

    def look(self, connection: Connection, slot: SlotFacts) -> None:
        """Set or remove the warning.

        Raises:
            HeadraceError: CONNECTION, DATABASE.
        """
        now = self._clock()
        if slot.restart != self._restart:
            self._restart, self._since = slot.restart, now
        held = (slot.confirmed_flush or 0) - (slot.restart or 0)
        is_held = held >= self._least_bytes and now - self._since >= _STANDS_SECONDS
        holder = next(iter(read_log_holders(connection)), None) if is_held else None
        if holder is None:
            self._board.set_warning("held log", None)
            return
        self._board.set_warning(
            "held log",
            f"the server keeps {size(held)} of log before the position that the slot {slot.name!r} has "
            f"confirmed, for a transaction that is open: {holder.holder}. End it: {holder.ending}",
        )
