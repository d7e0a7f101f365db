"""Reorder transactions that the server streams while they run into the order of commits.

With the option `streaming` the server sends pieces of a large transaction while it runs, between transactions
that have ended, and reports later whether it committed. A rolled back transaction is never passed on. A
committed one takes its place in the order of commits, with the positions that it has without `streaming`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headrace.capture.spool import Room, Spool
from headrace.pgoutput import (
    MessageBatch,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    decode_message,
)
from headrace.pgoutput.columnar import Letters, Numerals, letter_set
from headrace.pgoutput.cursor import broken
from headrace.pgoutput.frames import POSTGRES_EPOCH_US

_IS_MARK = letter_set(b"SEcA")
_RELATION = ord("R")
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
        behind = 0
        for mark in [*np.flatnonzero(_IS_MARK[letters]).tolist(), len(batch)]:
            if mark > behind:
                part = batch.slice(behind, mark)
                self._note(part, letters[behind:mark])
                if self._open is None:
                    yield Part(part)
                else:
                    self._open.append(part)
            if mark < len(batch):
                yield from self._mark(batch.payload(mark))
            behind = mark + 1

    def _note(self, part: MessageBatch, letters: Letters) -> None:
        """Remember the order of the relations' descriptions."""
        described = np.flatnonzero(letters == _RELATION)
        if not len(described):
            return
        begin = part.begin[described]
        if (part.end[described] - begin < _SHORTEST_RELATION).any():
            raise broken("the description of a table ends too early")
        numbers, at = (self._described, 1) if self._open is None else (self._described_in[self._open.xid], 5)
        for oid in Numerals(part.data).uint32(begin + at).tolist():
            self._descriptions += 1
            numbers[oid] = self._descriptions

    def _mark(self, payload: bytes) -> Iterator[Part]:
        match decode_message(payload):
            case StreamStart(xid, first):
                if self._open is not None or first == (xid in self._spools):
                    raise broken("a piece of a transaction begins where none can")
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
        spool = self._ending(xid)
        if xid == subxid:
            self._drop(xid)
            spool.close()
        else:
            spool.abort(subxid)

    def _committed(self, commit: StreamCommit) -> Iterator[Part]:
        spool = self._ending(commit.xid)
        latest = {
            oid: when for oid, when in self._drop(commit.xid).items() if when > self._described.get(oid, 0)
        }
        self._described.update(latest)
        time = commit.commit_time - POSTGRES_EPOCH_US
        begin = _BEGIN.pack(b"B", commit.commit_lsn, time, commit.xid)
        end = _COMMIT.pack(b"C", 0, commit.commit_lsn, commit.end_lsn, time)
        try:
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
