"""How are many documents written at once? A Spark batch job: one task for each piece of the work.

The job reads from a source of its own, `headrace_documents_job`, whose partitions are the pieces; reading
one writes its documents and yields what was written. Seeding is one such job: a piece for each range of rows.
"""

from __future__ import annotations

import base64
import pickle
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.errors import HeadraceError, Kind
from headrace.model import CtidRange, Lsn
from headrace.sinks.contract import WriteResult
from headrace.spark.failures import headrace_error
from headrace.spark.plan import Work
from headrace.spark.worker import Worker, worker_of

_POLL_SECONDS = 0.2
_PIECES_OPTION = "pieces"
_RESULT = pa.schema([("index", pa.string()), ("upserts", pa.int64()), ("bytes", pa.int64())])


class Piece(InputPartition):
    """What one task writes: documents of `index`."""

    index: str

    def run(self, worker: Worker) -> WriteResult:
        """Write them; durable when it returns."""
        raise NotImplementedError


@dataclass
class SeedRange(Piece):
    """A range of one index's root rows, and as of when it is read.

    Attributes:
        version: of every document, a position that the snapshot includes (decision 11).
        snapshot: an exported snapshot; None reads what is there.
    """

    index: str
    rows: CtidRange
    version: Lsn
    snapshot: str | None

    def run(self, worker: Worker) -> WriteResult:
        """Write the documents of the range."""
        return worker.seed(self.index, self.rows, self.version, self.snapshot)


class PiecesSource(DataSource):
    """`spark.read.format("headrace_documents_job")`; its options are made by `run_pieces`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "headrace_documents_job"

    def schema(self) -> str:
        """One row for each piece."""
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
        result = partition.run(worker_of(self._options))
        row = {"index": partition.index, "upserts": result.upserted, "bytes": result.bytes}
        yield pa.RecordBatch.from_pylist([row], schema=_RESULT)


def seed(
    spark: SparkSession,
    work: Work,
    ranges: Sequence[SeedRange],
    on_progress: Callable[[int], None] = lambda _: None,
) -> dict[str, int]:
    """Write the documents of all `ranges`; returns how many by index.

    Args:
        on_progress: called with the number of finished ranges, now and then, from another thread.

    Raises:
        HeadraceError: what stopped a task, or SPARK.
    """
    group = f"headrace-seed-{uuid.uuid4().hex}"
    with _Progress(spark, group, on_progress):
        return run_pieces(spark, work, ranges, group)


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
    """What the job of these options has written; whoever is interrupted meanwhile ends it.

    In a thread of its own, because each thread has one line to the JVM: the one that is interrupted has to
    cancel and to stop over its own, on which no half-read answer may lie.
    """
    context = spark.sparkContext

    def collect() -> list[Row]:
        spark.dataSource.register(PiecesSource)
        context.setJobGroup(group, "documents", interruptOnCancel=True)
        return spark.read.format(PiecesSource.name()).options(**options).load().collect()

    with ThreadPoolExecutor(1, "headrace job") as thread:
        rows = thread.submit(collect)
        try:
            return rows.result()
        except BaseException:
            while not rows.done():  # again and again: the job may not have begun yet
                context.cancelJobGroup(group)
                wait([rows], _POLL_SECONDS)
            raise


class _Progress:
    """Watches the job that runs inside and reports its finished tasks."""

    def __init__(self, spark: SparkSession, group: str, on_progress: Callable[[int], None]) -> None:
        self._context = spark.sparkContext
        self._group = group
        self._on_progress = on_progress
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headrace progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        tracker = self._context.statusTracker()
        while not self._done.wait(_POLL_SECONDS):
            finished = 0
            for job in tracker.getJobIdsForGroup(self._group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info is not None else ():
                    progress = tracker.getStageInfo(stage)
                    finished += progress.numCompletedTasks if progress is not None else 0
            self._on_progress(finished)
