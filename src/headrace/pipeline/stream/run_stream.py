"""Run the query of a deployment with the work beside it: deferred documents and backfills."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from headrace.capture.signals import SignalFiles
from headrace.errors import HeadraceError, unexpected
from headrace.pipeline.backfill import Backfill
from headrace.pipeline.controller.stream import wanted_plan
from headrace.pipeline.controller.world import BackfillSeen, QuerySeen
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.planning import Plans
from headrace.pipeline.stream.deferred_work import CatchUp, DeferredWork, Writing
from headrace.pipeline.stream.documents_query import DocumentsQuery
from headrace.pipeline.stream.documents_reader import Following
from headrace.pipeline.worker.plan import Work
from headrace.spark.background_session import BackgroundSpark
from headrace.spark.jobs import JobGate
from headrace.spark.session import LocalSpark
from headrace.state import GenerationState, PipelineState, StateStore
from headrace.status.board import StatusBoard
from headrace.status.traces import Traces

# The slot follows an idle server this often, and several times within the time that counts as a stall.
_IDLE_SECONDS = 10.0
# Without a change, the first batch does not end before; the stream counts as begun then, if it reads the log.
_QUIET_SECONDS = 15.0


@dataclass(eq=False, slots=True)
class RunStream:
    """The query of one run, one after the other; used from the run's thread.

    A query starts in a thread: Spark takes seconds for it, in which backfills begin already.

    Attributes:
        spark: the session; renewed where its processes are lost.
        plans: plans what is written, for the files that hold.
        store: the state, which the query advances.
        board: shows the progress.
        snapshot: the slot's snapshot, which backfills read.
        traces: records batches; None: they are not traced.
        check: checks a session, once it is open.
    """

    spark: BackgroundSpark
    plans: Plans
    store: StateStore
    board: StatusBoard
    snapshot: HeldSnapshot
    traces: Traces | None
    check: Callable[[LocalSpark], None]
    _running: _Running | None = field(default=None, init=False)

    # The query, see `StreamPort`.

    def start(self, state: PipelineState, *, new_session: bool) -> None:
        """Start a query after the stored position, which writes what the state follows."""
        assert self._running is None, "one query at a time"
        project = self.plans.definitions.project
        self._running = _Running(
            self.plans.work(state),
            self.plans.content(state),
            wanted_plan(state),
            JobGate(self._is_read, one_at_a_time=project.deployment.backfill.is_limited),
        )
        following = Following(
            project.slot,
            project.publication,
            self.plans.needs(state),
            state.place(),
            state.applied,
            deferred=state.ahead is not None,
            idle_seconds=min(_IDLE_SECONDS, project.deployment.source.stalled_after / 4),
        )
        self._running.begin(lambda running: self._open(running, following, new_session=new_session))

    def change(self, state: PipelineState) -> None:
        """Offer the query a plan with what the state follows; it takes the plan at the end of its batch."""
        if self._running is not None:
            work, content = self.plans.work(state), self.plans.content(state)
            self._running.change(work, content, wanted_plan(state))
            query = self._running.query
            if query is not None:  # last: what it defers by the new plan is known to the others by then
                query.offer(work, self.plans.needs(state))

    def close(self) -> None:
        """End the query, and everything beside it."""
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def seen(self, state: PipelineState | None) -> QuerySeen | None:
        """Return how the query is; None where none runs."""
        running = self._running
        if running is None:
            return None
        running.note_taken(0 if state is None else state.reached)
        return QuerySeen(
            running.plan,
            running.joined,
            running.leaving,
            outdated=state is not None and self.plans.content(state) != running.content,
            starting=running.query is None,
            failure=running.failure(),
            held=running.held(),
        )

    @property
    def is_running(self) -> bool:
        """Whether a query runs, or has ended and is not taken away yet."""
        return self._running is not None

    @property
    def signals(self) -> SignalFiles | None:
        """The signals between this process and the source; None where no query runs."""
        query = None if self._running is None else self._running.query
        return None if query is None else query.signals

    def tend(self) -> bool:
        """Pass on a pause, show what the stages do; return whether the stream has begun."""
        running = self._running
        query = None if running is None else running.query
        if running is None or query is None:
            return False
        query.signals.set_paused(paused=self.board.paused is not None)
        self.board.note(stages=query.stages)
        is_quiet = time.monotonic() - running.began > _QUIET_SECONDS
        if query.begun() or (is_quiet and query.signals.seconds_since_beat() is not None):
            running.has_begun = True
        if running.has_begun:
            # Also where no batch has ended yet: what is said to be live has no longer time than any other.
            self.board.stall.note_first_batch()
            running.job_gate.begin()
        return running.has_begun

    def start_backfill(self, generation: GenerationState) -> None:
        """See `StreamPort.start_backfill`."""
        running = self._running
        if running is None or running.spark is None:
            return  # it is asked for again
        backfill = Backfill(
            generation,
            running.spark,
            running.work_of(generation.sink),
            self.store,
            self.board,
            snapshot=None if generation.sink else self.snapshot,
            limits=self.plans.definitions.project.deployment.backfill,
            job_gate=running.job_gate,
        )
        running.backfills[generation.id] = backfill
        backfill.start()

    def stop_backfill(self, name: str) -> None:
        """See `StreamPort.stop_backfill`."""
        if self._running is not None and name in self._running.backfills:
            self._running.backfills[name].end()

    def backfills(self) -> dict[str, BackfillSeen]:
        """Return how each generation is that is or was filled beside this query."""
        if self._running is None:
            return {}
        seen = {name: backfill.seen() for name, backfill in self._running.backfills.items()}
        found = {name: how for name, how in seen.items() if how is not None}
        for name in seen.keys() - found.keys():
            del self._running.backfills[name]
        return found

    # Inside.

    def _is_read(self) -> bool:
        """Whether readers see any generation that the stream writes."""
        state = self.store.current
        return state is not None and any(
            generation.published and generation.followed and not generation.sink
            for generation in state.generations
        )

    def _open(self, running: _Running, following: Following, *, new_session: bool) -> None:
        """Open the session, then what runs beside the query, then the query; in a thread."""
        if new_session:
            with self.board.report.working("starting Spark again …"):
                self.spark.renew()
        with self.board.report.working("starting Spark …"):
            spark = self.spark.current
        self.check(spark)
        # Before the query: rows are read while Spark starts it, and its first batch may defer keys already.
        running.open_beside(spark, self.board)
        query = DocumentsQuery(
            spark.session,
            running.work,
            following,
            spark.scratch,
            store=self.store,
            paused=self.board.paused is not None,
            traces=self.traces,
        )
        running.job_gate.batch_seconds = query.batch_seconds
        # Last: who sees the query finds everything that belongs to it.
        running.query = query


class _Running:
    """One query and the work beside it, which have the same plan.

    Attributes:
        plan: the ids of the generations of the plan that was offered last.
        joined: those that every change after the stored position is written to.
        leaving: those of former plans that a batch or a job may still write.
    """

    def __init__(self, work: Work, content: bytes, plan: frozenset[str], job_gate: JobGate) -> None:
        self.work = work
        self.content = content
        self.plan = plan
        self.joined: frozenset[str] = frozenset()
        self.leaving: frozenset[str] = frozenset()
        self.job_gate = job_gate
        self.began = time.monotonic()
        self.has_begun = False
        self.spark: LocalSpark | None = None
        self.query: DocumentsQuery | None = None
        # By the id of the generation.
        self.backfills: dict[str, Backfill] = {}
        self._first = plan
        # Of deferred documents, by the name of the sink.
        self._writing: dict[str, Writing] = {}
        self._held = contextlib.ExitStack()
        self._failure: HeadraceError | None = None
        self._thread: threading.Thread | None = None

    def begin(self, open_: Callable[[_Running], None]) -> None:
        """Open everything in a thread."""

        def run() -> None:
            try:
                open_(self)
            except Exception as error:  # noqa: BLE001 - the end of a thread: `failure` returns it
                self._failure = unexpected("the query does not start", error)

        self._thread = threading.Thread(target=run, name="headrace starting", daemon=True)
        self._thread.start()

    def open_beside(self, spark: LocalSpark, board: StatusBoard) -> None:
        """Begin what runs beside the query."""
        self._writing[""] = self._held.enter_context(DeferredWork(spark.session, self.work, self.job_gate))
        for name, work in self.work.secondary.items():
            show = partial(_show_deferred, board, name)
            self._writing[name] = self._held.enter_context(CatchUp(work, show))
        self.spark = spark
        self.joined = self._first

    def work_of(self, sink: str) -> Work:
        """Return the part of the plan that is about a sink."""
        return self.work.secondary[sink] if sink else self.work

    def change(self, work: Work, content: bytes, plan: frozenset[str]) -> None:
        """Give everything beside the query another plan."""
        # A batch that runs may still write what the new plan lacks: those indexes must not be dropped yet.
        self.leaving |= self.plan - plan
        self.joined &= plan
        self.work, self.content, self.plan = work, content, plan
        for backfill in self.backfills.values():
            backfill.work = self.work_of(backfill.state.sink)
        for name, writing in list(self._writing.items()):  # a thread may add to them
            writing.change(self.work_of(name))

    def note_taken(self, reached: int) -> None:
        """Note what the query has taken of the plan that was offered last.

        A generation has joined once the stored position is past the end of the batch that was the last
        with the former plan: rows that are read then are as new as what the stream wrote before.
        """
        taken = None if self.query is None else self.query.taken_from()
        if taken is None:
            return
        if not self.job_gate.is_busy:  # a job that runs may have the former plan
            self.leaving = frozenset()
        # Every change after the stored position is written to the new generations from here on.
        if reached >= taken:
            self.joined = self.plan

    def held(self) -> dict[str, HeadraceError]:
        """Return why the documents of a generation wait, by its id; the others go on."""
        # A thread may add to them.
        return {id_: why for writer in [*self._writing.values()] for id_, why in writer.held.errors.items()}

    def failure(self) -> HeadraceError | None:
        """Return why the query or the writing of deferred documents has ended; None while both go on."""
        ended = None if self.query is None else self.query.failure()
        beside = [writer.failure for writer in [*self._writing.values()]]
        return next((failure for failure in (self._failure, ended, *beside) if failure is not None), None)

    def close(self) -> None:
        """End everything; the query's progress is saved on return, where the cluster answers."""
        if self._thread is not None:
            # Spark cannot be interrupted while it starts a query, and one that came later would run unseen.
            self._thread.join()
        try:
            # What runs beside ends first: a job would go on with a plan that no query has.
            for backfill in self.backfills.values():
                backfill.end()
            for backfill in self.backfills.values():
                backfill.join()
            self._held.close()
        finally:
            if self.query is not None:
                self.query.stop()


def _show_deferred(board: StatusBoard, sink: str, deferred: int, away: str | None) -> None:
    board.secondary(sink, deferred=deferred, away=away)
