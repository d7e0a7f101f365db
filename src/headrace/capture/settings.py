"""Define the settings of a stream of changes, and how its tables were when it was planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.capture.columns import Projection
from headrace.capture.continuity import LogOrigin
from headrace.capture.named_in_log import NamedInLog
from headrace.capture.offset import Offset
from headrace.capture.signals import SignalFiles
from headrace.catalog.needs import Needs
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.postgres.replication import ReplicationConnection


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table as it was when a query began.

    Attributes:
        columns: type oid and type modifier of each requested column, by name.
        old_rows: whether the log must hold whole old rows.
        key: the columns that must stay as they were, even with `may_change`.
        may_change: whether other columns may be added, dropped, and have another type.
        chosen: whether `columns` were selected by name, so that a new column is not requested.
        order: all columns of the table, in its order.
    """

    columns: Mapping[str, tuple[int, int]]
    old_rows: bool = False
    key: frozenset[str] = frozenset()
    may_change: bool = False
    chosen: bool = False
    order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings of a stream of changes: the slot, the tables, and the limits of memory and disk.

    Attributes:
        url: the database; never printed.
        slot: the replication slot.
        publication: the publication.
        tables: the tables whose changes are kept; empty: all of the publication.
        expected: tables that must still have the columns that they had when the query began.
        since: positions (bytes) before which a table's changes are not used: their columns are not checked.
        columns: is told which columns the log names; None where nobody asks.
        parts: the partitions (oids) of which rows may have been reported before the start; None: not known.
        documents: what the documents need of each table; None where the changes are not for documents.
        projection: the columns whose values are kept; None: all.
        warm_up: return the first position without changes at once, so that the query's processes have
            started before the first change.
        buffer_bytes: the reader waits while the buffer holds this much (Arrow's bytes); it may hold one
            chunk more.
        chunk_bytes: the log is handed over in chunks of about this much; a large transaction is cut
            between two of them.
        idle_seconds: the shortest time between two batches that end at a position without changes.
        idle_bytes: such a batch ends sooner where the position is this far ahead.
        backlog_bytes: a backlog of at least this size is read through SQL; None: never.
        backlog_window: the size of a window of that reading (bytes of log).
        silence_seconds: the connection counts as lost after this time without an answer, or after the
            server's `wal_sender_timeout` where that is longer.
        removed_tries: the slot counts as lost after so many tries in a row that lack a piece of its log.
        give_back_seconds: the connection is closed after this time in which no changes are taken from a full
            buffer, because a server that shuts down waits for it. It is longer inside a large transaction.
        unfinished: let the server stream large transactions while they run (option `streaming`), so that
            little is left to do at their end.
        trace_contexts: let the server send what applications wrote with `pg_logical_emit_message`, to find
            trace contexts in it; it sends the messages of every prefix.
        spool_bytes: the space for their messages until then, on disk beyond the first of each. Where it is
            not enough, or the disk is full, the server keeps them instead.
        spool_folder: the folder for those files; None: the system's folder for temporary files.
        origin: the system and timeline that the start is a position of; None: not known.
        read: an offset in that log up to which it was read, with the last transaction before it; it may lie
            after the start, whose changes are then read again.
        same_timeline: refuse a promoted standby even if it has everything that was read, because documents
            depend on the old log too.
        signals: limit the confirmation and report errors, for another process of this machine; None: there
            is none.
        holder: the connection that created the slot, where it is temporary. Only this connection can stream
            it, and the slot ends with it. So it is never closed early and the backlog is not read through
            SQL.
    """

    url: str = field(repr=False)
    slot: str
    publication: str
    tables: frozenset[TableName] = frozenset()
    expected: Mapping[TableName, PlannedTable] = field(default_factory=dict)
    since: Mapping[TableName, Lsn] = field(default_factory=dict)
    columns: NamedInLog | None = None
    parts: frozenset[int] | None = None
    buffer_bytes: int = 256 << 20
    warm_up: bool = False
    documents: Needs | None = None
    projection: Projection | None = None
    chunk_bytes: int = 4 << 20
    idle_seconds: float = 10.0
    idle_bytes: int = 16 << 20
    backlog_bytes: int | None = 64 << 20
    backlog_window: int = 64 << 20
    silence_seconds: float = 60.0
    removed_tries: int = 12
    give_back_seconds: float = 30.0
    unfinished: bool = True
    trace_contexts: bool = False
    spool_bytes: int = 16 << 30
    spool_folder: Path | None = None
    origin: LogOrigin | None = None
    read: Offset | None = None
    same_timeline: bool = False
    signals: SignalFiles | None = None
    holder: ReplicationConnection | None = field(default=None, repr=False)

    def confirmable(self, position: Lsn) -> Lsn:
        """Return up to where the slot may be confirmed now, at most `position`."""
        return position if self.signals is None else min(position, self.signals.confirm_limit())
