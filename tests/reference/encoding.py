"""Messages as the server writes them: the decoders' inverse, after PostgreSQL's documentation."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.frames import POSTGRES_EPOCH_US
from headrace.pgoutput.messages import LogicalMessage, Relation, Truncate
from reference.pgoutput import (
    UNCHANGED,
    Begin,
    Binary,
    Commit,
    Delete,
    Insert,
    Message,
    Origin,
    Row,
    Type,
    Update,
)


def batch_of(messages: Sequence[Message]) -> MessageBatch:
    """The messages' bytes, as both readers put them together."""
    return MessageBatch.join([encode(message) for message in messages])


def encode(message: Message) -> bytes:
    """One message's bytes."""
    return _WRITERS[type(message)](message)


def _begin(message: Begin) -> bytes:
    time = message.commit_time - POSTGRES_EPOCH_US
    return b"B" + struct.pack(">QqI", message.commit_lsn, time, message.xid)


def _commit(message: Commit) -> bytes:
    time = message.commit_time - POSTGRES_EPOCH_US
    return b"C\0" + struct.pack(">QQq", message.commit_lsn, message.end_lsn, time)


def _origin(message: Origin) -> bytes:
    return b"O" + struct.pack(">Q", message.commit_lsn) + _text(message.name)


def _type(message: Type) -> bytes:
    return b"Y" + struct.pack(">I", message.oid) + _text(message.schema) + _text(message.name)


def _message(message: LogicalMessage) -> bytes:
    head = struct.pack(">BQ", message.transactional, message.lsn) + _text(message.prefix)
    return b"M" + head + struct.pack(">i", len(message.content)) + message.content


def _truncate(message: Truncate) -> bytes:
    options, oids = message.cascade + 2 * message.restart_identity, message.relations
    return b"T" + struct.pack(f">IB{len(oids)}I", len(oids), options, *oids)


def _insert(message: Insert) -> bytes:
    return b"I" + struct.pack(">I", message.relation) + b"N" + _row(message.new)


def _update(message: Update) -> bytes:
    old = b"" if message.old is None else _old(message.old, message.old_is_key)
    return b"U" + struct.pack(">I", message.relation) + old + b"N" + _row(message.new)


def _delete(message: Delete) -> bytes:
    return b"D" + struct.pack(">I", message.relation) + _old(message.old, message.old_is_key)


def _old(row: Row, is_key: bool) -> bytes:
    return (b"K" if is_key else b"O") + _row(row)


def _relation(relation: Relation) -> bytes:
    table = relation.table
    schema = "" if table.schema == "pg_catalog" else table.schema
    head = b"R" + struct.pack(">I", relation.oid) + _text(schema) + _text(table.name)
    columns = [
        bytes([column.key]) + _text(column.name) + struct.pack(">Ii", column.type_oid, column.type_modifier)
        for column in relation.columns
    ]
    return head + relation.replica_identity.encode() + struct.pack(">H", len(columns)) + b"".join(columns)


def _row(row: Row) -> bytes:
    return struct.pack(">H", len(row)) + b"".join(map(_value, row))


def _value(value: object) -> bytes:
    if value is None:
        return b"n"
    if value is UNCHANGED:
        return b"u"
    assert isinstance(value, bytes)
    return (b"b" if isinstance(value, Binary) else b"t") + struct.pack(">I", len(value)) + value


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


_WRITERS: dict[type, Callable[[Any], bytes]] = {
    Begin: _begin,
    Commit: _commit,
    Origin: _origin,
    Type: _type,
    LogicalMessage: _message,
    Truncate: _truncate,
    Relation: _relation,
    Insert: _insert,
    Update: _update,
    Delete: _delete,
}
