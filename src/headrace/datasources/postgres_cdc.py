"""How does Spark read PostgreSQL's log? The streaming source `postgres_cdc`.

The driver-side process of the query owns the one replication connection; executors get the changes
inside their partitions. Order of Spark's calls (measured, PySpark 4.3): commit log N →
latestOffset(start = end N) → offset log N+1 → partitions → read. So `start` is durable when
`latestOffset` is called, and only there is the slot confirmed.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.capture import ChangeStream, LogOrigin, Offset, StreamSettings
from headrace.capture.buffer import Limit
from headrace.capture.continuity import temporary_gone
from headrace.capture.rows import Absence
from headrace.capture.signals import beat
from headrace.datasources.cdc_options import CdcOptions
from headrace.datasources.data_loss import LOSSES, gone_on, later
from headrace.datasources.envelopes import Described, Describing, plan_changes
from headrace.datasources.followed_tables import (
    added,
    asked,
    origin_of,
    reading,
    since_of,
    tables_of,
    with_since,
    with_tables,
    without,
)
from headrace.datasources.initial_snapshot import InitialRows, SnapshotProgress
from headrace.datasources.options import read_options
from headrace.datasources.partitioning import shared
from headrace.datasources.partitions import ChangePartition, read_part, split
from headrace.datasources.publication_membership import (
    MembershipWatch,
    Published,
    check_published,
    read_published,
)
from headrace.datasources.query_schema import RowsPlan, plan_rows
from headrace.datasources.shutdown_notice import left_behind, say
from headrace.datasources.starting_offsets import (
    applied,
    beginning,
    beginning_of,
    check_order,
    with_beginning,
)
from headrace.datasources.table_selection import named_tables
from headrace.errors import HeadraceError
from headrace.model import Lsn, TableName, format_lsn
from headrace.model.failpoints import reach
from headrace.postgres.address import for_slot
from headrace.postgres.connection import connect
from headrace.postgres.position import end_of_commits
from headrace.postgres.provision import Prepared, ensure_published, prepare_slot
from headrace.postgres.publication import read_published_roots
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import ExportedSlot
from headrace.spark.failures import told_alone

NAME = "postgres_cdc"
_LONG_POLL_SECONDS = 0.25
_LOG = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_WRITTEN = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
        - '0/0')::bigint
"""


class PostgresCdc(DataSource):
    """`spark.readStream.format("postgres_cdc")`: committed changes of a publication's tables.

    Options: see `headrace.datasources.cdc_options.CdcOptions`. Columns: of `envelope=rows` those of
    `headrace.capture.rows.RowShape`, of `changes` `headrace.capture.envelope.ENVELOPE_SCHEMA`, of `elements`
    `headrace.capture.graph_envelope.ELEMENTS_SCHEMA`.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._plan: RowsPlan | None = None

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    @told_alone()
    def schema(self) -> StructType | str:
        """The columns; those of one table are looked up, and of many what their values are."""
        options = self._checked()
        plan = self._planned(options)
        return plan_changes(options) if plan is None else plan.shape.ddl

    @told_alone()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002
        """The reader; nothing is opened yet."""
        options = self._checked()
        return CdcReader(options, self._planned(options))

    def _checked(self) -> CdcOptions:
        return read_options(CdcOptions, self.options, NAME)

    def _planned(self, options: CdcOptions) -> RowsPlan | None:
        """As it was when Spark asked for the columns: both are of one look at the table."""
        if self._plan is None and options.form == "rows" and options.one_table is not None:
            self._plan = plan_rows(options, options.one_table)
        return self._plan


class CdcReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in the driver-side process; `read` runs on executors."""

    def __init__(self, options: CdcOptions, plan: RowsPlan | None = None) -> None:
        self._options = options
        self._plan = plan
        self._stream: ChangeStream | None = None
        self._initial: dict[str, Any] | None = None
        self._exported: ExportedSlot | None = None
        self._rows: InitialRows | None = None
        self._found: tuple[TableName, ...] | None = None
        self._upto: Lsn | None = None
        self._looked = False
        self._describing = Describing(options)
        self._resumed = False
        self._moved: Offset | None = None
        self._watch: MembershipWatch | None = None
        self._published_as: Published | None = None
        self._used = False

    @told_alone()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is committed now is read, and nothing that comes later; then the query ends."""
        self._upto = self._committed()

    @told_alone()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the slot stood before this reader used it; it is created first where it is missing.

        Spark asks for it twice, the second time when the first batch has been planned.
        """
        if self._initial is None:
            signal.signal(signal.SIGTERM, _end)
            prepared = self._prepared()
            self._used = True
            begin = beginning(self._options, prepared.confirmed, self._written)
            self._initial = begin | origin_of(prepared).to_json() | self._named()
            self._resumed = True
        return self._initial

    def _prepared(self) -> Prepared:
        """Publication and slot, made where they are missing."""
        options = self._options
        return prepare_slot(
            for_slot(options.connection, options.slot_name),
            slot=options.slot_name,
            publication=options.publication_name,
            tables=self._tables(),
            create=options.create_slot,
            asked=asked(options, self._plan),
            temporary=options.temporary_slot,
            keep=self._keep,
        )

    def _keep(self, made: ExportedSlot) -> None:
        """Hold the snapshot of a slot that was made, where its rows are to be read, and a temporary slot."""
        if self._options.reads_first or made.temporary:
            self._exported = made
        else:
            made.close()

    @told_alone()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Confirm `start`, wait a little for changes, and say where the next batch ends."""
        beat(self._options.trouble_file)
        return self._losing(lambda: self._next(start, limit))

    def _next(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        stored, origin = Offset.from_json(start), LogOrigin.from_json(start)
        new = added(start, self._tables(), self._options)
        begin = self._behind(start, stored.lsn)
        progress = reading(SnapshotProgress.from_json(start), start, new, self._options)
        if new:
            self._publish(new)
        named = (origin.to_json() if origin is not None else {}) | self._named()
        if progress is not None:
            return self._read_on(begin, progress, since_of(start)) | named
        self._forget_rows()
        stream = self._opened(begin, origin, begin)
        if new or begin != stored:
            return begin.to_json() | with_since(since_of(start), begin.lsn) | named
        stream.confirm(begin)
        if not self._options.progress:  # a documents query has its own look, at more than that
            self._membership().look()
        if self._upto is not None and begin.order[0] >= self._upto:
            return start
        awaited = self._awaited()
        end = stream.next_offset(begin, self._limit(limit), _LONG_POLL_SECONDS)
        while awaited is not None and end == begin and not stream.is_empty(begin, awaited):
            end = stream.next_offset(begin, self._limit(limit), _LONG_POLL_SECONDS)
        self._looked = True
        if end == begin or stream.origin is None:
            return start
        also = with_since(since_of(start), end.lsn) | with_beginning(start, self._initial)
        return end.to_json() | stream.origin.to_json() | self._named() | also

    def _losing(self, work: Callable[[], _Result]) -> _Result:
        """What `work` gives; where changes were lost meanwhile, once more behind them, if that is allowed."""
        try:
            return work()
        except HeadraceError as error:
            if self._options.fail_on_data_loss or error.kind not in LOSSES:
                raise
        self._close_stream()
        self._forget_rows()
        self._let_go()
        self._resumed, self._moved = False, None
        return work()

    def _behind(self, start: Mapping[str, Any], known: Lsn) -> Offset:
        """Where to read on from, of a log that is known up to `known`; looked at once by each process."""
        begin = Offset.from_json(start)
        if not self._resumed:
            signal.signal(signal.SIGTERM, _end)
            self._check_published(start)
            losing = not self._options.fail_on_data_loss or self._options.temporary_slot
            if losing or SnapshotProgress.from_json(start) is not None:  # else the stream asks by itself
                origin = LogOrigin.from_json(start)
                make = lambda: self._prepared().confirmed  # noqa: E731
                self._moved = gone_on(self._options, begin, origin, known=known, make=make)
            self._resumed = self._used = True
        return later(begin, self._moved)

    def _check_published(self, start: Mapping[str, Any]) -> None:
        """The publication still sends what is followed, and has all the time."""
        named = tables_of(start)
        known = None if named is None else frozenset(named)
        tables = [table for table in self._tables() if known is None or table in known]
        if self._options.progress:  # a documents query's catalog is watched
            self._publish((), tables)
            return
        found = self._read_published()  # before we ourselves alter it
        self._publish((), tables)
        losing = not self._options.fail_on_data_loss
        check_published(start, found, self._options.publication_name, losing=losing)

    def _read_published(self) -> Published:
        options = self._options
        url = for_slot(options.connection, options.slot_name)
        with connect(url, application_name="headrace watch") as connection:
            return read_published(connection, options.publication_name, self._tables())

    def _publish(self, new: Sequence[TableName], tables: Sequence[TableName] = ()) -> None:
        options = self._options
        if new or tables:
            self._published_as = None
            ensure_published(
                for_slot(options.connection, options.slot_name),
                slot=options.slot_name,
                publication=options.publication_name,
                tables=[*tables, *new],
                added=new,
                create=options.create_slot,
                asked=asked(options, self._plan),
            )

    def _membership(self) -> MembershipWatch:
        """The look at the publication."""
        if self._watch is None:
            options = self._options
            self._watch = MembershipWatch(
                for_slot(options.connection, options.slot_name),
                options.publication_name,
                self._tables(),
                losing=not options.fail_on_data_loss,
            )
        return self._watch

    def _named(self) -> dict[str, Any]:
        """The tables that are followed, as an offset names them, and how they are published."""
        if self._options.progress:
            return with_tables(self._tables())
        if self._published_as is None:
            self._published_as = self._read_published()
        return with_tables(self._tables()) | self._published_as.to_json()

    def _awaited(self) -> Lsn | None:
        """Up to where the log is waited for; None: a moment is enough.

        The first look of a process has all that is committed: a query that is started for one batch gets it.
        """
        if self._upto is None and not self._looked:
            with contextlib.suppress(HeadraceError):  # the reader waits for a server that is away
                return self._committed()
        return self._upto

    def _committed(self) -> Lsn:
        """A place behind all that is committed (bytes)."""
        with ReadSession(for_slot(self._options.connection, self._options.slot_name)) as session:
            return end_of_commits(session.query)

    def _written(self) -> Lsn:
        """How far the log is written (bytes)."""
        with ReadSession(for_slot(self._options.connection, self._options.slot_name)) as session:
            [(written,)] = session.query(_WRITTEN)
        return int(written)

    def _read_on(self, begin: Offset, done: SnapshotProgress, since: dict[TableName, Lsn]) -> dict[str, Any]:
        """The offset behind the next rows that are read, or behind all.

        The stream goes on from where the rows fit; where it has told of other tables before, it goes on from
        there, and the changes of these count from where the rows fit.
        """
        followed = self._tables()
        wanted = frozenset(followed)
        tables = tuple(table for table in done.tables if not wanted or table in wanted)
        progress: dict[str, Any] = {}
        if self._rows is None and (tables or not done.tables):
            self._rows = rows = InitialRows(self._options, begin.lsn, done.attempt + 1, self._exported)
            shape = None if self._plan is None else self._plan.shape
            rows.plan(tables or followed or self._published(), shape, followed)
            if tables:
                since = since | dict.fromkeys(tables, rows.start)
            else:
                begin = Offset(rows.start)
            progress = replace(rows.next(0), tables=done.tables).to_json()
        elif self._rows is not None and done.parts < self._rows.count:
            progress = replace(self._rows.next(done.parts), tables=done.tables).to_json()
        return begin.to_json() | with_since(since, begin.lsn) | progress

    def _published(self) -> tuple[TableName, ...]:
        with ReadSession(self._options.connection) as session:
            return read_published_roots(session, self._options.publication_name)

    def _forget_rows(self) -> None:
        """Let the snapshot go: its rows are durable, or read anew by somebody else."""
        if self._rows is not None:
            self._rows.close()
        self._rows = None
        if self._exported is not None and not self._exported.temporary:
            self._let_go()

    def _let_go(self) -> None:
        """Close the slot that was made here and that nobody streams, if there is one."""
        if self._exported is not None:
            self._exported.close()
            self._exported = None

    def _limit(self, limit: ReadLimit) -> Limit:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return Limit(self._options.max_bytes_per_trigger, rows, self._upto)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxRowsPerTrigger`, where it was given."""
        rows = self._options.max_rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    @told_alone()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The changes in (start, end], split into tasks; also for a range that another process logged."""
        return self._losing(lambda: self._partitions(start, end))

    def _partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = SnapshotProgress.from_json(start), SnapshotProgress.from_json(end)
        if first is not None or last is not None:
            return self._parts(first or SnapshotProgress(), last)
        behind, start = Offset.from_json(end), beginning_of(start, end)
        begin = self._behind(start, behind.lsn)
        if not self._options.fail_on_data_loss and begin.order > behind.order:
            _LOG.warning("a batch up to %s is without the changes that are lost", format_lsn(behind.lsn))
            begin = behind
        check_order(begin, behind)
        batches: list[pa.RecordBatch] = []
        absences: tuple[Absence, ...] = ()
        if begin != behind:
            origin = LogOrigin.from_json(start) or LogOrigin.from_json(end)
            stream = self._opened(begin, origin, behind)
            batches, absences = stream.changes(begin, behind), stream.absences
        told = self._described(batches)
        if left_out := self._left_out(start, end):
            batches = without(batches, left_out, {} if told is None else told.roots)
        partitions = [ChangePartition(part, told, absences) for part in self._split(batches, behind)]
        if batches:
            reach("planned")
        return partitions

    def _left_out(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[TableName, Lsn | None]:
        """The tables of which a batch has no changes, or none before a place.

        One that is repeated has the tables that it had; what was read as rows is not told again.
        """
        followed = tables_of(end)
        new = () if followed is None else set(self._tables()) - set(followed)
        return {**since_of(start), **dict.fromkeys(new)}

    def _parts(self, first: SnapshotProgress, last: SnapshotProgress | None) -> Sequence[InputPartition]:
        """The rows that are read between two offsets.

        Of an attempt that another process had begun there are none: its snapshot is gone, and whoever goes on
        from `last` begins anew. Between the last rows and the stream there is nothing to read.
        """
        held = self._rows
        if held is None or last is None or last.attempt != held.attempt:
            return [ChangePartition([])]
        begin = first.parts if first.attempt == held.attempt else 0
        emptied = held.emptied() if begin == 0 else []
        return [*([ChangePartition(emptied, held.told)] if emptied else []), *held.parts(begin, last.parts)]

    def _described(self, batches: Sequence[pa.RecordBatch]) -> Described | None:
        """What the tasks have to be told of the tables; None where they know it, or need not."""
        return None if self._plan is not None or self._options.progress else self._describing.of(batches)

    def _split(self, batches: list[pa.RecordBatch], end: Offset) -> list[list[pa.RecordBatch]]:
        """What each task gets: a part of the rows, or all of them and its share of the documents."""
        if self._options.progress:
            return shared(batches, end.lsn, end.version, self._options.shares)
        return split(batches, self._options.rows_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one partition."""
        with told_alone():
            yield from read_part(self._options, self._plan, partition)

    def stop(self) -> None:
        """Close the replication connection, let the snapshot go, and say which slot stays."""
        self._close_stream()
        self._forget_rows()
        self._describing.close()
        self._let_go()
        if self._used and not self._options.temporary_slot and not self._options.progress:
            ended = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
            say(left_behind(self._options.slot_name), unheard=ended)
        self._used = False

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _tables(self) -> tuple[TableName, ...]:
        """The tables that are meant, as the database has them now; none where all of the publication are."""
        if self._found is None:
            self._found = named_tables(self._options)
        return self._found

    def _opened(self, start: Offset, origin: LogOrigin | None, read: Offset) -> ChangeStream:
        """The stream behind `start`, which lies in the log of `origin`; that was read up to `read`."""
        if self._stream is None:
            options, continues = self._options, self._options.continues
            if continues is not None:
                origin, read = LogOrigin.from_json(continues), later(applied(continues), read)
            holder = self._holder(start)
            self._stream = ChangeStream(
                StreamSettings(
                    url=for_slot(options.connection, options.slot_name),
                    slot=options.slot_name,
                    publication=options.publication_name,
                    tables=frozenset(self._tables()),
                    expected={} if self._plan is None else {self._plan.shape.table: self._plan.expected},
                    warm_up=options.progress,
                    documents=options.needs,
                    projection=options.kept_columns,
                    buffer_bytes=max(options.buffer_bytes, 2 * options.max_bytes_per_trigger),
                    backlog_bytes=options.backlog_bytes or None,
                    origin=origin,
                    read=read,
                    same_timeline=continues is not None,
                    held=options.held_file,
                    trouble=options.trouble_file,
                    holder=None if holder is None else holder.connection,
                ),
                start,
            )
            self._used = True
            signal.signal(signal.SIGTERM, _end)
            self._stream.open()
        return self._stream

    def _holder(self, start: Offset) -> ExportedSlot | None:
        """The temporary slot, which is the stream's from now on."""
        if not self._options.temporary_slot:
            return None
        held, self._exported = self._exported, None
        if held is None:
            raise temporary_gone(self._options.slot_name, start.lsn)
        return held


def _end(_number: int, _frame: FrameType | None) -> None:
    """Spark ends this process with SIGTERM and calls no `stop`: unwind, which gives the slot back at once.

    Only that: the signal may have come inside `stop` itself, as the end of the socket comes at the same
    time, and whoever took a lock here would wait for himself for ever.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)
