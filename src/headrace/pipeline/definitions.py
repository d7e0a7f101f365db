"""Hold what the deployment's files mean in the database as it is, and notice what becomes of its tables.

Files are read at the start and by a reload. The database is inspected for them, and again whenever its
catalog is another one. A look at the catalog every few seconds compares fingerprints. What it finds adds up
until the state has taken the new catalog.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from headrace.catalog.drift import SchemaDrift, compare_fingerprints
from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.fingerprint_query import read_fingerprint
from headrace.catalog.needs import IndexNeeds, Needs, stream_needs
from headrace.errors import ErrorGroup, HeadraceError
from headrace.pipeline.controller.desired import Definition
from headrace.pipeline.controller.world import CatalogSeen, TableChange, TableVerdict
from headrace.pipeline.fitting import LOCK_SECONDS, inspect_fitting
from headrace.pipeline.inspection import Inspection
from headrace.pipeline.project import Project
from headrace.pipeline.retained import Retained, inspect_retained
from headrace.pipeline.sink_target import SinkTarget
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import Connection
from headrace.postgres.ddl_plan import Step, execute_plan
from headrace.postgres.publication import read_memberships
from headrace.postgres.session import ReadSession
from headrace.postgres.setup import roots_of
from headrace.schema.normal import normalised, pack, spec_hash
from headrace.schema.tree import IndexSpec
from headrace.state import GenerationState, PipelineState, Unit

LOOK_SECONDS = 10.0
# An index that waits is looked after more often: somebody is perhaps mending its file or table now.
_MISFIT_SECONDS = 5.0
_FAILED_SECONDS = 2.0


class Definitions:
    """What the files describe, bound to the database; used from one thread.

    Args:
        project: the files as they were read at the start.
        endpoints: of the deployment.
        clock: monotonic seconds.

    Attributes:
        project: the files that hold, with indexes that do not fit the database.
        hashes: of what determines the documents of each unit.
        unfit: why followed generations cannot be followed any more, by id.
        version: counts the inspections: with another one, plans may differ.
        is_due: look at the catalog now, whenever the last look was.
    """

    def __init__(
        self, project: Project, endpoints: Endpoints, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.project = project
        self.hashes: Mapping[Unit, str] = {}
        self.unfit: Mapping[str, str] = {}
        self.version = 0
        self.is_due = True
        self._endpoints = endpoints
        self._clock = clock
        self._inspection: Inspection | None = None
        self._inspected: Project | None = None
        self._published: Mapping[str, int] = {}
        self._is_stale = False
        self._baseline = Fingerprint()
        self._text = ""
        self._drift = SchemaDrift()
        self._stored: str | None = None
        self._altered_by_us: Fingerprint | None = None
        self._next = 0.0
        self._error: HeadraceError | None = None

    # What the files mean now.

    @property
    def inspection(self) -> Inspection:
        """The last inspection, with the schemas of retained generations."""
        assert self._inspection is not None, "look first"
        return self._inspection

    @property
    def is_known(self) -> bool:
        """Whether the database was inspected."""
        return self._inspection is not None

    @property
    def indexes(self) -> frozenset[str]:
        """The indexes that the files describe."""
        return frozenset(self.project.specs)

    @property
    def waiting(self) -> Mapping[str, str]:
        """Why indexes do not fit the database, by name."""
        return {} if self._inspection is None else self._inspection.project.waiting

    def units(self) -> dict[Unit, Definition] | None:
        """Return what the files say of each unit; None while the database was not inspected for them."""
        if self._inspected is not self.project:
            return None
        units = {unit: Definition(hash_) for unit, hash_ in self.hashes.items()}
        for target in self.project.targets.values():
            for index, why in self.waiting.items():
                units[Unit(target.key.sink, index)] = Definition("", why)
        return units

    def name_of(self, generation: GenerationState) -> str | None:
        """Return the inspection's name for the plan of a generation; None where its schema is not known."""
        if self.hashes.get(generation.unit) == generation.hash:
            return generation.index
        return generation.id if generation.id in self.inspection.project.retained else None

    def spec_of(self, generation: GenerationState) -> IndexSpec | None:
        """Return the schema that a generation is followed with; None where it is not known."""
        name = self.name_of(generation)
        return None if name is None else self.inspection.project.followed[name]

    def reads(self, generations: Iterable[GenerationState]) -> dict[str, frozenset[str]]:
        """Return the tables that each generation reads, by its id; of those whose schema is known."""
        found = {}
        for generation in generations:
            spec = self.spec_of(generation)
            if spec is not None:
                found[generation.id] = frozenset(map(str, spec.tables()))
        return found

    def needs(self, generations: Iterable[GenerationState]) -> Needs:
        """Return what the log must carry for these generations."""
        named = [(self.name_of(generation), generation.as_of) for generation in generations]
        indexes = [
            IndexNeeds(self.inspection.usage(name), as_of) for name, as_of in named if name is not None
        ]
        return stream_needs(indexes, self.inspection.carried(), self._baseline, self.inspection.catalog)

    # Looks.

    def look(self, connection: Connection, state: PipelineState | None) -> CatalogSeen:
        """Compare the catalog with the one that the state stores.

        Raises:
            HeadraceError: an error of the database; ErrorGroup: the server has a problem.
        """
        generations = () if state is None else state.generations
        try:
            if self.is_due or self._clock() >= self._next or self._misses(generations):
                self.is_due, self._error = False, None
                self._next = self._clock() + (_MISFIT_SECONDS if self.waiting else LOOK_SECONDS)
                self._look(connection, generations)
            if self._error is None and state is not None:
                self._compare_with(state)
        except HeadraceError as error:
            self._next = self._clock() + _FAILED_SECONDS
            self._error = error
        if self._error is not None:
            raise self._error
        return self._seen(state)

    def inspect_again(self) -> None:
        """Inspect the database at the next look even if its catalog is the same: rights may have changed."""
        self.is_due = self._is_stale = True

    def set_up(self, connection: Connection, tell: Callable[[Step], None]) -> None:
        """Execute the set-up plan: publication and replica identities.

        Raises:
            HeadraceError: as for `execute_plan`.
        """
        inspection = self.inspection
        if inspection.setup.alters(self.project.publication):
            # What a run adds to the publication must not look like an alteration, which rebuilds indexes.
            self._altered_by_us = inspection.fingerprint
        self.is_due = self._is_stale = True
        execute_plan(inspection.setup, connection, tell)

    def adopt(self, project: Project) -> None:
        """Go on with other files, which were checked; the next look binds them to the database."""
        self.project = project
        self.is_due = self._is_stale = True

    def pack_schema(self, sink: str, index: str) -> str:
        """Return what the files say of an index in a sink, for the state to keep with a new generation."""
        spec, target = self.inspection.project.specs[index], self.project.target_of(sink)
        return pack(normalised(spec, self._determinants(self.inspection, target, index)))

    def _misses(self, generations: Iterable[GenerationState]) -> bool:
        """Whether a followed generation was not asked for yet."""
        if self._error is not None:
            return False  # the next look asks for it
        return not self.is_known or any(
            self.name_of(generation) is None and generation.id not in self.unfit
            for generation in self._bound(generations)
        )

    def _bound(self, generations: Iterable[GenerationState]) -> Iterator[GenerationState]:
        """Yield the followed generations of indexes that fit the database."""
        for generation in generations:
            if generation.followed and generation.index not in self.waiting:
                yield generation

    def _look(self, connection: Connection, generations: Iterable[GenerationState]) -> None:
        before = self._baseline
        if not self._must_inspect(generations):
            with self._session() as session:
                now = read_fingerprint(session, self.inspection.usage(), self.project.publication)
            # Most looks end here: with one statement, and without an inspection.
            if _is_same(now, before):
                return
        self._inspect(connection, generations)
        self._is_stale = False
        now = self.inspection.fingerprint
        if _is_same(now, before):
            return
        # Before a state is known there is nothing to compare with: `_compare_with` does it then.
        if self._stored is not None:
            self._drift = self._find_drift(before, now, self._drift)
        self._baseline, self._text = now, now.to_text()

    def _session(self) -> ReadSession:
        return ReadSession(self._endpoints.database, lock_seconds=LOCK_SECONDS)

    def _must_inspect(self, generations: Iterable[GenerationState]) -> bool:
        """Whether more than the fingerprint may be another one: rights, and what the set-up has altered."""
        if not self.is_known or self._is_stale or self.waiting or self.inspection.setup.steps:
            return True
        return self._misses(generations)

    def _inspect(self, connection: Connection, generations: Iterable[GenerationState]) -> None:
        """Inspect the database for the files, and for generations that no file describes any more."""
        inspection = inspect_fitting(self.project, self._endpoints, connection)
        if errors := inspection.errors():
            raise ErrorGroup(errors)
        hashes = self._hashes(inspection)
        unfit: dict[str, str] = {}
        retained: dict[str, Retained] = {}
        for generation in generations:
            unit = generation.unit
            if generation.followed and unit in hashes and hashes[unit] != generation.hash:
                try:
                    target = self.project.target_of(generation.sink)
                    retained[generation.id] = Retained.read(generation, target)
                except HeadraceError as error:
                    unfit[generation.id] = f"its schema is in no file, and cannot be read: {error.cause}"
        inspection, others = inspect_retained(inspection, self._endpoints, connection, retained)
        tables = {str(table) for table in inspection.project.tables()}
        memberships = read_memberships(connection, self.project.publication)
        published = {str(table): member for table, member in memberships.items() if str(table) in tables}
        self.version += 1
        # All at once, after every question that may fail: an error leaves what was known before.
        self._inspection, self._published, self._inspected = inspection, published, self.project
        self.hashes, self.unfit = hashes, unfit | others

    def _hashes(self, inspection: Inspection) -> dict[Unit, str]:
        """Return the hash of what determines the documents of each unit (decision 0060)."""
        return {
            Unit(target.key.sink, name): spec_hash(spec, self._determinants(inspection, target, name))
            for target in self.project.targets.values()
            for name, spec in inspection.project.specs.items()
        }

    def _determinants(self, inspection: Inspection, target: SinkTarget, name: str) -> dict[str, object]:
        found = target.determinants(inspection.project.specs[name], inspection.types(name))
        return found | target.place(self._endpoints)

    # Comparisons.

    def _compare_with(self, state: PipelineState) -> None:
        """Begin to count what is altered since the catalog that the state stores, where that is another."""
        if state.catalog == self._stored:
            return
        # The state has taken up what was found here, so nothing has been altered since.
        if self._stored is not None and state.catalog == self._text:
            drift, self._altered_by_us = SchemaDrift(), None
        else:
            drift = self._find_drift(Fingerprint.from_text(state.catalog), self._baseline, SchemaDrift())
        # After every question that may fail: what is not compared yet is compared in the next look.
        self._stored, self._drift = state.catalog, drift

    def _find_drift(self, before: Fingerprint, now: Fingerprint, known: SchemaDrift) -> SchemaDrift:
        """Return what was found before, with what is different between two catalogs."""
        ours = self._altered_by_us
        if ours is not None and ours.publication == before.publication:
            now = now.altered_like(before)  # the publication was altered by this process
        with self._session() as session:
            drift = compare_fingerprints(session, before, now)
        wrong = tuple(dict.fromkeys((*known.wrong, *drift.wrong)))
        return SchemaDrift(wrong, known.emptied | drift.emptied)

    def _seen(self, state: PipelineState | None) -> CatalogSeen:
        changes = {}
        if state is not None:
            changes = {
                generation.id: found
                for generation in state.generations
                if generation.followed and (found := tuple(self._changes(generation, state)))
            }
        setup = self.inspection.setup
        return CatalogSeen(
            self._text,
            self._baseline.as_of,
            self._published,
            changes,
            set_up="; ".join(step.why for step in setup.steps),
            unprepared=frozenset(self._find_unprepared(setup.steps)),
        )

    def _find_unprepared(self, steps: Sequence[Step]) -> Iterator[str]:
        """Yield the indexes that a step of the set-up concerns."""
        if not steps:  # as nearly always, in every round
            return
        roots = roots_of(self.inspection.identities)
        concerned = [{roots.get(table, table) for table in step.tables} for step in steps]
        for name in self.inspection.project.specs:
            tables = self.inspection.usage(name).keys()
            if any(not some or not some.isdisjoint(tables) for some in concerned):
                yield name

    def _changes(self, generation: GenerationState, state: PipelineState) -> Iterator[TableChange]:
        """Yield what was altered of the tables that a generation reads."""
        name = self.name_of(generation)
        if name is None:
            return
        usage, published = self.inspection.usage(name), self._published
        left = [
            table
            for table in map(str, usage)
            if table in state.published
            and published.get(table, state.published[table]) != state.published[table]
        ]
        if left:
            what = f"{left[0]} had left the publication, its changes are lost"
            yield TableChange(TableVerdict.READ_AGAIN, what)
        for difference in self._drift.wrong:
            if difference.concerns(usage):
                yield TableChange(TableVerdict.READ_AGAIN, difference.what)
        for table in sorted(self._drift.emptied & usage.keys()):
            what = f"{table} has lost rows, for example with a partition"
            yield TableChange(TableVerdict.LIKE_A_TRUNCATE, what, self._baseline.as_of)


def _is_same(now: Fingerprint, before: Fingerprint) -> bool:
    """Whether nothing that documents depend on is different."""
    return dataclasses.replace(now, as_of=before.as_of) == before
