"""Create, serve, watch and drop the generations of each sink of a run.

A cluster that does not answer proves nothing: only an answer can say that an index is gone.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.controller.world import SinkSeen, Unknown
from headrace.pipeline.definitions import Definitions
from headrace.pipeline.sink_target import SinkTarget
from headrace.reporter import Reporter
from headrace.sinks.opensearch import Client, Generation, Generations, IndexOptions, mapping
from headrace.sinks.opensearch.settings import adjust, required_settings, restore_settings
from headrace.sinks.opensearch.shard_history import Identity, identities
from headrace.state import GenerationState, Quarantine, StateKey, backfill_progress
from headrace.state.lease import Lease
from headrace.state.sink_notes import SecondarySinkNotes

_READY_SECONDS = 5.0


@dataclass(eq=False, slots=True)
class ClusterSink:
    """A search cluster.

    Args:
        target: the sink.
        client: of the cluster; closed with this.
        state: of the cluster that keeps the state.
        definitions: what the files describe.
        report: told of settings that are set right.
        lease: of the indexes in the cluster, taken once it answers; None where the run holds it already.
    """

    target: InitVar[SinkTarget]
    client: Client
    state: Client
    definitions: Definitions
    report: Reporter
    lease: Lease | None = None
    _is_leased: bool = field(default=False, init=False)
    _leased: frozenset[str] = field(default=frozenset(), init=False)
    _found: Mapping[str, Generation] = field(default_factory=dict, init=False)
    # Index and uuid of each generation that the state has named to this run.
    _known: set[tuple[str, str]] = field(default_factory=set, init=False)
    # Why a generation may hold what another process has written, by its uuid.
    _overwritten: dict[str, str] = field(default_factory=dict, init=False)
    _adjusted: dict[str, IndexOptions] = field(default_factory=dict, init=False)
    # Why an index has not the settings that it should have, by its name; whose lease of an added one it is.
    _refused: dict[str, HeadraceError] = field(default_factory=dict, init=False)
    _taken: dict[str, HeadraceError] = field(default_factory=dict, init=False)
    _name: str = field(init=False)
    _generations: Generations = field(init=False)
    _notes: SecondarySinkNotes = field(init=False)

    def __post_init__(self, target: SinkTarget) -> None:
        self._name = target.name
        self._generations = Generations(self.client, target.prefix)
        self._notes = SecondarySinkNotes(self.state, target.key)

    def create(self, index: str, definition: str) -> GenerationState:
        """Create an empty index; nothing that was noted of a former one by its name stays.

        Raises:
            HeadraceError: SINK_REJECTED, also where another program has the name that readers use; SINK_BUSY;
                SLOT_IN_USE: another process writes the index.
        """
        if index in self._taken:
            raise self._taken[index]
        # Raises where another program has the name, before there is an index that nobody names.
        self._generations.published(index)
        inspection, target = self.definitions.inspection, self._target
        body = mapping(inspection.project.specs[index], self._options(index))
        created = self._generations.create(index, definition, body)
        # Ranges that are noted under this name are of an index that is gone.
        backfill_progress(self.state, target.key, created.index).delete()
        # By the history of its shards it differs from one that is restored under its name and uuid.
        identity = identities(self.client, [created.index]).get(created.index)
        history = () if identity is None else identity.history
        schema = self.definitions.pack_schema(target.key.sink, index)
        return GenerationState(index, created.index, created.uuid, definition, history=history, schema=schema)

    def complete(self, generation: GenerationState) -> None:
        """Give a filled index its lasting settings, and lead readers to it."""
        self._generations.finish(_index_of(generation), self._options(generation.index))
        self._generations.publish(_index_of(generation))

    def serve(self, generation: GenerationState) -> None:
        """Lead readers to an index."""
        self._generations.publish(_index_of(generation))

    def drop(self, name: str) -> None:
        """Delete an index with its notes."""
        # Before the index: after a kill between them it is still seen, and dropped again.
        _forget_notes(self.state, self._target.key, name)
        if (found := self._found.get(name)) is not None:
            self._generations.drop(found)

    def look(self, stored: Sequence[GenerationState]) -> SinkSeen | Unknown:
        """Ask the cluster what it holds; what documents depend on is set right, and said.

        Args:
            stored: the generations of the sink, as the state has them.

        Raises:
            HeadraceError: it cannot be asked.
        """
        # Also where it does not answer: what is forgotten until it does may still have to be dropped.
        self._known |= {(generation.index, generation.uuid) for generation in stored}
        indexes = self.definitions.indexes
        if (taken := self._hold_lease(indexes)) is not None:
            return taken
        found = self._found = self._find_ours(indexes - self._taken.keys())
        self._keep_settings(stored)
        known = identities(self.client, found)
        served = {generation.index: generation.generation for generation in stored if generation.published}
        faults = self._generations.faults_of_aliases(served)
        alias = self._generations.alias
        return SinkSeen(
            {name: known.get(name, Identity(index.uuid)) for name, index in found.items()},
            {name: index.name for name, index in found.items()},
            {index: name for index, name in served.items() if index not in faults},
            frozenset(name for name, index in found.items() if alias(index.name) in index.aliases),
            self._faults(stored, found),
            keys_lost=_why_keys_lost(self._notes) if self._target.key.sink else "",
            refused=self._refused,
        )

    def close(self) -> None:
        """Give up leases and connections, as far as the cluster answers soon."""
        if self.lease is not None and self._is_leased:
            # A cluster that hangs must not hold up the end of the run: a lease that nobody renews ends.
            thread = threading.Thread(target=self.lease.__exit__, daemon=True)
            thread.start()
            thread.join(_READY_SECONDS)
        self.client.close()

    @property
    def _target(self) -> SinkTarget:
        """The sink as the files that hold now describe it."""
        return self.definitions.project.targets[self._name]

    def _options(self, index: str) -> IndexOptions:
        return self._target.index_options(index)

    def _find_ours(self, held: frozenset[str]) -> dict[str, Generation]:
        """Find what this run alone may drop: all of the indexes whose leases it holds, of others its own.

        What nothing needs is dropped, and another deployment may have taken over an index of before.
        """
        found = self._generations.find({*held, *(index for index, _ in self._known)})
        return {
            name: index
            for name, index in found.items()
            if index.name in held or (index.name, index.uuid) in self._known
        }

    def _hold_lease(self, wanted: frozenset[str]) -> Unknown | None:
        """Take the lease where it is not held; return why not, where another process has taken it.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY; SLOT_IN_USE: another process holds it. Of an index
                that was added, `create` raises that instead: the others go on.
        """
        if self.lease is None:
            return None
        if self._is_leased and (lost := self.lease.lost()) is not None:
            # Taken again in the next look, as by a run that starts.
            self.lease.__exit__()
            self._is_leased = False
            self._overwritten |= {uuid: lost.cause for _, uuid in self._known}
            return Unknown(lost, taken=True)
        if not self._is_leased:
            self.client.wait_until_ready(_READY_SECONDS)
            self.lease.choose(wanted)
            self.lease.__enter__()
            self._is_leased, self._leased, self._taken = True, wanted, {}
        elif wanted != self._leased:
            self._hold_added(self.lease, wanted)
        return None

    def _hold_added(self, lease: Lease, wanted: frozenset[str]) -> None:
        taken = {}
        for index in wanted - self._leased:
            try:
                lease.hold([index])
            except HeadraceError as error:
                if error.kind is not Kind.SLOT_IN_USE:
                    raise
                taken[index] = error
        self._taken, self._leased = taken, wanted - taken.keys()
        lease.release_others(self._leased)

    def _keep_settings(self, stored: Sequence[GenerationState]) -> None:
        """Set right what an operator has altered, as far as documents depend on it."""
        hashes = self.definitions.hashes
        followed = [
            generation
            for generation in stored
            if generation.followed and generation.generation in self._found
        ]
        current = {
            generation.generation for generation in followed if hashes.get(generation.unit) == generation.hash
        }
        wanted = {
            generation.generation: required_settings(
                self._options(generation.index),
                backfilled=not generation.building,
                other=generation.generation not in current,
            )
            for generation in followed
        }
        self._refused = {}
        for what in restore_settings(self.client, wanted, self._failing_alone):
            self.report.warning(f"{self._target.label}{what}; set right")
        self._adjust([generation for generation in followed if generation.generation in current])

    def _adjust(self, current: Sequence[GenerationState]) -> None:
        """Give served generations the settings of changed files that need no other index."""
        for generation in current:
            options, name = self._options(generation.index), generation.generation
            if generation.published and self._adjusted.get(name) != options:
                with self._failing_alone(name):
                    adjust(self.client, name, options)
                    self._adjusted[name] = options

    @contextmanager
    def _failing_alone(self, name: str) -> Iterator[None]:
        """Note why the settings of one index are refused; the others are set all the same."""
        try:
            yield
        except HeadraceError as error:
            if error.kind is Kind.SINK_UNREACHABLE:
                raise
            remedy = error.remedy or "Correct them in the index's file of settings, or the cluster's limits."
            cause = f"its settings are not as they should be: {error.cause}"
            self._refused[name] = HeadraceError(error.kind, cause, remedy)

    def _faults(self, stored: Sequence[GenerationState], found: Mapping[str, Generation]) -> dict[str, str]:
        """Return why indexes that are there are not written any more as they should be."""
        targets = {
            generation.generation: generation.write_alias
            for generation in stored
            if generation.followed and generation.generation in found
        }
        behind = self._generations.behind(targets.values())
        faults = {
            generation.generation: self._overwritten[generation.uuid]
            for generation in stored
            if generation.followed and generation.uuid in self._overwritten
        }
        for name, target in targets.items():
            indexes = behind.get(target, {})
            if name not in indexes:
                faults[name] = "its index, or the alias that it is written by, was deleted"
            elif len(indexes) > 1:
                faults[name] = "the alias that it is written by leads to another index, too"
        return faults


class PlainSink:
    """A sink that cannot be queried: its generations exist in the state alone (decision 0074).

    Args:
        target: the sink.
        state: of the cluster that keeps the state.
        definitions: what the files describe.
    """

    def __init__(self, target: SinkTarget, state: Client, definitions: Definitions) -> None:
        self._target = target
        self._definitions = definitions
        self._state = state
        self._notes = SecondarySinkNotes(state, target.key)
        self._known: dict[str, GenerationState] = {}

    def create(self, index: str, definition: str) -> GenerationState:
        """Return a generation with a name of its own."""
        identity = uuid.uuid4().hex
        schema = self._definitions.pack_schema(self._target.key.sink, index)
        name = f"{index}_{definition}_{identity[:8]}"
        return GenerationState(index, name, identity, definition, schema=schema)

    def complete(self, generation: GenerationState) -> None:
        """Do nothing: whoever reads the sink sees each document as it is written."""

    def serve(self, generation: GenerationState) -> None:
        """Do nothing: there are no readers to lead."""

    def drop(self, name: str) -> None:
        """Forget what is noted; the documents stay in the sink."""
        _forget_notes(self._state, self._target.key, name)
        self._known.pop(name, None)

    def look(self, stored: Sequence[GenerationState]) -> SinkSeen | Unknown:
        """Return what the state has had, so that notes of what it has no more are dropped."""
        self._known |= {generation.generation: generation for generation in stored}
        return SinkSeen(
            {name: Identity(generation.uuid) for name, generation in self._known.items()},
            {name: generation.index for name, generation in self._known.items()},
            queryable=False,
            keys_lost=_why_keys_lost(self._notes),
        )

    def close(self) -> None:
        """Do nothing: writers are the executors'."""


RunSink = ClusterSink | PlainSink
"""One sink of a run: what the controller asks of it (`SinkPort`), and how it is seen."""


def _why_keys_lost(notes: SecondarySinkNotes) -> str:
    if not notes.has_lost_keys():
        return ""
    return f"the index of what waited for the sink {notes.key.sink!r} was deleted or restored"


def _forget_notes(state: Client, key: StateKey, name: str) -> None:
    backfill_progress(state, key, name).delete()
    Quarantine(state, key).forget(name)


def _index_of(generation: GenerationState) -> Generation:
    return Generation(generation.index, generation.generation, generation.hash, 0, generation.uuid)
