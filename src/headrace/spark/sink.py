"""How does a streaming query end in documents? The sink `headrace_documents`.

`write` runs on executors and returns only when its documents are durable. `commit` runs once for each batch,
after all of its tasks, and writes the applied position; the source confirms it to the slot later, when Spark
has noted the batch as done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.errors import patiently
from headrace.model import CHANGES_SCHEMA, Lsn
from headrace.model.failpoints import reach
from headrace.sinks.contract import WriteResult
from headrace.sinks.opensearch import Client, Counters, MetaIndex
from headrace.spark.plan import Work
from headrace.spark.worker import Worker


class DocumentsSink(DataSource):
    """`writeStream.format("headrace_documents")`; its options are made by `Work.to_options`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "headrace_documents"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        """The writer of one query."""
        return DocumentsWriter(dict(self.options))


@dataclass
class Applied(WriterCommitMessage):
    """What one task did."""

    position: Lsn
    changes: int
    result: WriteResult


class DocumentsWriter(DataSourceStreamArrowWriter):
    """Pickled to the workers; holds only options."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Apply the changes of one partition."""
        changes = pa.Table.from_batches(list(iterator), schema=CHANGES_SCHEMA)
        position, result = _worker(self._options).apply(changes)
        return Applied(position, changes.num_rows - 1, result)

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
        )
        for attempt in patiently():
            with attempt:
                _meta(self._options).advance(max(message.position for message in done), counters)
        if counters.changes:
            reach("applied")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to undo: what was written is right, and will be written again."""


_Options = tuple[tuple[str, str], ...]

_WORKERS: dict[_Options, Worker] = {}
_METAS: dict[_Options, MetaIndex] = {}


def _worker(options: dict[str, str]) -> Worker:
    """This process's worker for the query; another query's worker is closed."""
    key = tuple(sorted(options.items()))
    if key not in _WORKERS:
        for old in _WORKERS.values():
            old.close()
        _WORKERS.clear()
        _WORKERS[key] = Worker(Work.from_options(options))
    return _WORKERS[key]


def _meta(options: dict[str, str]) -> MetaIndex:
    """The pipeline's state, read once in this process; a foreign writer in between is an error."""
    key = tuple(sorted(options.items()))
    if key not in _METAS:
        work = Work.from_options(options)
        meta = MetaIndex(Client(work.connections.sink), work.plan.slot, work.plan.prefix)
        meta.load()
        _METAS.clear()
        _METAS[key] = meta
    return _METAS[key]
