"""Which indexes must be filled, and how does a filled one come to serve its readers?"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headrace.catalog.differences import Difference
from headrace.cli import terminal
from headrace.cli.inspection import Inspection
from headrace.cli.project import Here
from headrace.model import Lsn, TableName
from headrace.postgres.session import ReadSession
from headrace.resolution import plan_resolution
from headrace.sinks.opensearch import (
    Client,
    Generation,
    Generations,
    IndexState,
    MetaIndex,
    PipelineState,
    mapping,
)
from headrace.sinks.opensearch.settings import adjust
from headrace.snapshot import plan_ranges
from headrace.spark.plan import Connections, DocumentsPlan, Work
from headrace.spark.seeding import SeedRange, seed
from headrace.spark.session import LocalSpark
from headrace.spark.worker import Worker
from headrace.spec import normalised
from headrace.status.board import IndexPhase, StatusBoard

_RANGE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a seeding reads, and as of when: `snapshot` is an exported one, or None for what is there now.

    `version` is a position that is included in what is read (decision 11).
    """

    version: Lsn
    snapshot: str | None


class Seeding:
    """Fills indexes and publishes them; one in each run.

    Args:
        inspection: what the database is like.
        client: of the sink.
        board: is told of the progress.
    """

    def __init__(self, inspection: Inspection, here: Here, client: Client, board: StatusBoard) -> None:
        self._inspection = inspection
        self._here = here
        self._client = client
        self._board = board
        self._project = inspection.project
        self._generations = Generations(client, self._project.prefix)
        self._hashes = inspection.hashes()

    def unseeded(
        self, state: PipelineState, published: Mapping[str, int], altered: Sequence[Difference] = ()
    ) -> list[str]:
        """The indexes that do not serve what their schema asks for: new, changed, or lost in the cluster.

        Also those with a table that has not been in the publication all the time: see
        `PipelineState.published`, compared with what is `published` now; and those that what was `altered`
        concerns.
        """
        left = {table for table, member in state.published.items() if published.get(table, member) != member}
        stale = [name for name, spec in self._project.specs.items() if left & set(map(str, spec.tables()))]
        for name in stale:
            if name in state.indexes:
                terminal.warn(f"{name}: a table had left the publication, its changes are lost; seeding anew")
        for name in self._project.specs:
            usage = self._inspection.usage(name)
            if said := dict.fromkeys(one.what for one in altered if one.concerns(usage)):
                terminal.warn(f"{name}: {'; '.join(said)}; seeding anew")
                stale.append(name)
        return [
            name
            for name in self._project.specs
            if name in stale or not self._is_served(name, state.indexes.get(name))
        ]

    def _is_served(self, name: str, known: IndexState | None) -> bool:
        """Whether the seeded generation serves its readers; one that a kill kept from that does it now."""
        if known is None or known.seeded_at is None or known.hash != self._hashes[name]:
            return False
        here = [(one.index, one.uuid) for one in self._generations.existing(name)]
        if (known.generation, known.uuid) not in here:
            return False
        self._publish(name, known)
        return True

    def work(self, indexes: Mapping[str, IndexState]) -> Work:
        """What the workers must know to write `indexes`."""
        project = self._project
        specs = {name: project.specs[name] for name in indexes}
        targets = {
            name: Generation(name, one.generation, one.hash, 0, one.uuid).target
            for name, one in indexes.items()
        }
        catalog = self._inspection.catalog
        plan = DocumentsPlan(
            specs=specs,
            catalog=catalog,
            resolution=plan_resolution(
                specs.values(), catalog, {name: one.as_of for name, one in indexes.items()}
            ),
            targets=targets,
            writer=project.writer_options(),
            slot=project.slot,
            prefix=project.prefix,
            skip_rejected=project.skip_rejected(),
            quarantine=project.quarantine(),
            large_change=project.deployment.large_change,
        )
        return Work(plan, Connections(self._here.database, self._here.sink))

    def make(self, name: str, as_of: Lsn) -> IndexState:
        """A new, empty generation of the index `name`, planned for the tables as they were at `as_of`.

        Raises:
            HeadraceError: SINK_REJECTED, also where the name that readers will use belongs to someone else.
        """
        self._generations.published(name)
        spec = self._project.specs[name]
        body = mapping(spec, self._project.index_options(name))
        schema = json.dumps(normalised(spec), sort_keys=True)
        made = self._generations.create(name, self._hashes[name], body, schema)
        self._board.index(name, phase=IndexPhase.PENDING, generation=made.index)
        return IndexState(made.index, made.uuid, made.hash, as_of=as_of)

    def fill(self, spark: LocalSpark, meta: MetaIndex, state: PipelineState, cursor: Cursor) -> PipelineState:
        """Seed every index of `state` that is not, and note that durably; `publish` comes next.

        Raises:
            HeadraceError: what stopped the seeding.
        """
        todo = {name: one for name, one in state.indexes.items() if one.seeded_at is None}
        ranges = self._ranges(list(todo), cursor)
        for name in todo:
            total = sum(one.index == name for one in ranges)
            self._board.index(name, phase=IndexPhase.BACKFILLING, ranges_total=total)
        with terminal.progress(f"seeding {', '.join(todo)}", len(ranges)) as advance:
            written = seed(spark.session, self.work(todo), ranges, advance)
        seeded = {name: dataclasses.replace(one, seeded_at=cursor.version) for name, one in todo.items()}
        state = dataclasses.replace(state, phase="following", indexes={**state.indexes, **seeded})
        meta.save(state)
        for name in todo:
            total = sum(part.index == name for part in ranges)
            count = written.get(name, 0)
            self._board.index(name, documents=count, ranges_done=total, ranges_total=total)
            terminal.done(f"{self._generations.alias(name)}: {count:,} documents")
        return state

    def renew(self, indexes: Mapping[str, IndexState], emptied: Collection[TableName], applied: Lsn) -> None:
        """Assemble anew what exists of those `indexes` that read a table of `emptied`.

        In this process: it is what a TRUNCATE costs.

        Raises:
            HeadraceError: what no patience cures.
        """
        for name, one in indexes.items():
            lost = sorted(self._project.specs[name].tables() & set(emptied))
            if lost and one.seeded_at is not None:
                terminal.say(f"{name}: {lost[0]} has lost a partition; assembling every document anew")
                with contextlib.closing(Worker(self.work({name: one}))) as worker:
                    worker.renew(name, applied)

    def publish(self, state: PipelineState) -> None:
        """Let readers see every index of `state`; where it fails, the next start does it."""
        for name, one in state.indexes.items():
            self._publish(name, one)
            self._board.index(name, phase=IndexPhase.LIVE, generation=one.generation)

    def _ranges(self, names: list[str], cursor: Cursor) -> list[SeedRange]:
        catalog = self._inspection.catalog
        with ReadSession(self._here.database, snapshot=cursor.snapshot) as session:
            return [
                SeedRange(name, part, cursor.version, cursor.snapshot)
                for name in names
                for part in plan_ranges(session, catalog[self._project.specs[name].table], _RANGE_BYTES)
            ]

    def _publish(self, name: str, one: IndexState) -> None:
        """Let readers see this generation, and drop those that it replaces."""
        generation = next(g for g in self._generations.existing(name) if g.index == one.generation)
        served = self._generations.published(name)
        if served is None or served.index != generation.index:
            self._generations.finish(generation, self._project.index_options(name))
            self._generations.publish(generation)
        else:
            adjust(self._client, generation.index, self._project.index_options(name))
        for old in self._generations.existing(name):
            if old.index != generation.index:
                self._generations.drop(old)

    def discard(self, indexes: Mapping[str, IndexState]) -> None:
        """Drop generations that were never published."""
        for name, one in indexes.items():
            if one.seeded_at is None:
                self._generations.drop(Generation(name, one.generation, one.hash, 0, one.uuid))
