"""Write deferred documents with Spark batch jobs beside the stream.

A job leaves one task slot free for the stream. Its tasks together hold at most a tenth of the deferred
documents before they remove them, so a kill repeats no more than that.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Self

from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, Retry, unexpected
from headrace.pipeline.stream.documents_job import Piece, run_pieces
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.worker import CHUNKS_AT_ONCE, Worker
from headrace.sinks.base import WriteResult
from headrace.sinks.opensearch import Chunk, Client, DeferredKeys
from headrace.spark.jobs import JobGate
from headrace.spark.session import places_beside

_ROUNDS = 5
"""Rounds of each task in a job: starting a job takes a quarter of a second."""

_LOOK_SECONDS = 1.0
_POLL_SECONDS = 0.2
_GROUP = "headrace-deferred"


@dataclass
class DeferredPart(Piece):
    """Some chunks of deferred keys, which are removed when their documents are durable."""

    index: str
    chunks: tuple[str, ...]
    at_once: int

    def run(self, worker: Worker) -> WriteResult:
        """Write the documents of all chunks."""
        return worker.write_deferred(self.chunks, self.at_once)


class DeferredWork:
    """A thread that writes deferred documents with Spark jobs while it is entered.

    Args:
        spark: runs the jobs.
        work: what the stream writes.
        job_gate: lets one job run at a time beside the stream.

    Attributes:
        left: how many chunks were left at the last look.
    """

    def __init__(self, spark: SparkSession, work: Work, job_gate: JobGate | None = None) -> None:
        self._spark = spark
        self._job_gate = job_gate or JobGate()
        self._work = work
        self.left = 0
        self._whole = 0
        self._failure: HeadraceError | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="headrace deferred", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        while self._thread.is_alive():  # repeated: the job may not have begun yet
            self._spark.sparkContext.cancelJobGroup(_GROUP)
            self._thread.join(_POLL_SECONDS)

    def change(self, work: Work) -> None:
        """Use this plan for later jobs; the job that runs keeps the former one."""
        self._work = work

    def failure(self) -> HeadraceError | None:
        """Return why the thread has ended; None while it works."""
        return self._failure

    def _serve(self) -> None:
        """Run jobs; keep the error that ends the thread, because nothing deferred is written after it."""
        try:
            self._run_jobs()
        except Exception as error:  # noqa: BLE001 - the end of a thread: `failure` returns it
            if not self._ending.is_set():  # else its job was cancelled
                self._failure = unexpected("writing what was deferred failed", error)

    def _run_jobs(self) -> None:
        plan = self._work.plan
        tasks_at_once = places_beside(self._spark)
        with closing(Client(self._work.connections.sink)) as client:
            deferred = DeferredKeys(client, plan.slot, plan.prefix)
            while not self._ending.wait(_LOOK_SECONDS):
                try:
                    while not self._ending.is_set() and self._run_job(deferred, tasks_at_once):
                        pass
                except HeadraceError as error:
                    if not self._ending.is_set() and error.retry is not Retry.BACK_OFF:
                        self._failure = error
                        return

    def _run_job(self, deferred: DeferredKeys, max_tasks: int) -> bool:
        """Run one job; return whether there was anything to do."""
        self.left = deferred.count()
        self._whole = max(self._whole, self.left) if self.left else 0
        if not self.left:
            return False
        tenth = self._whole // 10
        tasks = max(1, min(max_tasks, tenth))
        at_once = max(1, min(CHUNKS_AT_ONCE, tenth // tasks))
        chunks = deferred.chunks(tasks * at_once * _ROUNDS)
        with self._job_gate.acquire(self._ending):
            run_pieces(self._spark, self._work, _parts(chunks, tasks, at_once), _GROUP)
        return True


def _parts(chunks: Sequence[Chunk], tasks: int, at_once: int) -> list[DeferredPart]:
    """Divide chunks among at most so many tasks, about equally."""
    return [
        DeferredPart(chunks[first].index, tuple(chunk.id for chunk in chunks[first::tasks]), at_once)
        for first in range(min(tasks, len(chunks)))
    ]
