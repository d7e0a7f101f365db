"""How does a deployment run, from nothing to following, and how does it end?

The order of birth is publication, slot, snapshot (decision 2). A start that dies before its first seeding
is complete leaves a state that says so; the next start begins again with a new slot, because the exported
snapshot died with the process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from headrace.cli import terminal
from headrace.cli.altering import ALTERED, CatalogWatch, KnownCatalog
from headrace.cli.continuity import check_continuity, check_origin
from headrace.cli.inspection import Inspection, inspect
from headrace.cli.project import Here, Project
from headrace.cli.seeding import Cursor, Seeding
from headrace.cli.stopping import Stopping
from headrace.cli.watching import Watch, impatient_client
from headrace.errors import HeadraceError, Kind, Retry, patiently
from headrace.model import Lsn, format_lsn
from headrace.postgres.connection import Connection, connect
from headrace.postgres.publication import read_memberships
from headrace.postgres.server import inspect_server
from headrace.postgres.slot import (
    ExportedSlot,
    advance_slot,
    create_slot,
    drop_slot,
    read_slot,
)
from headrace.postgres.slot_lock import SlotLock
from headrace.postgres.steps import execute_plan
from headrace.sinks.opensearch import Client, Counters, IndexState, MetaIndex, Parked, PipelineState
from headrace.spark.parked import WorkingOff
from headrace.spark.pipeline import DocumentsQuery, Following
from headrace.spark.session import LocalSpark, local_spark
from headrace.status.board import IndexPhase, StatusBoard
from headrace.status.phases import Event

_SINK_SECONDS = 30.0
_LOOK_SECONDS = 0.25
_QUIET_SECONDS = 15.0
_MOST_RESTARTS = 5
_CALM_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run uses this machine."""

    master: str = "local[*]"
    log_level: str = "info"


class Run:
    """One run of one deployment.

    Args:
        stopping: set by whoever wants the run to end; noticed at the next pause.
        on_live: called when every index is seeded and the stream follows.
    """

    def __init__(
        self,
        project: Project,
        here: Here,
        board: StatusBoard,
        stopping: Stopping,
        *,
        options: RunOptions,
        on_live: Callable[[], None] = lambda: None,
    ) -> None:
        self._project = project
        self._here = here
        self._board = board
        self._stopping = stopping
        self._options = options
        self._on_live = on_live
        self._client = Client(here.sink)
        self._meta = MetaIndex(self._client, project.slot, project.prefix)
        self._announced = False

    def execute(self) -> None:
        """Seed what is not seeded, then follow until told to stop.

        Raises:
            HeadraceError: what ended the run.
        """
        with contextlib.ExitStack() as held:
            held.enter_context(contextlib.closing(self._client))
            with self._stopping.interrupting():
                # Behind the lock: what a run that is just ending leaves must not be taken for a broken past.
                lock = held.enter_context(SlotLock(self._here.database, self._project.slot))
                connection = held.enter_context(connect(self._here.database, application_name="headrace run"))
                inspection = inspect(self._project, self._here, connection)
                inspection.raise_errors()
                self._client.wait_until_ready(_SINK_SECONDS)
            self._start(connection, inspection, lock)

    def _start(self, connection: Connection, inspection: Inspection, lock: SlotLock) -> None:
        seeding = Seeding(inspection, self._here, self._client, self._board)
        with contextlib.ExitStack() as running:
            with self._stopping.interrupting():
                state = self._known_state(connection, inspection, seeding)
                published = self._set_up(connection, inspection)
                catalog = KnownCatalog(inspection, self._here)
                for name in self._project.specs:
                    self._board.index(name, phase=IndexPhase.PENDING)
                with self._stopping.patient(), terminal.working("starting Spark …"):
                    spark = running.enter_context(self._spark())
                if state is None:
                    state = self._new_state(inspection, published, catalog)
                    state = self._first_seeding(spark, seeding, state, catalog)
                else:
                    state = self._further_seeding(spark, seeding, state, published, catalog)
                seeding.publish(state)
            self._follow(spark, catalog, seeding, state, lock)

    def _spark(self) -> contextlib.AbstractContextManager[LocalSpark]:
        options = self._options
        verbose = options.log_level == "debug"
        level = "info" if verbose else "warn"
        return local_spark(master=options.master, log_level=level, terminal=verbose)

    def _known_state(
        self, connection: Connection, inspection: Inspection, seeding: Seeding
    ) -> PipelineState | None:
        """What earlier runs left, None where there is nothing to build on; checked against the server."""
        state = self._meta.load()
        check_origin(state, inspection.server, inspection.slot)
        if state is None or state.phase == "following":
            return state
        terminal.say("the last start ended before its seeding was complete; beginning again")
        drop_slot(connection, self._project.slot)
        seeding.discard(state.indexes)
        self._meta.delete()
        return None

    def _set_up(self, connection: Connection, inspection: Inspection) -> Mapping[str, int]:
        """Alter what must be altered; returns the memberships of the publication, as the state keeps them."""
        for warning in inspection.setup.warnings:
            terminal.warn(warning)
        self._board.warned(inspection.setup.warnings)
        execute_plan(inspection.setup, connection, lambda step: terminal.say(f"set-up: {step.why}"))
        tables = self._project.tables()
        found = read_memberships(connection, self._project.publication)
        return {str(table): member for table, member in found.items() if table in tables}

    def _first_seeding(
        self, spark: LocalSpark, seeding: Seeding, state: PipelineState, catalog: KnownCatalog
    ) -> PipelineState:
        """Slot, snapshot, generations, documents; whatever fails, the slot does not stay behind."""
        self._meta.save(state)
        with self._slot() as slot, self._undone_on_failure(seeding) as made:
            terminal.done(f"slot {slot.name} at {format_lsn(slot.consistent_point)}")
            state = dataclasses.replace(
                state, phase="seeding", consistent_point=slot.consistent_point, applied=slot.consistent_point
            )
            for name in self._project.specs:
                state = dataclasses.replace(
                    state, indexes={**state.indexes, name: seeding.make(name, catalog.baseline.as_of)}
                )
                made.update(state.indexes)
            self._meta.save(state)
            self._board.happened(Event.SEEDING)
            cursor = Cursor(slot.consistent_point, slot.snapshot_name)
            return seeding.fill(spark, self._meta, state, cursor)

    def _slot(self) -> ExportedSlot:
        """The new slot. A refusal made nothing: a slot of that name is someone else's and must stay."""
        try:
            return create_slot(
                self._here.database, self._project.slot, failover=self._project.deployment.source.failover
            )
        except HeadraceError as error:
            if error.kind is not Kind.CONNECTION:  # then nobody knows; the next start looks
                with contextlib.suppress(HeadraceError):
                    self._meta.delete()
            raise

    @contextlib.contextmanager
    def _undone_on_failure(self, seeding: Seeding) -> Iterator[dict[str, IndexState]]:
        """Take back what was made; what cannot be, the next start takes back, as the state tells it to."""
        made: dict[str, IndexState] = {}
        try:
            yield made
        except BaseException:
            with contextlib.suppress(HeadraceError):
                self._undo(seeding, made)
            raise

    def _undo(self, seeding: Seeding, made: Mapping[str, IndexState]) -> None:
        state = self._meta.load()
        if state is not None and state.phase == "following":
            return  # it is seeded: the next start goes on from here
        with connect(self._here.database) as connection:
            drop_slot(connection, self._project.slot)
        seeding.discard(made)
        self._meta.delete()

    def _new_state(
        self, inspection: Inspection, published: Mapping[str, int], catalog: KnownCatalog
    ) -> PipelineState:
        server = inspection.server
        return PipelineState(
            system_identifier=str(server.system_identifier),
            timeline=server.timeline,
            database_oid=server.database_oid,
            slot=self._project.slot,
            publication=self._project.publication,
            phase="creating",
            consistent_point=0,
            applied=0,
            published=published,
            catalog=catalog.baseline.to_text(),
        )

    def _further_seeding(
        self,
        spark: LocalSpark,
        seeding: Seeding,
        state: PipelineState,
        published: Mapping[str, int],
        catalog: KnownCatalog,
    ) -> PipelineState:
        """Seed what is new or changed since the last run, as of what has been applied."""
        gone = {name: one for name, one in state.indexes.items() if name not in self._project.specs}
        kept = {name: one for name, one in state.indexes.items() if name not in gone}
        found, known = catalog.since(state.catalog), catalog.baseline.to_text()
        todo = seeding.unseeded(state, published, found.wrong)
        still = {name: one for name, one in kept.items() if name not in todo}
        for name, one in still.items():
            self._board.index(name, phase=IndexPhase.LIVE, generation=one.generation)
        seeding.renew(still, found.emptied, state.reached)
        if not todo and not gone and (published, known) == (state.published, state.catalog):
            return state
        seeding.discard({name: one for name, one in kept.items() if one.seeded_at is None})
        made = {name: seeding.make(name, catalog.baseline.as_of) for name in todo}
        state = dataclasses.replace(state, indexes={**kept, **made}, published=published, catalog=known)
        self._meta.save(state)
        if not todo:
            return state
        self._board.happened(Event.SEEDING)
        return seeding.fill(spark, self._meta, state, Cursor(state.reached, None))

    def _follow(
        self,
        spark: LocalSpark,
        catalog: KnownCatalog,
        seeding: Seeding,
        state: PipelineState,
        lock: SlotLock,
    ) -> None:
        """Run the query until told to stop; again after failures that may pass."""
        work = seeding.work(state.indexes)
        needs = catalog.needs(state.indexes)
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            following = Following(
                self._project.slot,
                self._project.publication,
                needs,
                state.place(),
                state.applied,
                parked=state.ahead is not None,
            )
            query = DocumentsQuery(spark.session, work, following, spark.scratch)
            try:
                watch = catalog.watch()
                with WorkingOff(spark.session, work) as beside:
                    failure = self._watched(query, lock, watch, beside)
            finally:
                query.stop()
            if failure is None and watch.moved:
                state = self._renew(catalog, watch, seeding)
                continue
            if failure is None:
                break
            told, failure = failure, watch.explained(failure)
            self._board.failed(failure)
            failures = 1 if time.monotonic() - began > _CALM_SECONDS else failures + 1
            if failure is told and failure.kind in ALTERED:
                self._build_anew_next_time()
            if not _may_pass(failure, failures):
                raise failure
            terminal.warn(f"{failure}; starting the stream again")
            self._stopping.wait(min(2.0**failures, 30.0))
            state = self._still_continuous(lock)
        self._settle()

    def _renew(self, catalog: KnownCatalog, watch: CatalogWatch, seeding: Seeding) -> PipelineState:
        """Partitions have come or gone, of which the log says nothing: keep that, and go on from the result.

        Where one has gone, what exists is assembled anew first, so that a start after a kill does it again.
        """
        catalog.baseline = watch.baseline
        with self._stopping.interrupting():
            for attempt in patiently():
                with attempt:
                    state = self._meta.load()
                    assert state is not None, "it is there while a run lives"
                    seeding.renew(state.indexes, watch.emptied, state.reached)
                    state = dataclasses.replace(state, catalog=watch.baseline.to_text())
                    self._meta.save(state)
        assert state is not None
        return state

    def _build_anew_next_time(self) -> None:
        """The log holds a table in a shape that the catalog may not show any more, and will hold it again.

        What is built behind that place has read those changes, and is followed from there on.
        """
        for attempt in patiently():
            with attempt:
                state = self._meta.load()
                if state is not None:
                    stale = {name: dataclasses.replace(one, hash="") for name, one in state.indexes.items()}
                    self._meta.save(dataclasses.replace(state, indexes=stale))

    def _live(self) -> None:
        self._board.happened(Event.FOLLOWING)
        if not self._announced:
            self._announced = True
            terminal.done("live: following the log")
            self._on_live()

    def _watched(
        self, query: DocumentsQuery, lock: SlotLock, catalog: CatalogWatch, beside: WorkingOff
    ) -> HeadraceError | None:
        """Keep the board up to date while the query runs; why it ended, or None where it is to end
        (`catalog` says whether only to begin again).

        Raises:
            HeadraceError: SLOT_IN_USE, where another Headrace took the slot while the server was away;
                SCHEMA_CHANGED or REPLICA_IDENTITY, where someone has altered a table.
        """
        began, live = time.monotonic(), False
        with Watch(
            self._here, self._project, self._board, lock, catalog=catalog, trouble=query.trouble
        ) as watch:
            while not self._stopping.is_set():
                if not query.active:
                    return query.failure() or HeadraceError(Kind.SPARK, "the query ended without a reason")
                if (failure := beside.failure()) is not None:
                    return failure
                if not live and (query.begun() or time.monotonic() - began > _QUIET_SECONDS):
                    live = True
                    self._live()
                if live:
                    watch.look()
                    if catalog.moved:
                        return None
                self._stopping.wait(_LOOK_SECONDS)
        return None

    def _still_continuous(self, lock: SlotLock) -> PipelineState:
        """Before the slot is connected to again: does everything still belong together, and to us?"""
        for attempt in patiently():
            with attempt, connect(self._here.database) as connection:
                taken = lock.lost_to()
                server = inspect_server(connection, self._here.database)
                slot = read_slot(connection, self._project.slot)
                state = self._meta.load()
        if taken is not None:
            raise taken
        if state is None:
            raise HeadraceError(Kind.CONTINUITY, "the state of this deployment was deleted from the cluster")
        check_continuity(state, server, slot)
        return state

    def _settle(self) -> None:
        """Confirm what was applied after the source's last confirmation, so that nothing repeats."""
        self._board.happened(Event.STOPPED)
        try:
            with contextlib.closing(impatient_client(self._here)) as client:
                meta = MetaIndex(client, self._project.slot, self._project.prefix)
                state = meta.load()
                parked = Parked(client, self._project.slot, self._project.prefix)
                if state is not None and state.ahead is not None and parked.count() == 0:
                    state = meta.advance(state.ahead, Counters())
            if state is not None:
                with connect(self._here.database) as connection:
                    confirm(connection, self._project.slot, state.applied)
        except HeadraceError as error:
            terminal.warn(f"the last position is not confirmed; the next start repeats a little ({error})")


def confirm(connection: Connection, slot: str, applied: Lsn) -> None:
    """Advance the slot to `applied`; its reader lets go of it a moment after it has ended.

    Raises:
        HeadraceError: SLOT_IN_USE after some seconds, or what the server refuses.
    """
    for attempt in Retrying(
        retry=retry_if_exception(lambda e: isinstance(e, HeadraceError) and e.kind is Kind.SLOT_IN_USE),
        wait=wait_fixed(0.1),
        stop=stop_after_delay(5),
        reraise=True,
    ):
        with attempt:
            advance_slot(connection, slot, applied)


def _may_pass(error: HeadraceError, failures: int) -> bool:
    """Whether starting again can help: for ever where waiting does; what Spark fails of often passes."""
    return error.retry is Retry.BACK_OFF or (error.kind is Kind.SPARK and failures <= _MOST_RESTARTS)
