"""Create a deployment's state, slot and first generations: all of them or none.

The state is saved first, so that a start after a kill knows what was begun. The slot's position is added as
soon as the slot exists. What a failed start cannot undo, the next start undoes.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from headrace.errors import HeadraceError, Kind
from headrace.model import format_lsn
from headrace.model.failpoints import reach
from headrace.pipeline.continuity import is_made_by, new_state
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.generation_log import GenerationLog
from headrace.pipeline.inspection import Inspection
from headrace.pipeline.project import Project
from headrace.pipeline.schema_drift import CatalogBaseline
from headrace.pipeline.slot_wait import wait_for_slot
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import connect
from headrace.postgres.slot import ExportedSlot, drop_slot, read_slot
from headrace.sinks.opensearch import (
    Client,
    Generation,
    Generations,
    GenerationState,
    MetaIndex,
    PipelineState,
)
from headrace.status.board import StatusBoard


class FirstStart:
    """Creates a deployment that does not exist yet.

    Args:
        meta: the index that keeps the state.
        exported: holds the slot's snapshot, which the backfill reads.
    """

    def __init__(
        self,
        project: Project,
        endpoints: Endpoints,
        client: Client,
        meta: MetaIndex,
        *,
        board: StatusBoard,
        exported: HeldSnapshot,
    ) -> None:
        self._project = project
        self._endpoints = endpoints
        self._client = client
        self._meta = meta
        self._board = board
        self._exported = exported

    def begin(
        self,
        inspection: Inspection,
        published: Mapping[str, int],
        catalog: CatalogBaseline,
        running: contextlib.ExitStack,
        make_generation_log: Callable[[PipelineState], GenerationLog],
    ) -> GenerationLog:
        """Create the slot and the first generations; on failure the slot is dropped again.

        Args:
            inspection: the project and the database.
            published: the publication's memberships, in the form that the state keeps.
            catalog: the catalog that the generations are planned for.
            running: closes the slot's connection when the run ends; its snapshot is given up earlier.
            make_generation_log: creates the log of generations for a state.

        Raises:
            HeadraceError: an error of the server or the cluster.
        """
        state = new_state(inspection.server, self._project.slot, self._project.publication)
        state = dataclasses.replace(state, published=published, catalog=catalog.baseline.to_text())
        self._meta.save(state)
        slot = running.enter_context(self._slot())
        reach("created")
        point = slot.consistent_point
        state = dataclasses.replace(state, consistent_point=point)  # identifies the slot as this deployment's
        generation_log = make_generation_log(state)
        with self._undone_on_failure(generation_log):
            self._meta.save(state)
            reach("known")
            self._board.report.done(f"slot {slot.name} at {format_lsn(point)}")
            generation_log.create_first(dataclasses.replace(state, phase="following", applied=point), point)
        self._exported.hold(slot)
        return generation_log

    def discard(self, generations: Iterable[GenerationState]) -> None:
        """Drop the generations that no reader has seen."""
        store = Generations(self._client, self._project.prefix)
        for generation in generations:
            if generation.building:
                store.drop(
                    Generation(generation.index, generation.generation, generation.hash, 0, generation.uuid)
                )

    def _slot(self) -> ExportedSlot:
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
        self.discard(generation_log.state.generations)
        self._meta.delete()
