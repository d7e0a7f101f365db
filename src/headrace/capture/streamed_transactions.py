"""How does a transaction that the server sends before its end become one that came behind it?

With the option `streaming` the server sends pieces of a large transaction while it runs, between those that
have ended, and says later whether it was committed. What was rolled back must never be seen; what committed
takes its place in the order of commits, with the same positions as if it had been sent at its end.
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
_SHORTEST_RELATION = 9  # a letter, a (sub)transaction's id, a table's


@dataclass(frozen=True, slots=True)
class Part:
    """Messages in the order of commits.

    Attributes:
        messages: the messages.
        waited: they belong to a transaction that came in pieces; they end with them or go on in the next.
        told: the relations (their oids) whose latest descriptions came with that transaction, behind its
            end: the server does not repeat those that it has sent to anyone.
    """

    messages: MessageBatch
    waited: bool = False
    told: frozenset[int] = frozenset()


class StreamedTransactions:
    """The transactions that a connection has sent pieces of, until they end.

    Args:
        room: what they may hold.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._spools: dict[int, Spool] = {}
        self._open: Spool | None = None
        self._descriptions = 0
        self._told: dict[int, int] = {}  # when each relation was described outside of them
        self._told_in: dict[int, dict[int, int]] = {}  # and in each of them

    def __len__(self) -> int:
        return len(self._spools)

    def take(self, batch: MessageBatch) -> Iterator[Part]:
        """What can be translated now, in order.

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
        """Remember when relations are described."""
        described = np.flatnonzero(letters == _RELATION)
        if not len(described):
            return
        begin = part.begin[described]
        if (part.end[described] - begin < _SHORTEST_RELATION).any():
            raise broken("the description of a table ends too early")
        told, at = (self._told, 1) if self._open is None else (self._told_in[self._open.xid], 5)
        for oid in Numerals(part.data).uint32(begin + at).tolist():
            self._descriptions += 1
            told[oid] = self._descriptions

    def _mark(self, payload: bytes) -> Iterator[Part]:
        match decode_message(payload):
            case StreamStart(xid, first):
                if self._open is not None or first == (xid in self._spools):
                    raise broken("a piece of a transaction begins where none can")
                self._open = self._spools.setdefault(xid, Spool(self._room, xid))
                self._told_in.setdefault(xid, {})
            case StreamStop():
                if self._open is None:
                    raise broken("a piece of a transaction ends that did not begin")
                self._open = None
            case StreamAbort(xid, subxid):
                self._abort(xid, subxid)
            case StreamCommit() as commit:
                yield from self._committed(commit)

    def _abort(self, xid: int, subxid: int) -> None:
        """Nothing of it need have come: PostgreSQL 18 says so of every part that it did not keep.

        That is what was rolled back already when it was decoded, also where `streaming` was not asked for.
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
        latest = {oid: when for oid, when in self._drop(commit.xid).items() if when > self._told.get(oid, 0)}
        self._told.update(latest)
        time = commit.commit_time - POSTGRES_EPOCH_US
        begin = _BEGIN.pack(b"B", commit.commit_lsn, time, commit.xid)
        end = _COMMIT.pack(b"C", 0, commit.commit_lsn, commit.end_lsn, time)
        try:
            yield Part(MessageBatch.join([begin]), waited=True)
            for messages in spool.read():
                yield Part(messages, waited=True)
            yield Part(MessageBatch.join([end]), waited=True, told=frozenset(latest))
        finally:
            spool.close()

    def _drop(self, xid: int) -> dict[int, int]:
        del self._spools[xid]
        return self._told_in.pop(xid)

    def _ending(self, xid: int) -> Spool:
        if self._open is not None or xid not in self._spools:
            raise broken("a transaction ends of which there are no pieces")
        return self._spools[xid]

    def forget(self) -> None:
        """A new connection sends everything again."""
        for spool in self._spools.values():
            spool.close()
        self._spools.clear()
        self._told_in.clear()
        self._told.clear()
        self._open = None


_BEGIN = struct.Struct(">cQqI")
_COMMIT = struct.Struct(">cBQQq")
