"""What does one task do? Resolution, assembly and writing, in the executor's process.

Connections are opened once in a worker process and kept for its later tasks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa
from tenacity import Retrying

from headrace.assembly import Assembler, Refuse
from headrace.datasources.partitioning import Task
from headrace.errors import HeadraceError, Kind, patiently
from headrace.model import CtidRange, DocumentOperation, Key, Lsn, TableName, key_of_id
from headrace.model.failpoints import reach
from headrace.pipeline.worker.deferral import KEYS_AT_ONCE, Deferral, Portion, halves
from headrace.pipeline.worker.delivery import Delivery
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.rate_limit import paced
from headrace.postgres.session import ReadSession, is_refused_row
from headrace.resolution import Resolver
from headrace.sinks.base import DocumentWriter, Rejection, WriteResult
from headrace.sinks.opensearch import Client, DeferredKeys
from headrace.sinks.opensearch.documents import ids, refresh
from headrace.sinks.opensearch.routed import open_writer
from headrace.sinks.opensearch.writer import WriterOptions
from headrace.snapshot import are_rewritten, check_filenode, files_of, read_filenodes

CHUNKS_AT_ONCE = 10
"""Deferred chunks that a task reads, writes and takes away together, at most."""

_SINK_AWAY = {Kind.SINK_BUSY, Kind.SINK_UNREACHABLE}


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """What one task did.

    Attributes:
        position: what is applied once every task of the batch is done (bytes).
        changes: of the batch; 0 where another task counts them.
        deferred: documents that are still to be written.
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
        self._writer = self._opened(work.plan.writer)
        self._delivery = self._delivering(self._writer)
        self._gentle: tuple[DocumentWriter, Delivery] | None = None
        self._deferred = DeferredKeys(self._client, work.plan.slot, work.plan.prefix)

    def close(self) -> None:
        """Close every connection."""
        self._drop_session()
        self._writer.close()
        if self._gentle is not None:
            self._gentle[0].close()
        self._client.close()
        if self._state is not self._client:
            self._state.close()

    @property
    def secondary(self) -> dict[str, Work]:
        """The work of the secondary sinks, which is not this worker's."""
        return self._work.secondary

    def apply(self, changes: pa.Table) -> WrittenBatch:
        """Bring every document that `changes` touch up to date, or defer it.

        Args:
            changes: in `CHANGES_SCHEMA`, with the batch's progress row.

        Raises:
            HeadraceError: what no patience cures.
        """
        return self.do(Task.of(changes))

    def do(self, task: Task) -> WrittenBatch:
        """As `apply`."""
        if not task.rows.num_rows:
            self._warm_up()
            return WrittenBatch(task.position, 0)
        result, wanted = WriteResult(), self._wanted(task)
        for one in wanted.portions(self._work.plan.served):
            result += self._write(one, task.version)
        counted = task.rows.num_rows if task.share.number == 0 else 0
        return WrittenBatch(task.position, counted, result, wanted.deferred)

    def _warm_up(self) -> None:
        """In a quiet moment, open what the next change would have to wait for."""
        if self._session is None:
            for attempt in patiently():
                with attempt, self._reading() as session:
                    for index in self._work.plan.specs:
                        self._assembler(session, index)

    def seed(
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
        delivery = self._throttled() if throttled else self._delivery
        tables = files_of(self._work.plan.specs[index].tables(), self._work.plan.catalog)
        rewritten = False
        for attempt in self._attempts():
            with (
                attempt,
                self._reading_at(snapshot) as session,
            ):
                session.await_replay(version)
                result = self._seed(session, delivery, index, part, version, pace=rows_per_second)
                rewritten = session.in_transaction and are_rewritten(session, tables)
        if rewritten:  # the snapshot sees such a table without rows, and the log says nothing of it
            return self.seed(index, part, version, None, rows_per_second, throttled=throttled)
        reach("range")
        return result

    def _reading_at(self, snapshot: str | None) -> ReadSession:
        url = self._work.connections.database
        try:
            return ReadSession(url, snapshot=snapshot)
        except HeadraceError as error:
            if snapshot is None or error.kind is not Kind.DATABASE:
                raise
        return ReadSession(url)

    def _seed(
        self,
        session: ReadSession,
        delivery: Delivery,
        index: str,
        part: CtidRange,
        version: Lsn,
        *,
        pace: float | None,
    ) -> WriteResult:
        """Again where a table was emptied meanwhile: the stream has renewed only what it found written."""
        plan = self._work.plan
        spec = plan.specs[index]
        tables = files_of(spec.tables(), plan.catalog)
        assembler = Assembler(session, spec, plan.catalog)
        while True:
            before = read_filenodes(session, tables)
            try:
                operations = self._once_flushed(session, assembler.assemble_range(part, version))
                result = delivery.write(paced(operations, pace), version)
            except HeadraceError as error:
                if not is_refused_row(error):
                    raise
                unreadable: list[Rejection] = []
                operations = assembler.assemble_apart(part, version, self._refusing(index, unreadable))
                result = delivery.write(paced(operations, pace), version, unreadable)
            check_filenode(session, part)
            if read_filenodes(session, tables) == before:
                return result

    def _once_flushed(
        self, session: ReadSession, operations: Iterator[DocumentOperation]
    ) -> Iterator[DocumentOperation]:
        """The operations of one statement, from when all that it sees is on the server's disk."""
        if session.in_transaction:  # whoever has exported the snapshot has waited
            yield from operations
            return
        with self._reading() as another:  # open before anything is read: a crash ends it, too
            first = next(operations, None)
            another.await_flush()
        if first is not None:
            yield first
            yield from operations

    def mend(self, index: str, keys: Sequence[Key], version: Lsn) -> WriteResult:
        """Assemble the documents of these keys anew; `version` as for `seed`."""
        for attempt in patiently():
            with attempt, self._reading() as session:
                session.await_replay(version)
        result = WriteResult()
        for first in range(0, len(keys), KEYS_AT_ONCE):
            result += self._write_beside({index: keys[first : first + KEYS_AT_ONCE]}, version)
        return result

    def renew(self, index: str, version: Lsn) -> WriteResult:
        """Assemble every document that the index holds anew; `version` as for `seed`."""
        for attempt in self._attempts():
            with attempt:
                with self._reading() as session:
                    session.await_replay(version)
                result, keys = WriteResult(), self._keys_in(index)
                while some := list(islice(keys, KEYS_AT_ONCE)):
                    result += self._write_beside({index: some}, version)
        return result

    def work_off(self, identities: Sequence[str], at_once: int = CHUNKS_AT_ONCE) -> WriteResult:
        """Write the documents of deferred chunks; not of one that is done, or whose generation has gone.

        Args:
            at_once: how many are read, written and taken away together: so many are repeated after a kill.
        """
        result = WriteResult()
        for first in range(0, len(identities), at_once):
            result += self._work_off(identities[first : first + at_once])
            reach("deferred")
        return result

    def _work_off(self, identities: Sequence[str]) -> WriteResult:
        for attempt in patiently():
            with attempt:
                found = [self._deferred.chunk(one) for one in identities]
        chunks = [one for one in found if one is not None]
        written = {target: name for name, target in self._work.plan.targets.items()}
        wanted: dict[Lsn, dict[str, dict[Key, None]]] = {}
        for chunk in chunks:
            if chunk.target in written:
                keys = wanted.setdefault(chunk.version, {}).setdefault(written[chunk.target], {})
                keys.update(dict.fromkeys(chunk.keys))
        result = WriteResult()
        for version, by_index in wanted.items():
            for attempt in patiently():
                with attempt, self._reading() as session:
                    session.await_replay(version)
            result += self._write_beside({index: list(keys) for index, keys in by_index.items()}, version)
        for attempt in patiently():
            with attempt:
                self._deferred.done(chunks)
        return result

    def _wanted(self, task: Task) -> Deferral:
        """The keys to assemble; a whole index is enumerated from the sink."""
        plan = self._work.plan

        def defer(index: str, chunks: Sequence[Sequence[Key]]) -> None:
            self._defer(index, chunks, task.version)

        for attempt in patiently():
            with attempt, self._reading() as session:
                session.await_replay(task.version)
                wanted = Deferral(task.share, plan.large_change, task.rows.num_rows, defer)
                touched = Resolver(session, plan.resolution).resolve(task.rows)
                for index, keys in touched.keys:
                    wanted.add(index, keys)
                for index in touched.everything:
                    self._want_all(wanted, index, task.version)
        return wanted

    def _want_all(self, wanted: Deferral, index: str, version: Lsn) -> None:  # noqa: ARG002 - of a secondary sink
        """Take all keys of what the index holds."""
        every = self._keys_in(index)
        while some := list(islice(every, KEYS_AT_ONCE)):
            wanted.add(index, some)

    def _defer(self, index: str, chunks: Sequence[Sequence[Key]], version: Lsn) -> None:
        """Keep keys for later, durably."""
        self._deferred.defer(index, self._work.plan.targets[index], version, chunks)

    def _opened(self, options: WriterOptions) -> DocumentWriter:
        """A writer to the sink."""
        plan = self._work.plan
        return open_writer(self._client, plan.targets, options, plan.routed)

    def _delivering(self, writer: DocumentWriter) -> Delivery:
        return Delivery(self._client, writer, self._work.plan, state=self._state)

    def _throttled(self) -> Delivery:
        """What leaves others room in the sink; opened when it is first used."""
        if self._gentle is None:
            writer = self._opened(self._work.plan.writer.gentle())
            self._gentle = writer, self._delivering(writer)
        return self._gentle[1]

    def _attempts(self) -> Retrying:
        """How often what may pass is tried."""
        return patiently()

    def _keys_in(self, index: str) -> Iterator[Key]:
        """The keys of every document that the index holds, as they come: a delete-by-query fences nothing.

        An id that no row can have is somebody else's.

        Raises from iterating:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY: begin again.
        """
        target, width = self._work.plan.targets[index], len(self._work.plan.specs[index].primary_key)
        refresh(self._client, target)
        found = (key_of_id(one, width) for one in ids(self._client, target))
        return (key for key in found if len(key) == width)

    def _write_beside(self, portion: Portion, version: Lsn) -> WriteResult:
        """Beside the stream: again where a table was emptied meanwhile, as in `_seed`.

        What was deleted between reading and writing is deleted again: the cluster may have forgotten that the
        stream has, after `gc_deletes` or because a node was started anew.
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
        """Delete the documents of keys that no live row has; asks for the keys alone."""
        for attempt in self._attempts():
            with attempt, self._reading() as session:
                gone = (
                    operation
                    for index, keys in portion.items()
                    for operation in self._assembler(session, index).absent(keys, version)
                )
                return self._delivery.write(gone, version)
        raise AssertionError("tenacity re-raises the last error")

    def _files(self, tables: Sequence[TableName]) -> tuple[int | None, ...]:
        for attempt in patiently():
            with attempt, self._reading() as session:
                found = read_filenodes(session, tables)
        return found

    def _write(self, portion: Portion, version: Lsn) -> WriteResult:
        """Assemble and write; after a bulk without an answer both are done anew (decision 0016).

        All indexes go into the same bulk requests: a small batch costs one. After each failure half as
        many documents are tried: where every other request fails, most of ten would never pass together.
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
        with self._reading() as session:
            operations = (
                operation
                for index, keys in portion.items()
                for operation in self._assembler(session, index).assemble(
                    keys, version, self._refusing(index, unreadable)
                )
            )
            return self._delivery.write(operations, version, unreadable)

    def _refusing(self, index: str, unreadable: list[Rejection]) -> Refuse | None:
        """Takes the documents of an index that cannot be read; None where the run stops at one."""

        def refuse(*told: str) -> None:
            unreadable.append(Rejection(*told))

        return None if self._work.plan.stops_at(index) else refuse

    @contextlib.contextmanager
    def _reading(self) -> Iterator[ReadSession]:
        """The worker's session; whatever goes wrong with it, the next use gets a fresh one."""
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
