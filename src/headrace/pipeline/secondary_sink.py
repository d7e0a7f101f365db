"""Follow the changes in one secondary sink (decision 0061).

A secondary sink has its own generations, leases, backfill and deferred keys. Its failures are reported. They
end neither the stream nor another sink.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterator, Mapping

from headrace.catalog.drift import SchemaDrift
from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind, Retry, retrying
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.model.units import quantity
from headrace.pipeline.backfill import Backfill, BackfillFailure, BackfillRate
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.generations import GenerationManager, GenerationMonitor, generation_of
from headrace.pipeline.inspection import Inspection, inspect_retained
from headrace.pipeline.project import Project
from headrace.pipeline.sink_probe import SinkProbe
from headrace.pipeline.sink_target import SinkTarget
from headrace.pipeline.stream.deferred_work import CatchUp
from headrace.pipeline.worker.plan import Endpoints, Work
from headrace.postgres.connection import Connection
from headrace.sinks.opensearch import Client, Generations
from headrace.sinks.plain import PlainGenerations
from headrace.spark.jobs import JobGate
from headrace.spark.session import LocalSpark
from headrace.state import ControlRequests, GenerationState, PipelineState, StateStore
from headrace.state.lease import Lease
from headrace.state.sink_notes import SecondarySinkNotes
from headrace.status.board import StatusBoard
from headrace.status.index_board import SecondaryIndexBoard

_REQUEST_SECONDS = 10.0
_PROBE_SECONDS = 5.0
_PUBLISH_SECONDS = 30.0
"""Pause before complete generations are served again, where the sink did not answer."""


class SecondarySink:
    """One secondary sink; used from the run's main thread.

    Args:
        project: the project.
        target: the sink.
        endpoints: the endpoints of the sink.
        state: client of the cluster that keeps the state; the caller closes it.
        board: shows the sink's status.

    Attributes:
        name: the sink's name in the deployment file.
        generation_log: None until the sink is resumed.
        ready: whether the sink answered when it was resumed last.
    """

    def __init__(
        self, project: Project, target: SinkTarget, endpoints: Endpoints, state: Client, board: StatusBoard
    ) -> None:
        self.name = target.name
        self.generation_log: GenerationLog | None = None
        self.ready = False
        self._project = project
        self._target = target
        self._endpoints = endpoints
        self._board = board
        self._indexes = SecondaryIndexBoard(board, self.name)
        self._max_deferred = project.deployment.max_deferred
        self._state_client = state
        self._client = Client(endpoints.sink.with_timeout(_REQUEST_SECONDS), read_attempts=2, accepted=True)
        self._quick_client = Client(endpoints.sink.with_timeout(_PROBE_SECONDS), read_attempts=1)
        self._probe = SinkProbe(self._quick_client)
        self._meta = StateStore(state, target.key)
        self._lease: Lease | None = None
        self._state: PipelineState | None = None
        self._backfill: Backfill | None = None
        self._complete: list[tuple[GenerationState, int]] = []
        self._notes = SecondarySinkNotes(state, target.key)
        self._overflowed, self._keys_lost = threading.Event(), threading.Event()
        self._publish_from = 0.0
        self._warned = ""
        self._watch: GenerationMonitor | None = None

    @property
    def written(self) -> list[GenerationState]:
        """The generations that live changes are written to, or deferred for."""
        if self.generation_log is None:
            return []
        return [
            generation
            for generation in self.generation_log.written
            if self.generation_log.manager.is_known(generation)
        ]

    def close(self) -> None:
        """Release the leases and close the connections."""
        self._release()
        self._client.close()
        self._quick_client.close()

    def change_project(self, project: Project) -> None:
        """Go on with changed files; the leases are taken again, for the indexes that these name."""
        if project.specs.keys() != self._project.specs.keys():
            self._release()
        self._project, self._target = project, project.targets[self.name]

    def inspect(self, connection: Connection, inspection: Inspection) -> Inspection:
        """Add the retained generations of this sink to an inspection, where the sink answers."""
        self._state = self._load_state()
        if self._target.is_plain or not self._state.generations:
            return inspection
        try:
            self._quick_client.product()
            generations = Generations(self._client, self._target.prefix)
            inspection, self._state = inspect_retained(
                inspection, self._endpoints, connection, generations, self._state, target=self._target
            )
        except HeadraceError as error:
            self._pause(error)
        return inspection

    def freeze(self, reason: str) -> None:
        """Freeze every generation of the sink; no query runs.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, from the cluster that keeps the state.
        """
        self._meta.save(self._load_state().frozen(reason))

    def resume(
        self,
        inspection: Inspection,
        primary: PipelineState,
        *,
        as_of: Lsn,
        published: Mapping[str, int],
        drift: SchemaDrift,
        catalog: str,
    ) -> None:
        """Go on from the state that earlier runs saved, as far as the sink answers; no query runs.

        Args:
            inspection: the project and the database.
            primary: the state of the primary sink.
            as_of: the position of the catalog that new generations are planned for.
            published: the publication's memberships now.
            drift: what was altered since the state was saved.
            catalog: the catalog now, as saved in the state.

        Raises:
            HeadraceError: an error that does not come from the sink; CONTINUITY.
        """
        if self._state is None:
            self._state = self._load_state()
        plain = (
            PlainGenerations(map(generation_of, self._state.generations)) if self._target.is_plain else None
        )
        manager = GenerationManager(
            inspection,
            self._target,
            self._endpoints,
            self._client,
            self._indexes,
            state=self._state_client,
            generations=plain,
        )
        requests = ControlRequests(self._state_client, self._target.key)
        self.generation_log = GenerationLog(
            self._state,
            manager,
            self._meta,
            requests,
            self._indexes,
            as_of=as_of,
            keep=0,
        )
        self._watch = None if self._target.is_plain else GenerationMonitor(manager)
        self.generation_log.freeze_unknown()
        self._state = None
        for index in inspection.project.specs:
            self._indexes.index(index)
        if self._target.is_plain:  # it cannot list the documents that would have to be renewed
            self.generation_log.resume_offline(published, drift)
            drift = SchemaDrift()
            if not self._is_served(primary):
                return
        try:
            self._connect()
            self.generation_log.resume(published, drift, catalog, [])
        except HeadraceError as error:
            self._pause(error)
            self.generation_log.resume_offline(published, drift)
        else:
            self.ready, self._publish_from, self._warned = True, 0.0, ""
            self._probe.reset()
            self._board.secondary(self.name, away=None)

    def work(self, primary: PipelineState) -> Work | None:
        """Return what the workers need to write to the sink; None where nothing is written."""
        written = self.written
        if self.generation_log is None or not written:
            return None
        mirrors = {}
        if self._target.is_plain:
            served_last = sorted(primary.generations, key=lambda generation: generation.published)
            mirrors = {generation.index: generation.generation + ".write" for generation in served_last}
        return self.generation_log.manager.work(written, mirrors)

    @contextlib.contextmanager
    def beside(self, spark: LocalSpark, work: Work, job_gate: JobGate, rate: BackfillRate) -> Iterator[None]:
        """Run the sink's backfill and write its deferred documents, while this is entered."""
        assert self.generation_log is not None
        written = self.written if self.ready else []
        building = [generation for generation in self.generation_log.building if generation in written]
        backfill = Backfill(spark, work, building, self._indexes, snapshot=None, rate=rate, job_gate=job_gate)
        self._complete = []
        with CatchUp(work, self._show_deferred, self._keys_lost.set), backfill:
            self._backfill = backfill
            try:
                yield
            finally:
                self._backfill = None

    def look(self, primary: PipelineState) -> bool:
        """Serve complete generations; return whether something must be done between two batches."""
        if self.generation_log is None:
            return False
        if self.ready:
            self._publish()
            self._look_at_generations()
        if self._why_given_up() is not None or self._lost():
            return True
        if self.ready:
            failed = self._backfill is not None and self._backfill.failure() is not None
            return failed or self._make_refused() or self.generation_log.must_drop
        if self._target.is_plain:
            return self._is_served(primary)
        return self._probe.look()

    def apply(
        self, inspection: Inspection, as_of: Lsn, primary: PipelineState, failed: BackfillFailure | None
    ) -> None:
        """Do what `look` has found to be necessary; no query runs.

        Args:
            inspection: the project and the database.
            as_of: the position of the catalog that new generations are planned for.
            primary: the state of the primary sink.
            failed: the backfill that failed, or None.

        Raises:
            HeadraceError: an error that does not come from the sink.
        """
        generation_log = self.generation_log
        if generation_log is None:
            return
        if (reason := self._why_given_up()) is not None:
            self._release()
            generation_log.freeze(generation_log.written, reason)
            if self._keys_lost.is_set():
                self._notes.give_up_lost_keys()
            self._overflowed.clear()  # their deferred keys are removed later
            self._keys_lost.clear()
            self.ready = False
        else:
            self._freeze_lost(generation_log, failed)
        if self.ready and generation_log.must_drop:
            try:
                generation_log.carry_out([])
            except HeadraceError as error:
                self._pause(error)
        if not self.ready:
            self._state = self._load_state()
            self.resume(
                inspection,
                primary,
                as_of=as_of,
                published=self._state.published,
                drift=SchemaDrift(),
                catalog=self._state.catalog,
            )

    def failure(self) -> BackfillFailure | None:
        """Return the backfill failure; ask before the query ends."""
        return None if self._backfill is None else self._backfill.failure()

    def note_partitions(self, emptied: Collection[TableName], catalog: str) -> None:
        """Assemble documents again after partitions were attached or detached."""
        if self.generation_log is None:
            return
        try:
            if self.ready and not self._target.is_plain:
                self.generation_log.note_partitions(emptied, catalog)
                return
        except HeadraceError as error:
            self._pause(error)
        self.generation_log.resume_offline({}, SchemaDrift(emptied=frozenset(emptied)))
        self.ready = False

    def _why_given_up(self) -> str | None:
        """Return why the generations cannot be brought up to date any more; None where they can."""
        lost = None if self._lease is None else self._lease.lost()
        if lost is not None:
            return lost.cause
        if self._keys_lost.is_set():
            return f"the index of what waited for the sink {self.name!r} was deleted or restored"
        if self._overflowed.is_set():
            return f"more than {quantity(self._max_deferred, 'document')} waited for the sink {self.name!r}"
        return None

    def _freeze_lost(self, generation_log: GenerationLog, failed: BackfillFailure | None) -> None:
        """Give up lost generations, which are then built again, and a failed one, which is not."""
        if failed is not None and self._watch is not None:
            self._watch.look_now(failed.generations)
        lost = self._lost()
        for generation, why in lost:
            generation_log.freeze([generation], why)
            self.ready = False
        if failed is not None:
            known = {generation.uuid for generation, _ in lost}
            rest = [generation for generation in failed.generations if generation.uuid not in known]
            generation_log.freeze(rest, failed.error.cause, failed.error.remedy)

    def _lost(self) -> list[tuple[GenerationState, str]]:
        """Return the written generations that are not what was written any more, with the reason."""
        return [] if self._watch is None else self._watch.lost(self.written)

    def _look_at_generations(self) -> None:
        """Watch the sink's generations, and set the readers' aliases right."""
        if self._watch is None or self.generation_log is None:
            return
        for generation in self._watch.unserved(self.written):
            error = None
            try:
                self.generation_log.manager.serve(generation)
            except HeadraceError as failure:
                error = failure.cause
            else:
                self._board.report.warning(
                    f"{self._target.label}{generation.index}: its alias led elsewhere and is set right"
                )
            self._indexes.index(generation.index, error=error)
        self._watch.look(self.written)

    def _load_state(self) -> PipelineState:
        for attempt in retrying():
            with attempt:
                state = self._meta.load()
        if state is None:
            raise HeadraceError(
                Kind.CONTINUITY, "the state of this deployment was deleted from the cluster", BACKFILL_AGAIN
            )
        return state

    def _connect(self) -> None:
        """Wait until the sink answers, and take its leases."""
        if self._target.is_plain:
            return
        self._quick_client.wait_until_ready(_PROBE_SECONDS)
        if self._lease is None:
            lease = Lease(self._quick_client, self._target.lease_key, [*self._project.specs])
            lease.__enter__()
            self._lease = lease

    def _release(self) -> None:
        """Release the leases, if the cluster answers soon."""
        if self._lease is not None:
            thread = threading.Thread(target=self._lease.__exit__, daemon=True)
            thread.start()
            thread.join(_PROBE_SECONDS)
            self._lease = None

    def _is_served(self, primary: PipelineState) -> bool:
        """Whether the primary serves every index; a plain sink is compared with it."""
        return all(primary.served(index) is not None for index in self._project.specs)

    def _make_refused(self) -> bool:
        """Try again to make generations that the sink has refused; return whether some were made."""
        assert self.generation_log is not None
        try:
            return self.generation_log.make_refused()
        except HeadraceError as error:
            self._pause(error)
            return False

    def _publish(self) -> None:
        """Serve complete generations; after a failure only once a pause is over."""
        assert self.generation_log is not None
        if self._backfill is not None:
            self._complete += self._backfill.completed()
        if time.monotonic() >= self._publish_from:
            self.generation_log.prepare([generation for generation, _ in self._complete])
        while self._complete and time.monotonic() >= self._publish_from:
            try:
                self.generation_log.complete(*self._complete[0])
            except HeadraceError as error:
                if error.retry is Retry.NEVER:
                    self._pause(error)
                else:
                    self._publish_from = time.monotonic() + _PUBLISH_SECONDS
                return
            del self._complete[0]

    def _show_deferred(self, deferred: int, away: str | None) -> None:
        self._board.secondary(self.name, deferred=deferred, away=away)
        if deferred > self._max_deferred:
            self._overflowed.set()

    def _pause(self, error: HeadraceError) -> None:
        """Do not ask the sink for a while, and warn once."""
        self.ready = False
        self._probe.wait_longer()
        self._board.secondary(self.name, away=str(error))
        if str(error) != self._warned:
            self._warned = str(error)
            self._board.report.warning(f"the sink {self.name!r} is not written to for now: {self._warned}")
