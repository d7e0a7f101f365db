"""The streaming source `postgres_cdc`: PostgreSQL's log for Spark.

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
from headrace.datasources.data_loss import LOSSES, later_offset, resume_offset
from headrace.datasources.envelopes import TableDescriber, TableDescriptions, changes_schema
from headrace.datasources.followed_tables import (
    added_tables,
    exclude_tables,
    origin_of,
    publication_requirements,
    since_fields,
    since_of,
    snapshot_progress,
    table_fields,
    tables_of,
)
from headrace.datasources.initial_snapshot import InitialRows, SnapshotProgress
from headrace.datasources.options import read_options
from headrace.datasources.partitioning import plan_tasks
from headrace.datasources.partitions import ChangePartition, read_part, split_rows
from headrace.datasources.publication_membership import (
    MembershipWatch,
    Published,
    check_published,
    read_published,
)
from headrace.datasources.query_schema import RowsPlan, plan_rows
from headrace.datasources.shutdown_notice import print_notice, slot_notice
from headrace.datasources.starting_offsets import (
    applied_offset,
    batch_start,
    check_order,
    first_offset,
    keep_batch_start,
)
from headrace.datasources.table_selection import named_tables
from headrace.errors import HeadraceError
from headrace.model import Lsn, TableName, format_lsn
from headrace.model.failpoints import reach
from headrace.postgres.address import for_slot
from headrace.postgres.connection import connect
from headrace.postgres.provision import PreparedSlot, ensure_published, prepare_slot
from headrace.postgres.publication import read_published_roots
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import ExportedSlot
from headrace.postgres.wal_position import end_of_commits
from headrace.spark.failures import short_traceback

NAME = "postgres_cdc"
_LONG_POLL_SECONDS = 0.25
_LOG = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_FLUSHED_POSITION = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
        - '0/0')::bigint
"""


class PostgresCdc(DataSource):
    """The source `spark.readStream.format("postgres_cdc")`: committed changes of a publication's tables.

    Options: see `headrace.datasources.cdc_options.CdcOptions`. Columns: of `envelope=rows` those of
    `headrace.capture.rows.RowShape`, of `changes` `headrace.capture.envelope.ENVELOPE_SCHEMA`, of `elements`
    `headrace.capture.graph_envelope.ELEMENTS_SCHEMA`.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._plan: RowsPlan | None = None

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return NAME

    @short_traceback()
    def schema(self) -> StructType | str:
        """Return the query's columns, looked up in the database."""
        options = self._read_options()
        plan = self._rows_plan(options)
        return changes_schema(options) if plan is None else plan.shape.ddl

    @short_traceback()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002
        """Create the reader; it opens nothing yet."""
        options = self._read_options()
        return CdcReader(options, self._rows_plan(options))

    def _read_options(self) -> CdcOptions:
        return read_options(CdcOptions, self.options, NAME)

    def _rows_plan(self, options: CdcOptions) -> RowsPlan | None:
        """Plan once: Spark's columns and the reader must come from the same look at the table."""
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
        self._named_tables: tuple[TableName, ...] | None = None
        self._stop_at: Lsn | None = None
        self._has_looked = False
        self._describer = TableDescriber(options)
        self._resumed = False
        self._moved: Offset | None = None
        self._watch: MembershipWatch | None = None
        self._published_as: Published | None = None
        self._used = False

    @short_traceback()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the present end of the log: the query ends when it has read up to there."""
        self._stop_at = self._committed_position()

    @short_traceback()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the slot's position before this reader used it; creates the slot if it is missing.

        Spark asks for it twice, the second time when the first batch has been planned.
        """
        if self._initial is None:
            signal.signal(signal.SIGTERM, _exit_on_signal)
            prepared = self._prepare()
            self._used = True
            begin = first_offset(self._options, prepared.confirmed, self._flushed_position)
            self._initial = begin | origin_of(prepared).to_json() | self._table_fields()
            self._resumed = True
        return self._initial

    def _prepare(self) -> PreparedSlot:
        """Create publication and slot where they are missing."""
        options = self._options
        return prepare_slot(
            for_slot(options.connection, options.slot_name),
            slot=options.slot_name,
            publication=options.publication_name,
            tables=self._tables(),
            create=options.create_slot,
            requirements=publication_requirements(options, self._plan),
            temporary=options.temporary_slot,
            keep=self._keep,
        )

    def _keep(self, made: ExportedSlot) -> None:
        """Keep a created slot open if its snapshot will be read, or if it is temporary."""
        if self._options.reads_first or made.temporary:
            self._exported = made
        else:
            made.close()

    @short_traceback()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Confirm `start`, wait a moment for changes, and return where the next batch ends."""
        beat(self._options.trouble_file)
        return self._retry_after_loss(lambda: self._next(start, limit))

    def _next(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        stored, origin = Offset.from_json(start), LogOrigin.from_json(start)
        new = added_tables(start, self._tables(), self._options)
        begin = self._resume(start, stored.lsn)
        progress = snapshot_progress(SnapshotProgress.from_json(start), start, new, self._options)
        if new:
            self._publish(new)
        named = (origin.to_json() if origin is not None else {}) | self._table_fields()
        if progress is not None:
            return self._next_rows_offset(begin, progress, since_of(start)) | named
        self._forget_rows()
        stream = self._open_stream(begin, origin, begin)
        if new or begin != stored:
            return begin.to_json() | since_fields(since_of(start), begin.lsn) | named
        stream.confirm(begin)
        if not self._options.progress:  # a documents query watches more than that itself
            self._membership().look()
        if self._stop_at is not None and begin.order[0] >= self._stop_at:
            return start
        awaited = self._awaited_position()
        end = stream.next_offset(begin, self._limit(limit), _LONG_POLL_SECONDS)
        while awaited is not None and end == begin and not stream.is_empty(begin, awaited):
            end = stream.next_offset(begin, self._limit(limit), _LONG_POLL_SECONDS)
        self._has_looked = True
        if end == begin or stream.origin is None:
            return start
        fields = since_fields(since_of(start), end.lsn) | keep_batch_start(start, self._initial)
        return end.to_json() | stream.origin.to_json() | self._table_fields() | fields

    def _retry_after_loss(self, work: Callable[[], _Result]) -> _Result:
        """Run `work`; after a data loss once more behind the loss, if the options allow it."""
        try:
            return work()
        except HeadraceError as error:
            if self._options.fail_on_data_loss or error.kind not in LOSSES:
                raise
        self._close_stream()
        self._forget_rows()
        self._close_slot()
        self._resumed, self._moved = False, None
        return work()

    def _resume(self, start: Mapping[str, Any], known: Lsn) -> Offset:
        """Return the offset to read on from; checked once in each process, for a log known up to `known`."""
        begin = Offset.from_json(start)
        if not self._resumed:
            signal.signal(signal.SIGTERM, _exit_on_signal)
            self._check_published(start)
            allows_loss = not self._options.fail_on_data_loss or self._options.temporary_slot
            if allows_loss or SnapshotProgress.from_json(start) is not None:  # else the stream checks it
                origin = LogOrigin.from_json(start)
                make = lambda: self._prepare().confirmed  # noqa: E731
                self._moved = resume_offset(self._options, begin, origin, known=known, make=make)
            self._resumed = self._used = True
        return later_offset(begin, self._moved)

    def _check_published(self, start: Mapping[str, Any]) -> None:
        """Check that the publication sends the followed tables, and has done so all the time."""
        named = tables_of(start)
        known = None if named is None else frozenset(named)
        tables = [table for table in self._tables() if known is None or table in known]
        if self._options.progress:  # a documents query's catalog is watched
            self._publish((), tables)
            return
        found = self._read_published()  # before this process alters it
        self._publish((), tables)
        allows_loss = not self._options.fail_on_data_loss
        check_published(start, found, self._options.publication_name, allows_loss=allows_loss)

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
                requirements=publication_requirements(options, self._plan),
            )

    def _membership(self) -> MembershipWatch:
        """Return the watch on the publication."""
        if self._watch is None:
            options = self._options
            self._watch = MembershipWatch(
                for_slot(options.connection, options.slot_name),
                options.publication_name,
                self._tables(),
                allows_loss=not options.fail_on_data_loss,
            )
        return self._watch

    def _table_fields(self) -> dict[str, Any]:
        """Return the offset's fields for the followed tables and how they are published."""
        if self._options.progress:
            return table_fields(self._tables())
        if self._published_as is None:
            self._published_as = self._read_published()
        return table_fields(self._tables()) | self._published_as.to_json()

    def _awaited_position(self) -> Lsn | None:
        """Return the position up to which changes are awaited; None: a short wait is enough.

        The first batch of a process contains all that is committed: a query that is started for one batch
        gets it.
        """
        if self._stop_at is None and not self._has_looked:
            with contextlib.suppress(HeadraceError):  # the reader retries while the server is away
                return self._committed_position()
        return self._stop_at

    def _committed_position(self) -> Lsn:
        """Return a position after all commits (bytes)."""
        with ReadSession(for_slot(self._options.connection, self._options.slot_name)) as session:
            return end_of_commits(session.query)

    def _flushed_position(self) -> Lsn:
        """Return the position up to which the log is written (bytes)."""
        with ReadSession(for_slot(self._options.connection, self._options.slot_name)) as session:
            [(written,)] = session.query(_FLUSHED_POSITION)
        return int(written)

    def _next_rows_offset(
        self, begin: Offset, done: SnapshotProgress, since: dict[TableName, Lsn]
    ) -> dict[str, Any]:
        """Return the offset after the next rows of the snapshot, or after all of them.

        The stream continues at the snapshot's position. Where it has already reported changes of other
        tables, it continues where it is, and the changes of the new tables count from the snapshot's
        position.
        """
        followed = self._tables()
        wanted = frozenset(followed)
        tables = tuple(table for table in done.tables if not wanted or table in wanted)
        progress: dict[str, Any] = {}
        if self._rows is None and (tables or not done.tables):
            self._rows = rows = InitialRows(self._options, begin.lsn, done.attempt + 1, self._exported)
            shape = None if self._plan is None else self._plan.shape
            rows.plan(tables or followed or self._published_tables(), shape, followed)
            if tables:
                since = since | dict.fromkeys(tables, rows.start)
            else:
                begin = Offset(rows.start)
            progress = replace(rows.next(0), tables=done.tables).to_json()
        elif self._rows is not None and done.parts < self._rows.count:
            progress = replace(self._rows.next(done.parts), tables=done.tables).to_json()
        return begin.to_json() | since_fields(since, begin.lsn) | progress

    def _published_tables(self) -> tuple[TableName, ...]:
        with ReadSession(self._options.connection) as session:
            return read_published_roots(session, self._options.publication_name)

    def _forget_rows(self) -> None:
        """Release the snapshot: its rows are durable, or another process reads them again."""
        if self._rows is not None:
            self._rows.close()
        self._rows = None
        if self._exported is not None and not self._exported.temporary:
            self._close_slot()

    def _close_slot(self) -> None:
        """Close the slot that this process created and that no stream uses, if there is one."""
        if self._exported is not None:
            self._exported.close()
            self._exported = None

    def _limit(self, limit: ReadLimit) -> Limit:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return Limit(self._options.max_bytes_per_trigger, rows, self._stop_at)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of `maxRowsPerTrigger`, if given."""
        rows = self._options.max_rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    @short_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Split the changes in (start, end] into tasks; the range may be from another process's log."""
        return self._retry_after_loss(lambda: self._partitions(start, end))

    def _partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = SnapshotProgress.from_json(start), SnapshotProgress.from_json(end)
        if first is not None or last is not None:
            return self._parts(first or SnapshotProgress(), last)
        behind, start = Offset.from_json(end), batch_start(start, end)
        begin = self._resume(start, behind.lsn)
        if not self._options.fail_on_data_loss and begin.order > behind.order:
            _LOG.warning("a batch up to %s is without the changes that are lost", format_lsn(behind.lsn))
            begin = behind
        check_order(begin, behind)
        batches: list[pa.RecordBatch] = []
        absences: tuple[Absence, ...] = ()
        if begin != behind:
            origin = LogOrigin.from_json(start) or LogOrigin.from_json(end)
            stream = self._open_stream(begin, origin, behind)
            batches, absences = stream.changes(begin, behind), stream.absences
        descriptions = self._describe(batches)
        if left_out := self._left_out(start, end):
            batches = exclude_tables(batches, left_out, {} if descriptions is None else descriptions.roots)
        partitions = [ChangePartition(part, descriptions, absences) for part in self._split(batches, behind)]
        if batches:
            reach("planned")
        return partitions

    def _left_out(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[TableName, Lsn | None]:
        """Return the tables whose changes a batch excludes, all of them or those before a position.

        A repeated batch has the tables that it had; what was read as rows is not reported again.
        """
        followed = tables_of(end)
        new = () if followed is None else set(self._tables()) - set(followed)
        return {**since_of(start), **dict.fromkeys(new)}

    def _parts(self, first: SnapshotProgress, last: SnapshotProgress | None) -> Sequence[InputPartition]:
        """Return the snapshot's parts between two offsets.

        There are none for an attempt of another process: its snapshot is gone, and the process that continues
        from `last` begins again. Between the last rows and the stream there is nothing to read.
        """
        held = self._rows
        if held is None or last is None or last.attempt != held.attempt:
            return [ChangePartition([])]
        begin = first.parts if first.attempt == held.attempt else 0
        emptied = held.emptied() if begin == 0 else []
        return [
            *([ChangePartition(emptied, held.descriptions)] if emptied else []),
            *held.parts(begin, last.parts),
        ]

    def _describe(self, batches: Sequence[pa.RecordBatch]) -> TableDescriptions | None:
        """Describe the tables to the tasks; None where the tasks do not need it."""
        return None if self._plan is not None or self._options.progress else self._describer.of(batches)

    def _split(self, batches: list[pa.RecordBatch], end: Offset) -> list[list[pa.RecordBatch]]:
        """Split a batch into tasks: by rows, or by shares of the documents."""
        if self._options.progress:
            return plan_tasks(batches, end.lsn, end.version, self._options.shares)
        return split_rows(batches, self._options.rows_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the record batches of one partition."""
        with short_traceback():
            yield from read_part(self._options, self._plan, partition)

    def stop(self) -> None:
        """Close the replication connection, release the snapshot, and print which slot stays."""
        self._close_stream()
        self._forget_rows()
        self._describer.close()
        self._close_slot()
        if self._used and not self._options.temporary_slot and not self._options.progress:
            ended = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
            print_notice(slot_notice(self._options.slot_name), unheard=ended)
        self._used = False

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _tables(self) -> tuple[TableName, ...]:
        """Return the named tables that exist; empty where all of the publication are followed."""
        if self._named_tables is None:
            self._named_tables = named_tables(self._options)
        return self._named_tables

    def _open_stream(self, start: Offset, origin: LogOrigin | None, read: Offset) -> ChangeStream:
        """Open the stream after `start`, a position in the log of `origin`, which was read up to `read`."""
        if self._stream is None:
            options, continues = self._options, self._options.continues
            if continues is not None:
                origin, read = LogOrigin.from_json(continues), later_offset(applied_offset(continues), read)
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
            signal.signal(signal.SIGTERM, _exit_on_signal)
            self._stream.open()
        return self._stream

    def _holder(self, start: Offset) -> ExportedSlot | None:
        """Return the temporary slot, which the stream owns from now on."""
        if not self._options.temporary_slot:
            return None
        held, self._exported = self._exported, None
        if held is None:
            raise temporary_gone(self._options.slot_name, start.lsn)
        return held


def _exit_on_signal(_number: int, _frame: FrameType | None) -> None:
    """Exit, which releases the slot at once: Spark ends this process with SIGTERM and never calls `stop`.

    Nothing else is done: the signal may arrive inside `stop`, because the socket is closed at the same time,
    and taking a lock in the handler could then wait for ever.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)
