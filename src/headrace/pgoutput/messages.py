"""The messages that PostgreSQL's `pgoutput` plugin sends, as values.

Source: PostgreSQL documentation, "Logical Replication Message Formats", protocol versions 1 to 4.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from headrace.model.lsn import Lsn
from headrace.model.names import TableName


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
class RelationColumn:
    """A column as the publication shows it; `key`: whether it is part of the replica identity."""

    name: str
    key: bool
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table's description, sent before its first row and again after each change of it.

    `replica_identity` is pg_class.relreplident: d default, n nothing, f full, i index.
    """

    oid: int
    table: TableName
    replica_identity: str
    columns: tuple[RelationColumn, ...]
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The columns' names, once for all rows."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(column.name for column in self.columns))


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


@dataclass(frozen=True, slots=True)
class Truncate:
    """The tables that one TRUNCATE emptied."""

    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message that pg_logical_emit_message wrote."""

    transactional: bool
    lsn: Lsn
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class StreamStart:
    """The beginning of a piece of the unfinished transaction `xid`; `StreamStop` ends it."""

    xid: int
    first: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """The end of a piece of an unfinished transaction."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """The commit of a transaction that was sent in pieces; `end_lsn` as for `Commit`."""

    xid: int
    commit_lsn: Lsn
    end_lsn: Lsn
    commit_time: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """The rollback of the streamed transaction `xid`, or only of its subtransaction `subxid`.

    Only protocol version 4 has `lsn` and `time` (microseconds since 1970-01-01 UTC).
    """

    xid: int
    subxid: int
    lsn: Lsn | None = None
    time: int | None = None


Message = (
    Begin
    | Commit
    | Origin
    | Relation
    | Type
    | Insert
    | Update
    | Delete
    | Truncate
    | LogicalMessage
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
)
