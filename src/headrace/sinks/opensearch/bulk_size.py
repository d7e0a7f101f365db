"""How large may a bulk request be right now?

Additive increase, multiplicative decrease: what the cluster refuses as a whole halves the size, what it takes
lets it grow back a little. A request that was too large for the server (413) also sets a lasting ceiling.
"""

from __future__ import annotations

import threading

SMALLEST = 64 * 1024
"""Bytes; below this, smaller requests only cost more."""

_STEPS = 32
"""So many accepted bulks bring the size back from nothing."""


class BulkSize:
    """The present size, in bytes of lines before compression; shared by the senders of one writer.

    Args:
        most: it never exceeds this.
    """

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._step = max(1, most // _STEPS)
        self._floor = min(most, SMALLEST)
        self._ceiling = most
        self._bytes = most

    @property
    def bytes(self) -> int:
        """What one request may have now."""
        return self._bytes

    def overloaded(self, sent: int) -> None:
        """A request of `sent` bytes was refused because the cluster has too much to do.

        One that was cut before the size was halved last says nothing about the size of now.
        """
        with self._lock:
            if sent <= self._bytes:
                self._bytes = max(self._floor, sent // 2)

    def too_large(self, sent: int) -> None:
        """A request of `sent` bytes, of several documents, is more than the server ever takes."""
        with self._lock:
            self._ceiling = max(self._floor, min(self._ceiling, sent // 2))
            self._bytes = min(self._bytes, self._ceiling)

    def accepted(self, sent: int) -> None:
        """A request was taken; only one of about the present size says that more would be."""
        with self._lock:
            if sent * 2 >= self._bytes:
                self._bytes = min(self._ceiling, self._bytes + self._step)
