"""Reorder transactions that the server streams while they run into the order of commits.

With the option `streaming` the server sends pieces of a large transaction while it runs, between transactions
that have ended, and reports later whether it committed. A rolled back transaction is never passed on. A
committed one takes its place in the order of commits, with the positions that it has without `streaming`.

The messages of an unfinished transaction are kept in memory while it is small, else in a file without a name:
no other process can open it, and nothing is left behind when the process is killed.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.capture.trace_contexts import find_messages
from headrace.errors import HeadraceError, Kind
from headrace.pgoutput.batch import SLACK, Bytes, MessageBatch, Numbers
from headrace.pgoutput.columnar import DELETE, INSERT, TRUNCATE, UPDATE, Letters, Numerals, letter_set
from headrace.pgoutput.cursor import broken
from headrace.pgoutput.decoder import decode_message
from headrace.pgoutput.frames import POSTGRES_EPOCH_US
from headrace.pgoutput.messages import StreamAbort, StreamCommit, StreamStart, StreamStop

# The server streams the largest transaction when logical_decoding_work_mem is full: that may be small.
_IN_MEMORY = 128 << 10
_MOST_SPOOLS = 256  # each may have a file; a process often may have 1024 open, and connections need some too
_READ_BYTES = 1 << 20  # small pieces are joined up to about this size
_PIECE = struct.Struct("=IQ")  # messages, bytes

_RELATION, _TYPE, _MESSAGE, _ORIGIN = b"RYMO"
_IS_KEPT = letter_set(bytes((_RELATION, INSERT, UPDATE, DELETE, TRUNCATE)))
_IS_DROPPED = letter_set(bytes((_TYPE, _MESSAGE, _ORIGIN)))
_XID_SIZE = 4


class SpoolFullError(HeadraceError):
    """The unfinished transactions have no room in memory and on disk."""


@dataclass(slots=True)
class Room:
    """The limit and the use of all spools together.

    Attributes:
        limit: the most that they may hold (bytes).
        folder: the folder of the files; None: the system's folder for temporary files.
        used: what they hold (bytes).
    """

    limit: int
    folder: Path | None = None
    used: int = 0

    def take(self, size: int) -> None:
        """Reserve `size` bytes.

        Raises:
            SpoolFullError: the limit would be exceeded.
        """
        if self.used + size > self.limit:
            raise self.full(f"they have reached their limit of {self.limit >> 20} MiB")
        self.used += size

    def full(self, why: str) -> SpoolFullError:
        """Return the error that there is no room, for the reason `why`."""
        folder = self.folder or tempfile.tempdir or "the folder for temporary files"
        return SpoolFullError(
            Kind.DISK,
            f"unfinished transactions cannot wait in {folder}: {why}",
            "Make room there, or let TMPDIR name another folder.",
        )


@dataclass(slots=True)
class Spool:
    """The messages of one unfinished transaction, each with the id of its (sub)transaction.

    Attributes:
        room: the limit that all spools share.
        xid: the transaction's id.

    Raises:
        SpoolFullError: from `append`.
    """

    room: Room
    xid: int
    _file: tempfile.SpooledTemporaryFile[bytes] = field(init=False)
    _size: int = 0
    _aborted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        folder = None if self.room.folder is None else str(self.room.folder)
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=folder)  # noqa: SIM115

    def append(self, batch: MessageBatch) -> None:
        """Keep the messages that describe relations and rows, and trace contexts.

        Raises:
            SpoolFullError: there is no room.
            HeadraceError: PROTOCOL.
        """
        letters = batch.data[batch.begin]
        kept = _IS_KEPT[letters]
        # Trace contexts are messages of applications; others of that letter are dropped.
        kept[find_messages(batch, letters, header=_XID_SIZE)] = True
        if not (kept | _IS_DROPPED[letters]).all():
            raise broken("a message of another kind stands in an unfinished transaction")
        begin, end = batch.begin[kept], batch.end[kept]
        if not len(begin):
            return
        if (end - begin <= _XID_SIZE).any():
            raise broken("a message ends before its transaction's id")
        first, data = int(begin[0]), batch.data[begin[0] : end[-1]]
        xids = Numerals(batch.data).uint32(begin + 1).astype(np.uint32)
        parts = [
            _PIECE.pack(len(begin), len(data)),
            *((places - first).astype(np.uint32).tobytes() for places in (begin, end)),
            xids.tobytes(),
        ]
        size = sum(map(len, parts)) + len(data)
        # Before the file grows: a full disk ends other programs too.
        self.room.take(size)
        self._size += size
        try:
            for part in parts:
                self._file.write(part)
            self._file.write(data.data)
            # The disk's error has to come here, and not when the commit is read.
            self._file.flush()
        except OSError as error:
            raise self.room.full(error.strerror or str(error)) from error

    def abort(self, xid: int) -> None:
        """Drop the rows of a subtransaction that was rolled back."""
        # Its rows lie between others in the file: they are left out when that is read.
        self._aborted.add(xid)

    def read(self) -> Iterator[MessageBatch]:
        """Yield the kept messages in order, in the form of a transaction that was sent at its end.

        Descriptions of relations are kept even if their subtransaction was rolled back: the server sends each
        only once.
        """
        self._file.seek(0)
        aborted = np.array(sorted(self._aborted), np.uint32)
        pieces: list[MessageBatch] = []
        size = 0
        while head := self._file.read(_PIECE.size):
            count, data_size = _PIECE.unpack(head)
            pieces.append(self._piece(count, data_size, aborted))
            size += len(pieces[-1].data)
            if size >= _READ_BYTES:
                yield _joined(pieces)
                pieces, size = [], 0
        if pieces:
            yield _joined(pieces)

    def _piece(self, count: int, size: int, aborted: npt.NDArray[np.uint32]) -> MessageBatch:
        numbers = np.frombuffer(self._file.read(3 * 4 * count), np.uint32).reshape(3, count)
        begin, end = numbers[:2].astype(np.int64)
        data: Bytes = np.zeros(size + SLACK, np.uint8)
        self._file.readinto(data.data[:size])
        letters: Letters = data[begin]
        if len(aborted):
            near = np.minimum(np.searchsorted(aborted, numbers[2]), len(aborted) - 1)
            # A description stays: the server does not send it again, and rows after it need it.
            kept = (aborted[near] != numbers[2]) | (letters == _RELATION)
            begin, end, letters = begin[kept], end[kept], letters[kept]
        # The letter overwrites the id's last byte: what follows has the form of a message outside of a
        # stream.
        data[begin + _XID_SIZE] = letters
        return MessageBatch(data, begin + _XID_SIZE, end)

    def close(self) -> None:
        """Release the room; idempotent."""
        self.room.used -= self._size
        self._size = 0
        with suppress(OSError):  # unwritten data is not needed any more
            self._file.close()


def _joined(pieces: list[MessageBatch]) -> MessageBatch:
    if len(pieces) == 1:
        return pieces[0]
    sizes = np.array([len(piece.data) for piece in pieces])
    shifts: Numbers = np.cumsum(sizes) - sizes
    places = [
        np.concatenate([getattr(piece, name) + shift for piece, shift in zip(pieces, shifts, strict=True)])
        for name in ("begin", "end")
    ]
    return MessageBatch(np.concatenate([piece.data for piece in pieces]), *places)


_IS_MARK = letter_set(b"SEcA")
_SHORTEST_RELATION = 9  # a letter, the id of a (sub)transaction, the oid of a table


@dataclass(frozen=True, slots=True)
class Part:
    """Messages in the order of commits.

    Attributes:
        messages: the messages.
        streamed: whether they belong to a transaction that came in pieces; it may go on in the next part.
        described: in the last part of such a transaction, the oids of the relations whose latest descriptions
            came with it: the server does not send them again.
    """

    messages: MessageBatch
    streamed: bool = False
    described: frozenset[int] = frozenset()


class StreamedTransactions:
    """Holds the pieces of running transactions that a connection has sent, until they end.

    Args:
        room: the limit of their size.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._spools: dict[int, Spool] = {}
        self._open: Spool | None = None
        self._descriptions = 0
        self._described: dict[int, int] = {}  # relation -> number of its last description outside of them
        self._described_in: dict[int, dict[int, int]] = {}  # xid -> the same inside of it

    def __len__(self) -> int:
        return len(self._spools)

    def take(self, batch: MessageBatch) -> Iterator[Part]:
        """Yield what can be translated now, in the order of commits.

        Raises:
            SpoolFullError: an unfinished transaction has no room.
            HeadraceError: PROTOCOL.
        """
        if (batch.begin >= batch.end).any():
            raise broken("a message is empty")
        letters = batch.data[batch.begin]
        begin = 0
        for mark in [*np.flatnonzero(_IS_MARK[letters]).tolist(), len(batch)]:
            if mark > begin:
                part = batch.slice(begin, mark)
                self._note(part, letters[begin:mark])
                if self._open is None:
                    yield Part(part)
                else:
                    self._open.append(part)
            if mark < len(batch):
                yield from self._mark(batch.payload(mark))
            begin = mark + 1

    def _note(self, part: MessageBatch, letters: Letters) -> None:
        """Remember the order of the relations' descriptions."""
        described = np.flatnonzero(letters == _RELATION)
        if not len(described):
            return
        begin = part.begin[described]
        if (part.end[described] - begin < _SHORTEST_RELATION).any():
            raise broken("the description of a table ends too early")
        # Inside a streamed transaction the id of the (sub)transaction stands before the oid.
        numbers, at = (self._described, 1) if self._open is None else (self._described_in[self._open.xid], 5)
        for oid in Numerals(part.data).uint32(begin + at).tolist():
            self._descriptions += 1
            numbers[oid] = self._descriptions

    def _mark(self, payload: bytes) -> Iterator[Part]:
        match decode_message(payload):
            case StreamStart(xid, first):
                # The server ends each piece before the next, and only the first of a transaction says so.
                if self._open is not None or first == (xid in self._spools):
                    raise broken("a piece of a transaction begins where none can")
                if first and len(self._spools) >= _MOST_SPOOLS:
                    raise self._room.full(f"there are {_MOST_SPOOLS} already")
                self._open = self._spools.setdefault(xid, Spool(self._room, xid))
                self._described_in.setdefault(xid, {})
            case StreamStop():
                if self._open is None:
                    raise broken("a piece of a transaction ends that did not begin")
                self._open = None
            case StreamAbort(xid, subxid):
                self._abort(xid, subxid)
            case StreamCommit() as commit:
                yield from self._committed(commit)

    def _abort(self, xid: int, subxid: int) -> None:
        """Drop a transaction or subtransaction that was rolled back.

        It may be unknown: PostgreSQL 18 also reports, even without `streaming`, what was already rolled back
        when it was decoded, of which it sent nothing.
        """
        if self._open is None and xid not in self._spools:
            return
        # A subtransaction ends inside its transaction: the other parts stay.
        spool = self._ending(xid)
        if xid == subxid:
            self._drop(xid)
            spool.close()
        else:
            spool.abort(subxid)

    def _committed(self, commit: StreamCommit) -> Iterator[Part]:
        spool = self._ending(commit.xid)
        latest = {
            # The description that came last on the connection holds, inside or outside of the transaction.
            oid: when
            for oid, when in self._drop(commit.xid).items()
            if when > self._described.get(oid, 0)
        }
        self._described.update(latest)
        time = commit.commit_time - POSTGRES_EPOCH_US
        begin = _BEGIN.pack(b"B", commit.commit_lsn, time, commit.xid)
        end = _COMMIT.pack(b"C", 0, commit.commit_lsn, commit.end_lsn, time)
        try:
            # The messages of a transaction that was sent at its end: the same positions, whichever way it
            # came.
            yield Part(MessageBatch.join([begin]), streamed=True)
            for messages in spool.read():
                yield Part(messages, streamed=True)
            yield Part(MessageBatch.join([end]), streamed=True, described=frozenset(latest))
        finally:
            spool.close()

    def _drop(self, xid: int) -> dict[int, int]:
        del self._spools[xid]
        return self._described_in.pop(xid)

    def _ending(self, xid: int) -> Spool:
        if self._open is not None or xid not in self._spools:
            raise broken("a transaction ends of which there are no pieces")
        return self._spools[xid]

    def forget(self) -> None:
        """Drop everything: a new connection sends it again."""
        for spool in self._spools.values():
            spool.close()
        self._spools.clear()
        self._described_in.clear()
        self._described.clear()
        self._open = None


_BEGIN = struct.Struct(">cQqI")
_COMMIT = struct.Struct(">cBQQq")
