"""Which changes wait to be handed out, and where may a batch end?

Filled by the reading thread, emptied by the batches. Bounded in bytes: the reader waits while it is full.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.capture.offset import Offset
from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn, format_lsn

End = tuple[Offset, int, int, int, bool]
"""Where a batch may end inside a chunk: offset, xid, bytes and rows before it, whether behind a commit."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place where a batch may end: behind a commit, or (`whole` false) inside a large transaction.

    `bytes` and `rows` count from the beginning of the buffer's life.
    """

    offset: Offset
    xid: int
    bytes: int
    rows: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Limit:
    """How much one batch may hold; the first transaction is cut where it alone is larger."""

    bytes: int
    rows: int | None = None


class ChangeBuffer:
    """A queue of sealed chunks and the marks in them; every method is safe from any thread."""

    def __init__(self, start: Offset, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._changed = threading.Condition()
        self._chunks: deque[tuple[pa.RecordBatch, int]] = deque()
        self._marks: deque[Mark] = deque()
        self._base = Mark(start, 0, 0, 0, whole=True)
        self._filled = self._base
        self._keepalive: Lsn = start.lsn
        self._error: Exception | None = None
        self._held = 0
        self._released = start
        self._wanted: Offset | None = None

    def put(self, batch: pa.RecordBatch, size: int, ends: Sequence[End]) -> None:
        """Add a chunk of `size` bytes in the log; `ends`, in order, has one behind its last row.

        Without that one a full buffer could wait for its reader, and the reader for the end of a batch.
        """
        with self._changed:
            before = self._filled
            if batch.num_rows:
                held = batch.nbytes
                self._chunks.append((batch, held))
                self._held += held
            for offset, xid, size_there, rows, whole in ends:
                self._marks.append(Mark(offset, xid, before.bytes + size_there, before.rows + rows, whole))
            last = self._marks[-1] if self._marks else before
            self._filled = Mark(
                last.offset, last.xid, before.bytes + size, before.rows + batch.num_rows, last.whole
            )
            self._changed.notify_all()

    def idle_at(self, lsn: Lsn) -> None:
        """The server has nothing for us before `lsn`."""
        with self._changed:
            self._keepalive = max(self._keepalive, lsn)
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """Nothing more will come; `error` goes to whoever asks."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def wait_for_room(self, timeout: float) -> bool:
        """Whether there is room now, after at most `timeout` seconds."""
        with self._changed:
            return bool(self._changed.wait_for(self._has_room, timeout))

    def _has_room(self) -> bool:
        """A range that was asked for must come, even where it is larger than the buffer."""
        asked = self._wanted is not None and not self._arrived(self._wanted)
        return self._held < self._limit or asked

    def wait_for_cut(self, start: Offset, limit: Limit, timeout: float) -> Offset | None:
        """As `cut`, but waits at most `timeout` seconds for a batch that can end.

        Raises:
            Exception: what the reading thread ended with.
        """
        with self._changed:
            found: Offset | None = None

            def look() -> bool:
                nonlocal found
                found = self.cut(start, limit)
                return self._error is not None or found is not None

            self._changed.wait_for(look, timeout)
            if self._error is not None:
                raise self._error
            return found

    def wait_until(self, offset: Offset, timeout: float) -> bool:
        """Whether everything up to `offset` has arrived, after at most `timeout` seconds."""
        with self._changed:
            self._wanted = offset
            self._changed.notify_all()
            try:
                arrived = self._changed.wait_for(
                    lambda: self._error is not None or self._arrived(offset), timeout
                )
            finally:
                self._wanted = None
            if self._error is not None:
                raise self._error
            return arrived

    def _arrived(self, offset: Offset) -> bool:
        if offset.transaction is None and self._keepalive >= offset.lsn:
            return True
        return self._filled.offset.order >= offset.order

    def _next_mark(self, after: Offset) -> Mark | None:
        return next((mark for mark in self._marks if mark.offset.order > after.order), None)

    def cut(self, start: Offset, limit: Limit) -> Offset | None:
        """Where the batch behind `start` ends, None where it cannot end yet.

        That is the last commit within `limit`; else, where the first transaction alone is larger, the last
        place inside it that is within, or the first one.
        """
        with self._changed:
            base = self._at(start)
            chosen: Mark | None = None
            overflow = self._held >= self._limit
            for mark in self._marks:
                if mark.offset.order <= start.order:
                    continue
                fits = mark.bytes - base.bytes <= limit.bytes and (
                    limit.rows is None or mark.rows - base.rows <= limit.rows
                )
                overflow = overflow or not fits
                if not fits and chosen is not None:
                    break
                if mark.whole or chosen is None or not chosen.whole:
                    chosen = mark
                if not fits:
                    break
            # A place inside a transaction is taken only where the batch, or the buffer, is full.
            return chosen.offset if chosen is not None and (chosen.whole or overflow) else None

    def _at(self, offset: Offset) -> Mark:
        found = self._base
        for mark in self._marks:
            if mark.offset.order > offset.order:
                break
            found = mark
        return found

    @property
    def keepalive(self) -> Lsn:
        """The last position that the server reported without changes for us."""
        with self._changed:
            return self._keepalive

    def is_empty_after(self, offset: Offset) -> bool:
        """Whether nothing at all, not even an unfinished transaction, lies behind `offset`."""
        with self._changed:
            return self._next_mark(offset) is None and self._filled.rows == self._at(offset).rows

    def xids(self, start: Offset, end: Offset) -> list[int]:
        """The transactions that end, or are cut, in (start, end]."""
        with self._changed:
            inside = (m for m in self._marks if start.order < m.offset.order <= end.order)
            return sorted({mark.xid for mark in inside})

    def read(self, start: Offset, end: Offset) -> list[pa.RecordBatch]:
        """The changes in (start, end], in order.

        Raises:
            HeadraceError: INTERNAL where `release` has forgotten some of them.
        """
        with self._changed:
            if start.order < self._released.order:
                raise HeadraceError(
                    Kind.INTERNAL,
                    f"changes behind {format_lsn(start.lsn)} were asked for, those up to "
                    f"{format_lsn(self._released.lsn)} are confirmed and gone",
                )
            chunks = [batch for batch, _ in self._chunks]
        return [part for batch in chunks for part in _between(batch, start, end)]

    def release(self, offset: Offset) -> bool:
        """Forget everything up to `offset`; whether there was a commit to forget."""
        with self._changed:
            known = len(self._marks)
            self._released = max(self._released, offset, key=lambda known: known.order)
            while self._marks and self._marks[0].offset.order <= offset.order:
                self._base = self._marks.popleft()
            while self._chunks and _last_is_covered(self._chunks[0][0], offset):
                _, size = self._chunks.popleft()
                self._held -= size
            self._changed.notify_all()
            return len(self._marks) < known


def _positions(batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    return batch.column("_commit_lsn").to_numpy(), batch.column("_commit_seq").to_numpy()


def _covered(batch: pa.RecordBatch, offset: Offset) -> int:
    """How many of the batch's first rows `offset` covers; positions only grow."""
    lsns, sequences = _positions(batch)
    if offset.transaction is None:
        return int(np.searchsorted(lsns, offset.lsn, side="left"))
    first = int(np.searchsorted(lsns, offset.transaction, side="left"))
    behind = int(np.searchsorted(lsns, offset.transaction, side="right"))
    return first + int(np.searchsorted(sequences[first:behind], offset.sequence, side="right"))


def _between(batch: pa.RecordBatch, start: Offset, end: Offset) -> Iterator[pa.RecordBatch]:
    first, behind = _covered(batch, start), _covered(batch, end)
    if behind > first:
        yield batch.slice(first, behind - first)


def _last_is_covered(batch: pa.RecordBatch, offset: Offset) -> bool:
    return _covered(batch, offset) == int(batch.num_rows)
