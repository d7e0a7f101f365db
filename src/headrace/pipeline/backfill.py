"""How is a generation filled while live changes flow into it?

A thread beside the stream lets Spark jobs read some ranges of rows each, notes what is done, and begins again
with what is left, whatever happens. When nothing is left it compares the ids, and says that it is complete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from headrace.assembly.identities import Identities
from headrace.errors import SEED_AGAIN, HeadraceError, Kind, Retry, patiently, unexpected
from headrace.model import CtidRange, Lsn, key_of_id
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.reconciliation import sweep
from headrace.pipeline.stream.documents_job import BackfillRange, BackfillRanges, run_pieces
from headrace.pipeline.worker.plan import Work
from headrace.pipeline.worker.workers import made
from headrace.postgres.session import ReadSession
from headrace.sinks.opensearch import Client, GenerationState, MetaIndex, StateDocument, build_notes
from headrace.sinks.opensearch.documents import count, ids, refresh
from headrace.snapshot import RangesDone, plan_ranges
from headrace.spark.job_gate import JobGate
from headrace.spark.session import LocalSpark, places_beside
from headrace.status.board import IndexBoard
from headrace.status.rate import Rate

_LOG = logging.getLogger(__name__)
_MOST_BYTES, _LEAST_BYTES = 8 << 20, 1 << 20
"""Of a range's table file."""
_RANGES_OF_A_PLACE = 4
"""In one job: a kill repeats no more than one job. Beside readers half as many, and of the smaller ones: what
follows can make room for the stream soon."""
_MOST_RESTARTS = 5
_POLL_SECONDS = 0.2
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class BackfillRate:
    """What a seeding may take: rows in a second of all tasks together, and tasks at once."""

    rows_per_second: float | None = None
    connections: int | None = None


@dataclass(slots=True)
class _Filling:
    """One generation that is filled.

    Attributes:
        done: what is read.
        documents: that were written, by this start and those before.
        disturbed: something was repeated, so the cluster may hold what it should not.
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


@dataclass(frozen=True, slots=True)
class BackfillFailure:
    """Why a generation cannot be filled."""

    generation: GenerationState
    error: HeadraceError


class Backfill:
    """Fills generations for as long as this is entered.

    Args:
        work: the stream's own, which holds the generations.
        generations: those to fill.
        board: is told of the progress.
        snapshot: whose documents are read at `joined`, while it is held; without it: what is there.
        turn: see `DeferredWork`.
    """

    def __init__(
        self,
        spark: LocalSpark,
        work: Work,
        generations: Sequence[GenerationState],
        board: IndexBoard,
        *,
        snapshot: HeldSnapshot | None,
        pace: BackfillRate,
        job_gate: JobGate,
    ) -> None:
        self._spark = spark.session
        self._work = work
        self._board = board
        self._snapshot = snapshot
        self._pace = pace
        self._job_gate = job_gate
        self._group = f"headrace-seed-{uuid.uuid4().hex}"
        self._generations = generations
        self._apart = False
        self._lock = threading.Lock()
        self._complete: list[tuple[GenerationState, int]] = []
        self._failure: BackfillFailure | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work_off, name="headrace building", daemon=True)

    def __enter__(self) -> Self:
        if self._generations:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        while self._thread.is_alive():  # again and again: its job may not have begun yet
            self._spark.sparkContext.cancelJobGroup(self._group)
            self._thread.join(_POLL_SECONDS)

    def change(self, work: Work) -> None:
        """Let later jobs have this plan, which holds what is to be filled as the former one does."""
        self._work = work

    def completed(self) -> list[tuple[GenerationState, int]]:
        """Those that are complete since it was asked last, with the number of documents written."""
        with self._lock:
            found, self._complete = self._complete, []
        return found

    def failure(self) -> BackfillFailure | None:
        """What has ended it; None while it works, or has nothing left to do."""
        return self._failure

    def _work_off(self) -> None:
        plan = self._work.plan
        connections = self._work.connections
        with (
            contextlib.closing(Client(connections.sink)) as client,
            contextlib.closing(Client(connections.keeps_state)) as state,
        ):
            meta = MetaIndex(state, plan.slot, plan.prefix)
            try:
                self._fill_all(client, meta, [self._begun(state, one) for one in self._generations])
            except HeadraceError as error:
                if not self._ending.is_set():
                    self._failure = BackfillFailure(self._generations[0], error)
            except _Failed as failed:
                self._failure = failed.failure
            except Exception as error:  # noqa: BLE001 - a thread's last words: whoever asks next gets them
                if not self._ending.is_set():
                    found = unexpected("filling a generation failed", error)
                    self._failure = BackfillFailure(self._generations[0], found)

    def _begun(self, client: Client, one: GenerationState) -> _Filling:
        plan = self._work.plan
        notes = build_notes(client, plan.slot, plan.prefix, one.generation)
        for attempt in patiently(ending=self._ending):
            with attempt:
                known = notes.load()
        filling = _Filling(one, notes)
        if known is not None:
            filling.done = RangesDone.from_json(known["done"])
            filling.documents, filling.disturbed = known["documents"], True
        return filling

    def _fill_all(self, client: Client, meta: MetaIndex, fillings: list[_Filling]) -> None:
        """Until all are complete; after each failure the ranges are planned again."""
        failures = 0
        waiting = list(fillings)
        while waiting and not self._ending.is_set():
            portion: list[_Filling] = []
            try:
                self._plan(waiting)
                while waiting and not self._ending.is_set():
                    for one in [one for one in waiting if not one.left]:
                        portion = [one]
                        self._complete_one(client, meta, one)
                        waiting.remove(one)
                    if waiting:
                        portion = self._fill_some(meta, waiting)
                        failures = 0
            except HeadraceError as error:
                if self._ending.is_set():
                    return
                failures += 1
                for one in waiting:
                    one.disturbed = True
                self._after(error, failures, portion or waiting)

    def _after(self, error: HeadraceError, failures: int, concerned: list[_Filling]) -> None:
        """Wait, or do otherwise; or give up."""
        if error.kind is Kind.CONTINUITY and failures <= _MOST_RESTARTS:  # rewritten: planned anew
            return
        if error.retry is Retry.BACK_OFF or (error.kind is Kind.SPARK and failures <= _MOST_RESTARTS):
            self._ending.wait(min(_PAUSE_SECONDS * 2**failures, 30.0))
            return
        if len(concerned) > 1 and not self._apart:
            self._apart = True
            return
        raise _Failed(BackfillFailure(concerned[0].state, error))

    def _plan(self, fillings: list[_Filling]) -> None:
        """What is left of each, as the tables are now."""
        plan = self._work.plan
        tables = [plan.catalog[plan.specs[one.name].table] for one in fillings]
        with ReadSession(self._work.connections.database) as session:
            size = _LEAST_BYTES if self._job_gate.is_read() else _MOST_BYTES
            found = [plan_ranges(session, table, size) for table in tables]
            few = sum(map(len, found)) < self._places()
            if few and size > _LEAST_BYTES:  # small tables, too, are read by all
                found = [plan_ranges(session, table, _LEAST_BYTES) for table in tables]
        for one, ranges in zip(fillings, found, strict=True):
            one.left = deque(one.done.left(ranges))
            one.ranges = len(ranges)
            self._show(one)

    def _fill_some(self, meta: MetaIndex, fillings: list[_Filling]) -> list[_Filling]:
        """One job: some ranges of each generation in turn. Returns those that it concerned."""
        places = self._places()
        open_ = [one for one in fillings if one.left]
        if self._apart:
            open_ = open_[:1]
        is_read = self._job_gate.is_read()
        each = _RANGES_OF_A_PLACE // 2 if is_read else _RANGES_OF_A_PLACE
        chosen = _in_turn(open_, places * each)
        state = meta.load()
        if state is None:
            raise HeadraceError(
                Kind.CONTINUITY, "the state of this deployment was deleted while it runs", SEED_AGAIN
            )
        rate = self._pace.rows_per_second
        pace = None if rate is None else rate / min(places, len(chosen))
        pieces = []
        for one, part in chosen:
            one.changes = state.counters.changes if one.changes < 0 else one.changes
            exported = self._exported(one)
            version = state.reached if exported is None else one.state.joined
            pieces.append(BackfillRange(one.name, part, version, exported, pace, throttled=is_read))
        began = time.monotonic()
        tasks = [
            BackfillRanges("", tuple(pieces[first::places])) for first in range(min(places, len(pieces)))
        ]
        with self._job_gate.taken(self._ending):
            written = run_pieces(self._spark, self._work, tasks, self._group)
        for one in open_:
            mine = [part for owner, part in chosen if owner is one]
            self._note(one, mine, written.get(one.name, 0), time.monotonic() - began)
        return open_

    def _exported(self, one: _Filling) -> str | None:
        """The slot's snapshot, for a generation that joined where it was taken; others came later."""
        slot = None if self._snapshot is None else self._snapshot.slot
        if slot is None or one.state.joined > slot.consistent_point:
            return None
        return slot.snapshot_name

    def _places(self) -> int:
        """How many ranges are read at once."""
        places = places_beside(self._spark)
        if self._job_gate.crowded():
            places = max(1, places // 2)
        return min(places, self._pace.connections or places)

    def _note(self, one: _Filling, parts: list[CtidRange], documents: int, seconds: float) -> None:
        for part in parts:
            one.done = one.done.done(part)
        one.left = deque(part for part in one.left if part not in parts)
        one.documents += documents
        one.rate.add(documents, seconds, len(parts))
        _LOG.debug("%s: %d ranges gave %d documents in %.1f s", one.name, len(parts), documents, seconds)
        for attempt in patiently(ending=self._ending):
            with attempt:
                one.notes.save({"done": one.done.to_json(), "documents": one.documents})
        self._show(one)

    def _complete_one(self, client: Client, meta: MetaIndex, one: _Filling) -> None:
        """Compare the ids where something can have gone wrong, and say that it is done."""
        if not self._work.plan.is_plain:  # who cannot be asked what it holds is not
            self._compare(client, meta, one)
        with self._lock:
            self._complete.append((dataclasses.replace(one.state), one.documents))

    def _compare(self, client: Client, meta: MetaIndex, one: _Filling) -> None:
        state = meta.load()
        refresh(client, one.name)
        undisturbed = state is not None and state.counters.changes == one.changes and not one.disturbed
        if not undisturbed or count(client, one.name) != one.documents:
            self._sweep(client, meta, one)

    def _sweep(self, client: Client, meta: MetaIndex, one: _Filling) -> None:
        plan = self._work.plan
        spec = plan.specs[one.name]
        state = meta.load()
        assert state is not None, "it was there a moment ago"
        with (
            ReadSession(self._work.connections.database) as session,
            contextlib.closing(made(self._work)) as worker,
        ):
            session.await_replay(state.reached)
            version: Lsn = state.reached

            def mend(found: list[str]) -> None:
                keys = [key_of_id(id_, len(spec.primary_key)) for id_ in found]
                worker.mend(one.name, keys, version)

            mended = sweep(Identities(session, spec, plan.catalog), lambda: ids(client, one.name), mend)
        if mended:
            self._board.report.info(f"{one.state.index}: {mended:,} ids looked at again")
            refresh(client, one.name)

    def _show(self, one: _Filling) -> None:
        done = one.ranges - len(one.left)
        self._board.index(
            one.state.index,
            building=one.name,
            ranges_done=max(0, done),
            ranges_total=one.ranges,
            documents=one.documents,
            documents_per_second=one.rate.per_second,
            seconds_left=one.rate.seconds_for(len(one.left)),
        )


class Backfills:
    """All that is filled beside one query; a context manager, used from one thread.

    Args:
        make: what fills some generations, with a plan that holds them.
    """

    def __init__(self, make: Callable[[Work, Sequence[GenerationState]], Backfill]) -> None:
        self._make = make
        self._held = contextlib.ExitStack()
        self._all: list[Backfill] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def begin(self, work: Work, generations: Sequence[GenerationState]) -> None:
        """Fill these, too."""
        self._all.append(self._held.enter_context(self._make(work, generations)))

    def change(self, work: Work) -> None:
        """See `Building.change`."""
        for one in self._all:
            one.change(work)

    def completed(self) -> list[tuple[GenerationState, int]]:
        """See `Building.completed`."""
        return [found for one in self._all for found in one.completed()]

    def failure(self) -> BackfillFailure | None:
        """See `Building.failure`: the first."""
        return next((found for one in self._all if (found := one.failure()) is not None), None)


class _Failed(Exception):  # noqa: N818 - no error for a person
    def __init__(self, failure: BackfillFailure) -> None:
        super().__init__(failure)
        self.failure = failure


def _in_turn(fillings: Sequence[_Filling], most: int) -> list[tuple[_Filling, CtidRange]]:
    """The next ranges of each, one after the other, so that all get on alike."""
    waiting = [(one, deque(one.left)) for one in fillings]
    found: list[tuple[_Filling, CtidRange]] = []
    while len(found) < most and any(parts for _, parts in waiting):
        found += [(one, parts.popleft()) for one, parts in waiting if parts]
    return found[:most]
