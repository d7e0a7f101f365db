"""Where do live changes become documents? In the tasks that read them: the source `headrace_documents`.

A partition holds changes; reading it returns when the documents that they touch are durable, and gives one
row that says how many there were. So a batch is done when its tasks are, and nothing goes from one Python
process to another (docs/decisions/0026-documents-in-reading-tasks.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headrace.model import CHANGES_SCHEMA
from headrace.spark.cdc_options import CdcOptions
from headrace.spark.options import read_options
from headrace.spark.plan import PLAN_OPTION, SECRET_OPTION
from headrace.spark.source import CdcReader
from headrace.spark.workers import applier_of

COUNTS = ("changes", "upserts", "deletes", "rejected")
"""What a task's row says; sums are what a batch did."""

_RESULT = pa.schema([(name, pa.int64()) for name in COUNTS])


class LiveDocuments(DataSource):
    """`readStream.format("headrace_documents")`: options of `postgres_cdc` and of `Work`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "headrace_documents"

    def schema(self) -> str:
        """One row for each task."""
        return ", ".join(f"{name} bigint" for name in COUNTS)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """The reader; nothing is opened yet."""
        work = {name: self.options[name] for name in (PLAN_OPTION, SECRET_OPTION)}
        following = {name: text for name, text in self.options.items() if name not in work}
        return LiveReader(read_options(CdcOptions, following, self.name()), work)


class LiveReader(CdcReader):
    """Plans batches as `postgres_cdc` does; its tasks write documents."""

    def __init__(self, options: CdcOptions, work: Mapping[str, str]) -> None:
        super().__init__(options)
        self._work = work

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Apply the changes of one partition; a repeated task writes the same documents or newer ones."""
        changes = pa.Table.from_batches(list(super().read(partition)), CHANGES_SCHEMA)
        done = applier_of(self._work).apply(changes)
        result = done.result
        counts = (done.changes, result.upserted, result.deleted, len(result.rejected))
        yield pa.RecordBatch.from_arrays([pa.array([one]) for one in counts], schema=_RESULT)
