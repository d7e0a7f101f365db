"""Look at everything that a decision needs, as one frozen `World`, and at what files and orders want.

The order matters: a running query moves slot and state, so the slot is read first, then the state, then the
end of the log.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.continuity import see_server, see_slot
from headrace.pipeline.controller.actions import (
    Action,
    Complete,
    CreateGeneration,
    DropIndex,
    ForgetDeferred,
    Serve,
)
from headrace.pipeline.controller.desired import Desired
from headrace.pipeline.controller.statuses import why_waiting
from headrace.pipeline.controller.world import (
    CatalogSeen,
    Failures,
    ServerSeen,
    SinkSeen,
    SlotSeen,
    Unknown,
    World,
)
from headrace.pipeline.definitions import Definitions
from headrace.pipeline.health_monitor import HealthMonitor
from headrace.pipeline.order_desk import OrderDesk
from headrace.pipeline.reloads import Reloads, in_words
from headrace.pipeline.sink_watch import SinkWatch
from headrace.pipeline.stopping import Stopping
from headrace.pipeline.stream.run_stream import RunStream
from headrace.pipeline.wal_budget import WalBudget
from headrace.state import PipelineState, StateStore
from headrace.state.lease import Lease

_LOG = logging.getLogger(__name__)

# Errors for a name or a right that reading documents lacks: perhaps their file does not fit any more.
_OF_CATALOG = frozenset({Kind.BINDING, Kind.PRIVILEGE})


@dataclass(eq=False, slots=True)
class Observer:
    """Looks at everything once a round; used from the run's thread.

    Attributes:
        sinks: by name; `""` is the one that keeps the state.
        stopping: asks the run to end, and interrupts a look that may take long.
    """

    health: HealthMonitor
    store: StateStore
    definitions: Definitions
    sinks: Mapping[str, SinkWatch]
    stream: RunStream
    budget: WalBudget
    reloads: Reloads
    desk: OrderDesk
    lease: Lease
    stopping: Stopping
    _explained: list[HeadraceError] = field(default_factory=list, init=False)
    _waits_for: HeadraceError | None = field(default=None, init=False)

    def look(self, failures: Mapping[str, Failures]) -> tuple[World, Desired]:
        """Ask everything, within time limits; what does not answer is unknown."""
        self.health.watch(self.stream.signals)
        with self.stopping.interrupting():
            self.health.look(self._waits_for)
        # Slot, state, end of the log, in this order: a running query moves them meanwhile, and the other way
        # round a slot would seem to be ahead of the state, which is a gap.
        slot = self._slot()
        state = self._state()
        known = None if isinstance(state, Unknown) else state
        # Before the first inspection nothing can be planned, so no query runs.
        query = self.stream.seen(known) if self.definitions.is_known else None
        backfills = self.stream.backfills()
        failure = None if query is None else query.failure
        server = self._server(known, fresh=query is None or failure is not None)
        self._look_behind([failure, *(backfill.failure for backfill in backfills.values())])
        catalog = self._catalog(state, known)
        generations = () if known is None else known.generations
        sinks = {name: self._sink(name, watch, known) for name, watch in self.sinks.items()}
        definitions = self.definitions
        world = World(
            now=time.monotonic(),
            state=state,
            server=server,
            slot=slot,
            catalog=catalog,
            sinks=sinks,
            reads=definitions.reads(generations) if definitions.is_known else {},
            unfit=definitions.unfit,
            deferred={id_: count for watch in self.sinks.values() for id_, count in watch.deferred.items()},
            query=query,
            backfills=backfills,
            failures=failures,
            carried_out=self.desk.begun,
            lost_lock=self.health.lost or self.lease.lost(),
        )
        self._waits_for = why_waiting(world)
        return world, self._desired()

    def note(self, action: Action) -> None:
        """Look again in the next round at what an action may change, also where it fails."""
        _LOG.debug("%s: %s", type(action).__name__, action.why)
        self.health.forget()
        if isinstance(action, CreateGeneration | Complete | Serve | DropIndex):
            self.sinks[action.unit.sink].forget()
        if isinstance(action, ForgetDeferred):
            self.sinks[action.sink].forget()

    def _look_behind(self, failures: Sequence[HeadraceError | None]) -> None:
        """Look again where something has failed: catalog and sinks may tell what the failure does not."""
        found = [failure for failure in failures if failure is not None]
        new = [failure for failure in found if failure not in self._explained]
        self._explained = found
        # Once for each failure: it stays in the world until its cause is gone, and a look costs the database.
        if not new:
            return
        self.definitions.is_due = True
        if any(failure.kind in _OF_CATALOG for failure in new):
            self.definitions.inspect_again()
        for watch in self.sinks.values():
            watch.forget()

    def _slot(self) -> SlotSeen | Unknown | None:
        health = self.health
        if health.error is not None:
            return Unknown(health.error)
        slot = health.slot
        if slot is None:
            return None
        over_budget = self.budget.check(slot, health.seconds_behind)
        # Another's slot of this name is never given up. While the cluster is away, the last state tells.
        last = self.store.current
        is_own = last is not None and last.phase == "following"
        return dataclasses.replace(
            see_slot(slot), reader=health.read_by_another, over_budget=over_budget if is_own else ""
        )

    def _state(self) -> PipelineState | Unknown | None:
        """Return the state; while a query runs, as this process has saved it last: nobody else writes it."""
        store = self.store
        if store.current is not None and self.stream.is_running:
            return store.current
        try:
            return store.load()
        except HeadraceError as error:
            return Unknown(error)

    def _server(self, state: PipelineState | None, *, fresh: bool) -> ServerSeen | Unknown:
        try:
            facts = self.health.facts(fresh=fresh)
        except HeadraceError as error:
            return Unknown(error)
        # Facts that are not fresh may be older than a batch that was stored since: it is in the log.
        reached = 0 if state is None or fresh else state.reached
        server = see_server(facts, max(facts.current_lsn, reached))
        # The slot was looked at first. What a standby lacked is no gap, though it is promoted by now.
        return dataclasses.replace(server, standby=server.standby or self.health.standby)

    def _catalog(
        self, state: PipelineState | Unknown | None, known: PipelineState | None
    ) -> CatalogSeen | Unknown | None:
        if isinstance(state, Unknown):
            return state
        try:
            with self.stopping.interrupting():
                return self.definitions.look(self.health.connection, known)
        except HeadraceError as error:
            return Unknown(error)

    def _sink(self, name: str, watch: SinkWatch, state: PipelineState | None) -> SinkSeen | Unknown:
        stored = () if state is None else state.in_sink(name).generations
        with self.stopping.interrupting():
            return watch.look(stored)

    def _desired(self) -> Desired:
        definitions, deployment = self.definitions, self.definitions.project.deployment
        with self.stopping.interrupting():  # a cluster that hangs must not delay the end of the run
            orders = self.desk.open_orders()
        return Desired(
            definitions.units(),
            orders,
            keep=deployment.generations.keep,
            most_deferred=deployment.max_deferred,
            reseeds=definitions.project.reseeds,
            reloaded={id_: str(result) for id_, result in self.reloads.results.items()},
            misread={id_: in_words(error) for id_, error in self.reloads.refusals.items()},
            stopping=self.stopping.is_set(),
        )
