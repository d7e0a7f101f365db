"""Look at the slot while nothing else does, from the start of a run to its end.

The health monitor looks every second, while a query runs. The server keeps the log for the slot all the
same while Spark starts, a set-up waits for the cluster, or a query is between two tries. Then the disk fills,
and an alarm for it needs the numbers.
"""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import Self

from headrace.errors import HeadraceError
from headrace.postgres.connection import connect
from headrace.postgres.slot import read_slot
from headrace.status.board import Positions, StatusBoard

_SECONDS = 5.0


class SlotWatch:
    """Shows the slot on the board where nobody else has for some seconds; a context manager.

    Args:
        url: the database.
        slot: the slot's name.
        board: shows it.
        seconds: the time between two looks.
    """

    def __init__(self, url: str, slot: str, board: StatusBoard, *, seconds: float = _SECONDS) -> None:
        self._url = url
        self._slot = slot
        self._board = board
        self._seconds = seconds
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace slot", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join(timeout=self._seconds)

    def _run(self) -> None:
        while not self._ending.is_set():
            if self._board.seconds_since_slot() >= self._seconds:
                with contextlib.suppress(HeadraceError):  # what the run does with the server tells of it
                    self._look()
            self._ending.wait(self._seconds)

    def _look(self) -> None:
        with connect(self._url, application_name="headrace watch") as connection:
            slot = read_slot(connection, self._slot)
        if self._ending.is_set():
            return
        self._board.slot_seen(slot)
        if slot is not None:
            applied = self._board.view().positions.applied
            self._board.set_positions(Positions(slot.confirmed_flush, applied, slot.current))
