"""Defer documents that a run has to write again, and forget what is deferred; see `DeferralPort`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headrace.model.lsn import Lsn
from headrace.sinks.opensearch import Client
from headrace.state import Counters, DeferredKeys, GenerationState, StateKey, StateStore
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
    """

    client: Client
    key: StateKey
    store: StateStore
    sinks: Collection[str]

    def renew(self, generation: GenerationState, version: Lsn) -> None:
        """Defer every document of a generation.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY; it may be called again.
        """
        if generation.sink:
            notes = SecondarySinkNotes(self.client, self.key.of_sink(generation.sink))
            notes.deferred.add(generation.generation, [[ALL_KEYS]], version)
            return
        DeferredKeys(self.client, self.key).add(generation.generation, [[ALL_KEYS]], version)
        # Behind the keys: the slot is not confirmed any further before they are written.
        self.store.advance(version, Counters(), deferred=True)

    def forget(self) -> None:
        """Forget everything that is deferred: positions in a log that does not go on."""
        self.store.forget_log()
        for name in self.sinks:
            SecondarySinkNotes(self.client, self.key.of_sink(name)).deferred.forget()

    def forget_sink(self, name: str) -> None:
        """Forget what is noted about the documents that wait for a sink."""
        SecondarySinkNotes(self.client, self.key.of_sink(name)).forget()
