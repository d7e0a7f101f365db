"""Do the work of one task: resolve changes, assemble documents and write them, in the executor's process.

A worker process opens its connections once and keeps them for later tasks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tenacity import Retrying

from headrace.assembly import Assembler, Refuse
from headrace.errors import HeadraceError, Kind, retrying
from headrace.model import CtidRange, DocumentOperation, Key, Lsn, TableName, key_of_id
from headrace.model.failpoints import reach
from headrace.pipeline.worker.deferral import KEYS_AT_ONCE, Deferral, Portion, halves
from headrace.pipeline.worker.delivery import Delivery
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.rate_limit import limit_rate
from headrace.pipeline.worker.task import Task
from headrace.postgres.server_errors import is_refused_row
from headrace.postgres.session import ReadSession
from headrace.resolution import Resolver
from headrace.sinks.base import DocumentWriter, Rejection, WriteResult
from headrace.sinks.opensearch import Client, DeferredKeys
from headrace.sinks.opensearch.documents import ids, refresh
from headrace.sinks.opensearch.routed import open_writer
from headrace.sinks.opensearch.writer import WriterOptions
from headrace.snapshot import are_rewritten, check_filenode, files_of, read_filenodes

CHUNKS_AT_ONCE = 10
"""Deferred chunks that a task reads, writes and removes together, at most."""

_SINK_AWAY = {Kind.SINK_BUSY, Kind.SINK_UNREACHABLE}


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """The result of one task.

    Attributes:
        position: the applied position once every task of the batch is done (bytes).
        changes: the number of changes of the batch; 0 where another task counts them.
        result: the documents that were written.
        deferred: the number of documents that were deferred.
    """

    position: Lsn
    changes: int
    result: WriteResult = field(default_factory=WriteResult)
    deferred: int = 0


class Worker:
    """Turns changes into durable documents; one in each worker process, used by one task at a time."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._session: ReadSession | None = None
        self._assemblers: dict[str, Assembler] = {}
        self._client = Client(work.connections.sink, first=os.getpid())
        state = work.connections.state
        self._state = self._client if state is None else Client(state, first=os.getpid())
        self._writer = self._open_writer(work.plan.writer)
        self._delivery = self._delivery_to(self._writer)
        self._throttled: tuple[DocumentWriter, Delivery] | None = None
        self._deferred = DeferredKeys(self._client, work.plan.slot, work.plan.prefix)

    def close(self) -> None:
        """Close all connections."""
        self._drop_session()
        self._writer.close()
        if self._throttled is not None:
            self._throttled[0].close()
        self._client.close()
        if self._state is not self._client:
            self._state.close()

    @property
    def secondary(self) -> dict[str, Work]:
        """The work of the secondary sinks, which other workers do."""
        return self._work.secondary

    def apply(self, task: Task) -> WrittenBatch:
        """Bring every document that the task's changes touch up to date, or defer it.

        Raises:
            HeadraceError: an error that is not retryable.
        """
        if not task.rows.num_rows:
            self._warm_up()
            return WrittenBatch(task.position, 0)
        result, deferral = WriteResult(), self._collect_keys(task)
        for portion in deferral.portions(self._work.plan.served):
            result += self._write(portion, task.version)
        counted = task.rows.num_rows if task.share.number == 0 else 0
        return WrittenBatch(task.position, counted, result, deferral.deferred)

    def _warm_up(self) -> None:
        """Open, while there are no changes, the connections that the next change needs."""
        if self._session is None:
            for attempt in retrying():
                with attempt, self._open_session() as session:
                    for index in self._work.plan.specs:
                        self._assembler(session, index)

    def backfill(
        self,
        index: str,
        part: CtidRange,
        version: Lsn,
        snapshot: str | None,
        rows_per_second: float | None = None,
        *,
        throttled: bool = False,
    ) -> WriteResult:
        """Write the documents of a range of root rows.

        Args:
            index: the generation.
            version: a position that was applied before (decision 0015).
            snapshot: an exported one whose documents they are; None, or one that has gone, reads what is
                there, which is no older.
            rows_per_second: no faster than that.
            throttled: leave the stream room in the sink.

        Raises:
            HeadraceError: CONTINUITY, where the root table was rewritten or dropped meanwhile.
        """
        delivery = self._throttled_delivery() if throttled else self._delivery
        tables = files_of(self._work.plan.specs[index].tables(), self._work.plan.catalog)
        rewritten = False
        for attempt in self._attempts():
            with (
                attempt,
                self._session_at(snapshot) as session,
            ):
                session.await_replay(version)
                result = self._backfill(session, delivery, index, part, version, rate=rows_per_second)
                rewritten = session.in_transaction and are_rewritten(session, tables)
        if rewritten:  # the snapshot sees such a table as empty, and the log does not report it
            return self.backfill(index, part, version, None, rows_per_second, throttled=throttled)
        reach("range")
        return result

    def _session_at(self, snapshot: str | None) -> ReadSession:
        url = self._work.connections.database
        try:
            return ReadSession(url, snapshot=snapshot)
        except HeadraceError as error:
            if snapshot is None or error.kind is not Kind.DATABASE:
                raise
        return ReadSession(url)

    def _backfill(
        self,
        session: ReadSession,
        delivery: Delivery,
        index: str,
        part: CtidRange,
        version: Lsn,
        *,
        rate: float | None,
    ) -> WriteResult:
        """Write a range; repeat where a table was emptied meanwhile."""
        plan = self._work.plan
        spec = plan.specs[index]
        tables = files_of(spec.tables(), plan.catalog)
        assembler = Assembler(session, spec, plan.catalog)
        while True:
            before = read_filenodes(session, tables)
            try:
                operations = self._after_flush(session, assembler.assemble_range(part, version))
                result = delivery.write(limit_rate(operations, rate), version)
            except HeadraceError as error:
                if not is_refused_row(error):
                    raise
                unreadable: list[Rejection] = []
                operations = assembler.assemble_range_by_keys(
                    part, version, self._refuse_into(index, unreadable)
                )
                result = delivery.write(limit_rate(operations, rate), version, unreadable)
            check_filenode(session, part)
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
            first = next(operations, None)
            another.await_flush()
        if first is not None:
            yield first
            yield from operations

    def rebuild(self, index: str, keys: Sequence[Key], version: Lsn) -> WriteResult:
        """Assemble the documents of these keys again; `version` as for `backfill`."""
        for attempt in retrying():
            with attempt, self._open_session() as session:
                session.await_replay(version)
        result = WriteResult()
        for first in range(0, len(keys), KEYS_AT_ONCE):
            result += self._write_unchanged({index: keys[first : first + KEYS_AT_ONCE]}, version)
        return result

    def renew(self, index: str, version: Lsn) -> WriteResult:
        """Assemble every document of an index again; `version` as for `backfill`."""
        for attempt in self._attempts():
            with attempt:
                with self._open_session() as session:
                    session.await_replay(version)
                result, keys = WriteResult(), self._indexed_keys(index)
                while page := list(islice(keys, KEYS_AT_ONCE)):
                    result += self._write_unchanged({index: page}, version)
        return result

    def write_deferred(self, identities: Sequence[str], at_once: int = CHUNKS_AT_ONCE) -> WriteResult:
        """Write the documents of deferred chunks; skip chunks that are done or whose generation was dropped.

        Args:
            identities: the ids of the chunks.
            at_once: how many chunks are read, written and removed together: a kill repeats so many.
        """
        result = WriteResult()
        for first in range(0, len(identities), at_once):
            result += self._write_chunks(identities[first : first + at_once])
            reach("deferred")
        return result

    def _write_chunks(self, identities: Sequence[str]) -> WriteResult:
        for attempt in retrying():
            with attempt:
                loaded = [self._deferred.chunk(id_) for id_ in identities]
        chunks = [id_ for id_ in loaded if id_ is not None]
        written = {target: name for name, target in self._work.plan.targets.items()}
        keys_by_version: dict[Lsn, dict[str, dict[Key, None]]] = {}
        for chunk in chunks:
            if chunk.target in written:
                keys = keys_by_version.setdefault(chunk.version, {}).setdefault(written[chunk.target], {})
                keys.update(dict.fromkeys(chunk.keys))
        result = WriteResult()
        for version, by_index in keys_by_version.items():
            for attempt in retrying():
                with attempt, self._open_session() as session:
                    session.await_replay(version)
            result += self._write_unchanged({index: list(keys) for index, keys in by_index.items()}, version)
        for attempt in retrying():
            with attempt:
                self._deferred.done(chunks)
        return result

    def _collect_keys(self, task: Task) -> Deferral:
        """Return the keys to assemble; those of a whole index come from the sink."""
        plan = self._work.plan

        def defer(index: str, chunks: Sequence[Sequence[Key]]) -> None:
            self._defer(index, chunks, task.version)

        for attempt in retrying():
            with attempt, self._open_session() as session:
                session.await_replay(task.version)
                deferral = Deferral(task.share, plan.large_change, task.rows.num_rows, defer)
                touched = Resolver(session, plan.resolution).resolve(task.rows)
                for index, keys in touched.keys:
                    deferral.add(index, keys)
                for index in touched.everything:
                    self._add_all_keys(deferral, index, task.version)
        return deferral

    def _add_all_keys(self, deferral: Deferral, index: str, version: Lsn) -> None:  # noqa: ARG002 - of a secondary sink
        """Add the keys of every document of the index."""
        keys = self._indexed_keys(index)
        while page := list(islice(keys, KEYS_AT_ONCE)):
            deferral.add(index, page)

    def _defer(self, index: str, chunks: Sequence[Sequence[Key]], version: Lsn) -> None:
        """Save keys durably, to be written later."""
        self._deferred.defer(index, self._work.plan.targets[index], version, chunks)

    def _open_writer(self, options: WriterOptions) -> DocumentWriter:
        """Open a writer to the sink."""
        plan = self._work.plan
        return open_writer(self._client, plan.targets, options, plan.routed)

    def _delivery_to(self, writer: DocumentWriter) -> Delivery:
        return Delivery(self._client, writer, self._work.plan, state=self._state)

    def _throttled_delivery(self) -> Delivery:
        """Return a delivery that leaves the stream room in the sink; opened at first use."""
        if self._throttled is None:
            writer = self._open_writer(self._work.plan.writer.gentle())
            self._throttled = writer, self._delivery_to(writer)
        return self._throttled[1]

    def _attempts(self) -> Retrying:
        """Return the retry policy."""
        return retrying()

    def _indexed_keys(self, index: str) -> Iterator[Key]:
        """Yield the keys of every document of the index: a delete-by-query would fence nothing.

        Ids that no row can have are skipped: another program wrote them.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, while iterating: begin again.
        """
        target, width = self._work.plan.targets[index], len(self._work.plan.specs[index].primary_key)
        refresh(self._client, target)
        keys = (key_of_id(id_, width) for id_ in ids(self._client, target))
        return (key for key in keys if len(key) == width)

    def _write_unchanged(self, portion: Portion, version: Lsn) -> WriteResult:
        """Write beside the stream, and repeat where a table was emptied meanwhile, as in `_backfill`.

        Rows that were deleted between reading and writing are deleted again. The cluster may have forgotten
        the stream's delete, after `gc_deletes` or because a node was restarted.
        """
        plan = self._work.plan
        tables = files_of({table for index in portion for table in plan.specs[index].tables()}, plan.catalog)
        while True:
            before = self._files(tables)
            result = self._write(portion, version)
            if self._files(tables) == before:
                break
        return result if plan.is_plain else result + self._delete_gone(portion, version)

    def _delete_gone(self, portion: Portion, version: Lsn) -> WriteResult:
        """Delete the documents of keys that no live row has; reads only keys."""
        for attempt in self._attempts():
            with attempt, self._open_session() as session:
                gone = (
                    operation
                    for index, keys in portion.items()
                    for operation in self._assembler(session, index).absent(keys, version)
                )
                return self._delivery.write(gone, version)
        raise AssertionError("tenacity re-raises the last error")

    def _files(self, tables: Sequence[TableName]) -> tuple[int | None, ...]:
        for attempt in retrying():
            with attempt, self._open_session() as session:
                found = read_filenodes(session, tables)
        return found

    def _write(self, portion: Portion, version: Lsn) -> WriteResult:
        """Assemble and write; after a bulk request without an answer do both again (decision 0016).

        All indexes share the bulk requests: a small batch costs one. After each failure half as many
        documents are tried: where every second request fails, ten requests in a row hardly ever succeed.
        """
        result = WriteResult()
        left = [portion]
        while left:
            for attempt in self._attempts():
                with attempt:
                    try:
                        written = self._write_once(left[-1], version)
                    except HeadraceError as error:
                        if error.kind in _SINK_AWAY:
                            left[-1:] = halves(left[-1])
                        raise
            left.pop()
            result += written
        reach("bulk")
        return result

    def _write_once(self, portion: Portion, version: Lsn) -> WriteResult:
        unreadable: list[Rejection] = []
        with self._open_session() as session:
            operations = (
                operation
                for index, keys in portion.items()
                for operation in self._assembler(session, index).assemble(
                    keys, version, self._refuse_into(index, unreadable)
                )
            )
            return self._delivery.write(operations, version, unreadable)

    def _refuse_into(self, index: str, unreadable: list[Rejection]) -> Refuse | None:
        """Return what collects an index's unreadable documents; None where the index's policy is to stop."""

        def refuse(*rejection: str) -> None:
            unreadable.append(Rejection(*rejection))

        return None if self._work.plan.stops_at(index) else refuse

    @contextlib.contextmanager
    def _open_session(self) -> Iterator[ReadSession]:
        """Yield the worker's session; after an error the next use gets a new one."""
        if self._session is None or self._session.closed:
            self._session = ReadSession(self._work.connections.database)
            self._assemblers.clear()
        try:
            yield self._session
        except HeadraceError:
            self._drop_session()
            raise

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _assembler(self, session: ReadSession, index: str) -> Assembler:
        if index not in self._assemblers:
            plan = self._work.plan
            self._assemblers[index] = Assembler(session, plan.specs[index], plan.catalog)
        return self._assemblers[index]
