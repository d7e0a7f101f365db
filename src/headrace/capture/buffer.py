"""Buffer decoded changes in memory until batches read them.

The reading thread puts changes in, batches take them out. The buffer is bounded in bytes: the reader waits
while it is full.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
import pyarrow as pa

from headrace.capture.changes import ChangeEnds
from headrace.capture.offset import Offset
from headrace.capture.trace_contexts import MOST_CONTEXTS
from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import KnownCommit, Lsn, format_lsn
from headrace.model.trace import CommitContext
from headrace.pgoutput.batch import Numbers

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class _Mark:
    """An offset, with the bytes and rows put into the buffer before it."""

    offset: Offset
    bytes: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A part of the log: its changes and the offsets at which a batch may end in it.

    Attributes:
        batch: the changes.
        memory: the memory that its changes take (bytes).
        before: the end of the chunk before it.
        ends: where a batch may end.
    """

    batch: pa.RecordBatch
    memory: int
    before: _Mark
    ends: ChangeEnds

    def ends_upto(self, offset: Offset) -> int:
        """Count its ends that lie at or before `offset`."""
        # A place inside a transaction stands last; its `lsn` is that of the commit before.
        inside = self.ends.inside
        whole = len(self.ends) - (inside is not None)
        count = int(np.searchsorted(self.ends.lsn[:whole], offset.order[0], side="right"))
        return count + (inside is not None and inside.order <= offset.order)

    def ends_before(self, upto: Lsn | None) -> int:
        """Count its ends of transactions that committed before `upto`; None: all."""
        return len(self.ends) if upto is None else self.ends_upto(Offset(upto))

    def mark(self, index: int) -> _Mark:
        """Return the end at `index`."""
        ends, before = self.ends, self.before
        size, rows = before.bytes + int(ends.bytes[index]), before.rows + int(ends.rows[index])
        return _Mark(ends.offset(index), size, rows)

    def count_within(self, first: int, base: _Mark, limit: Limit) -> int:
        """Count its ends, from `first` on, that are within `limit` of `base`."""
        room = base.bytes + limit.bytes - self.before.bytes
        count = int(np.searchsorted(self.ends.bytes[first:], room, side="right"))
        if limit.rows is not None:
            room = base.rows + limit.rows - self.before.rows
            count = min(count, int(np.searchsorted(self.ends.rows[first:], room, side="right")))
        return count


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that one batch may hold; a first transaction that is larger is cut.

    Attributes:
        bytes: the weight of its changes.
        rows: the number of its changes; None: any.
        upto: only transactions that committed before this position (bytes) belong to a batch; None: all do.
    """

    bytes: int
    rows: int | None = None
    upto: Lsn | None = None


class ChangeBuffer:
    """A bounded queue of chunks of the log; every method may be called from any thread."""

    def __init__(self, start: Offset, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._changed = threading.Condition()
        self._chunks: deque[_Chunk] = deque()
        self._base = _Mark(start)
        self._filled = self._base
        self._idle = Offset(start.lsn, last=start.last)
        self._error: Exception | None = None
        self._memory = 0
        self._released = start
        self._requested: Offset | None = None
        self._waiting = 0

    def put(self, batch: pa.RecordBatch, size: int, ends: ChangeEnds) -> None:
        """Add a chunk of `size` bytes; if it has rows, the last of `ends` must lie after its last row.

        Without that end a full buffer could wait for its reader, and the reader for the end of a batch.
        """
        with self._changed:
            before = self._filled
            # Four arrays of ends; a chunk without rows must weigh something, or the queue has no bound.
            memory = batch.nbytes + ends.lsn.nbytes * 4
            self._chunks.append(_Chunk(batch, memory, before, ends))
            self._memory += memory
            last = ends.offset(-1) if len(ends) else before.offset
            # Totals since the beginning: what lies between two marks is a difference, without a walk.
            self._filled = _Mark(last, before.bytes + size, before.rows + batch.num_rows)
            self._changed.notify_all()

    @property
    def chunks(self) -> int:
        """The number of chunks in the buffer."""
        # Read without the lock: it only tunes a delay.
        return len(self._chunks)

    @property
    def is_awaited(self) -> bool:
        """Whether a thread waits for the next changes."""
        return self._waiting > 0

    def _wait_for(self, find: Callable[[], _Found], timeout: float) -> _Found:
        self._waiting += 1
        try:
            return self._changed.wait_for(find, timeout)
        finally:
            self._waiting -= 1

    def idle_at(self, lsn: Lsn, last: KnownCommit | None = None) -> None:
        """Note that no more changes come before `lsn`; the last transaction before it was `last`."""
        with self._changed:
            # A new connection reports earlier positions again; what was idle once stays so.
            if lsn >= self._idle.lsn:
                self._idle = Offset(lsn, last=last)
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """Note that no more changes will come: waiting for more raises the first `error`."""
        with self._changed:
            # The first one is the cause; the stream that is closed afterwards fails too.
            self._error = self._error or error
            self._changed.notify_all()

    def check_failed(self) -> None:
        """Raise the error that ended the reading thread, if one did.

        Raises:
            Exception: that error.
        """
        with self._changed:
            if self._error is not None:
                raise self._error

    def wait_for_room(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for room; return whether there is room."""
        with self._changed:
            return bool(self._changed.wait_for(self._has_room, timeout))

    def _has_room(self) -> bool:
        """Report room also while a requested range has not arrived, even if it is larger than the buffer."""
        # Else reader and batch would wait for one another for ever.
        asked = self._requested is not None and not self._arrived(self._requested)
        return self._memory < self._limit or asked

    def wait_for_cut(self, start: Offset, limit: Limit, timeout: float) -> Offset | None:
        """Return what `cut` returns; wait at most `timeout` seconds until a batch can end.

        Raises:
            Exception: the error that ended the reading thread, once all changes before it are handed out.
        """
        with self._changed:
            # What came before the error is handed out first, and confirmed.
            found = self._wait_for(lambda: self.cut(start, limit) or self._error, timeout)
            if isinstance(found, Exception):
                raise found
            return found

    def wait_until(self, offset: Offset, timeout: float) -> bool:
        """Wait at most `timeout` seconds for all changes up to `offset`; return whether they have arrived.

        Raises:
            Exception: the error that ended the reading thread before it reached `offset`.
        """
        with self._changed:
            # The reader must go on although the buffer is full: what is asked for has not arrived.
            self._requested = offset
            self._changed.notify_all()
            try:
                found = self._wait_for(lambda: self._arrived(offset) or self._error, timeout)
            finally:
                self._requested = None
            if isinstance(found, Exception):
                raise found
            return bool(found)

    def _arrived(self, offset: Offset) -> bool:
        # An offset without changes has no end in any chunk: only an idle position shows that it has arrived.
        if offset.transaction is None and self._idle.lsn >= offset.lsn:
            return True
        return self._filled.offset.order >= offset.order

    def cut(self, start: Offset, limit: Limit) -> Offset | None:
        """Return the end of the batch that begins at `start`; None where it cannot end yet.

        That is the last commit within `limit`. Where the first transaction alone is larger, it is the last
        place inside it that is within `limit`, or its first place.
        """
        with self._changed:
            base = self._at(start)
            chosen: Offset | None = None
            # In a full buffer nothing more will come: the batch ends inside the transaction.
            overflow = self._memory >= self._limit
            for chunk in self._chunks:
                first = chunk.ends_upto(start)
                left = chunk.ends_before(limit.upto) - first
                # All that is left commits after the position where the query is to end.
                if left <= 0 < len(chunk.ends) - first:
                    break
                fitting = min(left, chunk.count_within(first, base, limit))
                chosen = _last_of(chunk, first, first + fitting, chosen)
                if fitting < left:
                    overflow = True
                    chosen = chosen or chunk.ends.offset(first)
                    break
            # A place inside a transaction is taken only where the batch, or the buffer, is full.
            return chosen if chosen is not None and (chosen.transaction is None or overflow) else None

    def _at(self, offset: Offset) -> _Mark:
        mark = self._base
        for chunk in self._chunks:
            count = chunk.ends_upto(offset)
            if count:
                mark = max(mark, chunk.mark(count - 1), key=lambda candidate: candidate.offset.order)
            # Chunks are in order: those after it have nothing at or before the offset.
            if count < len(chunk.ends):
                break
        return mark

    @property
    def idle(self) -> Offset:
        """The last position that the server reported without changes for this reader."""
        with self._changed:
            return self._idle

    def is_empty_after(self, offset: Offset) -> bool:
        """Return whether no change, not even of an unfinished transaction, lies after `offset`."""
        with self._changed:
            nothing = all(chunk.ends_upto(offset) == len(chunk.ends) for chunk in self._chunks)
            # First rows of an unfinished transaction may have no end yet: only their number tells of them.
            return nothing and self._filled.rows == self._at(offset).rows

    def is_empty_between(self, start: Offset, upto: Lsn) -> bool:
        """Return whether all commits before `upto` have arrived and none lies after `start`."""
        with self._changed:
            if not self._arrived(Offset(upto)):
                return False
            return all(chunk.ends_before(upto) <= chunk.ends_upto(start) for chunk in self._chunks)

    def xids(self, start: Offset, end: Offset) -> Numbers:
        """Return the ids of transactions that end, or are cut, in (start, end]; an id may occur twice."""
        with self._changed:
            parts = [chunk.ends.xid[chunk.ends_upto(start) : chunk.ends_upto(end)] for chunk in self._chunks]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def contexts(self, start: Offset, end: Offset) -> list[CommitContext]:
        """Return the first trace contexts of the transactions that end in (start, end]."""
        with self._changed:
            parts = [chunk.ends.contexts for chunk in self._chunks]
        found = (context for part in parts for context in part)
        # `commit_lsn` is where a commit record begins, an offset where one ends: hence `<=` and `<`.
        return list(
            islice((context for context in found if start.lsn <= context.commit_lsn < end.lsn), MOST_CONTEXTS)
        )

    def last_before(self, end: Offset) -> KnownCommit | None:
        """Return the transaction of the last buffered change that `end` covers; None where there is none."""
        with self._changed:
            chunks = [chunk.batch for chunk in self._chunks]
        for batch in reversed(chunks):
            if count := _covered(batch, end):
                return _commit_of(batch, count - 1)
        return None

    def read(self, start: Offset, end: Offset) -> list[pa.RecordBatch]:
        """Return the changes in (start, end], in order.

        Raises:
            HeadraceError: INTERNAL where `release` has dropped some of them.
        """
        with self._changed:
            # Spark repeats a batch only before it is committed, and what was confirmed was committed.
            if start.order < self._released.order:
                raise HeadraceError(
                    Kind.INTERNAL,
                    f"changes after {format_lsn(start.lsn)} were asked for, those up to "
                    f"{format_lsn(self._released.lsn)} are confirmed and gone",
                )
            chunks = [chunk.batch for chunk in self._chunks]
        # Outside of the lock: Arrow data never changes, and the reader goes on while it is cut.
        return [part for batch in chunks for part in _between(batch, start, end)]

    def release(self, offset: Offset) -> bool:
        """Drop everything up to `offset`; return whether that was an end of a batch not dropped before."""
        with self._changed:
            base = self._at(offset)
            grown = base.offset.order > self._base.offset.order
            self._base = base
            self._released = max(self._released, offset, key=lambda place: place.order)
            # A chunk goes as a whole, its rows share one piece of memory.
            while self._chunks and self._is_done(self._chunks[0], offset):
                self._memory -= self._chunks.popleft().memory
            self._changed.notify_all()
            return grown

    @staticmethod
    def _is_done(chunk: _Chunk, offset: Offset) -> bool:
        return chunk.ends_upto(offset) == len(chunk.ends) and _covered(chunk.batch, offset) == len(
            chunk.batch
        )


def _last_of(chunk: _Chunk, first: int, stop: int, chosen: Offset | None) -> Offset | None:
    """Return the best of the ends in [first, stop) and `chosen`: the last commit, else the last place."""
    if first >= stop:
        return chosen
    last = chunk.ends.offset(stop - 1)
    if last.transaction is None:
        return last
    # Only the last end of a chunk can lie inside a transaction: the one before it is a commit.
    if stop - 1 > first:
        return chunk.ends.offset(stop - 2)
    return last if chosen is None or chosen.transaction is not None else chosen


def _commit_of(batch: pa.RecordBatch, row: int) -> KnownCommit:
    lsn, xid = (int(batch.column(name)[row].as_py()) for name in ("_commit_lsn", "_xid"))
    return KnownCommit(lsn, xid, int(batch.column("_commit_timestamp")[row].value))


def _covered(batch: pa.RecordBatch, offset: Offset) -> int:
    """Count the batch's first rows that `offset` covers; positions only grow."""
    lsns, sequences = (batch.column(name).to_numpy() for name in ("_commit_lsn", "_commit_seq"))
    if offset.transaction is None:
        return int(np.searchsorted(lsns, offset.lsn, side="left"))
    first = int(np.searchsorted(lsns, offset.transaction, side="left"))
    stop = int(np.searchsorted(lsns, offset.transaction, side="right"))
    return first + int(np.searchsorted(sequences[first:stop], offset.sequence, side="right"))


def _between(batch: pa.RecordBatch, start: Offset, end: Offset) -> Iterator[pa.RecordBatch]:
    first, stop = _covered(batch, start), _covered(batch, end)
    if stop > first:
        yield batch.slice(first, stop - first)
