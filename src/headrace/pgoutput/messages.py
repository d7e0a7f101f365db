"""The rare messages of PostgreSQL's `pgoutput` plugin, as values; `columnar` reads rows without such values.

Source: PostgreSQL documentation, "Logical Replication Message Formats", protocol versions 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.model.lsn import Lsn
from headrace.model.names import TableName


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
    """The commit of a transaction that was sent in pieces.

    Attributes:
        commit_lsn: the address of the commit record (bytes).
        end_lsn: the position to confirm (bytes).
        commit_time: microseconds since 1970-01-01 UTC.
    """

    xid: int
    commit_lsn: Lsn
    end_lsn: Lsn
    commit_time: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """The rollback of the streamed transaction `xid`, or only of its subtransaction `subxid`."""

    xid: int
    subxid: int


Message = Relation | Truncate | LogicalMessage | StreamStart | StreamStop | StreamCommit | StreamAbort
