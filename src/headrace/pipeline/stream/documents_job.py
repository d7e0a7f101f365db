"""Write many documents with a Spark job that has one task for each part.

A backfill consists of such jobs, with ranges of rows. They are jobs of an RDD: Spark plans a job of a Python
data source in two more Python processes, and its first one takes two seconds longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Protocol

from pyspark import SparkContext

from headrace.logs import configure_worker_logging
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.worker import BackfillRange, Worker
from headrace.pipeline.worker.workers import worker_of
from headrace.sinks.activity import BackfillCounter
from headrace.spark.failures import short_traceback, spark_failures
from headrace.spark.jobs import interruptibly
from headrace.spark.session import BESIDE, POOL


class JobPart(Protocol):
    """The part of a job that one task writes; pickled."""

    def write(self, worker: Worker) -> Iterator[tuple[str, int]]:
        """Write documents; yield generations and how many documents of them are durable, bit by bit."""


@dataclass(frozen=True, slots=True)
class BackfillRanges:
    """Ranges that one task reads one after the other.

    Attributes:
        ranges: the ranges.
        job: the id of the job, under which the task reports its progress.
        task: its number in the job.
    """

    ranges: tuple[BackfillRange, ...]
    job: str = ""
    task: int = 0

    def write(self, worker: Worker) -> Iterator[tuple[str, int]]:
        """Write the documents of each range, and report meanwhile how far it is."""
        counter = BackfillCounter(worker.work.plan.writer.report, self.job, self.task)
        for part in self.ranges:
            result = worker.backfill(part, counter)
            counter.finish(part.generation, result.upserted)
            yield part.generation, result.upserted


def run_documents_job(
    context: SparkContext,
    work: Work,
    parts: Sequence[JobPart],
    group: str,
    *,
    watch: Callable[[], None] = lambda: None,
) -> dict[str, int]:
    """Write the documents of all parts; return the number of documents by generation.

    Args:
        context: runs the job.
        work: the plan and the endpoints.
        parts: one for each task.
        group: the job group, by which the job can be cancelled.
        watch: called once a second while the job runs.

    Raises:
        HeadraceError: the error that failed a task, or WORKER_LOST, SPARK.
    """
    if not parts:
        return {}

    def collect(_ending: Event) -> list[tuple[str, int]]:
        context.setJobGroup(group, "documents", interruptOnCancel=True)
        context.setLocalProperty(POOL, BESIDE)
        tasks = context.parallelize(parts, len(parts))
        return tasks.mapPartitions(partial(_write, work.to_options())).collect()

    counts: Counter[str] = Counter()
    with spark_failures():
        for generation, upserts in interruptibly(context, group, collect, watch=watch):
            counts[generation] += upserts
    return dict(counts)


def _write(options: Mapping[str, str], parts: Iterator[JobPart]) -> Iterator[tuple[str, int]]:
    """Write the parts of one task, in its process."""
    configure_worker_logging()
    with short_traceback():
        for part in parts:
            yield from part.write(worker_of(options))
