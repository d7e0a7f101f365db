"""Read a backlog of the log through SQL with two sessions that take turns.

The server collects a whole window of the log before it sends the first message. So while one session sends,
the other collects the next window, and this process decodes the last one. What waits between them is bounded
in bytes.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, pairwise
from typing import Self

from headrace.capture.continuity import LogPositions
from headrace.errors import HeadraceError, Kind, unexpected
from headrace.model.lsn import Lsn
from headrace.pgoutput.batch import MessageBatch
from headrace.postgres.backlog import BacklogReader
from headrace.postgres.connection import Closeable

_WAITING = 8  # batches of about 8 MB, for each session
_LARGE = 32 << 20  # such a batch holds a wide row and waits alone
_LARGE_SECONDS = 0.02
_POLL_SECONDS = 0.25
_CANCEL_SECONDS = 1.0
# One collects a window while the other sends.
_SESSIONS = 2

PASSING = frozenset({Kind.CONNECTION, Kind.SERVER_FAULT})
"""After these errors the backlog is read through SQL once more; after others the log is streamed."""

_Item = MessageBatch | Lsn | HeadraceError
_LOG = logging.getLogger(__name__)


def backlog_end(now: LogPositions, position: Lsn, least: int) -> Lsn | None:
    """Return up to where the log after `position` is read through SQL; None where the stream is better.

    The server decodes from the slot's restart position on: reading through SQL gains nothing where that lies
    further back than the backlog is long.

    Args:
        now: the positions of the slot and of the log.
        position: what was read (bytes).
        least: a smaller backlog is streamed (bytes).
    """
    # On a standby the log's end is not known, and the stream is the only way.
    if now.written is None or now.confirmed is None or now.restart is None:
        return None
    waiting = now.written - max(position, now.confirmed)
    return now.written if waiting >= least and position - now.restart <= 2 * waiting else None


def open_readers(
    stack: ExitStack, url: str, slot: str, publication: str, *, messages: bool
) -> list[BacklogReader]:
    """Open two sessions on `stack`, or as many as the server's limits allow.

    Raises:
        HeadraceError: of `PASSING`.
    """
    readers: list[BacklogReader] = []
    try:
        for _ in range(_SESSIONS):
            reader = BacklogReader(url, slot, (publication,), "headrace backlog", messages=messages)
            readers.append(stack.enter_context(reader))
    except HeadraceError as error:
        if error.kind in PASSING:
            raise
        _LOG.info("%d sessions read the backlog: %s", len(readers), error)
    return readers


class BacklogFeed(Closeable):
    """The messages of the log in (start, end], in order, as a context manager and an iterator.

    Yields batches of messages, and after each window its end: everything that committed before has been
    yielded. After such an end the messages describe their relations again, and the transaction right at it
    may come again.

    Args:
        readers: sessions whose position is `start` or before; each gets a thread.
        start: transactions that committed up to this position are left out.
        end: the last position.
        window: bytes of log in one window. The server decodes each window from the slot's restart position
            on, so a small one is slow.

    Raises:
        HeadraceError: while iterating, the error that ended the reading.
    """

    def __init__(self, readers: Sequence[BacklogReader], start: Lsn, end: Lsn, window: int) -> None:
        self._readers = readers
        self._places = [start, *range(start + window, end, window), end]
        self._queues: list[queue.Queue[_Item]] = [queue.Queue(_WAITING) for _ in readers]
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(number,), name="headrace backlog", daemon=True)
            for number in range(len(readers))
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def close(self) -> None:
        """Stop the threads; a session is not closed while a thread reads from it."""
        self._closing.set()
        for reader, waiting, thread in zip(self._readers, self._queues, self._threads, strict=True):
            # psycopg must not close a connection in which another thread waits.
            while thread.is_alive():  # cancel again: the thread may have been between two statements
                reader.cancel()
                with suppress(queue.Empty):  # it may wait for room
                    while True:
                        waiting.get_nowait()
                thread.join(timeout=_CANCEL_SECONDS)

    def __iter__(self) -> Iterator[MessageBatch | Lsn | None]:
        """Yield what arrives next; None from time to time while nothing arrives."""
        # Windows are taken in turn, so transactions come in the order of their commits.
        for number, place in enumerate(self._places[1:]):
            waiting = self._queues[number % len(self._readers)]
            item: _Item | None = None
            while item != place:
                try:
                    item = waiting.get(timeout=_POLL_SECONDS)
                except queue.Empty:
                    item = None
                if isinstance(item, HeadraceError):
                    raise item
                yield item

    def _read(self, number: int) -> None:
        reader, waiting = self._readers[number], self._queues[number]
        windows = list(pairwise(self._places))[number :: len(self._readers)]
        try:
            for start, end in windows:
                # A window begins where another session's ended: that session does not move this one.
                reader.skip(start)
                for item in chain(reader.read(end), [end]):
                    # Eight batches with values of hundreds of megabytes would not fit into memory.
                    is_large = isinstance(item, MessageBatch) and len(item.data) > _LARGE
                    while is_large and not waiting.empty() and not self._closing.wait(_LARGE_SECONDS):
                        pass
                    waiting.put(item)
                    if self._closing.is_set():
                        return
        except Exception as error:  # noqa: BLE001 - the iterating thread raises it
            waiting.put(unexpected("reading the backlog failed", error))
