"""Do the work of one task: resolve changes, assemble documents and write them, in the executor's process.

A worker process opens its connections once and keeps them for later tasks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Event

from headrace.assembly.assembler import Assembler, Refuse
from headrace.assembly.transform import check_code
from headrace.errors import HeadraceError, Kind, Retry, failures_of, retrying
from headrace.model.changes import DocumentOperation, Key
from headrace.model.failpoints import reach
from headrace.model.lsn import Lsn
from headrace.model.names import CtidRange, TableName
from headrace.model.stage import Stage
from headrace.model.trace import StageSpan
from headrace.pipeline.worker.deferral import (
    CHUNK_KEYS,
    KEYS_AT_ONCE,
    SECONDARY_CHUNK_KEYS,
    Deferral,
    IndexKeys,
    group_keys,
    halves,
)
from headrace.pipeline.worker.delivery import SinkConnection, limit_rate
from headrace.pipeline.worker.failure_policy import UNAVAILABLE, FailurePolicy, WaitForSink
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.stage_times import StageTimes
from headrace.pipeline.worker.task import Task, TaskShare
from headrace.postgres.address import application_name, stream_name
from headrace.postgres.lock_holders import LockedError, locks_of
from headrace.postgres.logins import LOGINS
from headrace.postgres.server_errors import is_refused_row
from headrace.postgres.session import ReadSession
from headrace.resolution import Resolver
from headrace.sinks.activity import BackfillCounter, ReportTo, report_stage
from headrace.sinks.age import within
from headrace.sinks.base import Rejection, WriteResult
from headrace.sinks.opensearch import Client
from headrace.snapshot.ranges import are_rewritten, check_filenode, files_of, read_filenodes
from headrace.state import DeferredKeys, KeyBatch
from headrace.state.deferred_keys import ALL_KEYS

# Key batches that a task reads, writes and deletes together, at most.
BATCHES_AT_ONCE = 10
_REPORT_SECONDS = 5.0
# Documents that were read longer ago are read again: with what `OpenSearchWriter` allows, this is within the
# time for which a delete fences them, while a generation is followed and while it is filled.
_OLDEST_SECONDS, _OLDEST_IN_BACKFILL = 1500.0, 43200.0
_LOCK_SECONDS, BACKFILL_LOCK_SECONDS = 1.0, 5.0
# Between two looks whether documents of an index that has failed in the stream are still deferred.
_REST_SECONDS = 5.0

OpenPolicy = Callable[[Client], FailurePolicy]


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """The result of one task.

    Attributes:
        changes: the number of changes of the batch; 0 where another task counts them.
        result: the documents that were written.
        times: what was done in each stage.
        spans: when it was done, for every sink.
    """

    changes: int
    result: WriteResult = field(default_factory=WriteResult)
    times: StageTimes = field(default_factory=StageTimes)
    spans: tuple[StageSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class BackfillRange:
    """A range of one generation's root rows to be backfilled.

    Attributes:
        generation: its name.
        rows: the range of rows.
        version: the version of every document, a position that was applied before (decision 0015).
        snapshot: an exported one whose documents they are; None, or one that has gone, reads what is there,
            which is no older.
        rows_per_second: no faster than that.
        throttled: leave the stream room in the sink.
    """

    generation: str
    rows: CtidRange
    version: Lsn
    snapshot: str | None = None
    rows_per_second: float | None = None
    throttled: bool = False


class Worker:
    """Turns changes into durable documents; one in each worker process, used by one task at a time.

    Args:
        work: the plan and the endpoints.
        open_policy: makes the policy for failures of the sink, from a client of the cluster that keeps the
            state; by default the sink is waited for.
        ending: once it is set, `rewrite` and `write_deferred` wait for no server any more.

    Attributes:
        work: the plan and the endpoints.
        sink: where the documents go.

    Raises:
        HeadraceError: TRANSFORM: this process has other code of a transform than the plan was made with.
    """

    def __init__(
        self, work: Work, open_policy: OpenPolicy | None = None, ending: Event | None = None
    ) -> None:
        check_code(work.plan.code)
        LOGINS.expect(work.endpoints.database)
        self.work = work
        self._session: ReadSession | None = None
        self._assemblers: dict[str, Assembler] = {}
        self.sink = SinkConnection(work)
        state = self.sink.state
        self._deferred = DeferredKeys(state, work.plan.key)
        self._chunk_keys = SECONDARY_CHUNK_KEYS if work.plan.key.sink else CHUNK_KEYS
        # By index that has failed in the stream: when (monotonic) its deferred documents are counted.
        self._resting: dict[str, float] = {}
        self._times = StageTimes()
        self._reports: ReportTo | None = None  # where a task of the stream reports its stage
        self._is_stream = False
        self._session_name = ""
        self._ending = ending
        self._policy = WaitForSink(self._deferred, ending) if open_policy is None else open_policy(state)

    def close(self) -> None:
        """Close all connections."""
        self._drop_session()
        self.sink.close()

    def apply(self, task: Task) -> WrittenBatch:
        """Bring every document that the task's changes touch up to date, or defer it.

        Raises:
            HeadraceError: an error that is not retryable.
        """
        self._policy.begin_batch()
        self._is_stream = True
        try:
            # An empty batch still advances the position, and is a moment to connect while nobody waits.
            if not task.rows.num_rows:
                self._warm_up()
                return WrittenBatch(0)
            self._reports = self.work.plan.writer.report
            return self._apply(task)
        finally:
            # Also after an error: else the stall monitor would watch a stage that nobody works on.
            report_stage(self._reports, None)
            self._reports, self._is_stream = None, False

    def _apply(self, task: Task) -> WrittenBatch:
        report_stage(self._reports, Stage.RESOLVE)
        self._times, began, is_first = StageTimes(), time.perf_counter(), task.share.number == 0
        result, deferral = WriteResult(), self._collect_keys(task)
        if is_first:
            self._times.resolve_seconds = time.perf_counter() - began
            self._times.tables = task.count_by_table()
        report_stage(self._reports, Stage.ASSEMBLE)
        # What readers see first, then what is built or retained (decision 0066).
        for index_keys in deferral.keys_to_write(self.work.plan.served):
            self._times.resolved += sum(len(keys) for keys in index_keys.values())
            written = self._write(index_keys, task.version)
            if task.share.count == 1 and written.upserted + written.deleted:
                self.sink.refresh(index_keys)  # a larger batch has others after it: the interval is enough
            result += written
        self._times.total_seconds = task.seconds_since_commit()
        counted = task.rows.num_rows if is_first else 0
        spans = self._times.spans(self.work.plan.key.sink)
        return WrittenBatch(counted, result, self._times, spans)

    def _warm_up(self) -> None:
        """Open, while there are no changes, the connections that the next change needs."""
        if self._session is None:
            for attempt in self._policy.attempts():
                with attempt, self._open_session() as session:
                    for index in self.work.plan.specs:
                        self._assembler(session, index)

    def backfill(self, part: BackfillRange, counter: BackfillCounter | None = None) -> WriteResult:
        """Write the documents of a range of root rows; the counter counts them as they are written.

        Raises:
            HeadraceError: CONTINUITY, where the root table was rewritten or dropped meanwhile; LOCKED.
        """
        plan, rewritten = self.work.plan, False
        tables = files_of(plan.specs[part.generation].tables(), plan.catalog)
        for attempt in self._policy.attempts():
            with attempt, locks_of(plan.unit_of(part.generation)), self._session_at(part.snapshot) as session:
                # A standby may not be so far: the version would cover rows that it lacks.
                session.await_replay(part.version)
                result = self._backfill(session, part, counter)
                rewritten = session.in_transaction and are_rewritten(session, tables)
        if rewritten:  # the snapshot sees such a table as empty, and the log does not report it
            return self.backfill(replace(part, snapshot=None), counter)
        reach("range")
        return result

    def _session_at(self, snapshot: str | None) -> ReadSession:
        url = self.work.endpoints.database
        try:
            return ReadSession(url, snapshot=snapshot, lock_seconds=BACKFILL_LOCK_SECONDS)
        except HeadraceError as error:
            if snapshot is None or error.kind is not Kind.DATABASE:
                raise
        # The connection that exported it has ended. What is there now is no older: the version is safe.
        return ReadSession(url, lock_seconds=BACKFILL_LOCK_SECONDS)

    def _backfill(
        self, session: ReadSession, part: BackfillRange, counter: BackfillCounter | None
    ) -> WriteResult:
        """Write a range; repeat where a table was emptied meanwhile."""
        delivery = self.sink.throttled_delivery() if part.throttled else self.sink.delivery
        plan, index, version = self.work.plan, part.generation, part.version
        spec = plan.specs[index]
        tables = files_of(spec.tables(), plan.catalog)
        assembler = Assembler(session, spec, plan.catalog)

        def paced(operations: Iterator[DocumentOperation]) -> Iterator[DocumentOperation]:
            limited = within(limit_rate(operations, part.rows_per_second), _OLDEST_IN_BACKFILL)
            return limited if counter is None else counter.count(index, limited)

        while True:
            # To a snapshot of before, a table that is truncated now has no rows. So the files must be the
            # same ones before and after what was read is written.
            before = read_filenodes(session, tables)
            unreadable: list[Rejection] = []
            try:
                operations = self._after_flush(session, assembler.assemble_range(part.rows, version))
                result = delivery.write(paced(operations), version)
            except HeadraceError as error:
                if not is_refused_row(error):
                    raise
                refuse = self._refuse_into(index, unreadable)
                operations = assembler.assemble_range_by_keys(part.rows, version, refuse)
                result = delivery.write(paced(operations), version, unreadable)
            check_filenode(session, part.rows)
            if read_filenodes(session, tables) == before:
                return result

    def _after_flush(
        self, session: ReadSession, operations: Iterator[DocumentOperation]
    ) -> Iterator[DocumentOperation]:
        """Yield the operations of a statement once all that it reads is on the server's disk."""
        if session.in_transaction:  # the process that exported the snapshot has waited
            yield from operations
            return
        with self._open_session() as another:  # opened before the read: a crash of the server ends it
            # The first row comes when the statement's snapshot is taken: only what that saw must be on disk.
            first = next(operations, None)
            another.await_flush()
        if first is not None:
            yield first
            yield from operations

    def rewrite(self, index: str, keys: Sequence[Key], version: Lsn) -> WriteResult:
        """Assemble the documents of these keys again; `version` as for a backfill."""
        return self._rewrite([(index, key) for key in keys], version)

    def _rewrite(self, items: Sequence[tuple[str, Key]], version: Lsn) -> WriteResult:
        for attempt in retrying(ending=self._ending):
            with attempt, self._open_session() as session:
                # A session may be with a standby that is not so far: what it lacks would seem to be new.
                session.await_replay(version, self._ending)
        result = WriteResult()
        for first in range(0, len(items), KEYS_AT_ONCE):
            result += self._write_unchanged(group_keys(items[first : first + KEYS_AT_ONCE]), version)
        return result

    def rewrite_all(self, index: str, version: Lsn) -> WriteResult:
        """Assemble every document of an index again, or defer them in chunks; `version` as for `backfill`.

        The documents of a large index take longer than a scroll of its ids may stand still.
        """
        plan = self.work.plan

        def defer(index: str, chunks: Sequence[Sequence[Key]]) -> None:
            self._deferred.add(index, chunks, version)

        unit = plan.unit_of(index)
        for attempt in self._policy.attempts():
            # A table that is locked holds up this index, and none beside it.
            with attempt, failures_of(unit), locks_of(unit), self._open_session() as session:
                session.await_replay(version, self._ending)
                deferral = Deferral(TaskShare(), plan.large_change, 0, defer, self._chunk_keys)
                self._add_all(deferral, session, index)
                left = deferral.keys_to_write()
        result = WriteResult()
        for index_keys in left:
            result += self._write_unchanged(index_keys, version)
        return result

    def write_deferred(self, batches: Sequence[KeyBatch]) -> WriteResult:
        """Write the documents of deferred keys, all at the newest version of the batches.

        A read now includes everything before that position. Keys of a dropped generation are skipped.
        """
        batches = [batch for batch in batches if batch.generation in self.work.plan.specs]
        if not batches:
            return WriteResult()
        version = max(batch.version for batch in batches)
        # Once each, although several batches may have deferred it: the newest version covers all of them.
        keys = dict.fromkeys((batch.generation, key) for batch in batches for key in batch.keys)
        result = WriteResult()
        for generation, key in keys:
            if key == ALL_KEYS:
                result += self.rewrite_all(generation, version)
        return result + self._rewrite([item for item in keys if item[1] != ALL_KEYS], version)

    def write_stored(self, identities: Sequence[str], at_once: int = BATCHES_AT_ONCE) -> WriteResult:
        """Write the documents of stored key batches, and delete the batches.

        Args:
            identities: the ids of the batches; those that were deleted are skipped.
            at_once: how many batches are read, written and deleted together: a kill repeats so many.
        """
        result = WriteResult()
        for first in range(0, len(identities), at_once):
            for attempt in retrying():
                with attempt:
                    found = [self._deferred.get(id_) for id_ in identities[first : first + at_once]]
            batches = [batch for batch in found if batch is not None]
            result += self.write_deferred(batches)
            for attempt in retrying():
                with attempt:
                    # Only now: a kill before leaves the batches, and their documents are written again.
                    self._deferred.done(batches)
            reach("deferred")
        return result

    def _collect_keys(self, task: Task) -> Deferral:
        """Return the keys to assemble; those of a whole index come from the sink."""
        deferral = None
        # After each wait for a lock at once another: which documents change must be known before all else.
        while deferral is None:
            for attempt in self._policy.attempts():
                with attempt, self._times.resolving(), contextlib.suppress(LockedError):
                    deferral = self._resolve(task)
        return deferral

    def _resolve(self, task: Task) -> Deferral:
        plan = self.work.plan

        def defer(index: str, chunks: Sequence[Sequence[Key]]) -> None:
            self._policy.defer(index, chunks, task.version)

        with self._open_session() as session:
            session.await_replay(task.version)
            deferral = Deferral(task.share, plan.large_change, task.rows.num_rows, defer, self._chunk_keys)
            touched = Resolver(session, plan.resolution, plan.unit_of).resolve(task.rows)
            for index, keys in touched.keys:
                deferral.add(index, keys)
            for index in touched.everything:
                self._add_or_defer_all(deferral, session, index, task.version)
        return deferral

    def _add_or_defer_all(self, deferral: Deferral, session: ReadSession, index: str, version: Lsn) -> None:
        """Add the keys of every document of the index, or defer them all.

        A cluster beside the primary lists them later, in `rewrite_all`: all sinks wait for this batch.
        """
        plan = self.work.plan
        if plan.is_plain or not plan.key.sink:  # a plain sink's keys come from the primary
            try:
                self._add_all(deferral, session, index)
            except LockedError:
                raise  # the table is locked, not the index
            except HeadraceError as error:
                if error.kind is not Kind.LOCKED:
                    raise
            else:
                return
        self._policy.defer(index, [[ALL_KEYS]], version)

    def _add_all(self, deferral: Deferral, session: ReadSession, index: str) -> None:
        """Add the keys of every document that the index holds, or may have to hold now."""
        plan = self.work.plan
        lists = [self.sink.keys(index)]
        leaves_out = plan.specs[index].transform is not None or plan.index_of(index) in plan.skip_rejected
        if leaves_out or plan.is_plain:
            # Of rows whose documents were left out, or are not in the cluster, nothing tells but the table.
            lists.append(self._assembler(session, index).keys())
        for keys in lists:
            while page := list(islice(keys, KEYS_AT_ONCE)):
                deferral.add(index, page)

    def _write_unchanged(self, index_keys: IndexKeys, version: Lsn) -> WriteResult:
        """Write beside the stream, and repeat where a table was emptied meanwhile, as in `_backfill`.

        Rows that were deleted between reading and writing are deleted again. The cluster may have forgotten
        the stream's delete, after `gc_deletes` or because a node was restarted.
        """
        plan = self.work.plan
        tables = files_of(
            {table for index in index_keys for table in plan.specs[index].tables()}, plan.catalog
        )
        while True:
            before = self._files(tables)
            result = self._write(index_keys, version)
            if self._files(tables) == before:
                break
        return result if plan.is_plain else result + self._delete_gone(index_keys, version)

    def _delete_gone(self, index_keys: IndexKeys, version: Lsn) -> WriteResult:
        """Delete the documents of keys that no live row has; reads only keys."""
        for attempt in self._policy.attempts():
            with attempt, self._open_session() as session:
                gone = (
                    operation
                    for index, keys in index_keys.items()
                    for operation in self._absent(session, index, keys, version)
                )
                return self.sink.delivery.write(gone, version)
        raise AssertionError("tenacity re-raises the last error")

    def _absent(
        self, session: ReadSession, index: str, keys: Sequence[Key], version: Lsn
    ) -> Iterator[DocumentOperation]:
        unit = self.work.plan.unit_of(index)
        with failures_of(unit), locks_of(unit):
            yield from self._assembler(session, index).absent(keys, version)

    def _files(self, tables: Sequence[TableName]) -> tuple[int | None, ...]:
        for attempt in retrying(ending=self._ending):
            with attempt, self._open_session() as session:
                found = read_filenodes(session, tables)
        return found

    def _write(self, index_keys: IndexKeys, version: Lsn) -> WriteResult:
        """Assemble and write documents; defer those of a sink that is away, or of an index that fails."""
        if self._policy.is_away():
            return self._defer(index_keys, index_keys, version)
        resting = [index for index in index_keys if self._is_resting(index)]
        if resting:
            return self._defer(index_keys, resting, version)
        try:
            return self._write_now(index_keys, version)
        except HeadraceError as error:
            failing = self._find_failing(index_keys, error)
            self._resting |= dict.fromkeys(failing, time.monotonic() + _REST_SECONDS)
            if not failing:
                self._policy.note_failure(error)
                failing = [*index_keys]
            return self._defer(index_keys, failing, version)

    def _defer(self, index_keys: IndexKeys, deferred: Collection[str], version: Lsn) -> WriteResult:
        """Defer the documents of some indexes, and write those of the others."""
        for index in deferred:
            keys = index_keys[index]
            # Each by itself for a secondary sink: a long failure with hot rows does not grow.
            batches = [[key] for key in keys] if self.work.plan.key.sink else [keys]
            for attempt in self._policy.attempts():
                with attempt:
                    self._policy.defer(index, batches, version)
        others = {index: keys for index, keys in index_keys.items() if index not in deferred}
        return self._write(others, version) if others else WriteResult()

    def _find_failing(self, index_keys: IndexKeys, error: HeadraceError) -> list[str]:
        """Return the indexes that an error of the stream's own names: only their documents wait.

        They are deferred: what writes them beside the stream meets the error again and reports it. Until
        they are written the stream defers more of them untried, so that a lock delays the others once.
        """
        if not self._is_stream or error.retry is Retry.BACK_OFF:
            return []
        return [index for index in index_keys if self.work.plan.unit_of(index) in error.units]

    def _is_resting(self, index: str) -> bool:
        """Whether an index has failed in the stream, and documents of it are still deferred."""
        looked = self._resting.get(index)
        if looked is None or not self._is_stream:
            return False
        if time.monotonic() < looked:
            return True
        for attempt in retrying():
            with attempt:
                waiting = self._deferred.count([index])
        if not waiting:
            del self._resting[index]
            return False
        self._resting[index] = time.monotonic() + _REST_SECONDS
        return True

    def _write_now(self, index_keys: IndexKeys, version: Lsn) -> WriteResult:
        """Assemble and write; after a bulk request without an answer do both again (decision 0016).

        All indexes share the bulk requests: a small batch costs one. After each failure half as many
        documents are tried: where every second request fails, ten requests in a row hardly ever succeed.
        """
        result = WriteResult()
        left = [index_keys]
        while left:
            for attempt in self._policy.attempts():
                with attempt:
                    try:
                        written = self._write_once(left[-1], version)
                    except HeadraceError as error:
                        if error.kind in UNAVAILABLE:
                            left[-1:] = halves(left[-1])
                        raise
            left.pop()
            result += written
        reach("bulk")
        return result

    def _write_once(self, index_keys: IndexKeys, version: Lsn) -> WriteResult:
        unreadable: list[Rejection] = []
        with self._open_session() as session:
            operations = (
                operation
                for index, keys in index_keys.items()
                for operation in self._assemble(session, index, keys, version, unreadable)
            )
            with self._times.writing():
                reported = self._reporting(self._times.assembling(within(operations, _OLDEST_SECONDS)))
                return self.sink.delivery.write(reported, version, unreadable)

    def _assemble(
        self, session: ReadSession, index: str, keys: Sequence[Key], version: Lsn, unreadable: list[Rejection]
    ) -> Iterator[DocumentOperation]:
        """Yield the operations of one generation; an error names it."""
        unit = self.work.plan.unit_of(index)
        try:
            with failures_of(unit), locks_of(unit):
                yield from self._assembler(session, index).assemble(
                    keys, version, self._refuse_into(index, unreadable)
                )
        except HeadraceError as error:
            if error.retry is Retry.BACK_OFF or index in error.cause:
                raise
            what = f"the documents of {index} cannot be assembled"
            detail = f"{what}: {error.detail}" if error.detail else ""
            named = HeadraceError(error.kind, f"{what}: {error.cause}", error.remedy, detail)
            raise named.concerning(tables=error.tables, units=error.units) from error

    def _reporting(self, operations: Iterator[DocumentOperation]) -> Iterator[DocumentOperation]:
        """Yield the operations; report from time to time that they still come."""
        next_report = time.monotonic() + _REPORT_SECONDS
        for operation in operations:
            if time.monotonic() >= next_report:
                report_stage(self._reports, Stage.ASSEMBLE)
                next_report = time.monotonic() + _REPORT_SECONDS
            yield operation

    def _refuse_into(self, index: str, unreadable: list[Rejection]) -> Refuse | None:
        """Return what collects an index's unreadable documents; None where the index's policy is to stop."""

        def refuse(*rejection: str) -> None:
            unreadable.append(Rejection(*rejection))

        return None if self.work.plan.stops_at(index) else refuse

    @contextlib.contextmanager
    def _open_session(self) -> Iterator[ReadSession]:
        """Yield the worker's session; after an error the next use gets a new one."""
        if self._session is None or self._session.closed:
            self._session = ReadSession(self.work.endpoints.database, lock_seconds=_LOCK_SECONDS)
            self._session_name = ""
            # They are bound to the session that has ended.
            self._assemblers.clear()
        try:
            self._name(self._session)
            yield self._session
        except HeadraceError:
            # How far the statement came is not known, so the session is not used again.
            self._drop_session()
            raise

    def _name(self, session: ReadSession) -> None:
        """Show in the server whether the session works for the stream, or for a job beside it."""
        slot = self.work.plan.key.slot
        # The stall monitor knows by the name whether a statement that is under way is one of the stream.
        name = stream_name(slot) if self._is_stream else application_name(slot)
        if name != self._session_name:
            session.query("SELECT set_config('application_name', $1, false)", (name,))
            self._session_name = name

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _assembler(self, session: ReadSession, index: str) -> Assembler:
        if index not in self._assemblers:
            plan = self.work.plan
            self._assemblers[index] = Assembler(session, plan.specs[index], plan.catalog)
        return self._assemblers[index]
