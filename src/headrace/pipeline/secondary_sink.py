"""How does one secondary sink of a run live beside the one that keeps the state? (decision 0061)

A branch has its own generations, leases, filling and backlog. What happens to it is told, and ends neither
the stream nor another.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from headrace.errors import SEED_AGAIN, HeadraceError, Kind, Retry, patiently
from headrace.model import Lsn, TableName
from headrace.pipeline.backfill import Backfill, BackfillFailure, BackfillRate
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.generation_monitor import GenerationMonitor
from headrace.pipeline.generations import GenerationManager
from headrace.pipeline.inspection import Inspection
from headrace.pipeline.project import OPENSEARCH, Endpoints, Project
from headrace.pipeline.retained_generations import inspect_retained
from headrace.pipeline.schema_drift import SchemaDrift
from headrace.pipeline.stream.catch_up import CatchUp
from headrace.pipeline.worker.plan import Work
from headrace.postgres.connection import Connection
from headrace.reporter import Reporter
from headrace.sinks.opensearch import (
    Client,
    ControlRequests,
    Endpoint,
    Generations,
    GenerationState,
    MetaIndex,
    PipelineState,
)
from headrace.sinks.opensearch.lease import Lease
from headrace.sinks.opensearch.secondary_deferred_keys import SecondaryDeferredKeys
from headrace.sinks.plain import PlainGenerations
from headrace.spark.job_gate import JobGate
from headrace.spark.session import LocalSpark
from headrace.status.board import StatusBoard

_REQUEST_SECONDS = 10.0
_PROBE_SECONDS = 5.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 5.0, 600.0
_PUBLISH_SECONDS = 30.0
"""Until what is complete is tried to be shown again, where the sink did not answer."""


class _Board:
    """What is told of the indexes of one sink."""

    def __init__(self, board: StatusBoard, sink: str) -> None:
        self._board = board
        self._sink = sink

    @property
    def report(self) -> Reporter:
        """Is told in words what happens."""
        return self._board.report

    def index(self, name: str, **changes: Any) -> None:
        """Change fields of one index's `IndexStatus`."""
        self._board.secondary_index(self._sink, name, **changes)


class SecondarySink:
    """One secondary sink; used from the run's main thread.

    Args:
        project, here: of the sink.
        state: of the cluster that keeps the state; stays the caller's.
        most: documents that may be deferred.

    Attributes:
        lineage: None until it is taken up.
        ready: whether the sink was there when it was taken up last.
    """

    def __init__(
        self, project: Project, endpoints: Endpoints, state: Client, board: StatusBoard, most: int
    ) -> None:
        self.name = project.sink_name
        self.generation_log: GenerationLog | None = None
        self.ready = False
        self._project = project
        self._endpoints = endpoints
        self._board = board
        self._most = most
        self._state_client = state
        self._client = Client(_limited(endpoints, _REQUEST_SECONDS), read_attempts=2)
        self._probe = Client(_limited(endpoints, _PROBE_SECONDS), read_attempts=1)
        self._meta = MetaIndex(state, project.slot, project.state_prefix)
        self._lease: Lease | None = None
        self._state: PipelineState | None = None
        self._filling: Backfill | None = None
        self._filled: list[tuple[GenerationState, int]] = []
        self._backlog = SecondaryDeferredKeys(state, project.slot, project.state_prefix)
        self._overflowed, self._robbed = threading.Event(), threading.Event()
        self._pause, self._next = _SHORTEST_PAUSE, 0.0
        self._said = ""
        self._found = threading.Event()
        self._probing = self._prober()
        self._watch: GenerationMonitor | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the sink is no cluster."""
        return self._project.kind != OPENSEARCH

    @property
    def written(self) -> list[GenerationState]:
        """The generations that live changes go to, or are deferred for."""
        if self.generation_log is None:
            return []
        return [one for one in self.generation_log.written if self.generation_log.seeding.is_known(one)]

    def close(self) -> None:
        """Give the leases and the connections back."""
        self._leave()
        self._client.close()
        self._probe.close()

    def inspected(self, connection: Connection, inspection: Inspection) -> Inspection:
        """The inspection with what is kept in this sink; of one that is away, that cannot be read."""
        self._state = self._loaded()
        if self.is_plain or not self._state.generations:
            return inspection
        own = inspection.project.of_sink(self.name)
        try:
            self._probe.product()
            generations = Generations(self._client, own.prefix)
            variant = dataclasses.replace(inspection, project=own)
            found, self._state = inspect_retained(
                variant, self._endpoints, connection, generations, self._state
            )
        except HeadraceError as error:
            self._failed(error)
            return inspection
        project = dataclasses.replace(inspection.project, specs=found.project.specs, kept=found.project.kept)
        return dataclasses.replace(found, project=project)

    def freeze(self, reason: str) -> None:
        """Follow nothing of what there is any more; no query runs.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY: of the cluster that keeps the state.
        """
        self._meta.save(self._loaded().frozen(reason))

    def take_up(
        self,
        inspection: Inspection,
        primary: PipelineState,
        *,
        as_of: Lsn,
        published: Mapping[str, int],
        found: SchemaDrift,
        catalog: str,
    ) -> None:
        """Go on from what earlier runs left, as far as the sink is there; no query runs.

        Raises:
            HeadraceError: what is not the sink's; CONTINUITY.
        """
        if self._state is None:
            self._state = self._loaded()
        own = dataclasses.replace(inspection, project=inspection.project.of_sink(self.name))
        board = _Board(self._board, self.name)
        plain = PlainGenerations(self._state.generations) if self.is_plain else None
        seeding = GenerationManager(
            own, self._endpoints, self._client, board, state=self._state_client, generations=plain
        )
        orders = ControlRequests(self._state_client, self._project.slot, self._project.state_prefix)
        self.generation_log = GenerationLog(
            self._state, seeding, self._meta, orders, board, inspection=own, as_of=as_of, keep=0
        )
        self._watch = None if self.is_plain else GenerationMonitor(seeding)
        self.generation_log.freeze_unknown()
        self._state = None
        for index in own.project.specs:
            board.index(index)
        if self.is_plain:  # it cannot be asked for what is to be renewed
            self.generation_log.take_up_away(published, found)
            found = SchemaDrift()
            if not self._is_served(primary):
                return
        try:
            self._enter()
            self.generation_log.take_up(published, found, catalog, [])
        except HeadraceError as error:
            self._failed(error)
            self.generation_log.take_up_away(published, found)
        else:
            self.ready, self._pause, self._next, self._said = True, _SHORTEST_PAUSE, 0.0, ""
            self._board.secondary(self.name, away=None)

    def work(self, primary: PipelineState) -> Work | None:
        """What the workers must know; None where there is nothing to write."""
        written = self.written
        if self.generation_log is None or not written:
            return None
        mirrors = {one.index: one.generation + ".write" for one in primary.generations}
        mirrors |= {one.index: one.generation + ".write" for one in primary.generations if one.published}
        return self.generation_log.seeding.work(written, mirrors if self.is_plain else {})

    @contextlib.contextmanager
    def beside(self, spark: LocalSpark, work: Work, job_gate: JobGate, pace: BackfillRate) -> Iterator[None]:
        """Fill what is to be filled, and work off what is deferred, while this is entered."""
        assert self.generation_log is not None
        building = [one for one in self.generation_log.building if one in self.written] if self.ready else []
        board = _Board(self._board, self.name)
        filling = Backfill(spark, work, building, board, snapshot=None, pace=pace, job_gate=job_gate)
        self._filled = []
        with CatchUp(work, self._tell, self._robbed.set), filling:
            self._filling = filling
            try:
                yield
            finally:
                self._filling = None

    def look(self, primary: PipelineState) -> bool:
        """Let readers see what is complete; whether something is to be done between two batches."""
        if self.generation_log is None:
            return False
        if self.ready:
            self._publish()
            self._look_at_generations()
        if self._why_given_up() is not None or self._lost():
            return True
        if self.ready:
            failed = self._filling is not None and self._filling.failure() is not None
            return failed or self.generation_log.must_drop
        if self.is_plain:
            return self._is_served(primary)
        if self._found.is_set():
            self._found.clear()
            return True
        if time.monotonic() >= self._next and not self._probing.is_alive():
            self._next = time.monotonic() + self._pause
            self._probing = self._prober()
            self._probing.start()
        return False

    def between(
        self, inspection: Inspection, as_of: Lsn, primary: PipelineState, failed: BackfillFailure | None
    ) -> None:
        """No query runs: do what `look` has asked for.

        Args:
            failed: what could not be filled, or None.

        Raises:
            HeadraceError: what is not the sink's.
        """
        generation_log = self.generation_log
        if generation_log is None:
            return
        if (reason := self._why_given_up()) is not None:
            self._leave()
            generation_log.give_up(generation_log.written, reason)
            if self._robbed.is_set():
                self._backlog.renounce()
            self._overflowed.clear()  # what is deferred for them is taken away by and by
            self._robbed.clear()
            self.ready = False
        else:
            self._give_up_lost(generation_log, failed)
        if self.ready and generation_log.must_drop:
            try:
                generation_log.carry_out([])
            except HeadraceError as error:
                self._failed(error)
        if not self.ready:
            self._state = self._loaded()
            self.take_up(
                inspection,
                primary,
                as_of=as_of,
                published=self._state.published,
                found=SchemaDrift(),
                catalog=self._state.catalog,
            )

    def failure(self) -> BackfillFailure | None:
        """What could not be filled; asked before the query ends."""
        return None if self._filling is None else self._filling.failure()

    def renew(self, emptied: Collection[TableName], catalog: str) -> None:
        """A partition has gone: assemble anew, here too."""
        if self.generation_log is None:
            return
        try:
            if self.ready and not self.is_plain:
                self.generation_log.altered(emptied, catalog)
                return
        except HeadraceError as error:
            self._failed(error)
        self.generation_log.take_up_away({}, SchemaDrift(emptied=frozenset(emptied)))
        self.ready = False

    def _why_given_up(self) -> str | None:
        """Why its generations cannot be brought up to date any more; None where they can."""
        lost = None if self._lease is None else self._lease.lost()
        if lost is not None:
            return lost.cause
        if self._robbed.is_set():
            return f"somebody deleted or restored the index of what waited for the sink {self.name!r}"
        if self._overflowed.is_set():
            return f"more than {self._most:,} documents waited for the sink {self.name!r}"
        return None

    def _give_up_lost(self, generation_log: GenerationLog, failed: BackfillFailure | None) -> None:
        """What somebody deleted is made anew; what could not be filled, for another reason, is not."""
        if failed is not None and self._watch is not None:
            self._watch.look_now([failed.generation])
        lost = self._lost()
        for one, why in lost:
            generation_log.give_up([one], why)
            self.ready = False
        if failed is not None and failed.generation.uuid not in {one.uuid for one, _ in lost}:
            generation_log.give_up([failed.generation], failed.error.cause)

    def _lost(self) -> list[tuple[GenerationState, str]]:
        """What is written and is not what it was any more, and why."""
        return [] if self._watch is None else self._watch.lost(self.written)

    def _look_at_generations(self) -> None:
        """Begin to look whether they are what was written, and give readers an alias back that was taken."""
        if self._watch is None or self.generation_log is None:
            return
        for one in self._watch.unserved(self.written):
            error = None
            try:
                self.generation_log.seeding.serve(one)
            except HeadraceError as failure:
                error = failure.cause
            else:
                self._board.report.warning(
                    f"{self._project.label}{one.index}: its alias led elsewhere and is set right"
                )
            _Board(self._board, self.name).index(one.index, error=error)
        self._watch.look(self.written)

    def _loaded(self) -> PipelineState:
        for attempt in patiently():
            with attempt:
                found = self._meta.load()
        if found is None:
            raise HeadraceError(
                Kind.CONTINUITY, "the state of this deployment was deleted from the cluster", SEED_AGAIN
            )
        return found

    def _enter(self) -> None:
        """Make sure that the sink is there, and ours."""
        if self.is_plain:
            return
        self._probe.wait_until_ready(_PROBE_SECONDS)
        if self._lease is None:
            lease = Lease(self._probe, self._project.slot, self._project.prefix, [*self._project.specs])
            lease.__enter__()
            self._lease = lease

    def _leave(self) -> None:
        """Give the leases back, if the cluster answers soon."""
        if self._lease is not None:
            thread = threading.Thread(target=self._lease.__exit__, daemon=True)
            thread.start()
            thread.join(_PROBE_SECONDS)
            self._lease = None

    def _is_served(self, primary: PipelineState) -> bool:
        """Whether the primary has every index: what is no cluster is compared with it."""
        return all(primary.served(index) is not None for index in self._project.specs)

    def _look_for_it(self) -> None:
        """Beside the run, which must not wait for a cluster that hangs."""
        with contextlib.suppress(HeadraceError):
            self._probe.wait_until_ready(0.0)
            self._found.set()

    def _prober(self) -> threading.Thread:
        return threading.Thread(target=self._look_for_it, name="headrace probing", daemon=True)

    def _publish(self) -> None:
        """Let readers see what is complete; the run waits for a sink that hangs, so not again at once."""
        assert self.generation_log is not None
        if self._filling is not None:
            self._filled += self._filling.completed()
        if time.monotonic() >= self._next:
            self.generation_log.prepare([one for one, _ in self._filled])
        while self._filled and time.monotonic() >= self._next:
            try:
                self.generation_log.complete(*self._filled[0])
            except HeadraceError as error:
                if error.retry is Retry.NEVER:
                    self._failed(error)
                else:
                    self._next = time.monotonic() + _PUBLISH_SECONDS
                return
            del self._filled[0]

    def _tell(self, deferred: int, away: str | None) -> None:
        self._board.secondary(self.name, deferred=deferred, away=away)
        if deferred > self._most:
            self._overflowed.set()

    def _failed(self, error: HeadraceError) -> None:
        """It is left alone for a while."""
        self.ready = False
        self._next = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        self._board.secondary(self.name, away=str(error))
        if str(error) != self._said:
            self._said = str(error)
            self._board.report.warning(f"the sink {self.name!r} is left alone for now: {self._said}")


def _limited(endpoints: Endpoints, seconds: float) -> Endpoint:
    return dataclasses.replace(
        endpoints.sink,
        timeout=min(endpoints.sink.timeout, seconds),
        connect_timeout=min(endpoints.sink.connect_timeout, seconds),
    )
