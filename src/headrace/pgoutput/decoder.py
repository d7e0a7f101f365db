"""Decode the plugin's rare messages one by one; `columnar` decodes many rows at once."""

from __future__ import annotations

from collections.abc import Callable

from headrace.model.names import TableName
from headrace.pgoutput.cursor import Cursor, broken
from headrace.pgoutput.frames import POSTGRES_EPOCH_US
from headrace.pgoutput.messages import (
    LogicalMessage,
    Message,
    Relation,
    RelationColumn,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
)

_CASCADE, _RESTART_IDENTITY = 1, 2


def decode_message(payload: bytes) -> Message:
    """Decode one message; `payload` must hold exactly one.

    Raises:
        HeadraceError: PROTOCOL where the bytes are no message of `headrace.pgoutput.messages`.
    """
    cursor = Cursor(payload)
    letter = cursor.letter()
    read = _READERS.get(letter)
    if read is None:
        raise broken(f"unknown message {letter!r}")
    message = read(cursor)
    # A message that goes on is of a protocol version that was not asked for.
    cursor.finish()
    return message


def _relation(cursor: Cursor) -> Relation:
    oid = cursor.uint32()
    schema, name = cursor.text(), cursor.text()
    identity = cursor.letter()
    columns = tuple(_relation_column(cursor) for _ in range(cursor.uint16()))
    # The server sends an empty schema for pg_catalog.
    return Relation(oid, TableName(schema or "pg_catalog", name), identity, columns)


def _relation_column(cursor: Cursor) -> RelationColumn:
    flags = cursor.uint8()
    return RelationColumn(cursor.text(), bool(flags & 1), cursor.uint32(), cursor.int32())


def _truncate(cursor: Cursor) -> Truncate:
    count, options = cursor.uint32(), cursor.uint8()
    relations = tuple(cursor.uint32() for _ in range(count))
    return Truncate(relations, bool(options & _CASCADE), bool(options & _RESTART_IDENTITY))


def _message(cursor: Cursor) -> LogicalMessage:
    transactional = cursor.uint8() == 1
    lsn, prefix = cursor.uint64(), cursor.text()
    return LogicalMessage(transactional, lsn, prefix, cursor.take(cursor.int32()))


def _stream_commit(cursor: Cursor) -> StreamCommit:
    xid = cursor.uint32()
    # Flags, which PostgreSQL does not use yet.
    cursor.uint8()
    return StreamCommit(xid, cursor.uint64(), cursor.uint64(), cursor.int64() + POSTGRES_EPOCH_US)


_READERS: dict[str, Callable[[Cursor], Message]] = {
    "R": _relation,
    "T": _truncate,
    "M": _message,
    "S": lambda cursor: StreamStart(cursor.uint32(), cursor.uint8() == 1),
    "E": lambda _: StreamStop(),
    "c": _stream_commit,
    "A": lambda cursor: StreamAbort(cursor.uint32(), cursor.uint32()),
}
