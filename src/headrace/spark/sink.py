"""How does a streaming query end in documents? The sink `headrace_documents`.

`write` runs on executors and returns only when its documents are durable. `commit` runs once for each batch,
after all of its tasks, and writes the applied position; the source confirms it to the slot later, when Spark
has noted the batch as done.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.capture.held import HeldPosition
from headrace.errors import patiently
from headrace.model import CHANGES_SCHEMA
from headrace.model.failpoints import reach
from headrace.sinks.opensearch import Client, Counters, MetaIndex, Parked
from headrace.spark.plan import HELD_OPTION, Work
from headrace.spark.worker import Applied, worker_of


class DocumentsSink(DataSource):
    """`writeStream.format("headrace_documents")`; its options are made by `Work.to_options`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "headrace_documents"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        """The writer of one query."""
        return DocumentsWriter(dict(self.options))


class DocumentsWriter(DataSourceStreamArrowWriter):
    """Pickled to the workers; holds only options."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Apply the changes of one partition."""
        changes = pa.Table.from_batches(list(iterator), schema=CHANGES_SCHEMA)
        return worker_of(self._options).apply(changes)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Everything of the batch is durable: note the position that it reached."""
        done = [message for message in messages if isinstance(message, Applied)]
        if not done:
            return
        counters = Counters(
            changes=sum(message.changes for message in done),
            upserts=sum(message.result.upserted for message in done),
            deletes=sum(message.result.deleted for message in done),
            batches=1,
            rejected=sum(len(message.result.rejected) for message in done),
        )
        state = _states(self._options)
        for attempt in patiently():
            with attempt:
                state.note(done, counters)
        if counters.changes:
            reach("applied")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to undo: what was written is right, and will be written again."""


class _State:
    """The pipeline's state, read once in this process; a foreign writer in between is an error.

    Where documents are parked the position stays, and the source is told by a file to confirm no more.
    """

    def __init__(self, options: dict[str, str]) -> None:
        work = Work.from_options(options)
        client, plan = Client(work.connections.sink), work.plan
        self._meta = MetaIndex(client, plan.slot, plan.prefix)
        self._parked = Parked(client, plan.slot, plan.prefix)
        self._held = HeldPosition(Path(options[HELD_OPTION]))
        found = self._meta.load()
        self._parking = found is not None and found.ahead is not None

    def note(self, done: list[Applied], counters: Counters) -> None:
        """Everything of a batch is durable or parked.

        Raises:
            HeadraceError: CONTINUITY; SINK_UNREACHABLE and SINK_BUSY, after which it may be done again.
        """
        parks = any(message.parked for message in done)
        if parks:
            self._parking = True
        elif self._parking:
            self._parking = self._parked.count() > 0
        reached = max(message.position for message in done)
        state = self._meta.advance(reached, counters, parked=self._parking)
        self._held.set(state.applied if self._parking else None)


_STATES: dict[tuple[tuple[str, str], ...], _State] = {}


def _states(options: dict[str, str]) -> _State:
    key = tuple(sorted(options.items()))
    if key not in _STATES:
        state = _State(options)
        _STATES.clear()
        _STATES[key] = state
    return _STATES[key]
