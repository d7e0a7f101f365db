"""Who writes the documents that were deferred? Spark batch jobs beside the stream, some chunks in each.

A job leaves one place free for the stream's own tasks. Its tasks together hold no more than a tenth of what
there was to do before they take it away: a kill repeats so much at most.
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
from headrace.spark.job_gate import JobGate
from headrace.spark.session import places_beside

_ROUNDS = 5
"""Of a task: a job takes a quarter of a second to begin, in which nothing is written."""

_LOOK_SECONDS = 1.0
_POLL_SECONDS = 0.2
_GROUP = "headrace-deferred"


@dataclass
class DeferredPart(Piece):
    """Some chunks, which are taken away when their documents are durable."""

    index: str
    chunks: tuple[str, ...]
    at_once: int

    def run(self, worker: Worker) -> WriteResult:
        """Write the documents of all of them."""
        return worker.work_off(self.chunks, self.at_once)


class DeferredWork:
    """A thread that lets jobs write what is deferred, for as long as this is entered.

    Args:
        turn: which a job waits for.

    Attributes:
        left: how many chunks were left when it looked last.
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
        while self._thread.is_alive():  # again and again: its job may not have begun yet
            self._spark.sparkContext.cancelJobGroup(_GROUP)
            self._thread.join(_POLL_SECONDS)

    def change(self, work: Work) -> None:
        """Let later jobs write what `work` says; the one that runs has still the former plan."""
        self._work = work

    def failure(self) -> HeadraceError | None:
        """Why it has ended; None while it works."""
        return self._failure

    def _serve(self) -> None:
        """Work; whatever ends it is to be told, as nothing that was deferred is written any more."""
        try:
            self._work_off()
        except Exception as error:  # noqa: BLE001 - a thread's last words: whoever asks next gets them
            if not self._ending.is_set():  # else it is the job that was cancelled
                self._failure = unexpected("writing what was deferred failed", error)

    def _work_off(self) -> None:
        plan = self._work.plan
        most = places_beside(self._spark)
        with closing(Client(self._work.connections.sink)) as client:
            deferred = DeferredKeys(client, plan.slot, plan.prefix)
            while not self._ending.wait(_LOOK_SECONDS):
                try:
                    while not self._ending.is_set() and self._some_of(deferred, most):
                        pass
                except HeadraceError as error:
                    if not self._ending.is_set() and error.retry is not Retry.BACK_OFF:
                        self._failure = error
                        return

    def _some_of(self, deferred: DeferredKeys, most: int) -> bool:
        """One job; whether there was anything to do."""
        self.left = deferred.count()
        self._whole = max(self._whole, self.left) if self.left else 0
        if not self.left:
            return False
        tenth = self._whole // 10
        tasks = max(1, min(most, tenth))
        at_once = max(1, min(CHUNKS_AT_ONCE, tenth // tasks))
        chunks = deferred.chunks(tasks * at_once * _ROUNDS)
        with self._job_gate.taken(self._ending):
            run_pieces(self._spark, self._work, _parts(chunks, tasks, at_once), _GROUP)
        return True


def _parts(chunks: Sequence[Chunk], tasks: int, at_once: int) -> list[DeferredPart]:
    """So many tasks at most, each with about as many chunks."""
    return [
        DeferredPart(chunks[first].index, tuple(one.id for one in chunks[first::tasks]), at_once)
        for first in range(min(tasks, len(chunks)))
    ]
