"""How are whole indexes filled? A Spark batch job: one task for each range of root rows."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.model import CtidRange, Lsn
from headrace.spark.failures import headrace_error
from headrace.spark.plan import Work
from headrace.spark.worker import Worker

_POLL_SECONDS = 0.2

_RESULT = pa.schema([("index", pa.string()), ("upserts", pa.int64()), ("bytes", pa.int64())])


@dataclass(frozen=True, slots=True)
class SeedRange:
    """A range of one index's root rows."""

    index: str
    rows: CtidRange


def seed(
    spark: SparkSession,
    work: Work,
    ranges: Sequence[SeedRange],
    *,
    version: Lsn,
    snapshot: str | None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> dict[str, int]:
    """Write the documents of all `ranges`; returns how many by index.

    Args:
        version: every document's version, a position that the snapshot includes (decision 11).
        snapshot: the exported snapshot that every task reads; None reads what is there.
        on_progress: called with the number of finished ranges, now and then, from another thread.

    Raises:
        HeadraceError: what stopped a task, or SPARK.
    """
    if not ranges:
        return {}

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = Worker(work)
        try:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    part = ranges[number]
                    result = worker.seed(part.index, part.rows, version, snapshot)
                    yield pa.RecordBatch.from_pylist(
                        [{"index": part.index, "upserts": result.upserted, "bytes": result.bytes}],
                        schema=_RESULT,
                    )
        finally:
            worker.close()

    job = spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(
        write, "`index` string, upserts bigint, bytes bigint"
    )
    with _progress(spark, on_progress):
        try:
            rows = job.collect()
        except PySparkException as error:
            raise headrace_error(error) from error
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["index"]] = counts.get(row["index"], 0) + row["upserts"]
    return counts


class _progress:  # noqa: N801 - a context manager
    """Watches the job that runs inside and reports its finished tasks."""

    def __init__(self, spark: SparkSession, on_progress: Callable[[int], None]) -> None:
        self._context = spark.sparkContext
        self._group = f"headrace-seed-{uuid.uuid4().hex}"
        self._on_progress = on_progress
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headrace progress", daemon=True)

    def __enter__(self) -> None:
        self._context.setJobGroup(self._group, "seed", interruptOnCancel=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

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
