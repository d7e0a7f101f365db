"""Backfill a generation with the existing rows of its table, while live changes flow into it.

A thread beside the stream runs Spark jobs that read some ranges of rows each. It saves which ranges are done
and, after a failure, plans the rest again. When no range is left it compares the ids and reports the
generation as complete. Each generation has a thread of its own, so none waits for another that fails.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headrace.assembly.digests import Identities
from headrace.config.deployment import BackfillConfig
from headrace.errors import HeadraceError, Kind, retrying, unexpected
from headrace.model.changes import keys_of_ids
from headrace.model.names import CtidRange
from headrace.model.units import quantity
from headrace.pipeline.controller.world import BackfillSeen
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.reconciliation import reconcile
from headrace.pipeline.stream.documents_job import BackfillRanges, run_documents_job
from headrace.pipeline.work_retries import WorkRetries
from headrace.pipeline.worker.deferral import KEYS_AT_ONCE
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.worker import BACKFILL_LOCK_SECONDS, BackfillRange
from headrace.pipeline.worker.workers import open_worker
from headrace.postgres.lock_holders import locks_of
from headrace.postgres.session import ReadSession
from headrace.postgres.wal_position import end_of_commits
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.documents import count, ids, refresh
from headrace.snapshot.planning import plan_ranges
from headrace.snapshot.ranges import RangesDone
from headrace.spark.jobs import JobGate
from headrace.spark.session import LocalSpark, places_beside
from headrace.state import (
    DeferredKeys,
    GenerationState,
    PipelineState,
    PositionRequest,
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
_LONGEST_PAUSE = 30.0
# How long the backfill rests when a statement has waited in vain for a lock.
_LOCKED_PAUSE = 5.0
_CANCEL_SECONDS = 1.0
# Before the second look whether the stream has got past the ranges' reading; and where ids can be compared
# instead how long it is waited for, because a stream that is paused does not come.
_STREAM_LOOK, _STREAM_WITHIN = 0.2, 5.0
_DEFERRED_LOOK, _TOLD_SECONDS = 1.0, 10.0


@dataclass(eq=False, slots=True)
class Backfill:
    """Backfills one generation in a thread, from `start` until it is complete, has failed, or is ended.

    Args:
        state: the generation, which the plan holds.
        spark: runs the jobs.
        work: what the stream writes to the sink; another one holds for later jobs.
        store: the state of the pipeline.
        board: shows the progress.
        snapshot: read by generations that joined at its position, while it is held. Without it the current
            rows are read.
        limits: rows in a second of all tasks together, and tasks at once.
        job_gate: lets one job run at a time beside the stream.
    """

    state: GenerationState
    spark: LocalSpark
    work: Work
    store: StateStore
    board: StatusBoard
    snapshot: HeldSnapshot | None
    limits: BackfillConfig
    job_gate: JobGate
    _seen: BackfillSeen = field(default_factory=BackfillSeen, init=False)
    _done: RangesDone = field(default_factory=RangesDone, init=False)
    # Those that are written, by this start and earlier ones.
    _documents: int = field(default=0, init=False)
    _left: list[CtidRange] = field(default_factory=list, init=False)
    _planned: int = field(default=0, init=False)
    # Something was repeated, so the index may hold documents that it should not.
    _disturbed: bool = field(default=False, init=False)
    # The stream's count of changes when the backfill began; -1 before.
    _changes: int = field(default=-1, init=False)
    _rate: Rate = field(default_factory=Rate, init=False)
    # How many ranges the running job has finished, and when the last one (seconds from its beginning).
    _finished: tuple[int, float] = field(default=(0, 0.0), init=False)
    _ending: threading.Event = field(default_factory=threading.Event, init=False)
    _session: ReadSession | None = field(default=None, init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run_thread, name="headrace filling", daemon=True)

    @property
    def name(self) -> str:
        """The name of the concrete index."""
        return self.state.generation

    def start(self) -> None:
        """Begin to fill the generation."""
        self._thread.start()

    def end(self) -> None:
        """Fill the generation no more; until the thread has ended it may still be written."""
        self._ending.set()

    def join(self) -> None:
        """Wait for the end of the thread; a statement over a whole table is cancelled."""
        while self._thread.is_alive():  # repeated: it may have been between two statements
            if (session := self._session) is not None:
                session.cancel()
            self._thread.join(_CANCEL_SECONDS)

    def seen(self) -> BackfillSeen | None:
        """Return how the generation is; None once the backfill was ended and writes no more."""
        if not self._ending.is_set():
            return self._seen
        # Seen until its job has ended: an index that is written must not be dropped.
        return BackfillSeen(ending=True) if self._thread.is_alive() else None

    def _run_thread(self) -> None:
        endpoints = self.work.endpoints
        try:
            with (
                contextlib.closing(Client(endpoints.sink, accepted=True)) as client,
                contextlib.closing(Client(endpoints.keeps_state, accepted=True)) as state,
            ):
                self._run(client, state)
        except Exception as error:  # noqa: BLE001 - `seen` tells of it
            self._seen = BackfillSeen(failure=unexpected("filling a generation failed", error))

    def _run(self, client: Client, state: Client) -> None:
        """Run jobs until the generation is complete; after each failure the ranges are planned again."""
        notes = backfill_progress(state, self.work.plan.key, self.name)
        self._load(notes)
        retries = WorkRetries(
            "the backfill",
            self._ending,
            longest=_LONGEST_PAUSE,
            restarted=frozenset({Kind.CONTINUITY, Kind.SPARK}),
        )
        while not self._ending.is_set():
            try:
                self._fill(client, state, notes, retries)
            except HeadraceError as error:
                if self._ending.is_set():
                    return
                self._disturbed = True
                if error.kind is Kind.LOCKED:
                    self._seen = BackfillSeen(locked=error)
                    self._ending.wait(_LOCKED_PAUSE)
                else:
                    retries.wait_after(error)
            else:
                self._seen = BackfillSeen(complete=True)
                return

    def _fill(self, client: Client, state: Client, notes: StateDocument, retries: WorkRetries) -> None:
        """Read every range that is left, compare the ids, and wait for the documents that are deferred."""
        self._plan()
        while self._left:
            self._check_ending()
            self._run_job(notes)
            self._seen = BackfillSeen()
            self._check_refused(state, _HOPELESS)
            retries.forget()
        self._check_refused(state, _MOST_REFUSED)
        # A plain sink cannot list its ids: while it is filled, the stream brings every row that has moved.
        is_plain = self.work.plan.is_plain
        if not self._await_stream(state, math.inf if is_plain else _STREAM_WITHIN):
            self._disturbed = True
        if self._is_disturbed():
            self._write_refused_again(state)
        if not is_plain:
            self._compare(client)
        self._await_deferred(DeferredKeys(state, self.work.plan.key))

    def _await_deferred(self, deferred: DeferredKeys) -> None:
        """Wait for what is deferred by now: readers who were led here before would step back in time."""
        reached, began = self._state().reached, time.monotonic()
        while left := deferred.count([self.name], up_to=reached):
            if time.monotonic() > began + _TOLD_SECONDS:
                what = (
                    f"{quantity(left, 'deferred change')} of it must be written before readers are led to it"
                )
                self._seen = BackfillSeen(
                    locked=HeadraceError(Kind.LOCKED, what, "Nothing to do if it passes.")
                )
            self._ending.wait(_DEFERRED_LOOK)
            self._check_ending()

    def _check_ending(self) -> None:
        """Raise where the backfill is ended.

        Raises:
            HeadraceError: SPARK.
        """
        if self._ending.is_set():
            raise HeadraceError(Kind.SPARK, "the run is ending")

    def _load(self, notes: StateDocument) -> None:
        """Go on where an earlier run has ended."""
        for attempt in retrying(ending=self._ending):
            with attempt:
                saved = notes.load()
        if saved is not None:
            self._done = RangesDone.from_json(saved.get("blocks", ()))  # another version notes it otherwise
            # What an earlier run has written since its last note is not known.
            self._documents, self._disturbed = saved["documents"], True

    def _plan(self) -> None:
        """Plan the ranges that are left, for the table as it is now."""
        plan = self.work.plan
        with self._reading() as session:

            def plan_in(size: int) -> list[CtidRange]:
                return plan_ranges(session, plan.catalog[plan.specs[self.name].table], size)

            is_read = self.job_gate.is_read()
            planned = plan_in(_LEAST_BYTES if is_read else _MOST_BYTES)
            wanted = _RANGES_OF_A_TASK * self._task_slots()
            if not is_read and len(planned) < wanted:  # so that every task has its share in one job
                planned = plan_in(_LEAST_BYTES * -(-len(plan_in(_LEAST_BYTES)) // wanted))
        # By places in the file, not by numbers: a table that has grown is cut otherwise.
        self._left, self._planned = [*self._done.left(planned)], len(planned)
        self._show()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[ReadSession]:
        """Open a session whose statements `join` cancels."""
        url = self.work.endpoints.database
        with locks_of(self.state.id), ReadSession(url, lock_seconds=BACKFILL_LOCK_SECONDS) as self._session:
            yield self._session

    def _run_job(self, notes: StateDocument) -> None:
        """Run one job over some ranges."""
        tasks_at_once = self._task_slots()
        is_read = self.job_gate.is_read()
        ranges_per_task = _RANGES_OF_A_TASK // 2 if is_read else _RANGES_OF_A_TASK
        chosen = self._left[: tasks_at_once * ranges_per_task]
        rate = self.limits.rows_per_second
        task_rate = None if rate is None else rate / min(tasks_at_once, len(chosen))
        ranges = [self._describe(part, task_rate, throttled=is_read) for part in chosen]
        began = time.monotonic()
        job = uuid.uuid4().hex
        tasks = [
            BackfillRanges(tuple(ranges[first::tasks_at_once]), job, first)
            for first in range(min(tasks_at_once, len(ranges)))
        ]
        with self.job_gate.acquire(self._ending), self.board.sinks.backfill_job(job) as progress:
            running, self._finished = time.monotonic(), (0, 0.0)
            written = run_documents_job(
                self.spark.session.sparkContext,
                self.work,
                tasks,
                f"headrace-backfill-{job}",
                watch=lambda: self._watch(progress, time.monotonic() - running),
            )
        self._note_progress(notes, chosen, written.get(self.name, 0), time.monotonic() - began)

    def _describe(self, part: CtidRange, rate: float | None, *, throttled: bool) -> BackfillRange:
        """Return what a task needs to know of a range."""
        state = self._state()
        # Before the first row is read: any change since then may have deleted what a range has written.
        self._changes = state.counters.changes if self._changes < 0 else self._changes
        exported = self._exported()
        # A document may be newer than its version says, and never older: the snapshot has all before the
        # slot began, and rows of now have what the stream had reached.
        version = state.reached if exported is None else self.state.joined
        return BackfillRange(self.name, part, version, exported, rate, throttled)

    def _exported(self) -> str | None:
        """Return the slot's snapshot for a generation that joined where it was taken, else None."""
        slot = None if self.snapshot is None else self.snapshot.slot
        if slot is None or self.state.joined > slot.consistent_point:
            return None
        return slot.snapshot_name

    def _task_slots(self) -> int:
        """Return how many ranges are read at once."""
        places = places_beside(self.spark.session)
        if self.job_gate.crowded():
            places = max(1, places // 2)
        return min(places, self.limits.connections or places)

    def _note_progress(
        self, notes: StateDocument, parts: list[CtidRange], documents: int, seconds: float
    ) -> None:
        for part in parts:
            self._done = self._done.done(part)
        self._left = self._left[len(parts) :]
        self._documents += documents
        self._rate.add(documents, seconds, len(parts))
        ranges = quantity(len(parts), "range")
        _LOG.debug("%s: %s, %s in %.1f s", self.name, ranges, quantity(documents, "document"), seconds)
        # After the durable documents: a kill in between reads and writes the same ranges again.
        for attempt in retrying(ending=self._ending):
            with attempt:
                notes.save({"blocks": self._done.to_json(), "documents": self._documents})
        self._show()

    def _check_refused(self, state: Client, share: float) -> None:
        """End a backfill in which too many documents were refused: readers must not be led to what is left.

        Raises:
            HeadraceError: SINK_REJECTED.
        """
        plan = self.work.plan
        if self.state.index not in plan.quarantine:
            return
        held = Quarantine(state, plan.key).count_by_generation().get(self.name, 0)
        of_all = held + self._documents
        if held > _FEW_REFUSED and held > share * of_all:
            raise HeadraceError(
                Kind.SINK_REJECTED,
                f"{held:,} of {of_all:,} documents are refused",
                "Correct the schema or the rows: readers are led to an index where at most 1 document in 100 "
                'is refused. Or leave such documents out, with on_error = "skip" for this index.',
            )

    def _await_stream(self, state: Client, seconds: float) -> bool:
        """Wait until the stream has got past the ranges' reading, at most `seconds`; return whether it has.

        An update moves a row in its file, perhaps out of a range that is read later into one that was read
        before. Then only the log tells of it.
        """
        if self._exported() is not None:  # one snapshot, in which each row is in one place
            return True
        with self._reading() as session:
            end = end_of_commits(session.query)
        request, deadline = PositionRequest(state, self.work.plan.key), time.monotonic() + seconds
        pause = _STREAM_LOOK
        while self._state().reached < end:
            if time.monotonic() > deadline:
                return False
            request.submit(end)
            self._ending.wait(pause)
            pause = min(2 * pause, _STREAM_WITHIN)
            self._check_ending()
        return True

    def _is_disturbed(self) -> bool:
        """Whether the index may hold other documents than the ranges have written."""
        # The stream's changes write and delete documents that no range counts.
        return self._disturbed or self._state().counters.changes != self._changes

    def _write_refused_again(self, state: Client) -> None:
        """Write what was refused once more: what was deleted or corrected meanwhile leaves the quarantine.

        A range that was read before, and is written after the stream, may have put it there.
        """
        if self.state.index not in self.work.plan.quarantine:
            return
        entries = Quarantine(state, self.work.plan.key).entries(self.state.index)
        self._write_again([entry.id for entry in entries if entry.generation == self.name])

    def _compare(self, client: Client) -> None:
        """Make everything searchable, compare the ids where something can have gone wrong, and count."""
        refresh(client, self.name)
        is_disturbed = self._is_disturbed()  # after the refresh: what came in between counts
        held = count(client, self.name)
        if is_disturbed or held != self._documents:
            self._reconcile(client)
            held = count(client, self.name)
        self.board.report.done(f"{self.state.unit}: {quantity(held, 'document')}")
        self.board.index(
            self.state.index,
            sink=self.state.sink,
            documents=held,
            documents_per_second=None,
            seconds_left=None,
        )

    def _reconcile(self, client: Client) -> None:
        plan = self.work.plan
        with self._reading() as session:
            session.await_replay(self._state().reached, self._ending)

            def list_ids() -> Iterator[str]:
                for id_ in ids(client, self.name):
                    self._check_ending()
                    yield id_

            identities = Identities(session, plan.specs[self.name], plan.catalog)
            assembled = reconcile(identities, list_ids, self._write_again)
        if assembled:
            again = quantity(assembled, "document")
            self.board.report.info(f"{self.state.index}: ids differed, assembled {again} again")
            refresh(client, self.name)

    def _write_again(self, found: list[str]) -> None:
        """Assemble documents again, and delete those that no row has."""
        if not found:
            return
        keys = list(keys_of_ids(found, len(self.work.plan.specs[self.name].primary_key)))
        with locks_of(self.state.id), contextlib.closing(open_worker(self.work, self._ending)) as worker:
            for first in range(0, len(keys), KEYS_AT_ONCE):
                self._check_ending()
                worker.rewrite(self.name, keys[first : first + KEYS_AT_ONCE], self._state().reached)

    def _state(self) -> PipelineState:
        state = self.store.current
        assert state is not None, "the query has its plan from a state"
        return state

    def _watch(self, progress: Callable[[str], tuple[int, int]], seconds: float) -> None:
        """Show what the running job has written so far; raise where the backfill is ended, to end the job."""
        self._check_ending()
        documents, ranges = progress(self.name)
        if ranges > self._finished[0]:
            self._finished = ranges, seconds
        if documents or ranges:
            rate = self._rate.including(documents, seconds, *self._finished)
            self._show(documents, ranges, rate)

    def _show(self, documents: int = 0, ranges: int = 0, rate: Rate | None = None) -> None:
        """Show how far the backfill is, with what its running job has written."""
        rate = rate or self._rate
        left = max(0, len(self._left) - ranges)
        self.board.index(
            self.state.index,
            sink=self.state.sink,
            building=self.name,
            ranges_done=max(0, self._planned - left),
            ranges_total=self._planned,
            documents=self._documents + documents,
            documents_per_second=rate.per_second,
            seconds_left=rate.seconds_for(left),
        )
