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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.capture import ChangeStream, Offset, Origin, StreamSettings
from headrace.capture.buffer import Limit
from headrace.capture.columns import progress_batch
from headrace.capture.unchanged import Key
from headrace.errors import HeadraceError, Kind
from headrace.model import CHANGES_SCHEMA, Lsn, TableName, format_lsn, parse_lsn
from headrace.model.failpoints import reach
from headrace.postgres.address import for_slot
from headrace.postgres.provision import ensure_slot
from headrace.postgres.publication import read_published_roots
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import ExportedSlot
from headrace.spark.bootstrap import ProvidedPart
from headrace.spark.cdc_options import CdcOptions
from headrace.spark.choice import named_tables
from headrace.spark.forms import Described, Describing, formed, plan_changes
from headrace.spark.initial import InitialRows, Progress, RowsPart
from headrace.spark.options import read_options
from headrace.spark.shape import RowsPlan, plan_rows

NAME = "postgres_cdc"
_LONG_POLL_SECONDS = 0.25
_LOG = logging.getLogger(__name__)
_WRITTEN = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
        - '0/0')::bigint
"""


class PostgresCdc(DataSource):
    """`spark.readStream.format("postgres_cdc")`: committed changes of a publication's tables.

    Options: see `headrace.spark.cdc_options.CdcOptions`. Columns: of `envelope=rows` those of
    `headrace.capture.rows.RowShape`, of `changes` `headrace.capture.envelope.ENVELOPE_SCHEMA`, of `elements`
    `headrace.capture.elements.ELEMENTS_SCHEMA`.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._plan: RowsPlan | None = None

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType | str:
        """The columns; those of one table are looked up, and of many what their values are."""
        options = self._checked()
        plan = self._planned(options)
        return plan_changes(options) if plan is None else plan.shape.ddl

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


@dataclass
class ChangePartition(InputPartition):
    """Some changes of a batch, as an Arrow IPC stream."""

    stream: bytes
    told: Described | None

    def __init__(self, batches: Sequence[pa.RecordBatch], told: Described | None = None) -> None:
        self.told = told
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, CHANGES_SCHEMA) as writer:
            for batch in batches:
                writer.write_batch(batch)
        self.stream = sink.getvalue().to_pybytes()


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

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is committed now is read, and nothing that comes later; then the query ends."""
        self._upto = self._written()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the slot stood before this reader used it; it is created first where it is missing.

        Spark asks for it twice, the second time when the first batch has been planned.
        """
        if self._initial is None:
            options = self._options
            confirmed = ensure_slot(
                for_slot(options.connection, options.slot_name),
                slot=options.slot_name,
                publication=options.publication_name,
                tables=self._tables(),
                create=options.create_slot,
                keep=self._keep,
            )
            if options.continues is not None:
                _check_applied(options.slot_name, confirmed, _applied(options.continues))
            self._initial = self._beginning(confirmed)
        return self._initial

    def _keep(self, made: ExportedSlot) -> None:
        """Hold the snapshot of a slot that was made, where its rows are to be read."""
        if self._options.reads_first:
            self._exported = made
        else:
            made.close()

    def _beginning(self, confirmed: Lsn) -> dict[str, Any]:
        """The offset of a new checkpoint on a slot that stands at `confirmed`."""
        starts = self._options.starting_offsets
        if self._options.reads_first:
            return Offset(confirmed).to_json() | Progress().to_json()
        if starts in {"earliest", "snapshot"}:
            return Offset(confirmed).to_json()
        current = self._written()
        wanted = max(current, confirmed) if starts == "latest" else parse_lsn(starts)
        if not confirmed <= wanted <= current:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"startingOffsets={starts} is not what the slot {self._options.slot_name!r} can give: "
                f"{format_lsn(confirmed)} to {format_lsn(current)}",
                "Choose a place between them, or earliest, latest or snapshot.",
            )
        if wanted > confirmed:
            _LOG.warning(
                "the slot %r stands at %s: %d bytes of log up to %s are skipped, as startingOffsets=%s says",
                self._options.slot_name,
                format_lsn(confirmed),
                wanted - confirmed,
                format_lsn(wanted),
                starts,
            )
        return Offset(wanted).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Confirm `start`, wait a little for changes, and say where the next batch ends."""
        begin = Offset.from_json(start)
        progress = Progress.from_json(start)
        if progress is not None:
            return begin.to_json() | self._read_on(begin.lsn, progress)
        self._forget_rows()
        stream = self._opened(begin, Origin.from_json(start), begin.lsn)
        stream.confirm(begin)
        if self._upto is not None and begin.order[0] >= self._upto:
            return start
        awaited = self._awaited()
        end = stream.next_offset(begin, self._limit(limit), _LONG_POLL_SECONDS)
        while awaited is not None and end == begin and not stream.is_empty(begin, awaited):
            end = stream.next_offset(begin, self._limit(limit), _LONG_POLL_SECONDS)
        self._looked = True
        if end == begin or stream.origin is None:
            return start
        return end.to_json() | stream.origin.to_json()

    def _awaited(self) -> Lsn | None:
        """Up to where the log is waited for; None: a moment is enough.

        The first look of a process has all that is committed: a query that is started for one batch gets it.
        """
        if self._upto is None and not self._looked:
            with contextlib.suppress(HeadraceError):  # the reader waits for a server that is away
                return self._written()
        return self._upto

    def _written(self) -> Lsn:
        """How far the log is written (bytes)."""
        with ReadSession(for_slot(self._options.connection, self._options.slot_name)) as session:
            [(written,)] = session.query(_WRITTEN)
        return int(written)

    def _read_on(self, start: Lsn, done: Progress) -> dict[str, Any]:
        """What stands in the offset behind the next rows that are read; nothing where all are."""
        if self._rows is None:
            self._rows = rows = InitialRows(
                self._options.connection,
                start,
                done.attempt + 1,
                self._exported if not done.attempt else None,
            )
            shape = None if self._plan is None else self._plan.shape
            rows.plan(self._tables() or self._published(), shape, self._options)
            return rows.next(0).to_json()
        if done.parts == self._rows.count:
            return {}
        return self._rows.next(done.parts).to_json()

    def _published(self) -> tuple[TableName, ...]:
        with ReadSession(self._options.connection) as session:
            return read_published_roots(session, self._options.publication_name)

    def _forget_rows(self) -> None:
        """Let the snapshot go: its rows are durable, or read anew by somebody else."""
        for held in (self._rows, self._exported):
            if held is not None:
                held.close()
        self._rows = self._exported = None

    def _limit(self, limit: ReadLimit) -> Limit:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return Limit(self._options.max_bytes_per_trigger, rows, self._upto)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxRowsPerTrigger`, where it was given."""
        rows = self._options.max_rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The changes in (start, end], split into tasks; also for a range that another process logged."""
        begin, behind = Offset.from_json(start), Offset.from_json(end)
        first, last = Progress.from_json(start), Progress.from_json(end)
        if first is not None:
            return self._parts(first, last)
        _check_order(begin, behind)
        batches = []
        if begin != behind:
            origin = Origin.from_json(start) or Origin.from_json(end)
            batches = self._opened(begin, origin, behind.lsn).changes(begin, behind)
        told = self._described(batches)
        partitions = [
            ChangePartition(self._with_progress(part, behind), told)
            for part in _split(batches, self._options.rows_per_partition)
        ]
        if batches:
            reach("planned")
        return partitions

    def _parts(self, first: Progress, last: Progress | None) -> Sequence[InputPartition]:
        """The rows that are read between two offsets.

        Of an attempt that another process had begun there are none: its snapshot is gone, and whoever goes on
        from `last` begins anew. Between the last rows and the stream there is nothing to read.
        """
        held = self._rows
        if held is None or last is None or last.attempt != held.attempt:
            return [ChangePartition([])]
        return held.parts(first.parts if first.attempt == held.attempt else 0, last.parts)

    def _described(self, batches: Sequence[pa.RecordBatch]) -> Described | None:
        """What the tasks have to be told of the tables; None where they know it, or need not."""
        return None if self._plan is not None or self._options.progress else self._describing.of(batches)

    def _with_progress(self, part: list[pa.RecordBatch], end: Offset) -> list[pa.RecordBatch]:
        return [*part, progress_batch(end.lsn, end.version)] if self._options.progress else part

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one partition."""
        if isinstance(partition, RowsPart | ProvidedPart):
            shape = None if self._plan is None else self._plan.shape
            rows = partition.read(self._options.connection, shape)
            yield from rows if shape is not None else formed(self._options, rows, partition.told)
            return
        if not isinstance(partition, ChangePartition):
            raise HeadraceError(Kind.INTERNAL, f"not a partition of postgres_cdc: {partition!r}")
        with pa.ipc.open_stream(partition.stream) as reader:
            if self._plan is not None:
                yield from self._typed(self._plan, reader)
            elif partition.told is not None:
                yield from formed(self._options, reader, partition.told)
            else:
                yield from reader

    def _typed(self, plan: RowsPlan, changes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of one table; a session is opened where values have to be looked up."""
        with contextlib.ExitStack() as opened:
            session: ReadSession | None = None

            def look(keys: Sequence[Key], columns: Sequence[str]) -> Mapping[int, tuple[str | None, ...]]:
                nonlocal session
                assert plan.reread is not None
                if session is None:
                    session = opened.enter_context(ReadSession(self._options.connection))
                return plan.reread.read(session, keys, columns)

            for batch in changes:
                yield plan.shape.rows(batch, None if plan.reread is None else look)

    def stop(self) -> None:
        """Close the replication connection, and let the snapshot go."""
        self._forget_rows()
        self._describing.close()
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _tables(self) -> tuple[TableName, ...]:
        """The tables that are meant, as the database has them now; none where all of the publication are."""
        if self._found is None:
            self._found = named_tables(self._options)
        return self._found

    def _opened(self, start: Offset, origin: Origin | None, known: Lsn) -> ChangeStream:
        """The stream behind `start`, which lies in the log of `origin`; that is known up to `known`."""
        if self._stream is None:
            options, continues = self._options, self._options.continues
            if continues is not None:
                origin, known = Origin.from_json(continues), max(known, _applied(continues))
            self._stream = ChangeStream(
                StreamSettings(
                    url=for_slot(options.connection, options.slot_name),
                    slot=options.slot_name,
                    publication=options.publication_name,
                    tables=frozenset(self._tables()),
                    expected={} if self._plan is None else {self._plan.shape.table: self._plan.expected},
                    warm_up=options.progress,
                    documents=options.needs,
                    buffer_bytes=max(options.buffer_bytes, 2 * options.max_bytes_per_trigger),
                    backlog_bytes=options.backlog_bytes or None,
                    origin=origin,
                    known=known,
                    same_timeline=continues is not None,
                    trouble=options.trouble_file,
                ),
                start,
            )
            signal.signal(signal.SIGTERM, _end)
            self._stream.open()
        return self._stream


def _end(_number: int, _frame: FrameType | None) -> None:
    """Spark ends this process with SIGTERM and calls no `stop`: unwind, which gives the slot back at once.

    Only that: the signal may have come inside `stop` itself, as the end of the socket comes at the same
    time, and whoever took a lock here would wait for himself for ever.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def _applied(continues: Mapping[str, str | int]) -> Lsn:
    return parse_lsn(str(continues["lsn"]))


def _check_applied(slot: str, confirmed: Lsn, applied: Lsn) -> None:
    if confirmed > applied:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the slot {slot!r} stands at {format_lsn(confirmed)}, beyond {format_lsn(applied)}, which was "
            "applied last: it was made anew or moved by somebody else, and what lies between is lost",
            "Run `headrace teardown --indexes`, then `headrace run`: it seeds everything again.",
        )


def _check_order(begin: Offset, end: Offset) -> None:
    """A checkpoint does not keep where its first batch began: repeated, that begins where the slot is."""
    if begin.order > end.order:
        raise HeadraceError(
            Kind.CONTINUITY,
            f"the checkpoint's first batch ends at {format_lsn(end.lsn)}, and the slot has been confirmed up "
            f"to {format_lsn(begin.lsn)} without it: its changes are lost",
            "Start with a new checkpoint, and seed again what the query had read.",
        )


def _split(batches: list[pa.RecordBatch], rows: int) -> list[list[pa.RecordBatch]]:
    """`batches` in groups of about `rows` rows each; one empty group where there is nothing."""
    groups: list[list[pa.RecordBatch]] = [[]]
    room = rows
    for batch in batches:
        position = 0
        while position < batch.num_rows:
            if room == 0:
                groups.append([])
                room = rows
            taken = min(room, batch.num_rows - position)
            groups[-1].append(batch.slice(position, taken))
            position, room = position + taken, room - taken
    return groups
