"""How are whole indexes filled? A Spark batch job: one task for each range of root rows.

The job reads from a source of its own, `headrace_seed`, whose partitions are the ranges; reading one writes
its documents and yields what was written.
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
from headrace.spark.failures import headrace_error
from headrace.spark.plan import Work
from headrace.spark.worker import Worker

_POLL_SECONDS = 0.2
_RANGES_OPTION = "ranges"
_RESULT = pa.schema([("index", pa.string()), ("upserts", pa.int64()), ("bytes", pa.int64())])


@dataclass
class SeedRange(InputPartition):
    """A range of one index's root rows, and as of when it is read.

    Attributes:
        version: of every document, a position that the snapshot includes (decision 11).
        snapshot: an exported snapshot; None reads what is there.
    """

    index: str
    rows: CtidRange
    version: Lsn
    snapshot: str | None


class SeedSource(DataSource):
    """`spark.read.format("headrace_seed")`; its options are made by `seed`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "headrace_seed"

    def schema(self) -> str:
        """One row for each range."""
        return "`index` string, upserts bigint, bytes bigint"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """The reader, with options only."""
        return SeedReader(dict(self.options))


class SeedReader(DataSourceReader):
    """Plans one task for each range; pickled to the workers."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges."""
        packed = base64.b64decode(self._options[_RANGES_OPTION])
        return list(pickle.loads(packed))  # noqa: S301 - our own driver wrote it

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the documents of one range."""
        if not isinstance(partition, SeedRange):
            raise HeadraceError(Kind.INTERNAL, f"not a range to seed: {partition!r}")
        worker = Worker(Work.from_options(self._options))
        try:
            result = worker.seed(partition.index, partition.rows, partition.version, partition.snapshot)
        finally:
            worker.close()
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
    if not ranges:
        return {}
    packed = base64.b64encode(pickle.dumps(list(ranges))).decode("ascii")
    options = {**work.to_options(), _RANGES_OPTION: packed}
    group = f"headrace-seed-{uuid.uuid4().hex}"
    counts: Counter[str] = Counter()
    with _Progress(spark, group, on_progress):
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
        spark.dataSource.register(SeedSource)
        context.setJobGroup(group, "seed", interruptOnCancel=True)
        return spark.read.format(SeedSource.name()).options(**options).load().collect()

    with ThreadPoolExecutor(1, "headrace seed") as thread:
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
