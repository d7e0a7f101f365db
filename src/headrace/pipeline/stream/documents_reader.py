"""Turn live changes into documents in the tasks that read them: what the source `headrace_documents` does.

A partition holds changes. Reading it returns when the documents that they touch are durable, and yields one
row of counts. So a batch is done when its tasks are, and no data goes from one Python process to another
(decision 0026). A new plan with other generations comes to the source in a file (decision 0073).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from headrace.capture import LogOrigin, Offset, StreamSettings
from headrace.capture.columns import Projection
from headrace.capture.signals import SignalFiles
from headrace.catalog.needs import Needs
from headrace.datasources.change_planner import ChangePlanner, origin_of
from headrace.datasources.shutdown import exit_on_sigterm
from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind
from headrace.logs import configure_worker_logging
from headrace.model.changes import to_ipc
from headrace.model.failpoints import reach
from headrace.model.lsn import KnownCommit, Lsn, format_lsn, parse_lsn
from headrace.model.trace import CommitContext, TaskTrace
from headrace.pipeline.stream.documents_source import NUMBERS, SETTINGS_OPTION, TEXTS
from headrace.pipeline.stream.early_writes import EarlyWriter
from headrace.pipeline.worker.plan import PLAN_OPTION, SECRET_OPTION, Work, unpack
from headrace.pipeline.worker.task import Task, TaskShare, plan_tasks
from headrace.pipeline.worker.worker import WrittenBatch
from headrace.pipeline.worker.workers import applier_of
from headrace.postgres.address import for_stream
from headrace.postgres.provision import prepare_slot
from headrace.spark.failures import short_traceback

_RESULT = pa.schema([(name, pa.int64()) for name in NUMBERS] + [(name, pa.string()) for name in TEXTS])
_BATCH_BYTES = 32 << 20
_PAUSED_SECONDS = 0.1
# For how long, and how many changes, batches that were written early are held back, to be planned as one.
_HOLD_SECONDS, _MOST_HELD, _SIGNAL_SECONDS = 0.3, 2_000, 0.02


@dataclass(frozen=True, slots=True)
class Following:
    """What the source of the documents query follows.

    Attributes:
        slot: the name of the slot.
        publication: the name of the publication.
        needs: what the plan needs of the log.
        continues: the log that the documents come from, and the position before which nothing is read again.
        applied: the slot is confirmed up to here; less than that position where documents are deferred.
        deferred: whether documents are deferred.
        idle_seconds: see `StreamSettings`.
    """

    slot: str
    publication: str
    needs: Needs
    continues: Mapping[str, Any]
    applied: Lsn
    deferred: bool = False
    idle_seconds: float = 10.0

    @property
    def read(self) -> Offset:
        """The position before which nothing is read again, with the last transaction before it."""
        last = KnownCommit.from_json(self.continues.get("last"))
        return Offset(parse_lsn(str(self.continues["lsn"])), last=last)

    def first_offset(self, confirmed: Lsn) -> Offset:
        """Return where the source begins: at the slot's position, or after the deferred changes.

        Raises:
            HeadraceError: CONTINUITY where the slot was confirmed beyond what was applied.
        """
        read = self.read
        if confirmed > read.lsn:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the slot {self.slot!r} stands at {format_lsn(confirmed)}, beyond {format_lsn(read.lsn)}, "
                "which was applied last: it was created again or moved by another program, and the changes "
                "between are lost",
                BACKFILL_AGAIN,
            )
        return Offset(read.lsn if self.deferred else confirmed)


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The settings of the source, which the driver passes packed as an option.

    Attributes:
        following: the log to follow.
        projection: the columns whose values are kept.
        max_tasks: how many tasks share the documents of a large batch.
        signals: between the driver and the process that plans.
        traced: whether what a trace of each batch needs is read and measured.
        early: whether small batches are written before Spark plans them.
    """

    following: Following
    projection: Projection
    max_tasks: int
    signals: SignalFiles
    traced: bool = False
    early: bool = False

    def stream(self, url: str, read: Offset) -> StreamSettings:
        """Return the settings of the stream of changes.

        Args:
            url: the database.
            read: the log was read up to there, or up to `Following.read`.
        """
        following = self.following
        return StreamSettings(
            url=url,
            slot=following.slot,
            publication=following.publication,
            warm_up=True,
            idle_seconds=following.idle_seconds,
            documents=following.needs,
            projection=self.projection,
            origin=LogOrigin.from_json(following.continues),
            read=max(following.read, read, key=lambda offset: offset.order),
            same_timeline=True,
            signals=self.signals,
            trace_contexts=self.traced,
        )


def one_row(counts: Iterable[int], *texts: str) -> pa.RecordBatch:
    """Return the row of a task: `NUMBERS`, and the texts `TABLES` and `TRACE`."""
    return pa.RecordBatch.from_arrays([pa.array([value]) for value in (*counts, *texts)], schema=_RESULT)


def _rows_of(
    done: Sequence[WrittenBatch], contexts: tuple[CommitContext, ...] | None, *, early: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the row of each part of a task; the first has the changes of all by table."""
    tables = sum((Counter(part.times.tables) for part in done), Counter[str]())
    for number, part in enumerate(done):
        result, times = part.result, part.times
        seconds = (times.resolve_seconds, times.assemble_seconds, times.write_seconds)
        counts = (
            *(part.changes, result.upserted, result.deleted, len(result.rejected)),
            *(times.resolved, times.assembled, *(round(1e6 * each) for each in seconds)),
            *(int(early), round(1e6 * times.total_seconds)),
        )
        trace = "" if contexts is None else TaskTrace(contexts, part.spans).to_text()
        yield one_row(counts, json.dumps(tables) if tables and number == 0 else "", trace)


@dataclass
class DocumentsPartition(InputPartition):
    """The changes of a task, and the plan that was current when their batch was planned.

    Attributes:
        stream: the changes, as an Arrow IPC stream.
        version: see `Task`.
        share: see `Task`.
        plan: the text of `PLAN_OPTION`; None: the query's first plan.
        contexts: the trace contexts of the changes; None where batches are not traced.
    """

    stream: bytes
    version: Lsn
    share: TaskShare
    plan: str | None
    contexts: tuple[CommitContext, ...] | None = None

    def task(self) -> Task:
        """Return the task."""
        with pa.ipc.open_stream(self.stream) as reader:
            return Task(reader.read_all(), self.version, self.share)


@dataclass
class WrittenPartition(InputPartition):
    """A batch that was written before it was planned.

    Attributes:
        done: what was done, part by part.
        contexts: as those of `DocumentsPartition`.
    """

    done: tuple[WrittenBatch, ...]
    contexts: tuple[CommitContext, ...] | None


class DocumentsReader(DataSourceStreamReader):
    """Plans batches, and writes small ones, in the driver-side process; `read` writes on executors.

    Args:
        options: those of the source; nothing is opened yet.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        settings: SourceSettings = unpack(options[SETTINGS_OPTION])
        self._settings = settings
        self._work = {name: options[name] for name in (PLAN_OPTION, SECRET_OPTION)}
        self._url = for_stream(Work.from_options(options).endpoints.database, settings.following.slot)
        self._planner = ChangePlanner(self._url, _BATCH_BYTES)
        self._initial: dict[str, Any] | None = None
        self._batch_end: dict[str, Any] | None = None
        self._plan_number = 0
        self._plan: str | None = None
        self._early: EarlyWriter | None = None
        self._written: tuple[Offset, Offset, tuple[WrittenBatch, ...]] | None = None

    @short_traceback()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where the query begins; Spark asks twice, again when the first batch has been planned."""
        if self._initial is None:
            configure_worker_logging()
            exit_on_sigterm()
            following = self._settings.following
            prepared = prepare_slot(
                self._url, slot=following.slot, publication=following.publication, tables=(), create=False
            )
            first = following.first_offset(prepared.confirmed)
            self._initial = first.to_json() | origin_of(prepared).to_json()
        return self._initial

    @short_traceback()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """Confirm `start`, wait a moment for changes, and return where the next batch ends.

        A new plan is taken first, as the batch up to `start` is done. While the stream is paused no batch is
        planned, and what was read from the log stays in the buffer.
        """
        signals = self._settings.signals
        signals.beat()
        self._report_batch_end(start)
        begin = Offset.from_json(start)
        self._reload_plan(begin.lsn)
        if self._settings.early and self._early is None:
            self._early = EarlyWriter(self._options(self._plan))
        planner = self._open_planner(begin, begin)
        # Spark asks only when the batch up to `start` is done; the signals hold back what no state names.
        planner.stream.confirm(begin)
        if signals.is_paused():
            time.sleep(_PAUSED_SECONDS)  # Spark asks again at once
            return start
        end = planner.next_offset(begin)
        if end == begin or planner.stream.origin is None or signals.is_paused():
            return start
        end = self._write_early(begin, end)
        return end.to_json() | planner.stream.origin.to_json()

    @short_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of a batch."""
        begin, until = Offset.from_json(start), Offset.from_json(end)
        batches: list[pa.RecordBatch] = []
        contexts: tuple[CommitContext, ...] | None = () if self._settings.traced else None
        if begin != until:
            planner = self._open_planner(begin, until)
            if self._settings.traced:
                contexts = tuple(planner.stream.contexts(begin, until))
            # Spark may plan a batch again, and otherwise: only the one that was written needs no task.
            if self._written is not None and self._written[:2] == (begin, until):
                reach("planned")
                self._settings.signals.mark_planned()
                return [WrittenPartition(self._written[2], contexts)]
            batches = planner.stream.changes(begin, until)
        stream, plan = to_ipc(batches), self._plan
        tasks = plan_tasks(batches, until.version, self._settings.max_tasks)
        if batches:
            reach("planned")
        self._settings.signals.mark_planned()
        return [DocumentsPartition(stream, task.version, task.share, plan, contexts) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Apply the changes of one partition; a repeated task writes the same documents or newer ones."""
        if isinstance(partition, WrittenPartition):
            yield from _rows_of(partition.done, partition.contexts, early=True)
            return
        assert isinstance(partition, DocumentsPartition)
        configure_worker_logging()
        with short_traceback():
            done = applier_of(self._options(partition.plan)).apply(partition.task())
        yield from _rows_of([done], partition.contexts)

    def _options(self, plan: str | None) -> Mapping[str, str]:
        """Return the options of the work with a plan; None: the query's first one."""
        return self._work if plan is None else {**self._work, PLAN_OPTION: plan}

    def _write_early(self, begin: Offset, end: Offset) -> Offset:
        """Write small batches as they come, for a moment; return where the batch for Spark ends.

        That holds all that was written, and nothing else; or, where nothing was, it ends at `end`.
        """
        self._written = None
        if self._early is None:
            return end
        done: list[WrittenBatch] = []
        position, until = begin, time.monotonic() + _HOLD_SECONDS
        while end != position:
            changes = self._planner.stream.changes(position, end)
            tasks = plan_tasks(changes, end.version, self._settings.max_tasks)
            batch = self._early.write(tasks[0]) if len(tasks) == 1 else None
            if batch is None:
                break
            reach("early")
            done.append(batch)
            position = end
            if sum(part.changes for part in done) < _MOST_HELD:
                end = self._next_soon(begin, position, until)
        if not done:
            return end
        self._written = begin, position, tuple(done)
        return position

    def _next_soon(self, begin: Offset, position: Offset, until: float) -> Offset:
        """Return where the next batch ends; `position` where none does until then, or a client waits."""
        signals, end = self._settings.signals, position
        while end == position and time.monotonic() < until and not signals.is_paused():
            if begin.lsn < signals.requested_lsn() <= position.lsn:
                break
            end = self._planner.next_offset(position, timeout=_SIGNAL_SECONDS)
        return end

    def _report_batch_end(self, start: dict[str, Any]) -> None:
        """Tell the driver where the batch ended after which Spark asks for the next one."""
        # Spark asks only once all tasks of that batch are done: its documents are durable or deferred.
        if start not in (self._initial, self._batch_end):
            self._settings.signals.set_batch_end(start)
            self._batch_end = start

    def _reload_plan(self, position: Lsn) -> None:
        """Take a new plan between two batches; every change before `position` had the former one.

        Where the plan reads other columns of the log, the stream is closed, to be opened again there.

        Raises:
            HeadraceError: as `EarlyWriter.check_alive`.
        """
        signals = self._settings.signals
        offered = signals.newer_plan(self._plan_number)
        if offered is None:
            return
        if self._early is not None and self._early.is_writing:  # with the former plan
            self._early.check_alive()
            return
        self._plan_number, self._plan = offered[0], offered[1].plan
        self._close_early()
        if offered[1].settings:
            self._settings = unpack(offered[1].settings)
            self._planner.close()
        # Last: the driver relies on it that this plan writes every change after the position.
        signals.accept_plan(self._plan_number, position)

    def stop(self) -> None:
        """Release the slot."""
        self._close_early()
        self._planner.close()

    def _close_early(self) -> None:
        if self._early is not None:
            self._early.close()
            self._early = None

    def _open_planner(self, start: Offset, read: Offset) -> ChangePlanner:
        """Return the planner, opened after `start`; the log was read up to `read`."""
        if not self._planner.is_open:
            self._planner.open(self._settings.stream(self._url, read), start)
        return self._planner
