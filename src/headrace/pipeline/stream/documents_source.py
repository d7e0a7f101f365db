"""Turn live changes into documents in the tasks that read them: the internal source `headrace_documents`.

A partition holds changes. Reading it returns when the documents that they touch are durable, and yields one
row of counts. So a batch is done when its tasks are, and no data goes from one Python process to another
(decision 0026). A new plan with other generations comes to the source in a file (decision 0073).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from headrace.capture import Offset
from headrace.datasources.cdc_options import CdcOptions
from headrace.datasources.options import read_options
from headrace.datasources.postgres_cdc import CdcReader
from headrace.model import CHANGES_SCHEMA
from headrace.pipeline.stream.plan_reload import PlanReload, PlanReloadReader
from headrace.pipeline.worker.plan import PLAN_OPTION, SECRET_OPTION
from headrace.pipeline.worker.workers import applier_of
from headrace.spark.failures import short_traceback

PLAN_FILE_OPTION = "plan_file"
"""The option that names the file for a new plan, see `PlanReload`."""

COUNTS = ("changes", "upserts", "deletes", "rejected")
"""The columns of a task's row; their sums are the counts of a batch."""

_RESULT = pa.schema([(name, pa.int64()) for name in COUNTS])


class LiveDocuments(DataSource):
    """The source `headrace_documents`, with the options of `postgres_cdc` and of `Work`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "headrace_documents"

    def schema(self) -> str:
        """Return the schema: one row for each task."""
        return ", ".join(f"{name} bigint" for name in COUNTS)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the reader; nothing is opened yet."""
        own = {name: self.options[name] for name in (PLAN_OPTION, SECRET_OPTION, PLAN_FILE_OPTION)}
        following = {name: text for name, text in self.options.items() if name not in own}
        reload = PlanReload(Path(own.pop(PLAN_FILE_OPTION)))
        return LiveReader(read_options(CdcOptions, following, self.name()), own, reload)


class PlannedPartition(InputPartition):
    """Changes, and the plan that was current when their batch was planned."""

    def __init__(self, changes: InputPartition, plan: str) -> None:
        self.changes = changes
        self.plan = plan


class LiveReader(CdcReader):
    """Plans batches as `postgres_cdc` does; its tasks write documents."""

    def __init__(self, options: CdcOptions, work: Mapping[str, str], reload: PlanReload) -> None:
        super().__init__(options)
        self._work = work
        self._reload = PlanReloadReader(reload)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; a new plan is taken first, as the batch up to `start` is done."""
        with short_traceback():
            self._reload.look(Offset.from_json(start).lsn)
        return super().latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the partitions as `CdcReader` does, with the plan where it is not the query's first."""
        changes = super().partitions(start, end)
        plan = self._reload.plan
        return changes if plan is None else [PlannedPartition(partition, plan) for partition in changes]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Apply the changes of one partition; a repeated task writes the same documents or newer ones."""
        work = self._work
        rows = partition
        if isinstance(partition, PlannedPartition):
            rows, work = partition.changes, {**work, PLAN_OPTION: partition.plan}
        changes = pa.Table.from_batches(list(super().read(rows)), CHANGES_SCHEMA)
        with short_traceback():
            done = applier_of(work).apply(changes)
        result = done.result
        counts = (done.changes, result.upserted, result.deleted, len(result.rejected))
        yield pa.RecordBatch.from_arrays([pa.array([count]) for count in counts], schema=_RESULT)
