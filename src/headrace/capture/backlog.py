"""How is a backlog read ahead while what came before is decoded?

A thread of its own asks the server for one window of the log after the other; the server works on the next
one while this process decodes the last. What waits between the two is bounded in bytes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn
from headrace.pgoutput import MessageBatch
from headrace.postgres.backlog import BacklogReader

WINDOW_BYTES = 128 << 20
"""Of the log; each window is decoded by the server from the slot's restart position on, so not too small."""

_WAITING = 8  # batches of about 8 MB
_POLL_SECONDS = 0.25

_Item = MessageBatch | Lsn | HeadraceError


class BacklogFeed:
    """The messages of the log in (start, end], in order, as a context manager and an iterator.

    Yields batches of messages, and positions: everything that committed before one has been yielded.

    Raises:
        HeadraceError: from iterating, what ended the reading.
    """

    def __init__(self, reader: BacklogReader, start: Lsn, end: Lsn, window: int = WINDOW_BYTES) -> None:
        self._reader = reader
        self._places = [*range(start + window, end, window), end]
        self._queue: queue.Queue[_Item] = queue.Queue(_WAITING)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._read, name="headrace backlog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._reader.cancel()
        self._thread.join(timeout=10)

    def __iter__(self) -> Iterator[MessageBatch | Lsn | None]:
        """What comes next; None now and then while nothing does."""
        end = self._places[-1]
        while True:
            try:
                item = self._queue.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                yield None
                continue
            if isinstance(item, HeadraceError):
                raise item
            yield item
            if item == end:
                return

    def _read(self) -> None:
        try:
            for place in self._places:
                for messages in self._reader.read(place):
                    if not self._put(MessageBatch.of_column(messages)):
                        return
                if not self._put(place):
                    return
        except HeadraceError as error:
            self._put(error)
        except Exception as error:  # noqa: BLE001 - a thread's last words: whoever iterates gets them
            self._put(HeadraceError(Kind.INTERNAL, f"reading the backlog failed: {error!r}"))

    def _put(self, item: _Item) -> bool:
        while not self._closing.is_set():
            try:
                self._queue.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False
