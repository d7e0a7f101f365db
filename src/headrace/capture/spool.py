"""Where does an unfinished transaction wait for its end? In memory while it is small, else on disk.

The file has no name from its first byte on: nobody else can open it, and nothing is left behind when the
process is killed.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headrace.errors import HeadraceError, Kind
from headrace.pgoutput import MessageBatch
from headrace.pgoutput.batch import SLACK, Bytes, Numbers
from headrace.pgoutput.columnar import DELETE, INSERT, TRUNCATE, UPDATE, Letters, Numerals, letter_set
from headrace.pgoutput.cursor import broken

_IN_MEMORY = 1 << 20
_READ_BYTES = 1 << 20  # small pieces are put together to about this much
_PIECE = struct.Struct("=IQ")  # messages, bytes

_RELATION, _TYPE, _MESSAGE, _ORIGIN = b"RYMO"
_IS_KEPT = letter_set(bytes((_RELATION, INSERT, UPDATE, DELETE, TRUNCATE)))
_IS_DROPPED = letter_set(bytes((_TYPE, _MESSAGE, _ORIGIN)))
_XID_SIZE = 4


class SpoolFullError(HeadraceError):
    """What unfinished transactions need has no room."""


@dataclass(slots=True)
class Room:
    """What all spools together may hold.

    Attributes:
        limit: bytes.
        folder: where files are made; None: the system's folder for temporary files.
        used: bytes.
    """

    limit: int
    folder: Path | None = None
    used: int = 0

    def take(self, size: int) -> None:
        """Count `size` more bytes.

        Raises:
            SpoolFullError: they would be too many.
        """
        if self.used + size > self.limit:
            raise self.full(f"they have reached their limit of {self.limit >> 20} MiB")
        self.used += size

    def full(self, why: str) -> SpoolFullError:
        """The error that there is no room, for the reason `why`."""
        folder = self.folder or tempfile.gettempdir()
        return SpoolFullError(
            Kind.DISK,
            f"unfinished transactions cannot wait in {folder}: {why}",
            "Make room there, or let TMPDIR name another folder.",
        )


@dataclass(slots=True)
class Spool:
    """The messages of one unfinished transaction, each with the id of its (sub)transaction.

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
        """Keep what the messages say about rows.

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
            for part in parts:
                self._file.write(part)
            self._file.write(data.data)
            self._file.flush()
        except OSError as error:
            raise self.room.full(error.strerror or str(error)) from error

    def abort(self, xid: int) -> None:
        """Forget the rows of a subtransaction."""
        self._aborted.add(xid)

    def read(self) -> Iterator[MessageBatch]:
        """What is kept, in order, in the form of a transaction that was sent at its end.

        Relations stay also where their subtransaction was rolled back: the server tells each only once.
        """
        self._file.seek(0)
        pieces: list[MessageBatch] = []
        size = 0
        while head := self._file.read(_PIECE.size):
            pieces.append(self._piece(*_PIECE.unpack(head)))
            size += len(pieces[-1].data)
            if size >= _READ_BYTES:
                yield _joined(pieces)
                pieces, size = [], 0
        if pieces:
            yield _joined(pieces)

    def _piece(self, count: int, size: int) -> MessageBatch:
        numbers = np.frombuffer(self._file.read(3 * 4 * count), np.uint32).reshape(3, count)
        begin, end = numbers[:2].astype(np.int64)
        data: Bytes = np.zeros(size + SLACK, np.uint8)
        self._file.readinto(data.data[:size])
        letters: Letters = data[begin]
        if self._aborted:
            kept = ~np.isin(numbers[2], list(self._aborted)) | (letters == _RELATION)
            begin, end, letters = begin[kept], end[kept], letters[kept]
        data[begin + _XID_SIZE] = letters
        return MessageBatch(data, begin + _XID_SIZE, end)

    def close(self) -> None:
        """Give the room back; idempotent."""
        self.room.used -= self._size
        self._size = 0
        with suppress(OSError):  # what a full disk did not take is not wanted any more
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
