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

from headrace.model import CHANGES_SCHEMA, Lsn
from headrace.model.failpoints import reach
from headrace.sinks.contract import WriteResult
from headrace.sinks.opensearch import Client, MetaIndex
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
        work = Work.from_options(self._options)
        client = Client(work.connections.sink)
        try:
            MetaIndex(client, work.plan.meta).advance(
                max(message.position for message in done),
                changes=sum(message.changes for message in done),
                upserts=sum(message.result.upserted for message in done),
                deletes=sum(message.result.deleted for message in done),
            )
        finally:
            client.close()
        reach("applied")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to undo: what was written is right, and will be written again."""


_WORKERS: dict[tuple[tuple[str, str], ...], Worker] = {}


def _worker(options: dict[str, str]) -> Worker:
    """This process's worker for the query; another query's worker is closed."""
    key = tuple(sorted(options.items()))
    if key not in _WORKERS:
        for old in _WORKERS.values():
            old.close()
        _WORKERS.clear()
        _WORKERS[key] = Worker(Work.from_options(options))
    return _WORKERS[key]
