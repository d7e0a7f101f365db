"""Plan, create, serve, watch and drop the generations of a sink; the backfill itself is in `backfill`.

A cluster that does not answer proves nothing: only an answer can say that an index is gone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from headrace.assembly.transform import transform_digest
from headrace.errors import HeadraceError
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.pipeline.inspection import Inspection
from headrace.pipeline.sink_target import SinkTarget
from headrace.pipeline.worker.plan import DocumentsPlan, Endpoints, Work
from headrace.pipeline.worker.workers import open_worker
from headrace.resolution import plan_resolution
from headrace.schema.normal import normalised
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import Client, Generation, Generations, mapping
from headrace.sinks.opensearch.generations import FoundIndex
from headrace.sinks.opensearch.settings import adjust, required_settings
from headrace.sinks.opensearch.shard_history import Identity, completed, is_another
from headrace.sinks.plain import PlainGenerations
from headrace.state import GenerationState, Quarantine, backfill_progress
from headrace.status.index_board import IndexBoard


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of a look at generations, by uuid: another index may have the name by now.

    Attributes:
        lost: generations that are not what was written any more, and why.
        unserved: other published generations that the alias of their readers does not lead to.
        faults: why readers do not see all that they should, by index.
        altered: settings that were set right, in words.
    """

    lost: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unserved: frozenset[str] = frozenset()
    faults: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    altered: tuple[str, ...] = ()


class GenerationManager:
    """Manages the generations of a run's indexes in one sink.

    Args:
        endpoints: the endpoints of the sink.
        client: client of the sink.
        board: shows the state of the indexes.
        state: client of the cluster that keeps the state, where that is another.
        generations: the generations of a sink that is not a cluster.

    Attributes:
        inspection: the project and the database.
        target: the sink.
        hashes: by index, the hash of everything that determines its documents now.
    """

    def __init__(
        self,
        inspection: Inspection,
        target: SinkTarget,
        endpoints: Endpoints,
        client: Client,
        board: IndexBoard,
        *,
        state: Client | None = None,
        generations: PlainGenerations | None = None,
    ) -> None:
        self.target = target
        self.inspection = inspection
        self._endpoints = endpoints
        self._client = client
        self._state = state or client
        self._board = board
        self._project = inspection.project
        self._generations = generations or Generations(client, target.prefix)
        self.hashes = inspection.hashes(target)

    def name_of(self, generation: GenerationState) -> str:
        """Return the inspection's name for the plan of a generation: its index, or a retained generation."""
        return generation.generation if generation.generation in self._project.retained else generation.index

    def is_known(self, generation: GenerationState) -> bool:
        """Whether the schema of a generation is known: from the files, or as a retained one."""
        return generation.generation in self._project.retained or generation.hash == self.hashes.get(
            generation.index
        )

    def spec(self, generation: GenerationState) -> IndexSpec:
        """Return the schema that a generation is followed with, under the generation's name."""
        return dataclasses.replace(
            self._project.followed[self.name_of(generation)], name=generation.generation
        )

    def existing(self, generations: Iterable[GenerationState]) -> list[GenerationState]:
        """Return those that the cluster still has; frozen where their documents were replaced."""
        known = list(generations)
        existing = {
            (generation.index, generation.uuid)
            for index in {state.index for state in known}
            for generation in self._generations.existing(index)
        }
        return self._with_history([state for state in known if (state.generation, state.uuid) in existing])

    def _with_history(self, known: list[GenerationState]) -> list[GenerationState]:
        """Compare each generation with the cluster's shard history; freeze those with another history."""
        identities = self._generations.identities(state.generation for state in known)
        return [
            _compare_history(state, identities[state.generation])
            if state.generation in identities
            else self._freeze_if_gone(state)
            for state in known
        ]

    def _freeze_if_gone(self, generation: GenerationState) -> GenerationState:
        """Freeze a generation that the cluster no longer has; it may be closed, or access is denied."""
        if not generation.followed or not self._generations.is_gone(generation.generation):
            return generation
        return dataclasses.replace(generation, frozen="it was deleted in the cluster")

    def look(self, generations: Collection[GenerationState]) -> Seen:
        """Look at generations in the cluster, and restore settings that documents depend on.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY: nothing is known then.
        """
        altered = self.keep_settings(generations)
        faults = self.faults_of_aliases(generations)
        existing = self._generations.find_by_write_aliases(
            [generation.generation for generation in generations]
        )
        others = {
            generation.uuid: generation.frozen
            for generation in self._with_history(
                [generation for generation in generations if generation.followed]
            )
        }
        why = {
            generation.uuid: others.get(generation.uuid) or _why_lost(generation, existing)
            for generation in generations
        }
        unserved = {
            generation.uuid
            for generation in generations
            if generation.published
            and not why[generation.uuid]
            and self._generations.alias(generation.index) not in existing[generation.generation].aliases
        }
        lost = {uuid: reason for uuid, reason in why.items() if reason}
        return Seen(lost, frozenset(unserved), faults, tuple(altered))

    def work(
        self, generations: Iterable[GenerationState], mirrors: Mapping[str, str] = MappingProxyType({})
    ) -> Work:
        """Plan the writing of these generations for the workers; `mirrors` as in the plan, by index."""
        project, catalog = self._project, self.inspection.catalog
        written = list(generations)
        specs = {generation.generation: self.spec(generation) for generation in written}
        plan = DocumentsPlan(
            specs=specs,
            catalog=catalog,
            resolution=plan_resolution(
                specs.values(), catalog, {generation.generation: generation.as_of for generation in written}
            ),
            targets={generation.generation: generation_of(generation).target for generation in written},
            writer=self.target.writer_options(),
            key=self.target.key,
            skip_rejected=project.skip_rejected(),
            quarantine=project.quarantine(),
            large_change=project.deployment.large_change,
            indexes={generation.generation: generation.index for generation in written},
            served=frozenset(generation.generation for generation in written if generation.published),
            kind=self.target.kind,
            refreshed={
                generation.generation: self._generations.alias(generation.index)
                for generation in written
                if self.target.is_eager
            },
            mirrors={
                generation.generation: mirrors[generation.index]
                for generation in written
                if generation.index in mirrors
            },
            code={
                spec.transform: transform_digest(spec.transform) for spec in specs.values() if spec.transform
            },
        )
        return Work(plan, dataclasses.replace(self._endpoints, secondary={}))

    def make(self, index: str, as_of: Lsn, joined: Lsn = 0, request: str = "") -> GenerationState:
        """Create an empty generation, planned for the tables as they were at `as_of`.

        Raises:
            HeadraceError: SINK_REJECTED, also where another index has the name that readers use.
        """
        self._generations.published(index)
        spec = self._project.specs[index]
        body = mapping(spec, self.target.index_options(index))
        extra = self.target.determinants(spec, self.inspection.types(index))
        schema = json.dumps(normalised(spec, extra), sort_keys=True)
        created = self._generations.create(index, self.hashes[index], body, schema)
        new = GenerationState(
            index, created.index, created.uuid, created.hash, as_of=as_of, joined=joined, request=request
        )
        self.forget_progress(new)  # of a former index by this name, which was deleted
        return self._with_history([new])[0]

    def renew(
        self, generations: Iterable[GenerationState], emptied: Collection[TableName], applied: Lsn
    ) -> None:
        """Assemble again the documents of generations that read a table of `emptied`.

        A generation that is still being backfilled begins again. The work is done in this process and costs
        as much as a TRUNCATE.

        Raises:
            HeadraceError: an error that is not retryable.
        """
        for generation in generations:
            tables = sorted(self.spec(generation).tables() & set(emptied))
            if not tables:
                continue
            if generation.building:
                self.forget_progress(generation)
                continue
            self._board.report.info(
                f"{generation.index}: {tables[0]} has lost a partition; assembling every document again"
            )
            with contextlib.closing(open_worker(self.work([generation]))) as worker:
                worker.rewrite_all(generation.generation, applied)

    def finish(self, generation: GenerationState) -> None:
        """Refresh a backfilled generation and give it its lasting settings."""
        self._generations.finish(generation_of(generation), self.target.index_options(generation.index))

    def finish_all(self, generations: Iterable[GenerationState]) -> None:
        """Finish several generations at once; see `finish`."""
        options = self.target.index_options
        self._generations.finish_all(
            [(generation_of(generation), options(generation.index)) for generation in generations]
        )

    def count(self, generation: GenerationState) -> int | None:
        """Return how many documents a finished generation has; None where the sink cannot say."""
        return self._generations.count(generation.generation)

    def serve(self, generation: GenerationState) -> None:
        """Lead readers to this generation; where they see it already, apply the current settings."""
        served = self._generations.published(generation.index)
        altered = self._generations.faults_of_aliases({generation.index: generation.generation})
        if served is None or served.index != generation.generation or altered:
            self._generations.publish(generation_of(generation))
        elif generation.hash == self.hashes.get(generation.index):
            adjust(self._client, generation.generation, self.target.index_options(generation.index))

    def keep_settings(self, generations: Iterable[GenerationState]) -> list[str]:
        """Restore settings that documents depend on; return what was altered, in words.

        Raises:
            HeadraceError: an error of the cluster.
        """
        return self._generations.keep_settings(
            {
                generation.generation: required_settings(
                    self.target.index_options(generation.index),
                    backfilled=not generation.building,
                    other=generation.hash != self.hashes.get(generation.index),
                )
                for generation in generations
                if generation.followed
            }
        )

    def faults_of_aliases(self, generations: Iterable[GenerationState]) -> dict[str, str]:
        """Return why readers do not see the whole generation that they should, by index.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        return self._generations.faults_of_aliases(
            {generation.index: generation.generation for generation in generations if generation.published}
        )

    def drop(self, generation: GenerationState) -> None:
        """Delete a generation and its notes; nothing may write to it any more."""
        self.forget_progress(generation)
        Quarantine(self._state, self.target.key).forget(generation.generation)
        self._generations.drop(generation_of(generation))

    def drop_unknown(self, index: str, known: Collection[GenerationState]) -> None:
        """Delete generations of this deployment that are not in its state: a killed start left them.

        A generation that readers still see stays.
        """
        names = {state.generation for state in known}
        served = self._generations.published(index)
        for generation in self._generations.existing(index):
            if generation.index not in names and (served is None or served.index != generation.index):
                self._generations.drop(generation)

    def forget_progress(self, generation: GenerationState) -> None:
        """Delete the backfill progress of a generation, so that it begins again."""
        backfill_progress(self._state, self.target.key, generation.generation).delete()


def generation_of(generation: GenerationState) -> Generation:
    """Return the concrete index of a generation, as its sink knows it."""
    return Generation(generation.index, generation.generation, generation.hash, 0, generation.uuid)


def _compare_history(generation: GenerationState, identity: Identity) -> GenerationState:
    if not generation.followed:
        return generation
    if identity.uuid != generation.uuid:
        return dataclasses.replace(generation, frozen="another index has its name")
    if is_another(generation.history, identity.history):
        return dataclasses.replace(generation, frozen="its documents were restored, or lost, in the cluster")
    return dataclasses.replace(generation, history=completed(generation.history, identity.history))


def _why_lost(generation: GenerationState, existing: Mapping[str, FoundIndex]) -> str:
    """Return why a generation is not the one that was written any more; empty where it is."""
    target = generation_of(generation).target
    if generation.generation not in existing:
        return "its index, or the alias that it is written by, was deleted"
    if existing[generation.generation].uuid != generation.uuid:
        return "its index was deleted, and another one made or restored"
    if any(target in facts.aliases for name, facts in existing.items() if name != generation.generation):
        return "the alias that it is written by leads to another index, too"
    return ""


LOOK_SECONDS = 5.0


class GenerationMonitor:
    """Watches the generations of one sink; used from one thread, which never waits for the sink.

    Args:
        manager: asks the sink.
        seconds: the time between two looks.
    """

    def __init__(self, manager: GenerationManager, seconds: float = LOOK_SECONDS) -> None:
        self._manager = manager
        self._seconds = seconds
        self._seen = Seen()
        self._next = 0.0
        self._thread: threading.Thread | None = None

    def look(self, written: Collection[GenerationState]) -> None:
        """Start another look in a thread, when it is due."""
        if (self._thread is not None and self._thread.is_alive()) or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._seconds
        known = list(written)
        self._thread = threading.Thread(
            target=self._look, args=(known,), name="headrace generations", daemon=True
        )
        self._thread.start()

    def look_now(self, known: Collection[GenerationState]) -> None:
        """Look at these generations and wait for the answer."""
        self._look(list(known))

    def lost(self, written: Collection[GenerationState]) -> list[tuple[GenerationState, str]]:
        """Return the generations that are not the ones that were written, each with the reason."""
        lost = self._seen.lost
        return [(generation, lost[generation.uuid]) for generation in written if generation.uuid in lost]

    def unserved(self, written: Collection[GenerationState]) -> list[GenerationState]:
        """Return the published generations that the readers' alias misses; each look reports one once."""
        seen = self._seen
        if not seen.unserved:
            return []
        self._seen = replace(seen, unserved=frozenset())
        return [
            generation for generation in written if generation.published and generation.uuid in seen.unserved
        ]

    @property
    def faults(self) -> Mapping[str, str]:
        """Why readers do not see all that they should, by index."""
        return self._seen.faults

    def altered(self) -> tuple[str, ...]:
        """Return the settings that were set right, in words; each is reported once."""
        seen = self._seen
        self._seen = replace(seen, altered=())
        return seen.altered

    def _look(self, known: list[GenerationState]) -> None:
        with contextlib.suppress(HeadraceError):  # the sink does not answer; the last look stays
            self._seen = self._manager.look(known)
