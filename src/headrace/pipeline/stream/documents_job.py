"""How are many documents written at once? A Spark batch job: one task for each piece of the work.

The job reads from a source of its own, `headrace_documents_job`, whose partitions are the pieces; reading
one writes its documents and yields what was written. Seeding is such jobs: a piece holds some ranges of rows.
"""

from __future__ import annotations

import base64
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.errors import HeadraceError, Kind
from headrace.model import CtidRange, Lsn
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.worker import Worker
from headrace.pipeline.worker.workers import worker_of
from headrace.sinks.base import WriteResult
from headrace.spark.failures import headrace_error, told_alone
from headrace.spark.jobs import interruptibly
from headrace.spark.session import BESIDE, POOL

_PIECES_OPTION = "pieces"
_RESULT = pa.schema([("index", pa.string()), ("upserts", pa.int64()), ("bytes", pa.int64())])


class Piece(InputPartition):
    """What one task writes: documents of `index`."""

    index: str

    def run(self, worker: Worker) -> WriteResult:
        """Write them; durable when it returns."""
        raise NotImplementedError

    def results(self, worker: Worker) -> Iterator[tuple[str, WriteResult]]:
        """Write them; what was written of which index, one after the other."""
        yield self.index, self.run(worker)


@dataclass
class BackfillRange(Piece):
    """A range of one generation's root rows, and as of when it is read.

    Attributes:
        version: of every document, a position that the snapshot includes (decision 0015).
        snapshot: an exported snapshot; None reads what is there.
        rows_per_second: of this task.
        throttled: beside a stream that has readers.
    """

    index: str
    rows: CtidRange
    version: Lsn
    snapshot: str | None
    rows_per_second: float | None = None
    throttled: bool = False

    def run(self, worker: Worker) -> WriteResult:
        """Write the documents of the range."""
        return worker.seed(
            self.index, self.rows, self.version, self.snapshot, self.rows_per_second, throttled=self.throttled
        )


@dataclass
class BackfillRanges(Piece):
    """Some ranges, one after the other: as many of these as ranges are to be read at once."""

    index: str
    ranges: tuple[BackfillRange, ...]

    def results(self, worker: Worker) -> Iterator[tuple[str, WriteResult]]:
        """Write the documents of each."""
        for one in self.ranges:
            yield one.index, one.run(worker)


class PiecesSource(DataSource):
    """`spark.read.format("headrace_documents_job")`; its options are made by `run_pieces`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "headrace_documents_job"

    def schema(self) -> str:
        """A row for each part of a piece."""
        return "`index` string, upserts bigint, bytes bigint"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """The reader, with options only."""
        return PiecesReader(dict(self.options))


class PiecesReader(DataSourceReader):
    """Plans one task for each piece; pickled to the workers."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The pieces."""
        packed = base64.b64decode(self._options[_PIECES_OPTION])
        return list(pickle.loads(packed))  # noqa: S301 - our own driver wrote it

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the documents of one piece."""
        if not isinstance(partition, Piece):
            raise HeadraceError(Kind.INTERNAL, f"not a piece of work: {partition!r}")
        with told_alone():
            for index, result in partition.results(worker_of(self._options)):
                row = {"index": index, "upserts": result.upserted, "bytes": result.bytes}
                yield pa.RecordBatch.from_pylist([row], schema=_RESULT)


def run_pieces(spark: SparkSession, work: Work, pieces: Sequence[Piece], group: str) -> dict[str, int]:
    """Write the documents of all `pieces`; returns how many by index.

    Args:
        group: of the job, for whoever cancels it.

    Raises:
        HeadraceError: what stopped a task, or SPARK.
    """
    if not pieces:
        return {}
    packed = base64.b64encode(pickle.dumps(list(pieces))).decode("ascii")
    options = {**work.to_options(), _PIECES_OPTION: packed}
    counts: Counter[str] = Counter()
    try:
        for row in _written(spark, options, group):
            counts[row["index"]] += row["upserts"]
    except PySparkException as error:
        raise headrace_error(error) from error
    return dict(counts)


def _written(spark: SparkSession, options: Mapping[str, str], group: str) -> list[Row]:
    """What the job of these options has written; whoever is interrupted meanwhile ends it."""
    context = spark.sparkContext

    def collect(_ending: Event) -> list[Row]:
        spark.dataSource.register(PiecesSource)
        context.setJobGroup(group, "documents", interruptOnCancel=True)
        context.setLocalProperty(POOL, BESIDE)
        return spark.read.format(PiecesSource.name()).options(**options).load().collect()

    return interruptibly(context, group, collect)
