"""One schedule: events in an order that a seed decides, then peace, and what must be true by then.

While faults come, `Process` checks at each confirmation and each swap of an alias. Afterwards everything
answers again, and within a bounded number of rounds every unit is live, right, and built no more often than
it had to be.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.controller.actions import (
    Action,
    BeginAgain,
    CreateSlot,
    DropSlot,
    StopFollowing,
    is_step_of_unit,
)
from headrace.pipeline.controller.reconcile import reconcile
from headrace.pipeline.controller.statuses import status_of, why_waiting
from headrace.state import Order, Unit
from headrace.state.orders import OrderKind
from headrace.state.pipeline_state import generation_id
from headrace.status.board import UnitPhase
from simulation.process import Crash, Files, Process, Setting, Stored
from simulation.servers import ROWS, TABLES, Cluster, Index, Server, Slot

EVENTS = 120
"""Events of one schedule."""
_MOST_ROUNDS = 100
_WAITING_ROUNDS = 60
_MOST_WITHOUT_QUERY = 6
_MOST_OVER_BUDGET = 6
_BEFORE_A_QUERY = (
    "CreateState",
    "SetUp",
    "CreateSlot",
    "BeginAgain",
    "StopFollowing ",
    "Forget ",
    "StartQuery",
)
"""How the keys of the steps begin without which no query runs."""
_FOLLOWING_FIRST = 0.7
"""How many schedules begin with a deployment that is live."""
_READS = {
    "users": (("customers", "orders"), ("customers",), ("customers", "tags")),
    "parcels": (("orders",), ("orders", "tags")),
}


class Violation(AssertionError):  # noqa: N818 - what it is called in the field
    """A property does not hold; the message tells the story."""


@dataclass
class Schedule:
    """One run of the simulation.

    Attributes:
        seed: decides everything.
        left_out: numbers of events that are skipped, to find a shorter story.
    """

    seed: int
    left_out: frozenset[int] = frozenset()
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.causes: Counter[Unit] = Counter()
        self.stored: Counter[Unit] = Counter()
        self.built_for: Counter[str] = Counter()
        self._without_query = self._over_budget = self._silent = 0
        self._killing = 0.0
        self._kills = random.Random(self.seed + 1)
        chance = self.random
        server = Server()
        for table in TABLES:
            for row in ROWS:
                if chance.random() < 0.6:
                    server.commit(table, row, delete=False)
        server.show()
        self.setting = Setting(
            server,
            {"": Cluster(), "archive": Cluster()} if chance.random() < 0.6 else {"": Cluster()},
            Stored(),
            Files({index: chance.choice(reads) for index, reads in _READS.items()}),
            keep=chance.choice((0, 1, 1, 2)),
            kill=self._kill,
        )
        self.process: Process | None = None
        self._events = self._weighted()

    # Events.

    def _weighted(self) -> tuple[Sequence[Callable[[], None]], Sequence[float]]:
        events: dict[Callable[[], None], float] = {
            self._round: 22,
            self._query: 22,
            self._backfill: 14,
            self._deferred: 5,
            self._commit: 18,
            self._wait: 3,
            self._crash: 1.5,
            self._cluster_up: 3,
            self._server_up: 2,
            self._unlock: 1,
            self._return_aliases: 0.5,
            self._accept: 1,
            self._empty_cluster: 1,
            self._fit: 0.8,
            self._own: 0.5,
            self._leave_slot: 0.5,
            self._calm: 2,
            self._lead_back: 2,
        }
        faults: dict[Callable[[], None], float] = {
            self._cluster_down: 1.5,
            self._server_down: 0.7,
            self._lead_to_standby: 0.3,
            self._lock: 0.5,
            self._rewrite: 0.9,
            self._lose_rows: 1.4,
            self._delete_index: 0.5,
            self._replace_index: 0.4,
            self._restore_index: 0.5,
            self._steal_alias: 0.5,
            self._break_query: 0.3,
            self._take_sink: 0.3,
            self._lose_keys: 0.3,
            self._busy: 0.4,
            self._refuse: 0.6,
            self._fail_at: 0.4,
            self._unset: 0.4,
            self._fill_cluster: 0.4,
            self._lose_slot: 0.25,
            self._advance_slot: 0.5,
            self._read_slot: 0.3,
            self._exceed_budget: 0.15,
            self._change_file: 0.5,
            self._misfit: 0.3,
            self._disown: 0.5,
            self._reindex: 1.2,
            self._roll_back: 0.7,
            self._reload: 0.8,
        }
        # Half of them in each schedule, twice as often: some mistakes show only where others do not disturb.
        chosen = self.random.sample(list(faults), len(faults) // 2)
        events |= {fault: 2 * faults[fault] for fault in chosen}
        return list(events), list(events.values())

    def run(self, events: int = EVENTS) -> None:
        """Let events happen, then let peace come, and check.

        Raises:
            Violation: with the story.
        """
        choose, weights = self._events
        if self.random.random() < _FOLLOWING_FIRST:
            self._settle()
        self._killing = self.random.choice((0.0, 0.01, 0.04))
        whole = self.random
        for number, event in enumerate(whole.choices(choose, weights, k=events)):
            if number in self.left_out:
                continue
            # Its own chances, so that an event does the same when others before it are left out.
            self.random = random.Random(self.seed * 1_000_003 + number)
            self._happen(number, event)
        self.random = whole
        self._make_peace()

    def _happen(self, number: int, event: Callable[[], None]) -> None:
        try:
            event()
        except Crash:
            self._tell(f"{number}: the process is killed")
            self._die()
        except Violation:
            raise
        except AssertionError as error:
            raise Violation(f"{error}\n{self.tale()}") from error

    def tale(self) -> str:
        """The story so far."""
        return "\n".join([f"seed {self.seed}", *self.story])

    def _tell(self, line: str) -> None:
        self.story.append(line)

    def _kill(self) -> None:
        if self._killing and self._kills.random() < self._killing:
            raise Crash

    def _die(self) -> None:
        self.process = None
        self._without_query = self._over_budget = self._silent = 0

    def _acted(self, action: Action) -> None:
        self._tell(f"    {type(action).__name__} {getattr(action, 'unit', '')}: {action.why}")
        if isinstance(action, BeginAgain | CreateSlot | DropSlot):
            self._without_query = 0  # after a gap there is nothing to read yet
        slot = self.setting.server.slot
        if isinstance(action, BeginAgain) and slot is not None and slot.hollow:
            self._cause(
                lambda _: True
            )  # a kill amid this is followed by another try, which nothing announces
        if isinstance(action, BeginAgain):
            self._must(self.setting.server.standby is None, "what a standby lacks counts as a gap")
            self.setting.rolled_back.clear()  # also one between the loss and its discovery
        if isinstance(action, StopFollowing):
            self.setting.rolled_back.pop(action.unit, None)  # perhaps what was rolled back to
        if isinstance(action, StopFollowing) and action.failure is not None:
            own = action.generation.id in action.failure.units
            self._must(own, f"{action.unit} is stopped for what does not concern it")
            passes = action.failure.kind is Kind.LOCKED
            self._must(not passes, f"{action.unit} is built again, where somebody has only locked a table")
        if isinstance(action, StopFollowing) and (action.failure is not None or "waited" in action.why):
            self.causes[action.unit] += 1  # each further try is one

    # What the process does.

    def _alive(self) -> Process:
        if self.process is None:
            self.process = Process(self.setting, self._acted, self._between)
            self._tell("a run begins")
        self._must(self.process.ended is None, f"the run has ended by itself: {self.process.ended}")
        return self.process

    def _between(self) -> None:
        """Others work while the controller looks."""
        if self.process is not None and self.process.query is not None and self.random.random() < 0.3:
            self.process.query.step(3)

    def _round(self) -> None:
        self._check_stream()
        self._check_budget()
        before = {state.id for state in self.setting.stored.generations}
        process = self._alive()
        try:
            process.go_round()
            self._end_first_start(process)
        finally:
            for state in self.setting.stored.generations:
                if state.id not in before:
                    self.stored[Unit(state.sink, state.index)] += 1
                    if state.request:
                        self.built_for[state.request] += 1

    def _end_first_start(self, process: Process) -> None:
        """Let a supervisor start a run again that may not publish a table, and so follows nothing."""
        error = None if process.ended is None else process.ended.error
        if error is not None and error.kind is Kind.PRIVILEGE and not process.owns_slot:
            self._tell(f"the run ends: {error.cause}")
            self._die()

    def _query(self) -> None:
        process = self._alive()
        if process.query is not None:
            for _ in range(self.random.randint(1, 5)):
                process.query.step(3)

    def _backfill(self) -> None:
        process = self._alive()
        if process.backfills:
            backfill = process.backfills[self.random.choice(sorted(process.backfills))]
            for _ in range(self.random.randint(1, 5)):
                backfill.step()

    def _deferred(self) -> None:
        self._alive().write_deferred()

    def _wait(self) -> None:
        self.setting.now += self.random.choice((1.0, 5.0, 60.0, 600.0))

    def _crash(self) -> None:
        raise Crash

    # What others do.

    def _commit(self) -> None:
        table, row = self.random.choice(TABLES), self.random.choice(ROWS)
        self.setting.server.commit(table, row, delete=self.random.random() < 0.25)
        if self.random.random() < 0.4:
            self.setting.server.show()

    def _rewrite(self) -> None:
        table = self.random.choice(TABLES)
        self._tell(f"{table} is rewritten")
        self.setting.server.rewrite(table)
        self._cause(lambda unit: table in self._read_by(unit))

    def _lose_rows(self) -> None:
        table = self.random.choice(TABLES)
        self._tell(f"{table} loses a partition")
        self.setting.server.lose_rows(table)
        # One that is being filled begins again.
        self._cause(lambda unit: table in self._read_by(unit))

    def _cluster_down(self) -> None:
        name = self.random.choice(sorted(self.setting.clusters))
        self._tell(f"the cluster {name!r} goes away")
        self.setting.clusters[name].up = False

    def _cluster_up(self) -> None:
        name = self.random.choice(sorted(self.setting.clusters))
        self.setting.clusters[name].up = True

    def _server_down(self) -> None:
        self._tell("the database goes away")
        self.setting.server.up = False

    def _server_up(self) -> None:
        self.setting.server.up = True

    def _lead_to_standby(self) -> None:
        timeline = self.setting.server.timeline - self.random.choice((0, 1))
        self._tell(f"the address leads to a standby on timeline {timeline}")
        self.setting.server.standby = timeline

    def _lead_back(self) -> None:
        self.setting.server.standby = None

    def _delete_index(self) -> None:
        if (found := self._some_index()) is not None:
            sink, name = found
            index = self.setting.clusters[sink].indexes.pop(name)
            aliases = self.setting.clusters[sink].aliases
            if aliases.get(index.owner) == name:
                del aliases[index.owner]
            self._tell(f"{name} is deleted in {sink!r}")
            self._cause(lambda unit: unit == Unit(sink, index.owner))

    def _replace_index(self) -> None:
        """Another index gets its name, as a restore under this name brings it."""
        if (found := self._some_index()) is not None:
            sink, name = found
            index = self.setting.clusters[sink].indexes[name]
            self.setting.clusters[sink].indexes[name] = Index(
                index.owner, index.definition, f"{index.uuid}'", index.history
            )
            self._tell(f"{name} in {sink!r} is another index")
            self._cause(lambda unit: unit == Unit(sink, index.owner))

    def _restore_index(self) -> None:
        if (found := self._some_index()) is not None:
            sink, name = found
            index = self.setting.clusters[sink].indexes[name]
            index.history += "'"
            for row in list(index.documents):
                if self.random.random() < 0.5:
                    del index.documents[row]
            self._tell(f"{name} is restored in {sink!r}")
            self._cause(lambda unit: unit == Unit(sink, index.owner))

    def _steal_alias(self) -> None:
        if (found := self._some_index()) is not None:
            sink, name = found
            owner = self.setting.clusters[sink].indexes[name].owner
            served = [
                state
                for state in self.setting.stored.generations
                if state.sink == sink and state.index == owner and state.published
            ]
            if served:
                self._tell(f"the alias of {owner} in {sink!r} is removed")
                self.setting.clusters[sink].aliases.pop(owner, None)

    def _return_aliases(self) -> None:
        """Somebody mends by hand what the run could not."""
        for state in self.setting.stored.generations:
            cluster = self.setting.clusters[state.sink]
            if state.published and state.generation in cluster.indexes:
                cluster.aliases[state.index] = state.generation

    def _break_query(self) -> None:
        """The server has a fault, once."""
        query = None if self.process is None else self.process.query
        if query is not None and query.failure is None:
            self._tell("the server has a fault")
            query.failure = HeadraceError(Kind.SERVER_FAULT, "the server has a fault")

    def _take_sink(self) -> None:
        name = self.random.choice(sorted(self.setting.clusters))
        # Who loses the primary sink ends, and reads nothing of it: the next start is another story.
        if name:
            self._tell(f"another process takes the sink {name!r}, and leaves it")
            self.setting.clusters[name].taken = True
            self._cause(lambda unit: unit.sink == name)

    def _lose_keys(self) -> None:
        if (archive := self.setting.clusters.get("archive")) is not None:
            self._tell("what waited for the archive is lost")
            archive.keys_lost = True
            for id_, row in [key for key in self.setting.stored.deferred if key[0].startswith("archive/")]:
                del self.setting.stored.deferred[id_, row]
            self._cause(lambda unit: bool(unit.sink))

    def _busy(self) -> None:
        self._tell("the list of generations cannot be written")
        self.setting.stored.busy = True

    def _calm(self) -> None:
        self.setting.stored.busy = False

    def _lock(self) -> None:
        table = self.random.choice(TABLES)
        self._tell(f"somebody locks {table}")
        self.setting.server.locked.add(table)

    def _unlock(self) -> None:
        self.setting.server.locked.clear()

    def _refuse(self) -> None:
        unit = self.random.choice(self.setting.units())
        self._tell(f"{unit} is refused")
        self.setting.clusters[unit.sink].refuses.add(unit.index)

    def _fail_at(self) -> None:
        unit = self.random.choice(self.setting.units())
        self._tell(f"the cluster fails at {unit}")
        self.setting.clusters[unit.sink].fails_at.add(unit.index)

    def _unset(self) -> None:
        unit = self.random.choice(self.setting.units())
        self._tell(f"settings of {unit} are refused")
        self.setting.clusters[unit.sink].unset.add(unit.index)

    def _accept(self) -> None:
        for cluster in self.setting.clusters.values():
            cluster.refuses.clear()
            cluster.fails_at.clear()
            cluster.unset.clear()

    def _fill_cluster(self) -> None:
        name = self.random.choice(sorted(self.setting.clusters))
        self._tell(f"the cluster {name!r} takes no new index and no new alias")
        self.setting.clusters[name].full = True

    def _empty_cluster(self) -> None:
        for cluster in self.setting.clusters.values():
            cluster.full = False

    def _lose_slot(self) -> None:
        slot = self.setting.server.slot
        if slot is not None:
            way = self.random.choice(("dropped", "lost", "hollow"))
            self._tell(f"the slot is {way}")
            slot.lost, slot.hollow = "its log is removed" if way == "lost" else "", way == "hollow"
            if way == "dropped":
                self.setting.server.slot = None
            self._cause(lambda _: True)

    def _advance_slot(self) -> None:
        slot = self.setting.server.slot
        if slot is not None and self.setting.server.lsn > slot.confirmed:
            self._tell("somebody advances the slot")
            self.setting.server.slot = Slot(self.setting.server.lsn)
            self._cause(lambda _: True)

    def _read_slot(self) -> None:
        slot, query = self.setting.server.slot, None if self.process is None else self.process.query
        if slot is not None:
            self._tell("another program reads the slot")
            slot.reader = "another program"
            if query is not None:
                query.failure = HeadraceError(Kind.SLOT_IN_USE, "another program reads the slot")

    def _leave_slot(self) -> None:
        if self.setting.server.slot is not None:
            self.setting.server.slot.reader = ""

    def _exceed_budget(self) -> None:
        if self.setting.server.slot is not None:
            self._tell("the slot retains too much")
            self.setting.server.over_budget = True
            self._cause(lambda _: True)

    def _change_file(self) -> None:
        index = self.random.choice(sorted(_READS))
        reads = dict(self.setting.files.reads)
        reads[index] = self.random.choice(_READS[index])
        self._tell(f"the file of {index} is {'-'.join(reads[index])} now")
        self.setting.files = Files(reads, self.setting.files.misfits)
        self._cause(lambda unit: unit.index == index)

    def _misfit(self) -> None:
        index = self.random.choice(sorted(_READS))
        self._tell(f"the file of {index} does not fit")
        self.setting.files = Files(self.setting.files.reads, self.setting.files.misfits | {index})
        self._cause(lambda unit: unit.index == index)

    def _fit(self) -> None:
        self.setting.files = Files(self.setting.files.reads)

    def _disown(self) -> None:
        table = self.random.choice(TABLES)
        if table not in self.setting.server.published:
            self._tell(f"{table} belongs to another owner")
            self.setting.server.foreign.add(table)

    def _own(self) -> None:
        self.setting.server.foreign.clear()

    def _reindex(self) -> None:
        self._order(OrderKind.REINDEX)

    def _roll_back(self) -> None:
        self._order(OrderKind.ROLLBACK)

    def _reload(self) -> None:
        self.setting.stored.orders.append(Order(f"o{len(self.setting.stored.orders)}", OrderKind.RELOAD))

    def _order(self, kind: OrderKind) -> None:
        unit = self.random.choice(self.setting.units())
        order = Order(f"o{len(self.setting.stored.orders)}", kind, unit.index, unit.sink)
        self._tell(f"{kind.value} of {unit} is ordered as {order.id}")
        self.setting.stored.orders.append(order)
        self._cause(lambda each: each == unit)

    # Help.

    def _check_stream(self) -> None:
        """A unit that fails never keeps the others waiting: with all up, a query runs again at once."""
        setting, process = self.setting, self.process
        is_up = (
            setting.server.answers
            and setting.clusters[""].up
            and not setting.stored.busy
            and not setting.server.over_budget
        )
        # While a table is locked, files cannot be compared with the database.
        is_up = is_up and (process is None or process.is_bound or not setting.server.locked)
        is_up = is_up and (setting.server.slot is None or not setting.server.slot.reader)
        self._check_told()
        if process is None or process.ended is not None or not is_up or process.query is not None:
            self._without_query = 0
            return
        # A set-up waits for who has locked a table, and for nobody else.
        failures = process.controller.failures.items()
        if all(
            failed.error.kind is Kind.PRIVILEGE for key, failed in failures if key.startswith(_BEFORE_A_QUERY)
        ):
            self._without_query += 1
        self._must(self._without_query <= _MOST_WITHOUT_QUERY, "the stream stands though everything is up")

    def _check_told(self) -> None:
        """A run without a query says what it waits for, or which step fails."""
        process = self.process
        if process is None or process.query is not None or (seen := process.controller.seen) is None:
            self._silent = 0
            return
        controller = process.controller
        is_told = controller.has_acted or any(not is_step_of_unit(key) for key in controller.failures)
        is_told = is_told or why_waiting(seen[0]) is not None
        self._silent = 0 if is_told else self._silent + 1
        self._must(self._silent <= _MOST_WITHOUT_QUERY, "nobody is told what the run waits for")

    def _check_budget(self) -> None:
        """The primary's disk waits for nothing else: not for a cluster that is away."""
        setting, process = self.setting, self.process
        server = setting.server
        is_due = server.answers and server.slot is not None and server.over_budget and setting.reseeds
        if process is None or process.ended is not None or not process.owns_slot or not is_due:
            self._over_budget = 0
            return
        # Behind a gap the slot may be somebody else's: first that must be stored.
        if not {"DropSlot", "BeginAgain"} & process.controller.failures.keys():
            self._over_budget += 1
        self._must(self._over_budget <= _MOST_OVER_BUDGET, "a slot over its budget is not dropped")

    def _some_index(self) -> tuple[str, str] | None:
        found = [
            (sink, name)
            for sink, cluster in sorted(self.setting.clusters.items())
            for name in cluster.indexes
        ]
        return self.random.choice(found) if found else None

    def _read_by(self, unit: Unit) -> set[str]:
        tables = set(self.setting.files.reads[unit.index])
        for state in self.setting.stored.generations:
            if (state.sink, state.index) == (unit.sink, unit.index):
                tables |= set(self.setting.stored.schemas[state.id])
        return tables

    def _cause(self, concerns: Callable[[Unit], bool]) -> None:
        for unit in self.setting.units():
            if concerns(unit):
                self.causes[unit] += 1
                self.setting.rolled_back.pop(unit, None)

    # Peace.

    def _make_peace(self) -> None:
        self._killing = 0.0
        self.setting.server.up, self.setting.server.over_budget = True, False
        self.setting.server.locked.clear()
        for cluster in self.setting.clusters.values():
            cluster.up, cluster.full = True, False
            cluster.refuses.clear()
            cluster.fails_at.clear()
            cluster.unset.clear()
        self._fit()
        self._leave_slot()
        self._calm()
        self._lead_back()
        if self.setting.server.foreign & self.setting.unpublished():
            self._wait_for_owner()
        self._own()
        self._tell("peace")
        self._settle()
        self._check()
        self._settle()  # time goes by: what has failed before is over then
        self._check_failures()

    def _wait_for_owner(self) -> None:
        """A table that may not be published keeps only those waiting who read it."""
        self._tell("peace, but for a table of another owner")
        for number in range(_WAITING_ROUNDS):
            # Between two tries of the set-up there are rounds in which all else is done.
            self.setting.now += 4000.0 if number % 4 == 0 else 0.0
            self._happen(-number, self._peaceful_round)
        state = self._alive().store.load()
        if state is None or state.phase != "following":
            return
        missing = self.setting.unpublished()
        for unit in self.setting.units():
            if missing.isdisjoint(self.setting.files.reads[unit.index]):
                self._check_unit(unit, state.of_unit(unit))
        for order in self.setting.stored.orders:
            answered = order.kind is not OrderKind.RELOAD or order.id in self.setting.stored.answers
            self._must(answered, f"the reload {order.id} is not answered")

    def _settle(self) -> None:
        for number in range(_MOST_ROUNDS):
            self.setting.now += 4000.0
            self._happen(-number, self._peaceful_round)
            if self._is_settled():
                break
        else:
            raise Violation(f"it does not settle within {_MOST_ROUNDS} rounds\n{self.tale()}")

    def _peaceful_round(self) -> None:
        self._round()
        process = self._alive()
        for _ in range(12):
            if process.query is not None:
                process.query.step(50)
        for backfill in list(process.backfills.values()):
            for _ in range(20):
                backfill.step()
        for _ in range(8):
            process.write_deferred()

    def _is_settled(self) -> bool:
        process = self._alive()
        query, state = process.query, process.store.load()
        if query is None or state is None or query.failure or self.setting.stored.deferred:
            return False
        if (
            query.offered is not None
            or query.joined != query.plan
            or query.position < self.setting.server.lsn
        ):
            return False
        return not reconcile(*process.look(process.controller.failures))

    def _check(self) -> None:
        state = self._alive().store.load()
        assert state is not None
        for unit in self.setting.units():
            self._check_unit(
                unit, [g for g in state.generations if (g.sink, g.index) == (unit.sink, unit.index)]
            )
        names = {(g.sink, g.generation) for g in state.generations}
        for sink, cluster in self.setting.clusters.items():
            for name in cluster.indexes:
                self._must((sink, name) in names, f"{name} in {sink!r} is left over")
        slot = self.setting.server.slot
        self._must(slot is not None and slot.confirmed <= state.applied, "the slot is beyond the documents")
        open_ = [
            order.id for order in self.setting.stored.orders if order.id not in self.setting.stored.answers
        ]
        self._must(not open_, f"the orders {open_} are not answered")
        for order, built in self.built_for.items():
            self._must(built == 1, f"{built} generations were built for the order {order}")

    def _check_failures(self) -> None:
        """No failure outlives its cause."""
        failures, state = self._alive().controller.failures, self._alive().store.load()
        self._must(not failures, f"failures outlive their causes: {failures}")
        world, desired = self._alive().look(failures)
        assert state is not None
        for unit in self.setting.units():
            phase = status_of(unit, world, state, desired).phase
            self._must(phase is UnitPhase.LIVE, f"{unit} is {phase.value}")

    def _check_unit(self, unit: Unit, generations: Sequence[object]) -> None:
        cluster = self.setting.clusters[unit.sink]
        name = cluster.aliases.get(unit.index, "")
        self._must(name in cluster.indexes, f"readers of {unit} see nothing")
        reads = self.setting.stored.schemas[generation_id(unit.sink, name)]
        expected = {row: self.setting.content(reads, row) for row in self.setting.server.tables[reads[0]]}
        found = cluster.indexes[name].live()
        self._must(found == expected, f"{unit} has {found}, and should have {expected}")
        served = [g for g in self.setting.stored.generations if g.generation == name and g.sink == unit.sink]
        self._must(bool(served) and served[0].published and served[0].followed, f"{unit} is not followed")
        wanted = self.setting.definition(unit.index)
        self._must(
            wanted in (served[0].hash, served[0].pinned), f"{unit} serves {served[0].hash} and not {wanted}"
        )
        back = self.setting.rolled_back.get(unit, name)
        self._must(name == back, f"{unit} serves {name}, though {back} was rolled back to")
        most = 1 + self.causes[unit]
        self._must(
            self.stored[unit] <= most,
            f"{unit} was built {self.stored[unit]} times, for {most} causes at most",
        )
        retained = [
            g
            for g in self.setting.stored.generations
            if (g.sink, g.index) == (unit.sink, unit.index) and not g.published
        ]
        self._must(len(retained) <= (0 if unit.sink else self.setting.keep), f"{unit} retains too many")

    def _must(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Violation(f"{otherwise}\n{self.tale()}")


def run(seed: int, events: int = EVENTS, left_out: frozenset[int] = frozenset()) -> Violation | None:
    """Run one schedule; return what is wrong, or None."""
    try:
        Schedule(seed, left_out).run(events)
    except Violation as violation:
        return violation
    return None


def shrink(seed: int) -> frozenset[int]:
    """Return the numbers of events that a failing schedule does not need in order to fail."""
    left_out: frozenset[int] = frozenset()
    size = EVENTS // 2
    while size:
        for start in range(0, EVENTS, size):
            fewer = left_out | frozenset(range(start, min(start + size, EVENTS)))
            if fewer != left_out and run(seed, EVENTS, fewer) is not None:
                left_out = fewer
        size //= 2
    return left_out
