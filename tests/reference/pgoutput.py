"""The slow, obvious decoder of the log: each message of the plugin, also rows, as a value.

What `headrace.pgoutput.columnar` reads of many messages at once is compared with this.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace.model.lsn import Lsn
from headrace.pgoutput import decoder
from headrace.pgoutput.cursor import Cursor, broken
from headrace.pgoutput.frames import POSTGRES_EPOCH_US
from headrace.pgoutput.messages import Message as RareMessage


class Unchanged(enum.Enum):
    """The marker of a TOAST value that did not change and that the log therefore does not carry."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED


class Binary(bytes):
    """A value in its type's binary format; only a stream with the option `binary` has such values."""

    __slots__ = ()


Value = bytes | Binary | None | Unchanged
"""A column's value: PostgreSQL's text in UTF-8, its binary form, NULL, or unchanged."""

Row = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """The first message of a transaction.

    Attributes:
        commit_lsn: the address of the commit record (bytes); not the position to confirm.
        commit_time: microseconds since 1970-01-01 UTC.
        xid: the 32-bit transaction id.
    """

    commit_lsn: Lsn
    commit_time: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The last message of a transaction; `end_lsn` is the position to confirm (bytes)."""

    commit_lsn: Lsn
    end_lsn: Lsn
    commit_time: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The replication origin of a transaction that was itself replicated."""

    commit_lsn: Lsn
    name: str


@dataclass(frozen=True, slots=True)
class Type:
    """A type that is not built in; sent before a relation that uses it."""

    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    relation: int
    new: Row


@dataclass(frozen=True, slots=True)
class Update:
    """A changed row; `old` is None where neither identity nor key changed.

    `old_is_key`: whether `old` is a key tuple (columns outside the identity are null without meaning), not a
    whole old row (identity FULL).
    """

    relation: int
    old: Row | None
    old_is_key: bool
    new: Row


@dataclass(frozen=True, slots=True)
class Delete:
    """A deleted row; `old_is_key` as for `Update`."""

    relation: int
    old: Row
    old_is_key: bool


Message = Begin | Commit | Origin | Type | Insert | Update | Delete | RareMessage


def decode_message(payload: bytes) -> Message:
    """Decode one message of any kind; `payload` must hold exactly one.

    Raises:
        HeadraceError: PROTOCOL where the bytes are no message.
    """
    read = _READERS.get(payload[:1])
    if read is None:
        return decoder.decode_message(payload)
    cursor = Cursor(payload)
    cursor.take(1)
    message = read(cursor)
    cursor.finish()
    return message


def _begin(cursor: Cursor) -> Begin:
    return Begin(cursor.uint64(), cursor.int64() + POSTGRES_EPOCH_US, cursor.uint32())


def _commit(cursor: Cursor) -> Commit:
    # Flags, which PostgreSQL does not use yet.
    cursor.uint8()
    return Commit(cursor.uint64(), cursor.uint64(), cursor.int64() + POSTGRES_EPOCH_US)


def _origin(cursor: Cursor) -> Origin:
    return Origin(cursor.uint64(), cursor.text())


def _type(cursor: Cursor) -> Type:
    return Type(cursor.uint32(), cursor.text(), cursor.text())


def _insert(cursor: Cursor) -> Insert:
    relation = cursor.uint32()
    _expect(cursor, "N")
    return Insert(relation, _row(cursor))


def _update(cursor: Cursor) -> Update:
    relation = cursor.uint32()
    kind = cursor.letter()
    old: Row | None = None
    if kind in "KO":
        old = _row(cursor)
        _expect(cursor, "N")
    elif kind != "N":
        raise broken(f"unknown row kind {kind!r}")
    return Update(relation, old, kind == "K", _row(cursor))


def _delete(cursor: Cursor) -> Delete:
    relation = cursor.uint32()
    kind = cursor.letter()
    if kind not in "KO":
        raise broken(f"unknown row kind {kind!r}")
    return Delete(relation, _row(cursor), kind == "K")


def _expect(cursor: Cursor, letter: str) -> None:
    actual = cursor.letter()
    if actual != letter:
        raise broken(f"expected {letter!r}, found {actual!r}")


def _row(cursor: Cursor) -> Row:
    """Read a row: a count and as many values."""
    values: list[Value] = []
    for _ in range(cursor.uint16()):
        kind = cursor.letter()
        if kind in "tb":
            value = cursor.take(cursor.uint32())
            values.append(value if kind == "t" else Binary(value))
        elif kind == "n":
            values.append(None)
        elif kind == "u":
            values.append(UNCHANGED)
        else:
            raise broken(f"unknown value kind {kind!r}")
    return tuple(values)


_READERS: dict[bytes, Callable[[Cursor], Message]] = {
    b"B": _begin,
    b"C": _commit,
    b"O": _origin,
    b"Y": _type,
    b"I": _insert,
    b"U": _update,
    b"D": _delete,
}
