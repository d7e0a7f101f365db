"""The streaming source `postgres_cdc`: PostgreSQL's log for Spark.

The driver-side process of the query owns the one replication connection; executors get the changes
inside their partitions. `ChangePlanner` cuts the stream into batches. This source adds what its users can
choose: existing rows first, added tables, and what happens where changes are lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headrace.capture import LogOrigin, Offset, StreamSettings
from headrace.capture.continuity import temporary_gone
from headrace.capture.signals import SignalFiles
from headrace.datasources.catalog_watch import known_parts
from headrace.datasources.change_planner import ChangePlanner, origin_of
from headrace.datasources.envelopes import TableDescriber, changes_schema
from headrace.datasources.followed_tables import (
    FollowedTables,
    added_tables,
    exclude_tables,
    since_fields,
    since_of,
    snapshot_progress,
)
from headrace.datasources.initial_snapshot import InitialRows, SnapshotProgress
from headrace.datasources.options import read_options
from headrace.datasources.partitions import ChangePartition, read_part, split_rows
from headrace.datasources.query_schema import RowsPlan, plan_rows
from headrace.datasources.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from headrace.datasources.shutdown import exit_on_sigterm, is_ended_by_sigterm, print_notice, slot_notice
from headrace.datasources.source_options import CdcOptions
from headrace.datasources.starting_offsets import (
    LOSSES,
    adopted_offset,
    batch_start,
    check_order,
    first_offset,
    is_adoption,
    keep_batch_start,
    later_offset,
    resume_offset,
)
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import to_ipc
from headrace.model.failpoints import reach
from headrace.model.lsn import Lsn, format_lsn
from headrace.model.names import TableName
from headrace.postgres.provision import PreparedSlot, prepare_slot
from headrace.postgres.slot import ExportedSlot
from headrace.spark.environment import passes_position
from headrace.spark.failures import short_traceback

NAME = "postgres_cdc"
_LOG = logging.getLogger(__name__)
_READ_AGAIN = (
    "the first rows are read again from the beginning, because the process that read them has ended. A "
    "trigger that ends after one batch (once, and availableNow on PySpark 4.0 and 4.1) never gets past them: "
    "use another trigger until they are read"
)
_Result = TypeVar("_Result")


class PostgresCdc(DataSource):
    """The source `spark.readStream.format("postgres_cdc")`: committed changes of a publication's tables.

    Options: see `headrace.datasources.source_options.CdcOptions`. Columns: of `envelope=rows` those of
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
        reader = CdcReader if passes_position(pyspark.__version__) else RememberingReader
        return reader(options, self._rows_plan(options))

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
        self._tables = FollowedTables(options, plan)
        self._describer = TableDescriber(options)
        folder = options.confirm_folder
        self._signals = None if folder is None else SignalFiles(Path(folder))
        self._url = options.slot_url
        self._planner = ChangePlanner(self._url, options.max_bytes_per_trigger)
        self._initial: dict[str, Any] | None = None
        self._exported: ExportedSlot | None = None
        self._rows: InitialRows | None = None
        self._is_read_in_vain = False
        self._compared = self._resumed = False
        self._moved: Offset | None = None
        self._used = False

    @short_traceback()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the present end of the log: the query ends when it has read up to there."""
        self._planner.stop_at_present_end()

    @short_traceback()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the slot's position before this reader used it; creates the slot if it is missing.

        Spark asks for it twice, the second time when the first batch has been planned.
        """
        if self._initial is None:
            exit_on_sigterm()
            prepared = self._prepare()
            self._used = True
            begin = first_offset(self._options, prepared.confirmed)
            # Spark stores it with the first batch; until then only this process knows where the query began.
            self._initial = begin | origin_of(prepared).to_json() | self._tables.fields()
            self._resumed = True
        return self._initial

    def _prepare(self) -> PreparedSlot:
        """Create publication and slot where they are missing."""
        options = self._options
        return prepare_slot(
            self._url,
            slot=options.slot,
            publication=options.publication,
            tables=self._tables.named,
            create=options.create_slot,
            requirements=self._tables.requirements,
            temporary=options.temporary_slot,
            keep=self._keep,
        )

    def _keep(self, made: ExportedSlot) -> None:
        """Keep a created slot open if its snapshot will be read, or if it is temporary."""
        # Its snapshot is the only one whose place in the log is known exactly.
        if self._options.reads_first or made.temporary:
            self._exported = made
        else:
            made.close()

    @short_traceback()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Confirm `start`, wait a moment for changes, and return where the next batch ends."""
        adopted = None if self._resumed else adopted_offset(self._options, start, self._tables)
        return adopted or self._retry_after_loss(lambda: self._next(start, limit))

    def _next(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        stored, origin = Offset.from_json(start), LogOrigin.from_json(start)
        new = added_tables(start, self._tables.named, self._options)
        begin = self._resume(start, start)
        progress = snapshot_progress(SnapshotProgress.from_json(start), start, new, self._options)
        if new:
            self._tables.publish(new)
        origin_fields = origin.to_json() if origin is not None else {}
        # The log waits in the slot meanwhile: its changes come after the rows.
        if progress is not None:
            rows = self._next_rows_offset(begin, progress, since_of(start))
            return rows | origin_fields | self._tables.fields()
        self._forget_rows()
        here = begin.to_json() | since_fields(since_of(start), begin.lsn) | origin_fields
        # Before the log is read on: rows that are read again stand before the changes that follow.
        if not new and (altered := self._tables.unlogged()):
            return self._read_again(here, altered)
        planner = self._open_planner(begin, origin, begin, start)
        # A batch without changes: the checkpoint must know the tables before anything of theirs is planned.
        if new or begin != stored or self._tables.is_outdated(start):
            return here | self._tables.fields()
        # `start` is in the commit log when Spark asks for what follows it, and never confirmed before.
        planner.stream.confirm(begin)
        self._tables.watch()
        end = self._next_end(planner, begin, limit)
        if altered := self._tables.reused():
            return self._read_again(here, altered)
        if end == begin or planner.stream.origin is None:
            return start
        fields = since_fields(since_of(start), end.lsn) | keep_batch_start(start, self._initial)
        return end.to_json() | planner.stream.origin.to_json() | self._tables.fields() | fields

    def _next_end(self, planner: ChangePlanner, begin: Offset, limit: ReadLimit) -> Offset:
        try:
            return planner.next_offset(begin, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        except HeadraceError:
            if not self._tables.reused():  # it says more than that a column is another one
                raise
            return begin

    def _read_again(self, here: dict[str, Any], tables: tuple[TableName, ...]) -> dict[str, Any]:
        """Return the offset from which the rows of `tables` are read again; the log is read on from there."""
        if not self._options.temporary_slot:
            self._planner.close()  # it may have stopped at rows from before, which nobody needs then
        self._tables.forget_names(tables)
        return here | SnapshotProgress(attempt=1, tables=tables).to_json() | self._tables.fields()

    def _retry_after_loss(self, work: Callable[[], _Result]) -> _Result:
        """Run `work`; after a data loss once more after the loss, if the options allow it."""
        try:
            return work()
        except HeadraceError as error:
            if self._options.fail_on_data_loss or error.kind not in LOSSES:
                raise
            # The server may show a slot as well of which it has just failed to find the log.
            self._is_read_in_vain = error.kind is Kind.SLOT_LOST
        # The slot must have no reader before it can be dropped.
        self._close_stream()
        self._forget_rows()
        self._close_slot()
        # Checked again: the slot is dropped and made again, or stands elsewhere.
        self._compared = self._resumed = False
        self._moved = None
        try:
            return work()
        finally:
            self._is_read_in_vain = False

    def _resume(self, start: Mapping[str, Any], stored: Mapping[str, Any]) -> Offset:
        """Return the offset to read on from; checked once in each process.

        Args:
            start: what was read.
            stored: the last offset in the checkpoint: tables and log are compared with what it knows of them.
        """
        begin = Offset.from_json(start)
        # Also where this process has prepared the slot itself: the first batch may be another process's.
        if not self._compared and stored != self._initial:
            exit_on_sigterm()
            self._tables.check_published(stored)
        self._compared = True
        if not self._resumed:
            allows_loss = not self._options.fail_on_data_loss or self._options.temporary_slot
            if allows_loss or SnapshotProgress.from_json(start) is not None:  # else the stream checks it
                self._moved = resume_offset(
                    self._options, start, stored, self._prepare, is_read_in_vain=self._is_read_in_vain
                )
            self._resumed = self._used = True
        return later_offset(begin, self._moved)

    def _next_rows_offset(
        self, begin: Offset, done: SnapshotProgress, since: dict[TableName, Lsn]
    ) -> dict[str, Any]:
        """Return the offset after the next rows of the snapshot, or after all of them.

        The stream continues at the snapshot's position. Where it has already reported changes of other
        tables, it continues where it is, and the changes of the new tables count from the snapshot's
        position.
        """
        followed = self._tables.named
        wanted = frozenset(followed)
        tables = tuple(table for table in done.tables if not wanted or table in wanted)
        progress: dict[str, Any] = {}
        # Another process has planned the parts, or died: the attempt begins again, in another snapshot.
        if self._rows is None and (tables or not done.tables):
            if done.parts:
                _LOG.warning("%s", _READ_AGAIN)
            self._rows = rows = InitialRows(self._options, begin.lsn, done.attempt + 1, self._exported)
            shape = None if self._plan is None else self._plan.shape
            rows.plan(tables or self._tables.read_all(), shape, followed, self._tables.note_rows)
            if tables:
                since = since | dict.fromkeys(tables, rows.place.start)
            else:
                begin = Offset(rows.place.start)
            progress = replace(rows.next(0), tables=done.tables).to_json()
        elif self._rows is not None and done.parts < self._rows.count:
            progress = replace(self._rows.next(done.parts), tables=done.tables).to_json()
        return begin.to_json() | since_fields(since, begin.lsn) | progress

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

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of `maxRowsPerTrigger`, if given."""
        rows = self._options.max_rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    @short_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Split the changes in (start, end] into tasks; the range may be from another process's log."""
        # An older PySpark also asks for the empty range at which a query begins, or goes on.
        partitions = [] if start == end else self._retry_after_loss(lambda: self._partitions(start, end))
        if self._signals is not None:
            self._signals.set_planned_end(end)
        return partitions

    def _partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if is_adoption(start, end):
            return [ChangePartition(to_ipc([]))]
        first, last = SnapshotProgress.from_json(start), SnapshotProgress.from_json(end)
        if first is not None or last is not None:
            return self._parts(first or SnapshotProgress(), last)
        # Spark asks for the initial offset again where it repeats the first batch.
        until, start = Offset.from_json(end), batch_start(start, end)
        begin = self._resume(start, end)
        if not self._options.fail_on_data_loss and begin.order > until.order:
            _LOG.warning("a batch up to %s lacks the changes that are lost", format_lsn(until.lsn))
            # Its changes are lost: the batch is empty, and Spark goes on after it.
            begin = until
        check_order(begin, until)
        batches: list[pa.RecordBatch] = []
        truncated: Mapping[TableName, TableName] = {}
        if begin != until:
            # An offset of before anything was read has no origin: the end of the batch knows whose log it is.
            origin = LogOrigin.from_json(start) or LogOrigin.from_json(end)
            planner = self._open_planner(begin, origin, until, start)
            batches = planner.stream.changes(begin, until)
            truncated = planner.stream.truncated_partitions
        # The tasks of a planned table know it already.
        descriptions = None if self._plan is not None else self._describer.of(batches, truncated)
        if left_out := self._tables.left_out(start, end):
            batches = exclude_tables(batches, left_out, truncated)
        parts = split_rows(batches, self._options.rows_per_partition)
        partitions = [ChangePartition(to_ipc(part), descriptions) for part in parts]
        if batches:
            reach("planned")
        return partitions

    def _parts(self, first: SnapshotProgress, last: SnapshotProgress | None) -> Sequence[InputPartition]:
        """Return the snapshot's parts between two offsets.

        There are none for an attempt of another process: its snapshot is gone, and the process that continues
        from `last` begins again. Between the last rows and the stream there is nothing to read.
        """
        rows = self._rows
        if rows is None or last is None or last.attempt != rows.place.attempt:
            return [ChangePartition(to_ipc([]))]
        begin = first.parts if first.attempt == rows.place.attempt else 0
        # Once for an attempt, before its first rows: it voids those of an attempt before.
        emptied = rows.emptied() if begin == 0 else []
        parts = rows.parts(begin, last.parts)
        return [ChangePartition(to_ipc(emptied), rows.descriptions), *parts] if emptied else parts

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
        if self._used and not self._options.temporary_slot:
            print_notice(slot_notice(self._options.slot), unheard=is_ended_by_sigterm())
        self._used = False

    def _close_stream(self) -> None:
        self._planner.close()
        self._tables.close()

    def _open_planner(
        self, start: Offset, origin: LogOrigin | None, read: Offset, stored: Mapping[str, Any]
    ) -> ChangePlanner:
        """Open the stream after `start`, a position in the log of `origin`, which was read up to `read`.

        `stored`: the offset of `start`, with the catalog and the positions from which tables count.
        """
        if not self._planner.is_open:
            options, plan = self._options, self._plan
            exported = self._exported if options.temporary_slot else None
            if options.temporary_slot:
                if exported is None:
                    raise temporary_gone(options.slot, start.lsn)
                self._exported = None  # the stream owns it from now on
            settings = StreamSettings(
                url=self._url,
                slot=options.slot,
                publication=options.publication,
                tables=frozenset(self._tables.named),
                expected={} if plan is None else {plan.shape.table: plan.expected},
                since=since_of(stored),
                columns=self._tables.columns,
                parts=known_parts(stored),
                buffer_bytes=max(options.buffer_bytes, 2 * options.max_bytes_per_trigger),
                backlog_bytes=options.backlog_bytes or None,
                origin=origin,
                read=read,
                holder=None if exported is None else exported.connection,
                signals=self._signals,
            )
            self._used = True
            self._planner.open(settings, start)
        return self._planner


class RememberingReader(CdcReader):
    """The reader for PySpark 4.0 and 4.1, which ask for a batch's end without the query's position.

    They pass it in another way. A query that goes on from a checkpoint asks first for the partitions between
    the last planned end and itself. And a batch's partitions are asked for when its end is in the checkpoint.
    (Measured with PySpark 4.0.1 and 4.1.4, also with the trigger `availableNow`.) So the last end that
    partitions were asked for is where the next batch begins.
    """

    _position: dict[str, Any] | None = None

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Return where the batch after the last planned one ends."""
        if self._position is None:  # the checkpoint is empty
            self._position = self.initialOffset()
        return super().latestOffset(self._position, self.getDefaultReadLimit())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions of a batch; none where Spark only names its position."""
        self._position = end
        return super().partitions(start, end)
