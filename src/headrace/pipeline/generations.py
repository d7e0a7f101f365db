"""How are generations made, planned for, served and dropped? One in each run; what is filled is another's."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from headrace.model import Lsn, TableName
from headrace.pipeline.inspection import Inspection
from headrace.pipeline.project import Endpoints
from headrace.pipeline.worker.plan import Connections, DocumentsPlan, Work
from headrace.pipeline.worker.workers import made
from headrace.resolution import plan_resolution
from headrace.schema import IndexSpec, normalised
from headrace.sinks.opensearch import (
    Client,
    Generation,
    Generations,
    GenerationState,
    Quarantine,
    build_notes,
    mapping,
)
from headrace.sinks.opensearch.generations import Found
from headrace.sinks.opensearch.settings import adjust, lasting
from headrace.sinks.opensearch.shard_history import Identity, completed, is_another
from headrace.sinks.plain import PlainGenerations
from headrace.status.board import IndexBoard


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of generations, which are named by their uuid: another one may have the name by now.

    Attributes:
        lost: those that are not what was written any more, and why.
        unserved: the published ones of the others that the alias of their readers does not lead to.
        faults: why readers do not see the whole of what they should, by index.
        altered: the settings that were set right, in words.
    """

    lost: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unserved: frozenset[str] = frozenset()
    faults: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    altered: tuple[str, ...] = ()


class GenerationManager:
    """The generations of a run's indexes.

    Args:
        inspection: what the database is like.
        client: of the sink.
        board: is told of what is there.
        state: of the cluster that keeps the state, where that is another.
        generations: of a sink that is no cluster.

    Attributes:
        hashes: what each index's documents are determined by now.
    """

    def __init__(
        self,
        inspection: Inspection,
        endpoints: Endpoints,
        client: Client,
        board: IndexBoard,
        *,
        state: Client | None = None,
        generations: PlainGenerations | None = None,
    ) -> None:
        self._inspection = inspection
        self._endpoints = endpoints
        self._client = client
        self._state = state or client
        self._board = board
        self._project = inspection.project
        self._generations = generations or Generations(client, self._project.prefix)
        self.hashes = inspection.hashes()

    def name_of(self, one: GenerationState) -> str:
        """What the inspection calls the plan of a generation: its index, or a kept one by itself."""
        return one.generation if one.generation in self._project.kept else one.index

    def is_known(self, one: GenerationState) -> bool:
        """Whether its schema is: the files', or one that is kept."""
        return one.generation in self._project.kept or one.hash == self.hashes.get(one.index)

    def spec(self, one: GenerationState) -> IndexSpec:
        """The schema that a generation is followed from, under its own name."""
        return dataclasses.replace(self._project.followed[self.name_of(one)], name=one.generation)

    def those_there(self, found: Iterable[GenerationState]) -> list[GenerationState]:
        """Those of `found` that the cluster still has; frozen, whose documents are not what was written."""
        known = list(found)
        there = {
            (one.index, one.uuid)
            for index in {state.index for state in known}
            for one in self._generations.existing(index)
        }
        return self._compared([one for one in known if (one.generation, one.uuid) in there])

    def _compared(self, known: list[GenerationState]) -> list[GenerationState]:
        """The same, each with its history as far as the cluster tells; what has another one is frozen."""
        told = self._generations.identities(one.generation for one in known)
        return [
            _compared(one, told[one.generation]) if one.generation in told else self._if_there(one)
            for one in known
        ]

    def _if_there(self, one: GenerationState) -> GenerationState:
        """The same, frozen where the cluster has it no more; it may be closed, or we may not ask."""
        if not one.followed or not self._generations.is_gone(one.generation):
            return one
        return dataclasses.replace(one, frozen="somebody deleted it in the cluster")

    def look(self, known: Collection[GenerationState]) -> Seen:
        """What became of these; settings that documents rest on are set right where somebody altered them.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY: nobody knows.
        """
        altered = self.keep_settings(known)
        faults = self.faults_of_aliases(known)
        found = self._generations.look([one.generation for one in known])
        others = {one.uuid: one.frozen for one in self._compared([one for one in known if one.followed])}
        why = {one.uuid: others.get(one.uuid) or _why_lost(one, found) for one in known}
        unserved = {
            one.uuid
            for one in known
            if one.published
            and not why[one.uuid]
            and self._generations.alias(one.index) not in found[one.generation].aliases
        }
        lost = {uuid: reason for uuid, reason in why.items() if reason}
        return Seen(lost, frozenset(unserved), faults, tuple(altered))

    def work(
        self, generations: Iterable[GenerationState], mirrors: Mapping[str, str] = MappingProxyType({})
    ) -> Work:
        """What the workers must know to write these generations; `mirrors` as in the plan, by index."""
        project, catalog = self._project, self._inspection.catalog
        written = list(generations)
        specs = {one.generation: self.spec(one) for one in written}
        plan = DocumentsPlan(
            specs=specs,
            catalog=catalog,
            resolution=plan_resolution(
                specs.values(), catalog, {one.generation: one.as_of for one in written}
            ),
            targets={one.generation: _generation(one).target for one in written},
            writer=project.writer_options(),
            slot=project.slot,
            prefix=project.state_prefix,
            skip_rejected=project.skip_rejected(),
            quarantine=project.quarantine(),
            large_change=project.deployment.large_change,
            indexes={one.generation: one.index for one in written},
            served=frozenset(one.generation for one in written if one.published),
            kind=project.kind,
            mirrors={one.generation: mirrors[one.index] for one in written if one.index in mirrors},
        )
        endpoints = self._endpoints
        return Work(plan, Connections(endpoints.database, endpoints.sink, endpoints.state, endpoints.options))

    def make(self, index: str, as_of: Lsn, joined: Lsn = 0, order: str = "") -> GenerationState:
        """A new, empty generation, planned for the tables as they were at `as_of`.

        Raises:
            HeadraceError: SINK_REJECTED, also where the name that readers will use belongs to someone else.
        """
        self._generations.published(index)
        spec = self._project.specs[index]
        body = mapping(spec, self._project.index_options(index))
        extra = self._project.determinants(spec, self._inspection.types(index))
        schema = json.dumps(normalised(spec, extra), sort_keys=True)
        made = self._generations.create(index, self.hashes[index], body, schema)
        new = GenerationState(
            index, made.index, made.uuid, made.hash, as_of=as_of, joined=joined, order=order
        )
        self.forget_progress(new)  # of one with this name, which somebody has deleted
        return self._compared([new])[0]

    def renew(
        self, generations: Iterable[GenerationState], emptied: Collection[TableName], applied: Lsn
    ) -> None:
        """Assemble anew what exists of those that read a table of `emptied`; one that is built begins again.

        In this process: it is what a TRUNCATE costs.

        Raises:
            HeadraceError: what no patience cures.
        """
        for one in generations:
            lost = sorted(self.spec(one).tables() & set(emptied))
            if not lost:
                continue
            if one.building:
                self.forget_progress(one)
                continue
            self._board.report.info(
                f"{one.index}: {lost[0]} has lost a partition; assembling every document anew"
            )
            with contextlib.closing(made(self.work([one]))) as worker:
                worker.renew(one.generation, applied)

    def finish(self, one: GenerationState) -> None:
        """Make a filled generation findable, and give it its lasting settings."""
        self._generations.finish(_generation(one), self._project.index_options(one.index))

    def finish_all(self, several: Iterable[GenerationState]) -> None:
        """`finish` for several at once."""
        options = self._project.index_options
        self._generations.finish_all([(_generation(one), options(one.index)) for one in several])

    def holds(self, one: GenerationState) -> int | None:
        """How many documents a finished generation has; None where the sink cannot say."""
        return self._generations.count(one.generation)

    def serve(self, one: GenerationState) -> None:
        """Let readers see this generation from now on; where they do already, it gets today's settings."""
        served = self._generations.published(one.index)
        altered = self._generations.faults_of_aliases({one.index: one.generation})
        if served is None or served.index != one.generation or altered:
            self._generations.publish(_generation(one))
        elif one.hash == self.hashes.get(one.index):
            adjust(self._client, one.generation, self._project.index_options(one.index))

    def keep_settings(self, generations: Iterable[GenerationState]) -> list[str]:
        """Set right what somebody has altered of settings that documents rest on; what that was, in words.

        Raises:
            HeadraceError: what the cluster does not bear.
        """
        return self._generations.keep_settings(
            {
                one.generation: lasting(
                    self._project.index_options(one.index),
                    seeded=not one.building,
                    other=one.hash != self.hashes.get(one.index),
                )
                for one in generations
                if one.followed
            }
        )

    def faults_of_aliases(self, generations: Iterable[GenerationState]) -> dict[str, str]:
        """Why readers do not see the whole generation that they should, by index.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, AUTHENTICATION.
        """
        return self._generations.faults_of_aliases(
            {one.index: one.generation for one in generations if one.published}
        )

    def drop(self, one: GenerationState) -> None:
        """Delete a generation and what is noted of it; nothing may write to it any more."""
        self.forget_progress(one)
        Quarantine(self._state, self._project.slot, self._project.state_prefix).forget(one.generation)
        self._generations.drop(_generation(one))

    def drop_strangers(self, index: str, known: Collection[GenerationState]) -> None:
        """Delete generations of ours that the pipeline knows nothing of: of a start that was killed.

        One that readers still see stays.
        """
        names = {one.generation for one in known}
        served = self._generations.published(index)
        for one in self._generations.existing(index):
            if one.index not in names and (served is None or served.index != one.index):
                self._generations.drop(one)

    def forget_progress(self, one: GenerationState) -> None:
        """Let its seeding begin again."""
        build_notes(self._state, self._project.slot, self._project.state_prefix, one.generation).delete()


def _generation(one: GenerationState) -> Generation:
    return Generation(one.index, one.generation, one.hash, 0, one.uuid)


def _compared(one: GenerationState, found: Identity) -> GenerationState:
    if not one.followed:
        return one
    if found.uuid != one.uuid:
        return dataclasses.replace(one, frozen="another index has its name")
    if is_another(one.history, found.history):
        return dataclasses.replace(one, frozen="its documents were restored, or lost, in the cluster")
    return dataclasses.replace(one, history=completed(one.history, found.history))


def _why_lost(one: GenerationState, found: Mapping[str, Found]) -> str:
    """Why what is written is not it any more, or not only; nothing where it is."""
    target = _generation(one).target
    if one.generation not in found:
        return "somebody deleted its index, or the alias that it is written by"
    if found[one.generation].uuid != one.uuid:
        return "somebody deleted its index and made or restored another one"
    if any(target in about.aliases for name, about in found.items() if name != one.generation):
        return "somebody let the alias that it is written by lead to another index, too"
    return ""
