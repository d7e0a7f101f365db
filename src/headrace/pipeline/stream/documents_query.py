"""Run the Structured Streaming query that turns live changes into documents, from the slot to the sink.

Its tasks write the documents. A thread beside it saves the applied position and counts the changes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from headrace.capture.columns import covers
from headrace.capture.offset import Offset
from headrace.capture.signals import OfferedPlan, SignalFiles
from headrace.catalog.needs import Needs
from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.pipeline.stream.documents_reader import Following, SourceSettings
from headrace.pipeline.stream.documents_source import (
    COUNTS,
    EARLY,
    SETTINGS_OPTION,
    STAGES,
    TABLES,
    TOTAL,
    TRACE,
    DocumentsSource,
)
from headrace.pipeline.stream.progress import ProgressTracker
from headrace.pipeline.stream.traced_batches import servers_of, traced_batch
from headrace.pipeline.worker.plan import PLAN_OPTION, Work, pack
from headrace.spark.failures import headrace_error, spark_failures
from headrace.spark.jobs import RECENT_SECONDS
from headrace.spark.query_folders import make_folder
from headrace.spark.session import POOL, STREAM, master_of, task_slots
from headrace.spark.settings import is_local
from headrace.state import Counters, StateStore
from headrace.status.stages import NO_STAGES, Histogram, Stages
from headrace.status.traces import Period, Traces

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_PROGRESS_SECONDS, _PROGRESS_POLL = 0.5, 0.005
_DONE = "done"
# The parts of a batch in which its changes are taken from the reader's buffer.
_PLANNING = ("getBatch", "queryPlanning")
_TIMED = {"resolve": "resolve_micros", "assemble": "assemble_micros", "write": "write_micros"}
_LONGEST = "longest_"


def start_query(rows: DataFrame, name: str, checkpoint: Path, pause: str = "0 seconds") -> StreamingQuery:
    """Start a query that only counts: the rows of `DocumentsSource`, summed up for each batch."""
    sums = (f.sum(column).alias(column) for column in (*COUNTS, *STAGES, EARLY))
    longest = (f.max(column).alias(f"{_LONGEST}{column}") for column in (*_TIMED.values(), TOTAL))
    texts = f.max(TABLES).alias(TABLES), f.max_by(TRACE, TOTAL).alias(TRACE)
    return (
        rows.observe(_DONE, *sums, *longest, *texts)
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint.as_uri())
        .queryName(name)
        .trigger(processingTime=pause)
        .start()
    )


class DocumentsQuery:
    """The running query; the slot is its only cursor, its checkpoint is scratch (decision 0008).

    Attributes:
        signals: between this process and the source; the file that pauses it is there before it starts.
        stages: what the stages have done since the query began; a thread replaces it after each batch.

    Raises:
        HeadraceError: WORKER_LOST, SPARK: the query does not start.
    """

    def __init__(
        self,
        spark: SparkSession,
        work: Work,
        following: Following,
        scratch: Path,
        *,
        store: StateStore,
        paused: bool = False,
        traces: Traces | None = None,
    ) -> None:
        spark.dataSource.register(DocumentsSource)
        self._is_local = is_local(master_of(spark))
        folder = make_folder(scratch)
        self.signals = SignalFiles(folder)
        options = work.to_options()
        self._plan, self._plan_number = options[PLAN_OPTION], 0
        # Before the source starts: it must not confirm what no state names.
        self.signals.set_confirm_limit(following.applied)
        self.signals.set_paused(paused=paused)
        self._settings = settings = SourceSettings(
            following,
            work.projection,
            max_tasks=max(1, min(spark.sparkContext.defaultParallelism, task_slots(spark))),
            signals=self.signals,
            traced=traces is not None,
            early=self._is_local and not work.written,
        )
        checkpoint = folder / "checkpoint"
        self._counted = -1
        self.stages = NO_STAGES
        self._traces = traces
        if traces is not None:
            self._servers = servers_of(work)
        self._untraced: list[Any] = []
        spark.sparkContext.setLocalProperty(POOL, STREAM)  # the query's thread takes it over
        with spark_failures():
            counts_of_batches = (
                spark.readStream.format(DocumentsSource.name())
                .options(**options)
                .option(SETTINGS_OPTION, pack(settings))
                .load()
            )
            self._query = start_query(counts_of_batches, "headrace", checkpoint)
        self._tracker = ProgressTracker(store, self.signals, counted=self._counts, saved=self._trace)
        self._tracker.open()

    def offer(self, work: Work, needs: Needs) -> None:
        """Offer a plan for the batches from now on; the query takes it when its batch is done.

        Args:
            work: the new plan, with the same endpoints.
            needs: what the plan needs of the log; where that is more or less than before, the log is read
                again from the end of the current batch.
        """
        plan = work.to_options()[PLAN_OPTION]
        settings = dataclasses.replace(self._settings, early=self._is_local and not work.written)
        if needs != settings.following.needs or not covers(settings.projection, work.projection):
            following = dataclasses.replace(settings.following, needs=needs)
            settings = dataclasses.replace(settings, following=following, projection=work.projection)
        if (plan, settings) == (self._plan, self._settings):
            return
        # A plan that was not taken yet is replaced, with what it has changed of the settings.
        is_other = settings != self._settings or self.taken_from() is None
        changed = pack(settings) if is_other else ""
        # The number tells the source a plan that was offered again from the one that it has.
        self._plan_number += 1
        self.signals.offer_plan(self._plan_number, OfferedPlan(plan, changed))
        self._plan, self._settings = plan, settings

    def taken_from(self) -> Lsn | None:
        """Return the position (bytes) from which the plan that was offered last holds; None until it does.

        The batches before it are done, and no task uses a former plan any more.
        """
        if not self._plan_number:
            return 0  # the query has had this plan from the beginning
        accepted = self.signals.accepted_plan()
        return accepted[1] if accepted is not None and accepted[0] == self._plan_number else None

    def _counts(self, end: Offset) -> tuple[int, Counters]:
        """Return the number of the batch up to `end`, and the counts of those that were not counted yet."""
        # Spark reports a batch a moment after it is done; what is missed now counts with the next.
        deadline = time.monotonic() + _PROGRESS_SECONDS
        while (
            (reports := self._recent_progress())
            and Offset.from_json(_end_of(reports[-1])).order < end.order
            and time.monotonic() < deadline
        ):
            time.sleep(_PROGRESS_POLL)
        new = [report for report in reports if int(report["batchId"]) > self._counted]
        self._counted = max([self._counted, *(int(report["batchId"]) for report in new)])
        for report in new:
            self.stages = _with_batch(self.stages, report)
        if self._traces is not None:
            self._untraced += new
        return self._counted, sum((_counters(report) for report in new), Counters())

    def _trace(self, confirmed: Period) -> None:
        """Record the batches that were counted since the last call, whose position is saved now."""
        new, self._untraced = self._untraced, []
        try:
            for report in new:
                done = (report["observedMetrics"] or {}).get(_DONE)
                if self._traces is not None and done is not None and done["changes"]:
                    batch = traced_batch(report, done, confirmed, self._servers)
                    self._traces.record(batch)
                    count = self.stages.malformed_contexts + batch.malformed_contexts
                    self.stages = dataclasses.replace(self.stages, malformed_contexts=count)
        except Exception:  # noqa: BLE001 - a trace must not end the stream
            _LOG.exception("batches are not traced any more")
            self._traces = None

    def _recent_progress(self) -> list[Any]:
        try:
            return list(self._query.recentProgress)
        except (Py4JError, PySparkException):  # the JVM ends; what was not counted is lost
            return []

    def failure(self) -> HeadraceError | None:
        """Return why the query does not run any more, or its progress is not saved; None while both go on."""
        if (tracker := self._tracker.failure) is not None:
            return tracker
        if self._query.isActive:
            return None
        error = self._query.exception()
        return (
            HeadraceError(Kind.SPARK, "the query ended without a reason")
            if error is None
            else headrace_error(error)
        )

    def begun(self) -> bool:
        """Whether the first batch is done, and so every process and connection is up."""
        return self._batch() >= 0

    def batch_seconds(self) -> float:
        """Return the seconds of the longest recent batch, from its planning to the last document."""
        now = datetime.now(UTC).timestamp()
        durations = (
            (
                datetime.fromisoformat(report["timestamp"]).timestamp(),
                report["durationMs"].get("triggerExecution", 0),
            )
            for report in self._recent_progress()
        )
        return max(
            (ms / 1000 for began, ms in durations if began + ms / 1000 >= now - RECENT_SECONDS), default=0.0
        )

    def stop(self, patience: float = 8.0) -> None:
        """Stop the query after its current batch; a batch that takes longer is cut off and repeated later.

        The progress is saved on return, where the cluster answers.

        Args:
            patience: how many seconds the batch may still take.
        """
        waited = threading.Event()
        batch = self._batch()
        deadline = time.monotonic() + patience
        while self._query.isActive and self._query.status["isDataAvailable"] and self._batch() == batch:
            if time.monotonic() > deadline:
                break
            waited.wait(_POLL_SECONDS)
        # A task that waits for a server does not notice the stop; the end of its session ends it.
        with contextlib.suppress(Py4JJavaError, PySparkException):
            self._query.stop()
        # Spark did not ask for a batch after the last one any more, so the source has not reported its end.
        if reports := self._recent_progress():
            self.signals.set_batch_end(_end_of(reports[-1]))
        self._tracker.close()

    def _batch(self) -> int:
        progress = self._query.lastProgress
        return -1 if progress is None else int(progress["batchId"])


def _with_batch(stages: Stages, progress: Any) -> Stages:
    """Add a batch, as Spark reports it; one without changes adds nothing."""
    done = (progress["observedMetrics"] or {}).get(_DONE)
    if done is None or not done["changes"]:
        return stages
    spent = progress["durationMs"]
    capture_seconds = 0.0 if done[EARLY] else sum(spent.get(part, 0) for part in _PLANNING) / 1000
    tables = Counter(stages.tables) + Counter(json.loads(done[TABLES] or "{}"))
    return dataclasses.replace(
        stages,
        batches=stages.batches + 1,
        captured=stages.captured + done["changes"],
        resolved=stages.resolved + done["resolved"],
        assembled=stages.assembled + done["assembled"],
        written=stages.written + done["upserts"] + done["deletes"],
        capture_seconds=stages.capture_seconds + capture_seconds,
        resolve_seconds=stages.resolve_seconds + done["resolve_micros"] / 1e6,
        assemble_seconds=stages.assemble_seconds + done["assemble_micros"] / 1e6,
        write_seconds=stages.write_seconds + done["write_micros"] / 1e6,
        tables=dict(tables),
        latency={
            stage: stages.latency.get(stage, Histogram()).observed(seconds)
            for stage, seconds in _latency(done, capture_seconds).items()
        },
    )


def _latency(done: Any, capture_seconds: float) -> dict[str, float]:
    """Return the seconds of a batch by `LATENCY_STAGES`."""
    columns = {**_TIMED, "total": TOTAL}
    longest = {stage: done[f"{_LONGEST}{column}"] / 1e6 for stage, column in columns.items()}
    return {"capture": capture_seconds, **longest}


def _end_of(progress: Any) -> dict[str, Any]:
    """Return where a batch ended, from Spark's report of it."""
    end: dict[str, Any] = json.loads(progress["sources"][0]["endOffset"])
    return end


def _counters(progress: Any) -> Counters:
    done = (progress["observedMetrics"] or {}).get(_DONE)
    counts = {name: int(done[name] or 0) if done is not None else 0 for name in COUNTS}
    return Counters(**counts, batches=1)
