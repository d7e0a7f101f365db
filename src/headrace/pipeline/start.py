"""Start a deployment: create what is missing, and go on from what earlier runs saved.

A first start creates state, slot and first generations: all of them or none. The state is saved first, so
that a start after a kill knows what was begun. The slot's position is added as soon as the slot exists. What
a failed start cannot undo, the next start undoes.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.catalog.drift import SchemaDrift
from headrace.catalog.fingerprint import Fingerprint
from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind, retrying
from headrace.model.failpoints import reach
from headrace.model.lsn import format_lsn
from headrace.model.units import quantity
from headrace.pipeline.continuity import (
    GapError,
    check_begun,
    check_continuity,
    check_origin,
    check_promoted,
    is_made_by,
    new_state,
)
from headrace.pipeline.exported_snapshot import HeldSnapshot, wait_for_slot
from headrace.pipeline.fitting import NoIndexFitsError, inspect_fitting
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.generations import GenerationManager
from headrace.pipeline.inspection import Inspection, inspect, inspect_retained
from headrace.pipeline.project import Project
from headrace.pipeline.reloading import Replan
from headrace.pipeline.reseeding import Reseeding, is_reseeding
from headrace.pipeline.schema_drift import CatalogBaseline, schema_changed
from headrace.pipeline.secondary_sinks import SecondarySinks
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection, connect
from headrace.postgres.coverage import TableCoverage, table_coverage
from headrace.postgres.ddl_plan import execute_plan
from headrace.postgres.identity import read_identities
from headrace.postgres.locks import SlotLock
from headrace.postgres.publication import read_memberships, read_publication
from headrace.postgres.server import inspect_server
from headrace.postgres.slot import ExportedSlot, drop_slot, read_slot
from headrace.reporter import Reporter
from headrace.sinks.opensearch import Client, Generation, Generations
from headrace.sinks.opensearch.endpoint import connection_warnings
from headrace.spark.cluster_check import ProbedSink, check_executors
from headrace.spark.session import LocalSpark
from headrace.state import ControlRequest, ControlRequests, GenerationState, PipelineState, StateStore
from headrace.status.board import StatusBoard


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a start goes on from.

    Attributes:
        state: the state that earlier runs saved. None: there is nothing to build on.
        requests: control requests that arrived while nothing ran.
    """

    inspection: Inspection
    state: PipelineState | None
    requests: Sequence[ControlRequest]


class Start:
    """Starts a deployment; called before the first query and before every restart.

    Args:
        client: client of the cluster that keeps the state.
        exported: holds the slot's snapshot, which the backfill reads.

    Attributes:
        gap: a gap that only reading the log has shown; the next `load` reseeds behind it.
    """

    def __init__(
        self,
        project: Project,
        endpoints: Endpoints,
        client: Client,
        board: StatusBoard,
        *,
        secondary_sinks: SecondarySinks,
        exported: HeldSnapshot,
    ) -> None:
        self.gap: GapError | None = None
        self._project = project
        self._endpoints = endpoints
        self._client = client
        self._meta = StateStore(client, project.key)
        self._requests = ControlRequests(client, project.key)
        self._secondary_sinks = secondary_sinks
        self._board = board
        self._exported = exported
        self._reseeds = project.deployment.source.on_gap == "reseed"
        self._reseeding = Reseeding(endpoints, self._meta, board, secondary_sinks, exported)

    def change_project(self, project: Project) -> None:
        """Go on with changed files; the settings of source and sinks are as before."""
        self._project = project
        self._secondary_sinks.change_project(project)

    def inspect_again(self, connection: Connection, files: Project) -> Inspection:
        """Inspect both servers for all indexes of `files` that fit the database.

        Raises:
            NoIndexFitsError: no index fits.
            ErrorGroup: the server has a problem.
        """
        inspection = inspect_fitting(files, self._endpoints, connection)
        if inspection.errors() and not inspection.problems:
            raise NoIndexFitsError(inspection.errors())
        inspection.raise_errors(reseeds=self._reseeds)
        return inspection

    def served_indexes(self) -> frozenset[str]:
        """Return the indexes that readers see a generation of, as the saved state has it.

        Raises:
            HeadraceError: an error of the cluster.
        """
        state = self._meta.load()
        generations = () if state is None else state.generations
        return frozenset(generation.index for generation in generations if generation.published)

    def load(self, connection: Connection, inspection: Inspection) -> SavedState:
        """Load what earlier runs saved; where that cannot be built on, remove it.

        Raises:
            HeadraceError: GapError, where the run does not reseed; an error of either server.
        """
        state = self._known_state(connection, inspection)
        if state is None:
            return SavedState(inspection, None, ())
        requests = self._requests.read(self._project.specs)
        inspection, state = self._with_retained(connection, inspection, state)
        return SavedState(inspection, state, requests)

    def check_still_continuous(self, lock: SlotLock) -> PipelineState:
        """Check that lock, server, slot and state belong together before the slot is read again.

        Returns the saved state.

        Raises:
            HeadraceError: SLOT_IN_USE: another Headrace has the lock. CONTINUITY or SLOT_LOST.
        """
        for attempt in retrying():
            with attempt, connect(self._endpoints.database) as connection:
                taken = lock.lost_to()
                server = inspect_server(connection, self._endpoints.database)
                slot = read_slot(connection, self._project.slot)
                state = self._meta.load()
                if state is not None:
                    check_promoted(state, server)
        if taken is not None:
            raise taken
        if state is None:
            raise HeadraceError(
                Kind.CONTINUITY, "the state of this deployment was deleted from the cluster", BACKFILL_AGAIN
            )
        check_continuity(state, server, slot)
        return state

    def resume(
        self,
        connection: Connection,
        saved: SavedState,
        running: contextlib.ExitStack,
        *,
        must_make: bool = False,
    ) -> tuple[CatalogBaseline, GenerationLog]:
        """Create what is missing and go on from what exists; no query runs.

        Args:
            connection: to the database.
            saved: what a start goes on from.
            running: closes what is opened.
            must_make: as for `GenerationLog.resume`.
        """
        inspection, state = saved.inspection, saved.state
        published = self._set_up(connection, inspection)
        catalog = CatalogBaseline(inspection, self._endpoints)
        self._board.set_indexes((*self._project.specs, *self._project.waiting))
        if state is None:
            generation_log = self._create(inspection, published, catalog, running)
            self._secondary_sinks.forget_former()
            self._secondary_sinks.resume(inspection, catalog, generation_log.state, published, SchemaDrift())
            return catalog, generation_log
        drift = SchemaDrift() if is_reseeding(state) else catalog.since(state.catalog)
        if is_reseeding(state):
            failover = self._project.deployment.source.failover
            text = catalog.baseline.to_text()
            with contextlib.ExitStack() as slot_held:  # it can be repeated, with another slot
                slot = slot_held.enter_context(self._reseeding.slot(connection, state, failover=failover))
                state = self._reseeding.begin(slot, state, inspection.server, published, text)
                running.push(slot_held.pop_all())
        generation_log = self._generation_log(inspection, state, catalog)
        # Secondary sinks first: resuming the primary sink replaces the catalog that they are compared with.
        self._secondary_sinks.resume(inspection, catalog, state, published, drift)
        generation_log.resume(
            published, drift, catalog.baseline.to_text(), saved.requests, must_make=must_make
        )
        return catalog, generation_log

    def replan(self, inspection: Inspection, state: PipelineState) -> Replan | None:
        """Plan for changed files, beside the running query.

        Args:
            inspection: the inspection of the files that were checked.
            state: the state of the run.

        Returns None where what documents read was altered since the state was saved.

        Raises:
            HeadraceError: SCHEMA_CHANGED: a table was altered since the inspection; an error of a server.
        """
        with connect(self._endpoints.database, application_name="headrace run") as connection:
            inspection, planned = self._with_retained(connection, inspection, state)
            catalog = CatalogBaseline(inspection, self._endpoints)
            drift, usage = catalog.since(state.catalog), inspection.usage()
            if drift.moved or any(change.concerns(usage) for change in drift.wrong):
                return None
            published = self._show_tables(connection, inspection)
        frozen = [generation for generation in planned.generations if generation not in state.generations]
        target = inspection.project.primary
        manager = GenerationManager(inspection, target, self._endpoints, self._client, self._board)
        text = catalog.baseline.with_former(Fingerprint.from_text(state.catalog)).to_text()
        return Replan(catalog, manager, published, tuple(frozen), text)

    def follow_read(self, state: PipelineState) -> tuple[CatalogBaseline, GenerationLog]:
        """Go on from `state` while the process runs, after generations that nobody reads were given up.

        Raises:
            HeadraceError: SCHEMA_CHANGED, where generations that are read do not fit the tables either.
        """
        with connect(self._endpoints.database, application_name="headrace run") as connection:
            inspection = inspect(self._project, self._endpoints, connection)
            inspection, state = self._with_retained(connection, inspection, state)
        catalog = CatalogBaseline(inspection, self._endpoints)
        drift, usage = catalog.since(state.catalog), inspection.usage()
        if wrong := [change for change in drift.wrong if change.concerns(usage)]:
            raise schema_changed(wrong)
        if self._secondary_sinks:
            self._secondary_sinks.resume(inspection, catalog, state, state.published, drift)
        return catalog, self._generation_log(inspection, state, catalog)

    def _known_state(self, connection: Connection, inspection: Inspection) -> PipelineState | None:
        """Load the state of earlier runs, checked; None where there is nothing to build on."""
        state = self._meta.load()
        try:
            check_origin(state, inspection.server, inspection.slot)
            if self.gap is not None:  # only reading the log has shown it
                raise self.gap
        except GapError as gap:
            if state is None or not self._reseeds:
                raise
            state = self._reseeding.forget(gap, state)
            self.gap = None
            return state
        if state is None or state.phase == "following" or is_reseeding(state):
            return state
        check_begun(state, inspection.slot)
        self._board.report.info("the last start ended before its indexes were made; beginning again")
        if inspection.slot is not None:
            drop_slot(connection, self._project.slot)
        self._discard(state.generations)
        self._meta.delete()
        return None

    def _with_retained(
        self, connection: Connection, inspection: Inspection, state: PipelineState
    ) -> tuple[Inspection, PipelineState]:
        generations = Generations(self._client, self._project.primary.prefix)
        self._secondary_sinks.forget_former()
        inspection, state = inspect_retained(
            inspection, self._endpoints, connection, generations, state, target=self._project.primary
        )
        return self._secondary_sinks.inspect(connection, inspection), state

    def execute_setup(self, connection: Connection, inspection: Inspection) -> None:
        """Execute the set-up plan.

        Raises:
            HeadraceError: as for `execute_plan`.
        """
        execute_plan(
            inspection.setup, connection, lambda step: self._board.report.info(f"set-up: {step.why}")
        )

    def _set_up(self, connection: Connection, inspection: Inspection) -> Mapping[str, int]:
        """Execute the set-up plan; return the publication's memberships as the state keeps them."""
        sinks = [self._endpoints.sink, *(target.sink for target in self._endpoints.secondary.values())]
        warnings = (*inspection.setup.warnings, *connection_warnings(sinks))
        for warning in warnings:
            self._board.report.warning(warning)
        self._board.set_warnings(warnings)
        self.execute_setup(connection, inspection)
        return self._show_tables(connection, inspection)

    def _show_tables(self, connection: Connection, inspection: Inspection) -> Mapping[str, int]:
        """Show what the log carries of each table; return the publication's memberships."""
        self._board.tables_seen(_covered(connection, inspection))
        tables = inspection.project.tables()
        memberships = read_memberships(connection, self._project.publication)
        return {str(table): member for table, member in memberships.items() if table in tables}

    def _generation_log(
        self, inspection: Inspection, state: PipelineState, catalog: CatalogBaseline
    ) -> GenerationLog:
        return GenerationLog(
            state,
            GenerationManager(inspection, self._project.primary, self._endpoints, self._client, self._board),
            self._meta,
            self._requests,
            self._board,
            as_of=catalog.baseline.as_of,
            keep=self._project.deployment.generations.keep,
        )

    def _create(
        self,
        inspection: Inspection,
        published: Mapping[str, int],
        catalog: CatalogBaseline,
        running: contextlib.ExitStack,
    ) -> GenerationLog:
        """Create the slot and the first generations; on failure the slot is dropped again.

        `running` closes the slot's connection when the run ends; its snapshot is given up earlier.
        """
        state = new_state(inspection.server, self._project.slot, self._project.publication)
        state = dataclasses.replace(state, published=published, catalog=catalog.baseline.to_text())
        self._meta.save(state)
        slot = running.enter_context(self._create_slot())
        reach("created")
        point = slot.consistent_point
        state = dataclasses.replace(state, consistent_point=point)  # identifies the slot as this deployment's
        generation_log = self._generation_log(inspection, state, catalog)
        with self._undone_on_failure(generation_log):
            self._meta.save(state)
            reach("known")
            self._board.report.done(f"slot {slot.name} at {format_lsn(point)}")
            generation_log.create_first(dataclasses.replace(state, phase="following", applied=point), point)
        self._exported.hold(slot)
        return generation_log

    def _create_slot(self) -> ExportedSlot:
        """Create the slot, which waits for older transactions as long as they take.

        When the server refuses, no slot was created: a slot of that name has another owner and must stay.
        """
        failover = self._project.deployment.source.failover
        try:
            return wait_for_slot(self._endpoints.database, self._project.slot, self._board, failover=failover)
        except HeadraceError as error:
            if error.kind is not Kind.CONNECTION:  # whether the slot exists is unknown; the next start looks
                with contextlib.suppress(HeadraceError):
                    self._meta.delete()
            raise

    @contextlib.contextmanager
    def _undone_on_failure(self, generation_log: GenerationLog) -> Iterator[None]:
        """Undo on failure what was created; what cannot be undone is left to the next start, by the state."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(HeadraceError):
                self._undo(generation_log)
            raise

    def _undo(self, generation_log: GenerationLog) -> None:
        state = self._meta.load()
        if state is not None and state.phase == "following":
            return  # everything exists; the next start goes on from it
        with connect(self._endpoints.database) as connection:
            slot = read_slot(connection, self._project.slot)
            if slot is not None and is_made_by(slot, generation_log.state):
                drop_slot(connection, self._project.slot)
        self._discard(generation_log.state.generations)
        self._meta.delete()

    def _discard(self, generations: Iterable[GenerationState]) -> None:
        """Drop the generations that no reader has seen."""
        store = Generations(self._client, self._project.primary.prefix)
        for generation in generations:
            if generation.building:
                store.drop(
                    Generation(generation.index, generation.generation, generation.hash, 0, generation.uuid)
                )


_FEW = 2
"""Tasks at once; one of them is the stream's."""


def _covered(connection: Connection, inspection: Inspection) -> tuple[TableCoverage, ...]:
    """Return what the log carries of each table once the set-up is done."""
    if not inspection.setup.steps:
        return inspection.coverage
    project = inspection.project
    return table_coverage(
        read_identities(connection, inspection.required),
        inspection.required,
        publication=project.publication,
        existing=read_publication(connection, project.publication),
        slot=inspection.slot,
        managed=project.deployment.source.manage_publication,
    )


def check_cluster(spark: LocalSpark, project: Project, endpoints: Endpoints, report: Reporter) -> None:
    """Make sure that the cluster's executors can do the work.

    Raises:
        HeadraceError: as `check_executors`.
    """
    transforms = [spec.transform for spec in project.specs.values() if spec.transform is not None]
    modules = sorted({name.partition(":")[0] for name in transforms})
    with report.working("asking the executors …"):
        grant = check_executors(
            spark.session,
            endpoints.database,
            [endpoints.sink],
            modules,
            secondary=_secondary(project, endpoints),
        )
    executors, tasks = quantity(grant.executors, "executor"), quantity(grant.places, "task")
    report.done(f"the cluster gives {executors} for {tasks} at once")
    for reason in grant.away:
        report.warning(f"{reason}; what it lacks is deferred")
    if grant.places < _FEW:
        report.warning("live changes wait while an index is backfilled: there is one place for both")


def _secondary(project: Project, endpoints: Endpoints) -> dict[str, ProbedSink]:
    """Return the secondary sinks that executors write to directly."""
    probed: dict[str, ProbedSink] = {}
    for name, target in project.secondary.items():
        own = endpoints.of(target.key)
        if not target.is_stdout:
            probed[name] = (target.kind, own.options if target.is_plain else own.sink)
    return probed
