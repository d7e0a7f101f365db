"""How do live changes become documents? One Structured Streaming query, from the slot to the sink.

Its tasks write the documents; beside it, what it has applied is noted, and counted.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from headrace.capture import projection
from headrace.capture.signals import ConfirmLimit
from headrace.catalog.needs import Needs, to_text
from headrace.errors import HeadraceError
from headrace.model import Lsn
from headrace.pipeline.stream.documents_source import COUNTS, SWITCH_OPTION, LiveDocuments
from headrace.pipeline.stream.plan_reload import PlanReload
from headrace.pipeline.stream.progress import ProgressTracker
from headrace.pipeline.worker.plan import PLAN_OPTION, Work
from headrace.sinks.opensearch import Counters
from headrace.spark.failures import headrace_error
from headrace.spark.job_gate import RECENT_SECONDS
from headrace.spark.session import POOL, STREAM

_POLL_SECONDS = 0.2
_TOLD_WITHIN, _TOLD_POLL = 0.5, 0.005
_TAKEN_POLL = 0.02
_DONE = "done"
_QUERY = "query-"


@dataclass(frozen=True, slots=True)
class Following:
    """What the source of the documents query follows."""

    slot: str
    publication: str
    needs: Needs
    continues: Mapping[str, Any]
    """Whose log the documents come from, and up to where changes need not be read again."""
    applied: Lsn
    """The slot is confirmed no further; less than the position above where documents are deferred."""
    deferred: bool = False

    @property
    def start(self) -> str:
        """Where the source begins: where the slot stands, or behind what is deferred."""
        return str(self.continues["lsn"]) if self.deferred else "earliest"


def make_folder(scratch: Path) -> Path:
    """A new folder for a query; the one before it stays, and older ones are removed.

    A query that was stopped may have a process left for a moment that reads its files, and one that comes
    after the next has not.
    """
    queries = sorted(scratch.glob(f"{_QUERY}*"))
    for left in queries[:-1]:
        shutil.rmtree(left, ignore_errors=True)
    last = int(queries[-1].name.removeprefix(_QUERY)) if queries else 0
    folder = scratch / f"{_QUERY}{last + 1:09}"
    folder.mkdir()
    return folder


class DocumentsQuery:
    """The running query. The slot is its only cursor; its checkpoint is scratch (decision 0008).

    Attributes:
        trouble: the file in which the source says what keeps it from reading.
    """

    def __init__(self, spark: SparkSession, work: Work, following: Following, scratch: Path) -> None:
        spark.dataSource.register(LiveDocuments)
        folder = make_folder(scratch)
        self.trouble = folder / "trouble"
        self._reload_plan = PlanReload(folder / "plan")
        options = work.to_options()
        self._plan, self._given = options[PLAN_OPTION], 0
        self._projection = work.plan.projection
        held = ConfirmLimit(folder / "held")
        held.set(following.applied)
        done = (
            spark.readStream.format(LiveDocuments.name())
            .options(**options)
            .option("url", work.connections.database)
            .option("slotName", following.slot)
            .option("publicationName", following.publication)
            .option("createSlot", "false")
            .option("startingOffsets", following.start)
            .option("progress", "true")
            .option("shares", str(spark.sparkContext.defaultParallelism))
            .option("maxBytesPerTrigger", "32m")
            .option("documentNeeds", to_text(following.needs))
            .option("documentColumns", projection.to_text(self._projection))
            .option("continues", json.dumps(dict(following.continues)))
            .option("heldFile", str(held.path))
            .option("troubleFile", str(self.trouble))
            .option(SWITCH_OPTION, str(self._reload_plan.path))
            .load()
        )
        spark.sparkContext.setLocalProperty(POOL, STREAM)  # the query's thread takes it over
        checkpoint = folder / "checkpoint"
        self._counted = -1
        self._query: StreamingQuery = (
            done.observe(_DONE, *(f.sum(name).alias(name) for name in COUNTS))
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint.as_uri())
            .queryName("headrace")
            .start()
        )
        self._tracking = ProgressTracker(work, checkpoint, held, self._counts)
        self._tracking.open()

    def change(self, work: Work, ending: threading.Event, patience: float = 10.0) -> Lsn | None:
        """Let the batches that are planned from now on write what `work` says.

        Args:
            work: of the same connections, whose plan needs of the log what the query's needs.
            ending: once it is set, nobody waits any more.
            patience: how many seconds a batch may still be under way.

        Returns:
            The position (bytes) behind which `work` holds: the batches before it are done, and no task writes
            what the former plan said any more. None where the query does not get there, or where changes are
            read without a column that `work` asks for.
        """
        if not projection.covers(self._projection, work.plan.projection):
            return None
        plan = work.to_options()[PLAN_OPTION]
        if plan == self._plan and not self._given:
            return 0  # it never wrote anything else
        if plan != self._plan:
            self._given += 1
            self._reload_plan.give(self._given, plan)
            self._plan = plan
        deadline = time.monotonic() + patience
        while self.active and time.monotonic() < deadline:
            taken = self._reload_plan.taken()
            if taken is not None and taken[0] == self._given:
                return taken[1]
            if ending.wait(_TAKEN_POLL):
                break
        return None

    def _counts(self, batch: int) -> Counters:
        """What the batches up to `batch` did that were not counted before; Spark tells a moment later."""
        deadline = time.monotonic() + _TOLD_WITHIN
        while (told := self._told()) and int(told[-1]["batchId"]) < batch and time.monotonic() < deadline:
            time.sleep(_TOLD_POLL)
        new = [one for one in told if int(one["batchId"]) > self._counted]
        self._counted = max([self._counted, *(int(one["batchId"]) for one in new)])
        return sum((_counters(one) for one in new), Counters())

    def _told(self) -> list[Any]:
        try:
            return list(self._query.recentProgress)
        except (Py4JError, PySparkException):  # the JVM ends, and takes with it what nobody has counted
            return []

    def failure(self) -> HeadraceError | None:
        """Why the query is not running any more; None while it runs, or where it was stopped."""
        if (tracker := self._tracking.failure()) is not None:
            return tracker
        if self._query.isActive:
            return None
        error = self._query.exception()
        return None if error is None else headrace_error(error)

    def begun(self) -> bool:
        """Whether the first batch is through, and with it every process and connection is up."""
        return self._batch() >= 0

    def batch_seconds(self) -> float:
        """How long the longest recent batch took, from the look for changes to the last document."""
        now = datetime.now(UTC).timestamp()
        took = (
            (
                datetime.fromisoformat(one["timestamp"]).timestamp(),
                one["durationMs"].get("triggerExecution", 0),
            )
            for one in self._told()
        )
        return max(
            (ms / 1000 for began, ms in took if began + ms / 1000 >= now - RECENT_SECONDS), default=0.0
        )

    @property
    def active(self) -> bool:
        """Whether the query runs, and what it does is noted."""
        return self._tracking.failure() is None and bool(self._query.isActive)

    def stop(self, patience: float = 8.0) -> None:
        """End the query behind its current batch; one that takes longer is cut off, and repeated later.

        What is done is noted when this returns, where the cluster answers.

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
        # Tasks that wait for a server do not notice: their session ends them.
        with contextlib.suppress(Py4JJavaError, PySparkException):
            self._query.stop()
        self._tracking.close()

    def _batch(self) -> int:
        progress = self._query.lastProgress
        return -1 if progress is None else int(progress["batchId"])


def _counters(progress: Any) -> Counters:
    done = (progress["observedMetrics"] or {}).get(_DONE)
    counts = {name: int(done[name] or 0) if done is not None else 0 for name in COUNTS}
    return Counters(**counts, batches=1)
