"""Write deferred documents beside the stream: with Spark batch jobs, or in a thread for a secondary sink.

A job leaves one task slot free for the stream. Its tasks together hold at most a tenth of the deferred
documents before they remove them, so a kill repeats no more than that. The thread needs no Spark task, so a
secondary sink that hangs delays nothing else.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Self

from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, unexpected
from headrace.pipeline.stream.documents_job import run_documents_job
from headrace.pipeline.stream.held_units import HeldUnits
from headrace.pipeline.work_retries import WorkRetries
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.worker import BATCHES_AT_ONCE, Worker
from headrace.pipeline.worker.workers import open_worker
from headrace.sinks.opensearch import Client
from headrace.spark.jobs import JobGate
from headrace.spark.session import places_beside
from headrace.state import DeferredKeys, KeyBatch
from headrace.state.sink_notes import SecondarySinkNotes

# Rounds of each task in a job: starting a job takes a tenth of a second.
_ROUNDS = 5

_LOOK_SECONDS = 1.0
_LONGEST_JOB_PAUSE = 10.0
_POLL_SECONDS = 0.2
_GROUP = "headrace-deferred"

_BATCHES_AT_ONCE = 2_000
_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_CALM_SECONDS = 60.0
_END_SECONDS = 15.0

# Takes the number of deferred documents, and why the sink is away or None.
OnProgress = Callable[[int, str | None], None]


@dataclass(frozen=True, slots=True)
class DeferredPart:
    """Some batches of deferred keys of a generation, which are deleted when their documents are durable."""

    generation: str
    batches: tuple[str, ...]
    at_once: int

    def write(self, worker: Worker) -> Iterator[tuple[str, int]]:
        """Write the documents of all batches."""
        yield self.generation, worker.write_stored(self.batches, self.at_once).upserted


class Writing(ABC):
    """A thread that writes deferred documents by a plan, after which another one may come.

    Attributes:
        held: the generations that fail by themselves.
        failure: why the thread has ended; None while it works.
    """

    def __init__(self, work: Work, name: str) -> None:
        self._work = work
        self.held = HeldUnits()
        self.failure: HeadraceError | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def change(self, work: Work) -> None:
        """Use this plan from the next documents on; a job that runs keeps the former one."""
        self._work = work
        self.held.release()

    @abstractmethod
    def _serve(self) -> None:
        """Write until `_ending` is set."""

    def _oldest(
        self, deferred: DeferredKeys, work: Work, most: int, *, with_keys: bool = True
    ) -> list[KeyBatch]:
        """Return some batches that are not held; none where the plan is a former one by now.

        Keys of a generation that the plan does not have are removed: it is not followed any more. What was
        read while another plan came may be for a generation of that one, and is left alone.
        """
        held = self.held.among(work.plan.units)
        batches = deferred.oldest(most, with_keys=with_keys, without=held)
        return batches if work is self._work else []


class DeferredWork(Writing):
    """Writes deferred documents with Spark jobs while it is entered.

    Args:
        spark: runs the jobs.
        work: what the stream writes.
        job_gate: lets one job run at a time beside the stream.
    """

    def __init__(self, spark: SparkSession, work: Work, job_gate: JobGate | None = None) -> None:
        super().__init__(work, "headrace deferred")
        self._spark = spark
        self._job_gate = job_gate or JobGate()
        self._whole = 0

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        while self._thread.is_alive():  # repeated: the job may not have begun yet
            self._spark.sparkContext.cancelJobGroup(_GROUP)
            self._thread.join(_POLL_SECONDS)

    def _serve(self) -> None:
        """Run jobs; keep the error that ends the thread, because nothing deferred is written after it."""
        try:
            self._run_jobs()
        except Exception as error:  # noqa: BLE001 - the end of a thread: `failure` returns it
            if not self._ending.is_set():  # else its job was cancelled
                self.failure = unexpected("writing what was deferred failed", error)

    def _run_jobs(self) -> None:
        plan = self._work.plan
        tasks_at_once = places_beside(self._spark)
        retries = WorkRetries("writing what was deferred", self._ending, longest=_LONGEST_JOB_PAUSE)
        with closing(Client(self._work.endpoints.sink, accepted=True)) as client:
            deferred = DeferredKeys(client, plan.key)
            while not self._ending.wait(_LOOK_SECONDS):
                try:
                    while not self._ending.is_set() and self._run_job(deferred, tasks_at_once):
                        retries.forget()
                except HeadraceError as error:
                    if not self._ending.is_set():  # else its job was cancelled
                        retries.wait_after(error)

    def _run_job(self, deferred: DeferredKeys, max_tasks: int) -> bool:
        """Run one job; return whether there was anything to do."""
        work = self._work
        left = deferred.count()
        self._whole = max(self._whole, left) if left else 0
        if not left:
            self.held.release()
            return False
        tenth = self._whole // 10
        tasks = max(1, min(max_tasks, tenth))
        at_once = max(1, min(BATCHES_AT_ONCE, tenth // tasks))
        if not (batches := self._oldest(deferred, work, tasks * at_once * _ROUNDS, with_keys=False)):
            return False
        try:
            with self._job_gate.acquire(self._ending):
                run_documents_job(self._spark.sparkContext, work, _parts(batches, tasks, at_once), _GROUP)
        except HeadraceError as error:
            self.held.hold(error, work.plan.units)
        else:
            self.held.note_written(batches, work.plan.units)
        return True


def _parts(batches: Sequence[KeyBatch], tasks: int, at_once: int) -> list[DeferredPart]:
    """Divide key batches among at most so many tasks, about equally."""
    return [
        # The name only says where the documents are counted: a part may have batches of several generations.
        DeferredPart(batches[first].generation, tuple(batch.id for batch in batches[first::tasks]), at_once)
        for first in range(min(tasks, len(batches)))
    ]


class CatchUp(Writing):
    """Writes the deferred documents of one secondary sink while it is entered.

    Args:
        work: the work of the sink; `change` gives a later one.
        on_progress: called about twice a second with the progress.
    """

    def __init__(self, work: Work, on_progress: OnProgress) -> None:
        super().__init__(work, "headrace catching up")
        self._on_progress = on_progress
        self._left = 0
        self._pause = _SHORTEST_PAUSE
        self._failed_at = 0.0

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(_END_SECONDS)

    def _serve(self) -> None:
        while not self._ending.is_set():
            try:
                self._run_with(self._work)
            except Exception as error:  # noqa: BLE001 - a thread that ended would leave what is deferred
                self._pause_longer(unexpected("writing what was deferred failed", error))

    def _run_with(self, work: Work) -> None:
        """Write with one plan, until there is another."""
        with (
            closing(Client(work.endpoints.keeps_state, accepted=True)) as client,
            closing(open_worker(work, self._ending)) as worker,
        ):
            notes = SecondarySinkNotes(client, work.plan.key)
            while work is self._work and not self._ending.wait(self._pause):
                self._write_all(work, notes, worker)

    def _write_all(self, work: Work, notes: SecondarySinkNotes, worker: Worker) -> None:
        """Write all that is deferred now."""
        generations, deferred = work.plan.specs.keys(), notes.deferred
        why = notes.why_away()
        self._left = deferred.count(generations)
        self._on_progress(self._left, why)
        if not self._left:
            self.held.release()
        while not self._ending.is_set() and (batches := self._oldest(deferred, work, _BATCHES_AT_ONCE)):
            try:
                worker.write_deferred(batches)
            except HeadraceError as error:
                self.held.hold(error, work.plan.units)
                continue
            # Keys go once their documents are durable: a kill in between writes these again, as they were.
            deferred.done(batches)
            self.held.note_written(batches, work.plan.units)
            if why is not None and any(batch.generation in generations for batch in batches):
                # The sink has taken documents: from the next batch on tasks try it again.
                notes.note_available()
                why = None
            self._on_progress(deferred.count(generations), why)
        if why is not None:
            worker.sink.probe()
            notes.note_available()
            self._on_progress(deferred.count(generations), None)  # what is held is still there
        if time.monotonic() - self._failed_at > _CALM_SECONDS:
            self._pause = _SHORTEST_PAUSE

    def _pause_longer(self, error: HeadraceError) -> None:
        """Report the error, and wait longer before the next attempt."""
        self._failed_at = time.monotonic()
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        self._on_progress(self._left, str(error))
