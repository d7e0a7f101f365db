"""Write many documents with a Spark batch job that has one task for each partition.

The job reads from an internal source, `headrace_documents_job`, Reading one of its partitions
writes documents and yields the counts. A backfill consists of such jobs, with ranges of rows.
"""

from __future__ import annotations

import base64
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event

import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.errors import HeadraceError, Kind
from headrace.logs import configure_worker_logging
from headrace.model.lsn import Lsn
from headrace.model.names import CtidRange
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.worker import Worker
from headrace.pipeline.worker.workers import worker_of
from headrace.sinks.base import WriteResult
from headrace.spark.failures import short_traceback, spark_failures
from headrace.spark.jobs import interruptibly
from headrace.spark.session import BESIDE, POOL

_PARTITIONS_OPTION = "partitions"
_RESULT = pa.schema([("index", pa.string()), ("upserts", pa.int64()), ("bytes", pa.int64())])


class JobPartition(InputPartition):
    """The part of a job that one task writes: documents of `index`."""

    index: str

    def run(self, worker: Worker) -> WriteResult:
        """Write the documents; they are durable on return."""
        raise NotImplementedError

    def results(self, worker: Worker) -> Iterator[tuple[str, WriteResult]]:
        """Write the documents; yield an index and what was written of it, one part after the other."""
        yield self.index, self.run(worker)


@dataclass
class BackfillRange(JobPartition):
    """A range of one generation's root rows to be backfilled.

    Attributes:
        index: the name of the generation.
        rows: the range of rows.
        version: the version of every document, a position that the snapshot includes (decision 0015).
        snapshot: the name of an exported snapshot; None: the current rows are read.
        rows_per_second: the rate limit of this task.
        throttled: whether the stream beside it has readers.
    """

    index: str
    rows: CtidRange
    version: Lsn
    snapshot: str | None
    rows_per_second: float | None = None
    throttled: bool = False

    def run(self, worker: Worker) -> WriteResult:
        """Write the documents of the range."""
        return worker.backfill(
            self.index, self.rows, self.version, self.snapshot, self.rows_per_second, throttled=self.throttled
        )


@dataclass
class BackfillRanges(JobPartition):
    """Ranges that one task reads one after the other."""

    index: str
    ranges: tuple[BackfillRange, ...]

    def results(self, worker: Worker) -> Iterator[tuple[str, WriteResult]]:
        """Write the documents of each range."""
        for backfill_range in self.ranges:
            yield backfill_range.index, backfill_range.run(worker)


class DocumentsJobSource(DataSource):
    """The source `headrace_documents_job`; `run_documents_job` sets its options."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "headrace_documents_job"

    def schema(self) -> str:
        """Return the schema: a row for each part of a partition."""
        return "`index` string, upserts bigint, bytes bigint"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader."""
        return DocumentsJobReader(dict(self.options))


class DocumentsJobReader(DataSourceReader):
    """Plans one task for each partition; pickled to the executors."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions."""
        packed = base64.b64decode(self._options[_PARTITIONS_OPTION])
        return list(pickle.loads(packed))  # noqa: S301 - our own driver wrote it

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the documents of one partition."""
        if not isinstance(partition, JobPartition):
            raise HeadraceError(Kind.INTERNAL, f"not a partition of a documents job: {partition!r}")
        configure_worker_logging()
        with short_traceback():
            for index, result in partition.results(worker_of(self._options)):
                row = {"index": index, "upserts": result.upserted, "bytes": result.bytes}
                yield pa.RecordBatch.from_pylist([row], schema=_RESULT)


def run_documents_job(
    spark: SparkSession, work: Work, partitions: Sequence[JobPartition], group: str
) -> dict[str, int]:
    """Write the documents of all partitions; return the number of documents by index.

    Args:
        spark: runs the job.
        work: the plan and the endpoints.
        partitions: one for each task.
        group: the job group, by which the job can be cancelled.

    Raises:
        HeadraceError: the error that failed a task, or WORKER_LOST, SPARK.
    """
    if not partitions:
        return {}
    packed = base64.b64encode(pickle.dumps(list(partitions))).decode("ascii")
    options = {**work.to_options(), _PARTITIONS_OPTION: packed}
    counts: Counter[str] = Counter()
    with spark_failures():
        for row in _written(spark, options, group):
            counts[row["index"]] += row["upserts"]
    return dict(counts)


def _written(spark: SparkSession, options: Mapping[str, str], group: str) -> list[Row]:
    """Run the job and return its rows; an interrupt cancels the job."""
    context = spark.sparkContext

    def collect(_ending: Event) -> list[Row]:
        spark.dataSource.register(DocumentsJobSource)
        context.setJobGroup(group, "documents", interruptOnCancel=True)
        context.setLocalProperty(POOL, BESIDE)
        return spark.read.format(DocumentsJobSource.name()).options(**options).load().collect()

    return interruptibly(context, group, collect)
