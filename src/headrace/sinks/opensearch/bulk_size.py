"""Adapt the size of bulk requests to what the cluster accepts.

Additive increase, multiplicative decrease: a refusal of a whole request halves the size, each accepted
request lets it grow a little. A request that was too large for the server (413) also sets a lasting ceiling.
"""

from __future__ import annotations

import threading

SMALLEST = 64 * 1024
"""Lower limit (bytes); smaller requests would only cost more."""

_STEPS = 32
"""Number of accepted requests after which the size has grown from 0 to the maximum."""


class BulkSize:
    """The current limit in bytes, before compression; shared by the senders of one writer.

    Args:
        most: the upper limit.
    """

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._step = max(1, most // _STEPS)
        self._floor = min(most, SMALLEST)
        self._ceiling = most
        self._bytes = most

    @property
    def bytes(self) -> int:
        """Return the current limit of one request."""
        return self._bytes

    def overloaded(self, sent: int) -> None:
        """Halve the size after a request of `sent` bytes was refused because the cluster is overloaded.

        A request that was cut before the last halving is ignored: it does not tell anything about the current
        size.
        """
        with self._lock:
            if sent <= self._bytes:
                self._bytes = max(self._floor, sent // 2)

    def too_large(self, sent: int) -> None:
        """Lower the ceiling after a request of several documents was too large for the server.

        Args:
            sent: the request's size (bytes).
        """
        with self._lock:
            self._ceiling = max(self._floor, min(self._ceiling, sent // 2))
            self._bytes = min(self._bytes, self._ceiling)

    def accepted(self, sent: int) -> None:
        """Let the size grow after an accepted request, if that was about as large as the limit."""
        with self._lock:
            if sent * 2 >= self._bytes:
                self._bytes = min(self._ceiling, self._bytes + self._step)
