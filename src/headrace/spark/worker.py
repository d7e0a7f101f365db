"""What does one task do? Resolution, assembly and writing, in the executor's process.

Connections are opened once in a worker process and kept for its later tasks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.assembly import Assembler
from headrace.errors import HeadraceError, Kind, patiently
from headrace.model import CtidRange, Key, Lsn, Op, key_of_id
from headrace.model.failpoints import reach
from headrace.postgres.session import ReadSession
from headrace.resolution import Resolver
from headrace.sinks.contract import WriteResult
from headrace.sinks.opensearch import Client, OpenSearchWriter
from headrace.sinks.opensearch.contents import ids, refresh
from headrace.snapshot import check_filenode
from headrace.spark.plan import Work

_KEYS_AT_ONCE = 1000

Portion = Mapping[str, Sequence[Key]]
"""Keys by index, as many as one write takes."""


class Worker:
    """Turns changes into durable documents; one in each worker process, used by one task at a time."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._session: ReadSession | None = None
        self._assemblers: dict[str, Assembler] = {}
        self._client = Client(work.connections.sink)
        self._writer = OpenSearchWriter(self._client, work.plan.targets, work.plan.writer)

    def close(self) -> None:
        """Close every connection."""
        self._drop_session()
        self._writer.close()
        self._client.close()

    def apply(self, changes: pa.Table) -> tuple[Lsn, WriteResult]:
        """Bring every document that `changes` touch up to date.

        Args:
            changes: in `CHANGES_SCHEMA`, with the batch's progress row.

        Returns:
            The position that is applied once all tasks of the batch have done this, and what was written.

        Raises:
            HeadraceError: what no patience cures.
        """
        is_progress = pc.equal(changes.column("op"), Op.PROGRESS.value)
        [progress] = changes.filter(is_progress).select(["_commit_lsn", "_commit_seq"]).to_pylist()[-1:]
        position, version = progress["_commit_lsn"], progress["_commit_seq"]
        rows = changes.filter(pc.invert(is_progress))
        result = WriteResult()
        if rows.num_rows:
            for portion in self._touched(rows, version):
                result += self._write(portion, version)
        else:
            self._warm_up()
        return position, result

    def _warm_up(self) -> None:
        """In a quiet moment, open what the next change would have to wait for."""
        if self._session is None:
            for attempt in patiently():
                with attempt, self._reading() as session:
                    for index in self._work.plan.specs:
                        self._assembler(session, index)

    def seed(self, index: str, part: CtidRange, version: Lsn, snapshot: str | None) -> WriteResult:
        """Write the documents of a range of root rows, as the exported `snapshot` sees them."""
        plan = self._work.plan
        for attempt in patiently():
            with (
                attempt,
                ReadSession(self._work.connections.database, snapshot=snapshot) as session,
            ):
                assembler = Assembler(session, plan.specs[index], plan.catalog)
                result = self._writer.write(assembler.assemble_range(part, version))
                check_filenode(session, part)
        reach("range")
        return self._accepted(result)

    def renew(self, index: str, version: Lsn) -> WriteResult:
        """Assemble every document that the index holds anew; `version` as for `seed`."""
        for attempt in patiently():
            with attempt, self._reading() as session:
                session.await_replay(version)
        wanted = [(index, key) for key in self._keys_in(index)]
        result = WriteResult()
        for at in range(0, len(wanted), _KEYS_AT_ONCE):
            result += self._write(_portion(wanted[at : at + _KEYS_AT_ONCE]), version)
        return result

    def _touched(self, rows: pa.Table, version: Lsn) -> list[Portion]:
        """The keys to assemble, in portions of one write each; a whole index is enumerated from the sink."""
        for attempt in patiently():
            with attempt, self._reading() as session:
                session.await_replay(version)
                touched = Resolver(session, self._work.plan.resolution).resolve(rows)
        wanted: list[tuple[str, Key]] = []
        for index, what in touched.items():
            keys: Iterable[Key] = what.keys
            if what.everything:
                keys = {*what.keys, *self._keys_in(index)}
            wanted += [(index, key) for key in keys]
        return [_portion(wanted[at : at + _KEYS_AT_ONCE]) for at in range(0, len(wanted), _KEYS_AT_ONCE)]

    def _keys_in(self, index: str) -> Iterator[Key]:
        """The keys of every document that the index holds: a delete-by-query would fence nothing."""
        target, width = self._work.plan.targets[index], len(self._work.plan.specs[index].primary_key)
        for attempt in patiently():
            with attempt:
                refresh(self._client, target)
                found = list(ids(self._client, target))
        return (key_of_id(one, width) for one in found)

    def _write(self, portion: Portion, version: Lsn) -> WriteResult:
        """Assemble and write; after a bulk without an answer both are done anew (decision 12).

        All indexes go into the same bulk requests: a small batch costs one.
        """
        for attempt in patiently():
            with attempt, self._reading() as session:
                operations = (
                    operation
                    for index, keys in portion.items()
                    for operation in self._assembler(session, index).assemble(keys, version)
                )
                result = self._writer.write(operations)
        reach("bulk")
        return self._accepted(result)

    def _accepted(self, result: WriteResult) -> WriteResult:
        refused = [one for one in result.rejected if one.index not in self._work.plan.skip_rejected]
        if refused:
            first = refused[0]
            raise HeadraceError(
                Kind.SINK_REJECTED,
                f"{len(refused)} documents are refused, the first is {first.id!r} of index {first.index}: "
                f"{first.reason}",
                'Correct the row or the schema, or set on_error = "skip" for this index.',
            )
        return result

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


def _portion(wanted: Sequence[tuple[str, Key]]) -> Portion:
    portion: dict[str, list[Key]] = {}
    for index, key in wanted:
        portion.setdefault(index, []).append(key)
    return portion
