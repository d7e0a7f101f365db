"""Decode single messages of the plugin; `columnar` decodes many rows at once."""

from __future__ import annotations

from collections.abc import Callable

from headrace.model.names import TableName
from headrace.pgoutput.cursor import Cursor, broken
from headrace.pgoutput.frames import POSTGRES_EPOCH_US
from headrace.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    RelationColumn,
    Row,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Type,
    Update,
)

_CASCADE, _RESTART_IDENTITY = 1, 2


def decode_message(payload: bytes) -> Message:
    """Decode one message; `payload` must hold exactly one.

    Raises:
        HeadraceError: PROTOCOL where the bytes are no message of protocol versions 1 to 4.
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


def _begin(cursor: Cursor) -> Begin:
    return Begin(cursor.uint64(), _time(cursor), cursor.uint32())


def _commit(cursor: Cursor) -> Commit:
    # Flags, which PostgreSQL does not use yet.
    cursor.uint8()
    return Commit(cursor.uint64(), cursor.uint64(), _time(cursor))


def _origin(cursor: Cursor) -> Origin:
    return Origin(cursor.uint64(), cursor.text())


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


def _type(cursor: Cursor) -> Type:
    return Type(cursor.uint32(), cursor.text(), cursor.text())


def _insert(cursor: Cursor) -> Insert:
    relation = cursor.uint32()
    _expect(cursor, "N")
    return Insert(relation, cursor.row())


def _update(cursor: Cursor) -> Update:
    relation = cursor.uint32()
    kind = cursor.letter()
    old: Row | None = None
    if kind in "KO":
        old = cursor.row()
        _expect(cursor, "N")
    elif kind != "N":
        raise broken(f"unknown row kind {kind!r}")
    return Update(relation, old, kind == "K", cursor.row())


def _delete(cursor: Cursor) -> Delete:
    relation = cursor.uint32()
    kind = cursor.letter()
    if kind not in "KO":
        raise broken(f"unknown row kind {kind!r}")
    return Delete(relation, cursor.row(), kind == "K")


def _truncate(cursor: Cursor) -> Truncate:
    count, options = cursor.uint32(), cursor.uint8()
    relations = tuple(cursor.uint32() for _ in range(count))
    return Truncate(relations, bool(options & _CASCADE), bool(options & _RESTART_IDENTITY))


def _message(cursor: Cursor) -> LogicalMessage:
    transactional = cursor.uint8() == 1
    lsn, prefix = cursor.uint64(), cursor.text()
    return LogicalMessage(transactional, lsn, prefix, cursor.take(cursor.int32()))


def _stream_start(cursor: Cursor) -> StreamStart:
    return StreamStart(cursor.uint32(), cursor.uint8() == 1)


def _stream_stop(_: Cursor) -> StreamStop:
    return StreamStop()


def _stream_commit(cursor: Cursor) -> StreamCommit:
    xid = cursor.uint32()
    # Flags, which PostgreSQL does not use yet.
    cursor.uint8()
    return StreamCommit(xid, cursor.uint64(), cursor.uint64(), _time(cursor))


def _stream_abort(cursor: Cursor) -> StreamAbort:
    xid, subxid = cursor.uint32(), cursor.uint32()
    # Only version 4 goes on with position and time.
    if not cursor.left:
        return StreamAbort(xid, subxid)
    return StreamAbort(xid, subxid, cursor.uint64(), _time(cursor))


def _time(cursor: Cursor) -> int:
    """Read a time as microseconds since 1970-01-01 UTC."""
    return cursor.int64() + POSTGRES_EPOCH_US


def _expect(cursor: Cursor, letter: str) -> None:
    actual = cursor.letter()
    if actual != letter:
        raise broken(f"expected {letter!r}, found {actual!r}")


_READERS: dict[str, Callable[[Cursor], Message]] = {
    "B": _begin,
    "C": _commit,
    "O": _origin,
    "R": _relation,
    "Y": _type,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
    "M": _message,
    "S": _stream_start,
    "E": _stream_stop,
    "c": _stream_commit,
    "A": _stream_abort,
}
