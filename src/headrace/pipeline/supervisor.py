"""What is done beside a running query, until it is to end?

Readers get what is filled, orders are carried out, the board is kept up to date, and whatever ends the query
is noticed: a failure, another one who took the slot, an altered table.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from headrace.catalog.needs import Needs
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model import Lsn
from headrace.pipeline.backfill import BackfillFailure, Backfills
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.health_monitor import HealthMonitor
from headrace.pipeline.project import Endpoints, Project
from headrace.pipeline.schema_drift import CatalogBaseline, SchemaDriftMonitor
from headrace.pipeline.secondary_sinks import SecondarySinks
from headrace.pipeline.stopping import Stopped, Stopping
from headrace.pipeline.stream.deferred_work import DeferredWork
from headrace.pipeline.stream.documents_query import DocumentsQuery
from headrace.postgres.locks import SlotLock
from headrace.sinks.opensearch import ControlRequest, ControlRequests, GenerationState
from headrace.sinks.opensearch.lease import Lease
from headrace.spark.job_gate import JobGate
from headrace.status.board import StatusBoard
from headrace.status.phases import Event

_LOOK_SECONDS = 0.25
_QUIET_SECONDS = 15.0
_ORDER_SECONDS = 1.0
_NOTED_SECONDS, _NOTED_POLL = 10.0, 0.05


@dataclass(frozen=True, slots=True)
class QueryEnd:
    """Why a query is to end.

    Attributes:
        failure: what it failed of; None where it did not.
        again: it is to run again, perhaps with other generations; else the run ends.
        failed: what cannot be filled.
        orders: what somebody asks for.
        replaced: what is not what was written any more, frozen.
        further: what the secondary sinks ask for, as `Branches.look` says it.
    """

    failure: HeadraceError | None = None
    again: bool = False
    failed: BackfillFailure | None = None
    orders: Sequence[ControlRequest] = ()
    replaced: Sequence[GenerationState] = ()
    secondary: Mapping[str, BackfillFailure | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A query, what it is planned for, and what is beside it.

    Attributes:
        lineage: whose generations it writes.
        known, altered: what the tables are like in its plan; what is altered since.
        needs: what the query was told that its plan needs of the log.
    """

    query: DocumentsQuery
    generation_log: GenerationLog
    known: CatalogBaseline
    altered: SchemaDriftMonitor
    needs: Needs
    _: KW_ONLY
    beside: DeferredWork
    filling: Backfills
    job_gate: JobGate


@dataclass(frozen=True, slots=True)
class RunContext:
    """What stays the same from one query of a run to the next.

    Attributes:
        live: told, once the query has begun, whether readers are still waiting for something.
    """

    project: Project
    endpoints: Endpoints
    board: StatusBoard
    stopping: Stopping
    orders: ControlRequests
    secondary_sinks: SecondarySinks
    exported: HeldSnapshot
    lock: SlotLock
    lease: Lease | None
    live: Callable[[bool], None]


def needs_of(known: CatalogBaseline, generation_log: GenerationLog, secondary_sinks: SecondarySinks) -> Needs:
    """What the log must hold for all that is written."""
    named = [(generation_log.seeding.name_of(one), one.as_of) for one in generation_log.written]
    return known.needs([*named, *secondary_sinks.needs()])


class Supervisor:
    """Looks after one running query; used from the main thread."""

    def __init__(self, around: RunContext, running: RunningQuery) -> None:
        self._around = around
        self._running = running
        self._generation_log = running.generation_log
        self._filled: list[tuple[GenerationState, int]] = []
        self._next_orders = 0.0

    def until_ended(self) -> QueryEnd:
        """Keep the board up to date while the query runs; why it is to end.

        Raises:
            HeadraceError: SLOT_IN_USE, where another Headrace took the slot while the server was away;
                SCHEMA_CHANGED or REPLICA_IDENTITY, where someone has altered a table; what keeps an index
                without a served generation from being filled.
        """
        around, running, generation_log = self._around, self._running, self._generation_log
        query, filling, stopping = running.query, running.filling, around.stopping
        began, begun, live = time.monotonic(), False, False
        with HealthMonitor(
            around.endpoints,
            around.project,
            around.board,
            around.lock,
            catalog=running.altered,
            trouble=query.trouble,
        ) as watch:
            while not stopping.is_set():
                if not query.active:
                    unknown = HeadraceError(Kind.SPARK, "the query ended without a reason")
                    return QueryEnd(query.failure() or unknown)
                if (failure := running.beside.failure()) is not None:
                    return QueryEnd(failure)
                if around.lease is not None and (lost := around.lease.lost()) is not None:
                    raise lost
                self._publish()
                begun = begun or query.begun() or time.monotonic() - began > _QUIET_SECONDS
                if begun:
                    running.job_gate.begin()
                if begun and not live:
                    live = self._say_whether_live()
                if (failed := filling.failure()) is not None:
                    return self._failed_to_fill(failed)
                if begun:
                    watch.look()
                    if (asked := self._asked()) is not None:
                        return asked
                    live = live and not generation_log.building
                stopping.wait(_LOOK_SECONDS)
        return QueryEnd()

    def _say_whether_live(self) -> bool:
        """Whether nothing is filled any more; a gap is closed once readers see what is followed."""
        live = not self._generation_log.building
        self._around.live(not live)
        if live and self._generation_log.serves_all:
            self._around.board.gap_closed()
        return live

    def _asked(self) -> QueryEnd | None:
        """Do what is asked for; an ending where that is only possible between two queries."""
        orders = self._ordered()
        if replaced := self._generation_log.replaced():
            return QueryEnd(again=True, orders=orders, replaced=replaced)
        secondary = self._around.secondary_sinks.look(self._generation_log.state)
        if self._running.altered.moved or secondary:
            return QueryEnd(again=True, orders=orders, secondary=secondary)
        if (orders or self._generation_log.must_drop) and not self.reloaded_plan(orders):
            return QueryEnd(again=True, orders=orders)
        return None

    def reloaded_plan(self, orders: Sequence[ControlRequest]) -> bool:
        """Let the running query write what is ordered, and nothing that is to be dropped.

        False where it must begin anew for that; what was done for the orders then stays.
        """
        if self._around.secondary_sinks or self._around.exported.slot is not None:
            return False
        try:
            return self._reload_plan(orders)
        except Stopped:  # while it waited for the cluster: the query ends as it always does
            return True

    def _reload_plan(self, orders: Sequence[ControlRequest]) -> bool:
        running, generation_log, stopping = self._running, self._generation_log, self._around.stopping
        filled = {one.generation for one in generation_log.building}
        with stopping.interrupting():  # never while the JVM is asked: half an answer would stay behind
            done = generation_log.obey(
                orders
            )  # also without any: what leaves the plan must not be in the state
        needs = needs_of(running.known, generation_log, self._around.secondary_sinks)
        if generation_log.doomed & filled or needs != running.needs:
            return False
        work = generation_log.seeding.work(generation_log.written)
        running.beside.change(work)
        running.filling.change(work)
        position = running.query.change(work, stopping)
        if position is None or not self._is_noted(position):
            return not running.query.active  # then somebody else asks why
        if new := [one for one in generation_log.building if one.generation not in filled]:
            self._around.board.happened(Event.SEEDING)
            running.filling.begin(work, new)
        with stopping.interrupting():
            generation_log.obeyed(done)
        if generation_log.doomed and not running.job_gate.is_taken:  # by a job that has the former plan
            with contextlib.suppress(HeadraceError):  # then at the next look
                generation_log.drop_doomed()
        return True

    def _is_noted(self, position: Lsn) -> bool:
        """Wait a little until it is: what is filled then is read behind all that it was not told of."""
        deadline = time.monotonic() + _NOTED_SECONDS
        while not self._generation_log.covers(position):
            if time.monotonic() > deadline or self._around.stopping.wait(_NOTED_POLL):
                return False
        return True

    def _publish(self) -> None:
        """Let readers see what is complete; where the cluster is away, at the next look."""
        self._filled += self._running.filling.completed()
        self._generation_log.prepare([one for one, _ in self._filled])
        while self._filled:
            try:
                self._generation_log.complete(*self._filled[0])
            except HeadraceError as error:
                if error.retry is Retry.NEVER:
                    raise
                return
            del self._filled[0]
        if not self._generation_log.building:
            self._around.exported.close()
        elif self._around.exported.close_if_due():
            self._around.board.report.info(
                "the slot's snapshot is given up, so that VACUUM can go on; what is left is read as it is"
            )

    def _failed_to_fill(self, failed: BackfillFailure) -> QueryEnd:
        """What is served goes on; an index that nobody can read yet ends the run."""
        if self._generation_log.state.served(failed.generation.index) is None:
            return QueryEnd(failed.error)
        self._around.board.failed(failed.error)
        return QueryEnd(again=True, failed=failed)

    def _ordered(self) -> list[ControlRequest]:
        """What somebody asks for, looked up now and then; of a silent cluster is told elsewhere."""
        if time.monotonic() < self._next_orders:
            return []
        self._next_orders = time.monotonic() + _ORDER_SECONDS
        with contextlib.suppress(HeadraceError):
            return self._around.orders.read(self._around.project.specs)
        return []
