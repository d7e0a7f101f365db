"""Backfill generations with the existing rows of their tables, while live changes flow into them.

A thread beside the stream runs Spark jobs that read some ranges of rows each. It saves which ranges are done
and, after a failure, plans the rest again. When no range is left it compares the ids and reports the
generation as complete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from headrace.assembly.digests import Identities
from headrace.config.deployment import BackfillConfig
from headrace.errors import (
    HeadraceError,
    Kind,
    Retry,
    failures_of,
    retrying,
    unexpected,
)
from headrace.model.changes import key_of_id
from headrace.model.lsn import Lsn
from headrace.model.names import CtidRange
from headrace.model.units import quantity
from headrace.pipeline.controller.world import BackfillSeen
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.reconciliation import reconcile
from headrace.pipeline.stream.documents_job import BackfillRanges, run_documents_job
from headrace.pipeline.stream.held_units import HeldUnits
from headrace.pipeline.work_retries import WorkRetries
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.worker import BackfillRange
from headrace.pipeline.worker.workers import open_worker
from headrace.postgres.lock_holders import locks_of
from headrace.postgres.session import ReadSession
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.client import join_names
from headrace.sinks.opensearch.documents import count, ids, refresh
from headrace.snapshot import RangesDone, plan_ranges
from headrace.spark.jobs import JobGate
from headrace.spark.session import LocalSpark, places_beside
from headrace.state import (
    GenerationState,
    PipelineState,
    Quarantine,
    StateDocument,
    StateStore,
    backfill_progress,
)
from headrace.status.board import StatusBoard
from headrace.status.progress import Rate

_LOG = logging.getLogger(__name__)
# Bytes of the table's file that one range covers.
_MOST_BYTES, _LEAST_BYTES = 8 << 20, 1 << 20
# Ranges that one task reads in a job. A kill repeats at most one job. While readers see the stream's
# documents there are half as many ranges, and small ones, so that a job soon makes way for the stream.
_RANGES_OF_A_TASK = 4
# Documents that a sink may refuse of an index that readers are led to: so many, or this share of all. With
# more, the schema is wrong, not some rows. Before the end only a hopeless share ends the backfill.
_FEW_REFUSED, _MOST_REFUSED, _HOPELESS = 10, 0.01, 0.5
_POLL_SECONDS = 0.2
_LOCK_SECONDS = 5.0
_LONGEST_PAUSE = 30.0


@dataclass(slots=True)
class _GenerationBackfill:
    """The progress of one generation's backfill.

    Attributes:
        notes: where the progress is saved.
        done: the ranges that are read.
        documents: documents written, by this start and earlier ones.
        left: the ranges that are left.
        ranges: number of ranges of the plan.
        disturbed: something was repeated, so the index may hold documents that it should not.
        changes: the stream's count of changes when the backfill began; -1 before.
        rate: how fast documents are written.
    """

    state: GenerationState
    notes: StateDocument
    done: RangesDone = field(default_factory=RangesDone)
    documents: int = 0
    left: deque[CtidRange] = field(default_factory=deque)
    ranges: int = 0
    disturbed: bool = False
    changes: int = -1
    rate: Rate = field(default_factory=Rate)

    @property
    def name(self) -> str:
        return self.state.generation


@dataclass(eq=False, slots=True)
class Backfill:
    """Backfills generations of one sink in a thread, while it is entered.

    Args:
        spark: runs the jobs.
        work: what the stream writes to the sink; `change` gives a later one.
        store: the state of the pipeline.
        board: shows the progress.
        snapshot: read by generations that joined at its position, while it is held. Without it the current
            rows are read.
        limits: rows in a second of all tasks together, and tasks at once.
        job_gate: lets one job run at a time beside the stream.

    Attributes:
        held: the generations that wait for a locked table.
    """

    spark: LocalSpark
    work: Work
    store: StateStore
    board: StatusBoard
    snapshot: HeldSnapshot | None
    limits: BackfillConfig
    job_gate: JobGate
    _group: str = field(default_factory=lambda: f"headrace-backfill-{uuid.uuid4().hex}", init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _added: list[GenerationState] = field(default_factory=list, init=False)
    held: HeldUnits = field(default_factory=HeldUnits, init=False)
    _seen: dict[str, BackfillSeen] = field(default_factory=dict, init=False)
    _wake: threading.Event = field(default_factory=threading.Event, init=False)
    _ending: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run_thread, name="headrace filling", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._wake.set()
        while self._thread.is_alive():  # repeated: the job may not have begun yet
            self.spark.session.sparkContext.cancelJobGroup(self._group)
            self._thread.join(_POLL_SECONDS)

    def change(self, work: Work) -> None:
        """Use this plan for later jobs."""
        self.work = work

    def add(self, generation: GenerationState) -> None:
        """Fill a generation, which the plan holds."""
        with self._lock:
            self._seen[generation.id] = BackfillSeen()
            self._added.append(generation)
        self._wake.set()

    def remove(self, id_: str) -> None:
        """Fill a generation no more; a job that runs may still write to it."""
        with self._lock:
            seen = self._seen.get(id_)
            if seen is None:
                return
            if seen.complete or seen.failure is not None:
                del self._seen[id_]
            else:
                # Seen until its job has ended: an index that is written must not be dropped.
                self._seen[id_] = dataclasses.replace(seen, ending=True)

    def seen(self) -> dict[str, BackfillSeen]:
        """Return how each generation is, by its id."""
        with self._lock:
            return dict(self._seen)

    def _run_thread(self) -> None:
        endpoints = self.work.endpoints
        waiting: list[_GenerationBackfill] = []
        with (
            contextlib.closing(Client(endpoints.sink, accepted=True)) as client,
            contextlib.closing(Client(endpoints.keeps_state, accepted=True)) as state,
        ):
            while not self._ending.is_set():
                try:
                    self._run(client, state, waiting)
                except Exception as error:  # noqa: BLE001 - `seen` tells of it
                    if not self._ending.is_set():
                        self._fail(error, waiting)
                if not waiting and not self._added:
                    self._wake.wait()
                # Behind the wait: what is added from now on is in the list when `_run` looks at it.
                self._wake.clear()

    def _fail(self, error: Exception, waiting: list[_GenerationBackfill]) -> None:
        """End the backfills that an error concerns: perhaps all that are unfinished."""
        if not isinstance(error, HeadraceError):
            error = unexpected("filling a generation failed", error)
        # A unit fails alone where the error names it; an error without a name is that of all.
        concerned = [backfill for backfill in waiting if backfill.state.id in error.units] or list(waiting)
        with self._lock:
            for backfill in concerned:
                waiting.remove(backfill)
                if self._seen[backfill.state.id].ending:
                    del self._seen[backfill.state.id]
                else:
                    self._seen[backfill.state.id] = BackfillSeen(failure=error)

    def _take_up(self, state: Client, waiting: list[_GenerationBackfill]) -> bool:
        """Begin what was added and leave what was removed since the last call; return whether any was."""
        with self._lock:
            added, self._added = self._added, []
            for backfill in [known for known in waiting if self._seen[known.state.id].ending]:
                waiting.remove(backfill)
                del self._seen[backfill.state.id]
        key = self.work.plan.key
        begun = [
            _GenerationBackfill(generation, backfill_progress(state, key, generation.generation))
            for generation in added
        ]
        waiting += begun
        for backfill in begun:
            self._load(backfill)
        return bool(added)

    def _load(self, backfill: _GenerationBackfill) -> None:
        """Go on where an earlier run has ended."""
        for attempt in retrying(ending=self._ending):
            with attempt:
                saved = backfill.notes.load()
        if saved is not None:
            backfill.done = RangesDone.from_json(saved["done"])
            # What an earlier run has written since its last note is not known.
            backfill.documents, backfill.disturbed = saved["documents"], True

    def _run(self, client: Client, state: Client, waiting: list[_GenerationBackfill]) -> None:
        """Run jobs until all generations are complete; after each failure the ranges are planned again."""
        retries = WorkRetries(
            "the backfill",
            self._ending,
            longest=_LONGEST_PAUSE,
            restarted=frozenset({Kind.CONTINUITY, Kind.SPARK}),
        )
        while not self._ending.is_set():
            try:
                self._take_up(state, waiting)
                if not waiting:
                    return
                self._run_jobs(client, state, waiting, retries)
            except HeadraceError as error:
                if self._ending.is_set():
                    return
                for backfill in waiting:
                    backfill.disturbed = True
                if error.kind is Kind.LOCKED:
                    self.held.hold(error)
                else:
                    retries.wait_after(error)

    def _run_jobs(
        self, client: Client, state: Client, waiting: list[_GenerationBackfill], retries: WorkRetries
    ) -> None:
        """Plan the ranges that are left, and run jobs over them until all are done or others are added.

        What reads a locked table waits alone; it is planned when its time is over.
        """
        free = self._free(waiting)
        if not free:
            self._ending.wait(_POLL_SECONDS)
        self._plan(free)
        while free and not self._ending.is_set() and not self._take_up(state, waiting):
            self._finish_all(client, state, waiting, free)
            if self._free(waiting) != free:
                return
            if free:
                self._run_job(free)
                refused = self._count_refused(state, free)
                for backfill in free:
                    self._check_refused(backfill, refused, _HOPELESS)
                retries.forget()
                if len(free) == len(waiting):
                    self.held.release()

    def _free(self, waiting: Sequence[_GenerationBackfill]) -> list[_GenerationBackfill]:
        held = self.held.among(self.work.plan.units)
        return [backfill for backfill in waiting if backfill.name not in held]

    def _plan(self, backfills: list[_GenerationBackfill]) -> None:
        """Plan the ranges that are left, for the tables as they are now."""
        plan = self.work.plan
        with ReadSession(self.work.endpoints.database, lock_seconds=_LOCK_SECONDS) as session:

            def plan_one(name: str, size: int) -> list[CtidRange]:
                with failures_of(plan.unit_of(name)), locks_of(plan.unit_of(name)):
                    return plan_ranges(session, plan.catalog[plan.specs[name].table], size)

            def plan_all(size: int) -> list[list[CtidRange]]:
                return [plan_one(backfill.name, size) for backfill in backfills]

            is_read = self.job_gate.is_read()
            planned = plan_all(_LEAST_BYTES if is_read else _MOST_BYTES)
            wanted = _RANGES_OF_A_TASK * self._task_slots()
            if not is_read and sum(map(len, planned)) < wanted:  # so that every task has its share in one job
                smallest = sum(map(len, plan_all(_LEAST_BYTES)))
                planned = plan_all(_LEAST_BYTES * -(-smallest // wanted))
        for backfill, ranges in zip(backfills, planned, strict=True):
            # By places in the file, not by numbers: a table that has grown is cut otherwise.
            backfill.left = deque(backfill.done.left(ranges))
            backfill.ranges = len(ranges)
            self._show(backfill)

    def _run_job(self, backfills: list[_GenerationBackfill]) -> None:
        """Run one job over some ranges of each generation."""
        tasks_at_once = self._task_slots()
        unfinished = [backfill for backfill in backfills if backfill.left]
        is_read = self.job_gate.is_read()
        ranges_per_task = _RANGES_OF_A_TASK // 2 if is_read else _RANGES_OF_A_TASK
        chosen = _take_in_turn(unfinished, tasks_at_once * ranges_per_task)
        rate = self.limits.rows_per_second
        task_rate = None if rate is None else rate / min(tasks_at_once, len(chosen))
        state = self._state()
        partitions = [self._describe(*range_, state, task_rate, throttled=is_read) for range_ in chosen]
        began = time.monotonic()
        job = uuid.uuid4().hex
        tasks = [
            BackfillRanges(tuple(partitions[first::tasks_at_once]), job, first)
            for first in range(min(tasks_at_once, len(partitions)))
        ]
        with self.job_gate.acquire(self._ending), self.board.sinks.backfill_job(job) as progress:
            running = time.monotonic()
            written = run_documents_job(
                self.spark.session.sparkContext,
                self.work,
                tasks,
                self._group,
                watch=lambda: self._show_running(unfinished, progress, time.monotonic() - running),
            )
        for backfill in unfinished:
            parts = [part for owner, part in chosen if owner is backfill]
            self._note_progress(backfill, parts, written.get(backfill.name, 0), time.monotonic() - began)

    def _describe(
        self,
        backfill: _GenerationBackfill,
        part: CtidRange,
        state: PipelineState,
        rate: float | None,
        *,
        throttled: bool,
    ) -> BackfillRange:
        """Return what a task needs to know of a range."""
        # Before the first row is read: any change since then may have deleted what a range has written.
        backfill.changes = state.counters.changes if backfill.changes < 0 else backfill.changes
        exported = self._exported(backfill)
        # A document may be newer than its version says, and never older: the snapshot has all before the
        # slot began, and rows of now have what the stream had reached.
        version = state.reached if exported is None else backfill.state.joined
        return BackfillRange(backfill.name, part, version, exported, rate, throttled)

    def _exported(self, backfill: _GenerationBackfill) -> str | None:
        """Return the slot's snapshot for a generation that joined where it was taken, else None."""
        slot = None if self.snapshot is None else self.snapshot.slot
        if slot is None or backfill.state.joined > slot.consistent_point:
            return None
        return slot.snapshot_name

    def _task_slots(self) -> int:
        """Return how many ranges are read at once."""
        places = places_beside(self.spark.session)
        if self.job_gate.crowded():
            places = max(1, places // 2)
        return min(places, self.limits.connections or places)

    def _note_progress(
        self, backfill: _GenerationBackfill, parts: list[CtidRange], documents: int, seconds: float
    ) -> None:
        for part in parts:
            backfill.done = backfill.done.done(part)
        backfill.left = deque(part for part in backfill.left if part not in parts)
        backfill.documents += documents
        backfill.rate.add(documents, seconds, len(parts))
        ranges = quantity(len(parts), "range")
        _LOG.debug("%s: %s, %s in %.1f s", backfill.name, ranges, quantity(documents, "document"), seconds)
        # Behind the durable documents: a kill in between reads and writes the same ranges again.
        for attempt in retrying(ending=self._ending):
            with attempt:
                backfill.notes.save({"done": backfill.done.to_json(), "documents": backfill.documents})
        self._show(backfill)

    def _count_refused(self, state: Client, backfills: Sequence[_GenerationBackfill]) -> dict[str, int]:
        """Count the refused documents of those that go on without them, in one question."""
        plan = self.work.plan
        names = [backfill.name for backfill in backfills if backfill.state.index in plan.quarantine]
        counts = Quarantine(state, plan.key).count_by_generation() if names else {}
        return {name: counts.get(name, 0) for name in names}

    def _check_refused(self, backfill: _GenerationBackfill, refused: Mapping[str, int], share: float) -> None:
        """End a backfill in which too many documents were refused: readers must not be led to what is left.

        Raises:
            HeadraceError: SINK_REJECTED, which concerns the generation.
        """
        held = refused.get(backfill.name, 0)
        of_all = held + backfill.documents
        if held > _FEW_REFUSED and held > share * of_all:
            raise HeadraceError(
                Kind.SINK_REJECTED,
                f"{held:,} of {of_all:,} documents are refused",
                "Correct the schema or the rows: readers are led to an index where at most 1 document in 100 "
                'is refused. Or leave such documents out, with on_error = "skip" for this index.',
            ).concerning(units={self.work.plan.unit_of(backfill.name)})

    def _finish_all(
        self,
        client: Client,
        state: Client,
        waiting: list[_GenerationBackfill],
        free: list[_GenerationBackfill],
    ) -> None:
        """Finish the generations that have no range left."""
        finished = [backfill for backfill in free if not backfill.left]
        self._refresh(client, finished)
        refused = self._count_refused(state, finished)
        for backfill in finished:
            with failures_of(backfill.state.id):
                self._check_refused(backfill, refused, _MOST_REFUSED)
                self._finish(client, backfill)
            waiting.remove(backfill)
            free.remove(backfill)

    def _finish(self, client: Client, backfill: _GenerationBackfill) -> None:
        """Compare the ids where something can have gone wrong, and report the generation as complete."""
        if not self.work.plan.is_plain:  # a plain sink cannot list its ids
            self._compare(client, backfill)
        with self._lock:
            if self._seen[backfill.state.id].ending:
                del self._seen[backfill.state.id]
            else:
                self._seen[backfill.state.id] = BackfillSeen(complete=True)

    def _refresh(self, client: Client, backfills: list[_GenerationBackfill]) -> None:
        """Make everything searchable, in one request: the cluster refreshes all shards side by side.

        Where it refuses that, each index is asked for alone, and the error names the one that is refused.
        """
        if self.work.plan.is_plain:
            return
        names = [backfill.name for backfill in backfills]
        try:
            for joined in join_names(names):
                refresh(client, joined)
        except HeadraceError as error:
            if error.retry is Retry.BACK_OFF:
                raise
            for backfill in backfills:
                with failures_of(backfill.state.id):
                    refresh(client, backfill.name)

    def _compare(self, client: Client, backfill: _GenerationBackfill) -> None:
        state = self._state()  # after the refresh: what came in between counts as a change
        # The stream's changes write and delete documents that no range counts: then only the ids tell.
        undisturbed = state.counters.changes == backfill.changes and not backfill.disturbed
        if not undisturbed or count(client, backfill.name) != backfill.documents:
            self._reconcile(client, backfill)

    def _reconcile(self, client: Client, backfill: _GenerationBackfill) -> None:
        plan = self.work.plan
        spec = plan.specs[backfill.name]
        state = self._state()
        with (
            locks_of(backfill.state.id),
            ReadSession(self.work.endpoints.database, lock_seconds=_LOCK_SECONDS) as session,
            contextlib.closing(open_worker(self.work)) as worker,
        ):
            session.await_replay(state.reached)
            version: Lsn = state.reached

            def assemble(differing: list[str]) -> None:
                keys = [key_of_id(id_, len(spec.primary_key)) for id_ in differing]
                worker.rewrite(backfill.name, keys, version)

            assembled = reconcile(
                Identities(session, spec, plan.catalog), lambda: ids(client, backfill.name), assemble
            )
        if assembled:
            again = quantity(assembled, "document")
            self.board.report.info(f"{backfill.state.index}: ids differed, assembled {again} again")
            refresh(client, backfill.name)

    def _state(self) -> PipelineState:
        state = self.store.current
        assert state is not None, "the query has its plan from a state"
        return state

    def _show_running(
        self,
        backfills: Sequence[_GenerationBackfill],
        progress: Callable[[str], tuple[int, int]],
        seconds: float,
    ) -> None:
        """Show what the running job has written so far."""
        for backfill in backfills:
            documents, ranges = progress(backfill.name)
            if documents or ranges:
                self._show(backfill, documents, ranges, backfill.rate.including(documents, seconds, ranges))

    def _show(
        self, backfill: _GenerationBackfill, documents: int = 0, ranges: int = 0, rate: Rate | None = None
    ) -> None:
        """Show how far a backfill is, with what its running job has written."""
        rate = rate or backfill.rate
        left = max(0, len(backfill.left) - ranges)
        self.board.index(
            backfill.state.index,
            sink=backfill.state.sink,
            building=backfill.name,
            ranges_done=max(0, backfill.ranges - left),
            ranges_total=backfill.ranges,
            documents=backfill.documents + documents,
            documents_per_second=rate.per_second,
            seconds_left=rate.seconds_for(left),
        )


def _take_in_turn(
    backfills: Sequence[_GenerationBackfill], most: int
) -> list[tuple[_GenerationBackfill, CtidRange]]:
    """Return the next ranges of each generation alternately, so that all progress alike."""
    waiting = [(backfill, deque(backfill.left)) for backfill in backfills]
    taken: list[tuple[_GenerationBackfill, CtidRange]] = []
    while len(taken) < most and any(parts for _, parts in waiting):
        taken += [(backfill, parts.popleft()) for backfill, parts in waiting if parts]
    return taken[:most]
