"""How does a deployment come to be: state, slot and first generations, all of them or nothing?

The state comes first, so that a start after a kill knows what was begun; it is told where the slot stands as
soon as there is one. What cannot be taken back is taken back by the next start.
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
from headrace.pipeline.project import Endpoints, Project
from headrace.pipeline.schema_drift import CatalogBaseline
from headrace.pipeline.slot_wait import wait_for_slot
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
    """Makes a deployment of which there is nothing yet.

    Args:
        meta: where the state is kept.
        exported: holds the slot's snapshot, which the indexes are filled from.
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
        make_lineage: Callable[[PipelineState], GenerationLog],
    ) -> GenerationLog:
        """Make the slot and the first generations; where they do not all come to be, the slot does not stay.

        Args:
            published: the memberships of the publication, as the state keeps them.
            running: ends the slot's connection with the run; its snapshot is given up earlier.

        Raises:
            HeadraceError: what server or cluster refuse.
        """
        state = new_state(inspection.server, self._project.slot, self._project.publication)
        state = dataclasses.replace(state, published=published, catalog=catalog.baseline.to_text())
        self._meta.save(state)
        slot = running.enter_context(self._slot())
        reach("created")
        point = slot.consistent_point
        state = dataclasses.replace(state, consistent_point=point)  # by which the slot is known to be ours
        generation_log = make_lineage(state)
        with self._undone_on_failure(generation_log):
            self._meta.save(state)
            reach("known")
            self._board.report.done(f"slot {slot.name} at {format_lsn(point)}")
            generation_log.born(dataclasses.replace(state, phase="following", applied=point), point)
        self._exported.hold(slot)
        return generation_log

    def discard(self, made: Iterable[GenerationState]) -> None:
        """Delete the generations that no reader has seen."""
        generations = Generations(self._client, self._project.prefix)
        for generation in made:
            if generation.building:
                generations.drop(
                    Generation(generation.index, generation.generation, generation.hash, 0, generation.uuid)
                )

    def _slot(self) -> ExportedSlot:
        """The new slot, for which older transactions are waited as long as they take.

        A refusal made nothing: a slot of that name is someone else's and must stay.
        """
        failover = self._project.deployment.source.failover
        try:
            return wait_for_slot(self._endpoints.database, self._project.slot, self._board, failover=failover)
        except HeadraceError as error:
            if error.kind is not Kind.CONNECTION:  # then nobody knows; the next start looks
                with contextlib.suppress(HeadraceError):
                    self._meta.delete()
            raise

    @contextlib.contextmanager
    def _undone_on_failure(self, generation_log: GenerationLog) -> Iterator[None]:
        """Take back what was made; what cannot be, the next start takes back, as the state tells it to."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(HeadraceError):
                self._undo(generation_log)
            raise

    def _undo(self, generation_log: GenerationLog) -> None:
        state = self._meta.load()
        if state is not None and state.phase == "following":
            return  # everything is there: the next start goes on from here
        with connect(self._endpoints.database) as connection:
            slot = read_slot(connection, self._project.slot)
            if slot is not None and is_made_by(slot, generation_log.state):
                drop_slot(connection, self._project.slot)
        self.discard(generation_log.state.generations)
        self._meta.delete()
