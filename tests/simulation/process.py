"""One process of a deployment: the real controller, and a query and backfills that go in small steps."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.pipeline.controller.actions import Action, EndRun
from headrace.pipeline.controller.desired import Definition, Desired
from headrace.pipeline.controller.loop import Controller
from headrace.pipeline.controller.ports import Ports
from headrace.pipeline.controller.stream import wanted_plan
from headrace.pipeline.controller.world import (
    BackfillSeen,
    CatalogSeen,
    Failures,
    QuerySeen,
    ServerSeen,
    SinkSeen,
    SlotSeen,
    TableChange,
    TableVerdict,
    Unknown,
    World,
)
from headrace.sinks.opensearch.shard_history import Identity
from headrace.state import GenerationState, Order, PipelineState, Unit
from headrace.state.orders import OrderKind
from headrace.state.pipeline_state import generation_id
from simulation.servers import TABLES, Cluster, Content, Server, Slot

Seen = TypeVar("Seen")
_DONE = "done"
ALL = -1
"""Stands for every document of a generation among the deferred keys."""
Steps = Generator[None, None, None]


class Crash(BaseException):
    """The process is killed."""


@dataclass(frozen=True, slots=True)
class Files:
    """What the files describe: the tables that each index reads, and whether the schema fits the database."""

    reads: Mapping[str, tuple[str, ...]]
    misfits: frozenset[str] = frozenset()


@dataclass(slots=True)
class Stored:
    """What the cluster that keeps the state holds beside documents.

    Attributes:
        busy: whether the list of generations cannot be written.
        deferred: by the generation's id and row, the version; `ALL` for every row.
        schemas: by the generation's id, the tables that it reads, as its own metadata says.
    """

    progress: PipelineState | None = None
    generations: tuple[GenerationState, ...] = ()
    deferred: dict[tuple[str, int], Lsn] = field(default_factory=dict)
    orders: list[Order] = field(default_factory=list)
    answers: dict[str, tuple[bool, str]] = field(default_factory=dict)
    schemas: dict[str, tuple[str, ...]] = field(default_factory=dict)
    filled: set[tuple[str, int]] = field(default_factory=set)
    busy: bool = False


@dataclass(slots=True)
class Setting:
    """Everything that outlives a process.

    Attributes:
        kill: raises `Crash` now and then; called at every point at which a process can die.
        rolled_back: by unit, the index that a rollback led readers to, while nothing else has happened to it.
        described: by unit, the definition that the files had when the controller looked last.
    """

    server: Server
    clusters: dict[str, Cluster]
    stored: Stored
    files: Files
    reseeds: bool = True
    keep: int = 0
    most_deferred: int = 3
    kill: Callable[[], None] = lambda: None
    now: float = 0.0
    rolled_back: dict[Unit, str] = field(default_factory=dict)
    described: Mapping[Unit, str] = field(default_factory=dict)

    def units(self) -> list[Unit]:
        """The units of the files, in every sink."""
        return [Unit(sink, index) for sink in self.clusters for index in self.files.reads]

    def definition(self, index: str) -> str:
        """The hash of an index' definition."""
        return "-".join(self.files.reads[index])

    def unpublished(self) -> set[str]:
        """The tables of the files that are not published yet."""
        return {table for reads in self.files.reads.values() for table in reads} - self.server.published

    def content(self, reads: Sequence[str], row: int) -> Content | None:
        """What a document is now; None where its root row does not exist."""
        root, *others = reads
        if row not in self.server.tables[root]:
            return None
        return (self.server.tables[root][row], *(self.server.tables[other].get(row) for other in others))


class Store:
    """The state store of the simulated cluster."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    @property
    def _stored(self) -> Stored:
        self._setting.clusters[""].check_up()
        return self._setting.stored

    @property
    def current(self) -> PipelineState | None:
        return self.load()

    def load(self) -> PipelineState | None:
        stored = self._stored
        if stored.progress is not None and stored.progress.generations is not stored.generations:
            stored.progress = dataclasses.replace(stored.progress, generations=stored.generations)
        return stored.progress

    def save(self, state: PipelineState) -> None:
        self.save_generations(state.generations)
        self._setting.kill()
        self._stored.progress = state

    def save_generations(self, generations: Sequence[GenerationState]) -> None:
        stored = self._stored
        if stored.busy:
            raise HeadraceError(Kind.SINK_BUSY, "the list of generations cannot be written")
        self._setting.kill()
        stored.generations = tuple(generations)
        self._setting.kill()

    def save_catalog(self, published: Mapping[str, int], text: str) -> None:
        stored = self._stored
        assert stored.progress is not None
        self._setting.kill()
        stored.progress = dataclasses.replace(stored.progress, published=published, catalog=text)
        self._setting.kill()

    def advance(self, reached: Lsn, *, deferred: bool) -> PipelineState:
        stored = self._stored
        assert stored.progress is not None
        progress = stored.progress
        reached = max(reached, progress.reached)
        if deferred:
            stored.progress = dataclasses.replace(progress, ahead=reached)
        else:
            stored.progress = dataclasses.replace(progress, applied=reached, ahead=None)
        return stored.progress


class Source:
    """The simulated server, to the controller."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def new_state(self) -> PipelineState:
        server = self._setting.server
        server.check_up()
        return PipelineState(
            server.system, server.timeline, 1, "slot", "publication", "creating", 0, 0, standby=False
        )

    def create_slot(self, state: PipelineState) -> Lsn:
        server = self._setting.server
        server.check_up()
        server.check_unread()
        self._setting.kill()
        server.show()  # making a slot waits for every transaction before it
        server.slot = Slot(server.lsn)
        self._setting.kill()
        return server.lsn

    def set_up(self) -> None:
        server = self._setting.server
        server.check_up()
        self._setting.kill()
        server.publish(self._setting.unpublished())
        self._setting.kill()

    def drop_slot(self) -> None:
        server = self._setting.server
        server.check_up()
        server.check_unread()
        self._setting.kill()
        server.slot = None
        server.over_budget = False
        self._setting.kill()


class SimulatedSink:
    """One simulated cluster, to the controller."""

    def __init__(self, setting: Setting, name: str) -> None:
        self._setting = setting
        self._name = name
        self._cluster = setting.clusters[name]

    def create(self, index: str, definition: str) -> GenerationState:
        self._setting.kill()
        name, created = self._cluster.create(index, definition)
        self._setting.stored.schemas[generation_id(self._name, name)] = tuple(definition.split("-"))
        self._setting.kill()
        return GenerationState(index, name, created.uuid, definition, history=(created.history,))

    def complete(self, generation: GenerationState) -> None:
        self._cluster.check_changes()
        described = self._setting.described.get(Unit(self._name, generation.index))
        assert generation.hash == described, f"readers are led to {generation.generation}, which is replaced"
        self._check_complete(generation)
        self._setting.kill()
        self._cluster.aliases[generation.index] = generation.generation
        self._setting.kill()

    def serve(self, generation: GenerationState) -> None:
        self._cluster.check_changes()
        if generation.generation not in self._cluster.indexes:
            raise HeadraceError(Kind.SINK_BUSY, "no such index")
        self._setting.kill()
        self._cluster.aliases[generation.index] = generation.generation
        self._setting.kill()

    def drop(self, name: str) -> None:
        self._cluster.check_up()
        assert name not in self._cluster.aliases.values(), f"{name} is dropped, which readers see"
        self._setting.kill()
        self._cluster.indexes.pop(name, None)
        self._setting.stored.filled = {
            key for key in self._setting.stored.filled if key[0] != generation_id(self._name, name)
        }
        self._setting.kill()

    def _check_complete(self, generation: GenerationState) -> None:
        """No reader may see an incomplete generation: what it lacks must still be in the log, or deferred."""
        setting, stored = self._setting, self._setting.stored
        if generation.generation not in self._cluster.indexes:
            raise HeadraceError(Kind.SINK_BUSY, "no such index")
        assert stored.progress is not None
        reads = stored.schemas[generation.id]
        found = self._cluster.indexes[generation.generation].live()
        for row in setting.server.tables[reads[0]]:
            late = any(
                setting.server.written.get((table, row), 0) > stored.progress.reached for table in reads
            )
            deferred = {(generation.id, row), (generation.id, ALL)} & stored.deferred.keys()
            assert row in found or late or deferred, f"readers see {generation.generation} without row {row}"


class Query:
    """The query: batches of some changes, written to every generation of its plan in turn.

    Attributes:
        lacking: those of its plan that are not written, because nobody knew their schemas.
    """

    def __init__(
        self,
        setting: Setting,
        store: Store,
        plan: frozenset[str],
        lacking: frozenset[str],
        state: PipelineState,
    ) -> None:
        self._setting = setting
        self._store = store
        self.plan = self.joined = plan
        self.lacking = lacking
        self.offered: tuple[frozenset[str], frozenset[str]] | None = None
        self.position = state.reached
        self.failure: HeadraceError | None = None
        self._steps: Steps | None = None

    def step(self, size: int) -> None:
        """Go one step; a server that does not answer lets the batch begin again later."""
        if self.failure is not None:
            return
        if self._steps is None:
            self._steps = self._batch(size)
        try:
            next(self._steps)
        except StopIteration:
            self._steps = None
        except HeadraceError as error:
            self._steps = None
            if error.kind not in (Kind.CONNECTION, Kind.SINK_UNREACHABLE):
                self.failure = error

    def _batch(self, size: int) -> Steps:
        setting, server = self._setting, self._setting.server
        if self.offered is not None:
            (self.plan, self.lacking), self.offered = self.offered, None
        server.check_up()
        if server.slot is None or server.slot.lost or server.slot.hollow:
            raise HeadraceError(Kind.SLOT_LOST, "the slot is gone")
        server.check_unread()
        changes = [change for change in server.log if change.lsn > self.position][:size]
        end = changes[-1].lsn if changes else server.lsn
        for _ in range(2 if server.unseen else 0):
            yield  # a batch waits for its transactions
        server.check_up()
        server.show()
        for generation in sorted(self.plan - self.lacking):
            yield from self._write(
                generation,
                {
                    change.row
                    for change in changes
                    if change.sent and change.table in setting.stored.schemas[generation]
                },
                end,
            )
        setting.kill()
        primary = {state.id for state in setting.stored.generations if not state.sink}
        deferred = any(generation in primary for generation, _ in setting.stored.deferred)
        state = self._store.advance(end, deferred=deferred)
        self.position, self.joined = end, self.plan
        yield
        setting.kill()
        server.check_up()
        if server.slot is not None:
            assert state.applied <= setting.stored.progress.applied, "confirmed before it was stored"  # type: ignore[union-attr]
            server.slot.confirmed = max(server.slot.confirmed, state.applied)

    def _write(self, id_: str, rows: set[int], version: Lsn) -> Steps:
        """Read the documents, then write them: others may move in between. Those of who fails alone wait."""
        setting = self._setting
        setting.server.check_up()
        reads = setting.stored.schemas[id_]
        sink, _, name = id_.rpartition("/")
        cluster = setting.clusters[sink]
        try:
            setting.server.check_free(reads, id_)
            documents = {row: setting.content(reads, row) for row in sorted(rows)}
            yield
            setting.kill()
            for row, content in documents.items():
                cluster.check_takes(name, id_)
                cluster.indexes[name].write(row, version, content)
        except HeadraceError as error:
            if not sink and error.kind not in (Kind.SINK_REJECTED, Kind.LOCKED):
                raise
            setting.clusters[""].check_up()
            for row in rows:
                setting.stored.deferred[id_, row] = version


class BackfillSteps:
    """The backfill of one generation: it reads a row, then writes it; at the end the ids are compared."""

    def __init__(self, setting: Setting, store: Store, generation: GenerationState) -> None:
        self.complete = False
        self.failure: HeadraceError | None = None
        self._setting = setting
        self._store = store
        self._generation = generation
        self._steps: Steps | None = None

    def step(self) -> None:
        if self.complete or self.failure is not None:
            return
        if self._steps is None:
            self._steps = self._fill()
        try:
            next(self._steps)
        except StopIteration:
            self.complete = True
        except HeadraceError as error:
            self._steps = None
            if error.kind not in (Kind.CONNECTION, Kind.SINK_UNREACHABLE, Kind.LOCKED):
                self.failure = error

    def _fill(self) -> Steps:
        setting, name, id_ = self._setting, self._generation.generation, self._generation.id
        cluster, server = setting.clusters[self._generation.sink], setting.server
        reads = setting.stored.schemas[id_]
        for row in sorted(server.tables[reads[0]]):
            if (id_, row) in setting.stored.filled:
                continue
            yield from self._write(row)
            setting.clusters[""].check_up()
            setting.stored.filled.add((id_, row))
        cluster.check_takes(name, id_)
        server.check_up()
        for row in sorted(cluster.indexes[name].live().keys() ^ server.tables[reads[0]].keys()):
            yield from self._write(row)

    def _write(self, row: int) -> Steps:
        setting, name, id_ = self._setting, self._generation.generation, self._generation.id
        state = self._store.load()
        assert state is not None
        setting.server.check_up()
        while setting.server.locked.intersection(setting.stored.schemas[id_]):
            yield  # it is left out until nobody has the lock
            setting.server.check_up()
        content = setting.content(setting.stored.schemas[id_], row)
        yield
        setting.kill()
        cluster = setting.clusters[self._generation.sink]
        cluster.check_takes(name, id_)
        cluster.indexes[name].write(row, state.reached, content)


class Process:
    """A run: it is lost as a whole when it is killed.

    Attributes:
        ended: why it ended by itself; None while it lives.
    """

    def __init__(self, setting: Setting, tell: Callable[[Action], None], between: Callable[[], None]) -> None:
        self.setting = setting
        self.store = Store(setting)
        self.query: Query | None = None
        self.held: dict[str, HeadraceError] = {}
        self.backfills: dict[str, BackfillSteps] = {}
        self.ended: EndRun | None = None
        self.owns_slot = False
        self.reloaded: dict[str, str] = {}
        self._between = between
        self._seen_at: dict[tuple[str, int], Lsn] = {}
        self._bound: Files | None = None
        self.controller = Controller(
            self.look,
            Ports(
                self.store,
                Source(setting),
                {name: SimulatedSink(setting, name) for name in setting.clusters},
                self,
                _Deferral(setting),
                _Orders(setting, self.reloaded),
            ),
            tell=tell,
            report=lambda *_: None,
            clock=lambda: setting.now,
        )

    # The stream.

    def start(self, state: PipelineState, *, new_session: bool) -> None:
        assert not new_session, "no process of Spark is ever lost here"
        assert self._bound is not None, "a query is planned before the database was inspected"
        self.query = Query(self.setting, self.store, wanted_plan(state), self._lacking(state), state)
        self.held = {}

    def change(self, state: PipelineState) -> None:
        assert self.query is not None
        self.query.offered = wanted_plan(state), self._lacking(state)
        self.held = {}

    def close(self) -> None:
        self.query = None
        self.backfills.clear()

    def start_backfill(self, generation: GenerationState) -> None:
        self.backfills[generation.id] = BackfillSteps(self.setting, self.store, generation)

    def stop_backfill(self, name: str) -> None:
        self.backfills.pop(name, None)

    # Steps.

    def go_round(self) -> None:
        """One round of the controller."""
        self.ended = self.controller.go_round()

    def write_deferred(self) -> None:
        """Write some deferred documents, of generations that the query writes."""
        setting, query = self.setting, self.query
        if query is None or not setting.clusters[""].up or not setting.server.up:
            return
        for (id_, row), version in list(setting.stored.deferred.items()):
            if id_ in query.lacking or not any(state.id == id_ for state in setting.stored.generations):
                del setting.stored.deferred[id_, row]
                continue
            sink, _, name = id_.rpartition("/")
            cluster = setting.clusters[sink]
            if id_ not in query.plan or not cluster.up or name not in cluster.indexes:
                continue
            reads, index = setting.stored.schemas[id_], cluster.indexes[name]
            try:
                setting.server.check_free(reads, id_)
                cluster.check_takes(name, id_)
            except HeadraceError as error:
                self.held[id_] = error
                continue
            self.held.pop(id_, None)
            for each_row in {*setting.server.tables[reads[0]], *index.documents} if row == ALL else {row}:
                index.write(each_row, version, setting.content(reads, each_row))
            setting.kill()
            del setting.stored.deferred[id_, row]
            return

    # What it sees.

    @property
    def is_bound(self) -> bool:
        """Whether the database was inspected for the files as they are."""
        return self._bound == self.setting.files

    def _lacking(self, state: PipelineState | Unknown | None) -> frozenset[str]:
        """The followed generations whose schemas are not known: their files do not fit the database."""
        misfits = frozenset() if self._bound is None else self._bound.misfits
        if not misfits or not isinstance(state, PipelineState):
            return frozenset()
        return frozenset(each.id for each in state.generations if each.followed and each.index in misfits)

    def look(self, failures: Mapping[str, Failures]) -> tuple[World, Desired]:
        """Ask everything in the order that the controller counts on, with others at work in between."""
        setting = self.setting
        slot = self._seen(self._slot)
        self._between()
        state = self._seen(self.store.load)
        if not isinstance(state, Unknown):
            self.owns_slot = state is not None and state.phase == "following"
        self._between()
        server = self._seen(self._server)
        catalog = self._seen(lambda: self._catalog(state))
        query, lacking = self.query, self._lacking(state)
        sinks = {name: self._seen(lambda name=name: self._sink(name)) for name in setting.clusters}  # type: ignore[misc]
        world = World(
            now=setting.now,
            state=state,
            server=server,
            slot=slot,
            catalog=catalog,
            sinks=sinks,
            reads={
                name: frozenset(reads)
                for name, reads in setting.stored.schemas.items()
                if name not in lacking
            },
            deferred=Counter(id_ for id_, _ in setting.stored.deferred),
            query=None
            if query is None
            else QuerySeen(
                query.plan if query.offered is None else query.offered[0],
                query.joined & query.plan,
                frozenset() if query.offered is None else query.plan - query.offered[0],
                outdated=lacking != (query.lacking if query.offered is None else query.offered[1]),
                failure=query.failure,
                held=dict(self.held),
            ),
            backfills={
                name: BackfillSeen(backfill.complete, backfill.failure)
                for name, backfill in self.backfills.items()
            },
            failures=failures,
        )
        return world, self.desired()

    def desired(self) -> Desired:
        """What the files and orders say."""
        setting = self.setting
        setting.described = {unit: setting.definition(unit.index) for unit in setting.units()}
        return Desired(
            None
            if not self.is_bound
            else {
                unit: Definition(
                    setting.definition(unit.index),
                    "its table has no such column" if unit.index in setting.files.misfits else "",
                )
                for unit in setting.units()
            },
            tuple(order for order in setting.stored.orders if order.id not in setting.stored.answers),
            keep=setting.keep,
            most_deferred=setting.most_deferred,
            reseeds=setting.reseeds,
            reloaded=self.reloaded,
        )

    def _seen(self, ask: Callable[[], Seen]) -> Seen | Unknown:
        try:
            return ask()
        except HeadraceError as error:
            return Unknown(error)

    def _slot(self) -> SlotSeen | None:
        server = self.setting.server
        if server.up and server.standby is not None:
            return None
        server.check_up()
        if server.slot is None:
            return None
        budget = "the slot retains too much" if server.over_budget and self.owns_slot else ""
        return SlotSeen("slot", server.slot.confirmed, server.slot.lost, server.slot.reader, budget)

    def _server(self) -> ServerSeen:
        server = self.setting.server
        if server.up and server.standby is not None:
            return ServerSeen(server.system, server.standby, 1, server.lsn, standby=True)
        server.check_up()
        return ServerSeen(server.system, server.timeline, 1, server.lsn)

    def _catalog(self, state: PipelineState | Unknown | None) -> CatalogSeen | None:
        server = self.setting.server
        server.check_up()
        if isinstance(state, Unknown):
            return None
        if not self.is_bound:
            # To inspect the database for files takes more than a look at its catalog.
            server.check_free({table for reads in self.setting.files.reads.values() for table in reads}, "")
            self._bound = self.setting.files
        if state is None:
            return None
        changes = {}
        if state.catalog:
            for before, table in zip(state.catalog.split(","), TABLES, strict=True):
                _, altered, emptied = before.split(":")
                if int(altered) != server.altered[table]:
                    changes[table] = TableChange(TableVerdict.READ_AGAIN, f"{table} was rewritten")
                elif int(emptied) != server.emptied[table]:
                    seen_at = self._seen_at.setdefault((table, server.emptied[table]), server.lsn)
                    what = f"{table} lost a partition"
                    changes[table] = TableChange(TableVerdict.LIKE_A_TRUNCATE, what, seen_at)
        read = {
            generation.id: tuple(
                changes[table] for table in self.setting.stored.schemas[generation.id] if table in changes
            )
            for generation in state.generations
        }
        missing = self.setting.unpublished()
        return CatalogSeen(
            server.catalog(),
            server.lsn,
            {},
            read,
            ", ".join(sorted(missing)),
            frozenset(
                index for index, reads in self.setting.files.reads.items() if not missing.isdisjoint(reads)
            ),
        )

    def _sink(self, name: str) -> SinkSeen | Unknown:
        cluster = self.setting.clusters[name]
        cluster.check_up()
        if cluster.taken:
            cluster.taken = False
            return Unknown(HeadraceError(Kind.SLOT_IN_USE, "another process had the sink"), taken=True)
        return SinkSeen(
            {name: Identity(index.uuid, (index.history,)) for name, index in cluster.indexes.items()},
            {name: index.owner for name, index in cluster.indexes.items()},
            dict(cluster.aliases),
            frozenset(cluster.aliases.values()),
            keys_lost="what waited for it is lost" if cluster.keys_lost else "",
            refused={
                name: HeadraceError(Kind.SINK_REJECTED, "a setting is refused")
                for name, index in cluster.indexes.items()
                if index.owner in cluster.unset
            },
        )


class _Deferral:
    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def renew(self, generation: GenerationState, version: Lsn) -> None:
        self._setting.clusters[""].check_up()
        self._setting.kill()
        self._setting.stored.deferred[generation.id, ALL] = version
        self._setting.kill()

    def forget_sink(self, name: str) -> None:
        self._setting.clusters[""].check_up()
        self._setting.kill()
        for id_, row in list(self._setting.stored.deferred):
            if id_.startswith(f"{name}/"):
                del self._setting.stored.deferred[id_, row]
        self._setting.clusters[name].keys_lost = False

    def forget(self) -> None:
        self._setting.clusters[""].check_up()
        self._setting.kill()
        self._setting.stored.deferred.clear()


class _Orders:
    def __init__(self, setting: Setting, reloaded: dict[str, str]) -> None:
        self._setting = setting
        self._reloaded = reloaded

    def read_files(self, order: Order) -> None:
        self._reloaded[order.id] = "the files are taken up"

    def answer(self, order: Order, text: str, *, done: bool) -> None:
        self._setting.clusters[""].check_up()
        self._setting.kill()
        assert text != "the deployment has no such index", (
            f"{order.id} is of an index that the files describe"
        )
        self._setting.stored.answers[order.id] = (done, text)
        if order.kind is OrderKind.ROLLBACK and order.unit is not None and done:
            served = [state for state in self._setting.stored.generations if state.request == order.id]
            # A file that was changed between the step and its answer has ended the rollback already.
            if served[0].pinned in {"", self._setting.definition(order.unit.index)}:
                self._setting.rolled_back[order.unit] = served[0].generation

    def carry_out(self, order: Order) -> None:
        self.answer(order, _DONE, done=True)
