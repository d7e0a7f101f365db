"""Where do live changes become documents? In the tasks that read them: the source `headrace_documents`.

A partition holds changes; reading it returns when the documents that they touch are durable, and gives one
row that says how many there were. So a batch is done when its tasks are, and nothing goes from one Python
process to another (docs/decisions/0026). Other generations than those it began
with come to it by a file (docs/decisions/0073).
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
from headrace.spark.failures import told_alone

SWITCH_OPTION = "plan_file"
"""Where a plan may be left that is to be written from now on, see `PlanReload`."""

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
        own = {name: self.options[name] for name in (PLAN_OPTION, SECRET_OPTION, SWITCH_OPTION)}
        following = {name: text for name, text in self.options.items() if name not in own}
        switch = PlanReload(Path(own.pop(SWITCH_OPTION)))
        return LiveReader(read_options(CdcOptions, following, self.name()), own, switch)


class PlannedPartition(InputPartition):
    """Changes, and the plan of what they are to be written to; as it was when the batch was planned."""

    def __init__(self, changes: InputPartition, plan: str) -> None:
        self.changes = changes
        self.plan = plan


class LiveReader(CdcReader):
    """Plans batches as `postgres_cdc` does; its tasks write documents."""

    def __init__(self, options: CdcOptions, work: Mapping[str, str], switch: PlanReload) -> None:
        super().__init__(options)
        self._work = work
        self._taking = PlanReloadReader(switch)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """As `CdcReader`; the batch up to `start` is done, and the next one may be planned anew."""
        with told_alone():
            self._taking.look(Offset.from_json(start).lsn)
        return super().latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """As `CdcReader`, with the plan where it is another than the query began with."""
        found = super().partitions(start, end)
        plan = self._taking.plan
        return found if plan is None else [PlannedPartition(one, plan) for one in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Apply the changes of one partition; a repeated task writes the same documents or newer ones."""
        work = self._work
        rows = partition
        if isinstance(partition, PlannedPartition):
            rows, work = partition.changes, {**work, PLAN_OPTION: partition.plan}
        changes = pa.Table.from_batches(list(super().read(rows)), CHANGES_SCHEMA)
        with told_alone():
            done = applier_of(work).apply(changes)
        result = done.result
        counts = (done.changes, result.upserted, result.deleted, len(result.rejected))
        yield pa.RecordBatch.from_arrays([pa.array([one]) for one in counts], schema=_RESULT)
