"""Find out whether a sink that was away answers again."""

from __future__ import annotations

import contextlib
import threading
import time

from headrace.errors import HeadraceError
from headrace.sinks.opensearch import Client

_SHORTEST_PAUSE, _LONGEST_PAUSE = 5.0, 600.0


class SinkProbe:
    """Asks a cluster whether it answers, with growing pauses.

    A thread asks, because a cluster may hang.

    Args:
        client: client of the cluster, with short timeouts; the caller closes it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._answered = threading.Event()
        self._thread = self._new_thread()
        self._pause, self._next = _SHORTEST_PAUSE, 0.0

    def look(self) -> bool:
        """Return whether the cluster has answered since the last look; ask it again where that is due."""
        if self._answered.is_set():
            self._answered.clear()
            return True
        if time.monotonic() >= self._next and not self._thread.is_alive():
            self._next = time.monotonic() + self._pause
            self._thread = self._new_thread()
            self._thread.start()
        return False

    def wait_longer(self) -> None:
        """Ask only after a pause, twice as long as the one before."""
        self._next = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def reset(self) -> None:
        """Begin again with the shortest pause: the cluster answers."""
        self._pause, self._next = _SHORTEST_PAUSE, 0.0

    def _ask(self) -> None:
        with contextlib.suppress(HeadraceError):
            self._client.wait_until_ready(0.0)
            self._answered.set()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._ask, name="headrace probing", daemon=True)
