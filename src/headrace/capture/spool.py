"""Keep the messages of an unfinished transaction: in memory while it is small, else on disk.

The file has no name: no other process can open it, and nothing is left behind when the process is killed.
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

from headrace.errors import HeadraceError, Kind
from headrace.pgoutput import MessageBatch
from headrace.pgoutput.batch import SLACK, Bytes, Numbers
from headrace.pgoutput.columnar import DELETE, INSERT, TRUNCATE, UPDATE, Letters, Numerals, letter_set
from headrace.pgoutput.cursor import broken

_IN_MEMORY = 1 << 20
_ALL_IN_MEMORY = 32 << 20
_MOST_FILES = 256  # a process often may have 1024 open, and connections need some too
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
        in_memory: the part of `used` that is not in files (bytes).
        files: the number of files.
    """

    limit: int
    folder: Path | None = None
    used: int = 0
    in_memory: int = 0
    files: int = 0

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
    _in_memory: int = 0
    _has_file: bool = False
    _aborted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        folder = None if self.room.folder is None else str(self.room.folder)
        self._file = tempfile.SpooledTemporaryFile(dir=folder)  # noqa: SIM115

    def append(self, batch: MessageBatch) -> None:
        """Keep the messages that describe relations and rows.

        Raises:
            SpoolFullError: there is no room.
            HeadraceError: PROTOCOL.
        """
        letters = batch.data[batch.begin]
        kept = _IS_KEPT[letters]
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
        self.room.take(size)
        self._size += size
        try:
            self._make_file(size)
            for part in parts:
                self._file.write(part)
            self._file.write(data.data)
            self._file.flush()
        except OSError as error:
            raise self.room.full(error.strerror or str(error)) from error

    def _make_file(self, size: int) -> None:
        """Move to a file where `size` more bytes would be too many in memory, here or in all spools."""
        room = self.room
        if self._has_file:
            return
        if self._in_memory + size <= _IN_MEMORY and room.in_memory + size <= _ALL_IN_MEMORY:
            self._in_memory += size
            room.in_memory += size
            return
        if room.files >= _MOST_FILES:
            raise room.full(f"{_MOST_FILES} of them have a file already")
        self._file.rollover()
        self._has_file = True
        room.files += 1
        room.in_memory -= self._in_memory
        self._in_memory = 0

    def abort(self, xid: int) -> None:
        """Drop the rows of a subtransaction that was rolled back."""
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
            kept = (aborted[near] != numbers[2]) | (letters == _RELATION)
            begin, end, letters = begin[kept], end[kept], letters[kept]
        data[begin + _XID_SIZE] = letters
        return MessageBatch(data, begin + _XID_SIZE, end)

    def close(self) -> None:
        """Release the room; idempotent."""
        self.room.used -= self._size
        self.room.in_memory -= self._in_memory
        self.room.files -= self._has_file
        self._size = self._in_memory = 0
        self._has_file = False
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
