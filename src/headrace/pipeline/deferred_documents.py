"""Defer documents that a run has to write again, and forget what is deferred; see `DeferralPort`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from headrace.model.changes import Key, keys_of_ids
from headrace.model.lsn import Lsn
from headrace.pipeline.worker.deferral import SECONDARY_CHUNK_KEYS
from headrace.schema.tree import IndexSpec
from headrace.sinks.opensearch import Client
from headrace.sinks.opensearch.documents import ids, refresh_if_exists
from headrace.state import Counters, DeferredKeys, GenerationState, Quarantine, StateKey, StateStore
from headrace.state.deferred_keys import ALL_KEYS
from headrace.state.sink_notes import SecondarySinkNotes


@dataclass(eq=False, slots=True)
class DeferredDocuments:
    """The deferred documents of all sinks of a run.

    Attributes:
        client: of the cluster that keeps the state.
        key: names the pipeline.
        store: its state, which says that documents of the primary sink are deferred.
        sinks: the names of the secondary sinks.
        plain: those that cannot list their documents.
        spec_of: returns the schema of a generation, where it is known.
    """

    client: Client
    key: StateKey
    store: StateStore
    sinks: Collection[str]
    plain: Collection[str]
    spec_of: Callable[[GenerationState], IndexSpec | None]

    def renew(self, generation: GenerationState, version: Lsn) -> None:
        """Defer every document of a generation.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY; it may be called again.
        """
        if generation.sink:
            notes = SecondarySinkNotes(self.client, self.key.of_sink(generation.sink))
            notes.deferred.add(generation.generation, [[ALL_KEYS]], version)
            return
        self._defer_for_plain_sinks(generation, version)
        DeferredKeys(self.client, self.key).add(generation.generation, [[ALL_KEYS]], version)
        # After the keys: the slot is not confirmed any further before they are written.
        self.store.advance(version, Counters(), deferred=True)

    def _defer_for_plain_sinks(self, generation: GenerationState, version: Lsn) -> None:
        """Defer for plain sinks what a generation of the primary holds, before it is deleted there."""
        state = self.store.current
        for other in () if state is None else state.of(generation.index):
            spec = self.spec_of(other)
            if other.sink in self.plain and other.followed and spec is not None:
                notes = SecondarySinkNotes(self.client, self.key.of_sink(other.sink))
                chunks = self._chunks(generation, len(spec.primary_key))
                notes.deferred.add(other.generation, chunks, version)

    def _chunks(self, generation: GenerationState, width: int) -> Iterator[list[Key]]:
        """Yield the keys of what the primary holds in a generation, or has refused."""
        refused = [entry.id for entry in Quarantine(self.client, self.key).entries(generation.index)]
        exists = refresh_if_exists(self.client, generation.generation)
        listed = chain(refused, ids(self.client, generation.generation) if exists else ())
        keys = keys_of_ids(listed, width)
        while chunk := list(islice(keys, SECONDARY_CHUNK_KEYS)):
            yield chunk

    def forget(self) -> None:
        """Forget everything that is deferred: positions in a log that does not go on."""
        self.store.forget_log()
        for name in self.sinks:
            SecondarySinkNotes(self.client, self.key.of_sink(name)).deferred.forget()

    def forget_sink(self, name: str) -> None:
        """Forget what is noted about the documents that wait for a sink."""
        SecondarySinkNotes(self.client, self.key.of_sink(name)).forget()
