"""Hold what operators have ordered of a run: whether it is paused, and how many orders came over HTTP."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of the stream: since when (Unix time in seconds), and who ordered it."""

    since: float
    by: str


class ControlStatus:
    """The orders to one run; safe from any thread.

    The stream reads the pause from here, so it lasts through retries and ends with the run.

    Args:
        wall: Unix time in seconds.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._paused: Pause | None = None
        # Counted for the metrics: they outlive the orders, of which the last hundred are kept.
        self._requests: Counter[tuple[str, str]] = Counter()

    @property
    def paused(self) -> Pause | None:
        """The pause; None while the stream goes on."""
        return self._paused

    def pause(self, by: str) -> bool:
        """Pause the stream; return False where it is paused already, which changes nothing."""
        with self._lock:
            if self._paused is not None:
                return False
            self._paused = Pause(self._wall(), by)
            return True

    def resume(self) -> bool:
        """End the pause; return False where there is none."""
        with self._lock:
            was_paused, self._paused = self._paused is not None, None
            return was_paused

    def count_request(self, order: str, outcome: str) -> None:
        """Count a request to the private address: what was ordered, and how it was answered."""
        with self._lock:
            self._requests[order, outcome] += 1

    def requests(self) -> dict[tuple[str, str], int]:
        """Return the requests counted so far, by order and outcome."""
        with self._lock:
            return dict(self._requests)
