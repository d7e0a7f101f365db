"""Store a pipeline's state in the cluster, safe from a second writer.

Each pipeline has two documents in the hidden index `{prefix}headrace_meta`. One, whose id is the slot's name,
says how far the pipeline is; the other, `SLOT.generations`, lists the generations of all sinks. A restored
copy of the database with the same slot finds the old state there, and can be recognised by it.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import KnownCommit, Lsn
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.shard_history import Identity
from headrace.state.deferred_keys import DeferredKeys
from headrace.state.key import StateKey
from headrace.state.orders import Mailbox
from headrace.state.pipeline_state import Counters, GenerationState, PipelineState
from headrace.state.position_request import position_request_document
from headrace.state.quarantine import Quarantine
from headrace.state.sink_notes import SecondarySinkNotes
from headrace.state.system_index import StateDocument, backfill_progress
from headrace.state.verifications import Verifications

_GENERATIONS = "generations"


class StateStore:
    """The state of one pipeline; used from any thread.

    The query saves its position while the run saves generations and the catalog: one lock orders them, and
    each write names the version that was read or written before. So a second writer is noticed, and never
    overwritten. Call `load` first.

    Args:
        client: of the cluster that keeps the state.
        key: names the pipeline, perhaps by one of its sinks.
    """

    def __init__(self, client: Client, key: StateKey) -> None:
        self._client = client
        self._key = key = key.of_pipeline()
        self.index = key.meta_index
        what = f"the state of {key}"
        self._progress = StateDocument(client, self.index, key.id, what)
        self._generations = StateDocument(client, self.index, f"{key.id}.{_GENERATIONS}", what)
        self._deferred = DeferredKeys(client, key)
        # Reentrant: `advance` and `save_catalog` hold it while they call `save`.
        self._lock = threading.RLock()
        self._state: PipelineState | None = None
        self._saved_generations: Sequence[Any] | None = None

    @property
    def current(self) -> PipelineState | None:
        """The state as it was loaded or saved last, by this process."""
        return self._state

    def load(self) -> PipelineState | None:
        """Read the state that was saved last, by any process; None where the pipeline is new.

        Where the index of deferred keys was deleted or restored, `ahead` is dropped: those changes are still
        in the log.

        Raises:
            HeadraceError: CONTINUITY, where the document cannot be read.
        """
        with self._lock:
            progress, generations = self._progress.load(), self._generations.load()
            self._saved_generations = None if generations is None else generations.get(_GENERATIONS)
            state = None if progress is None else self._read(progress)
            if state is not None and self._has_lost(state):
                # The slot was not confirmed beyond `applied`: what was deferred is read from the log again.
                state = dataclasses.replace(state, ahead=None, deferred_in=None)
            self._state = state
            return state

    def check_unchanged(self) -> None:
        """Check that the stored state is the one that was loaded or saved last.

        Raises:
            HeadraceError: CONTINUITY, where another process wrote, or the cluster was restored;
                SINK_UNREACHABLE, SINK_BUSY.
        """
        with self._lock:
            self._progress.check_unchanged()

    def save(self, state: PipelineState) -> None:
        """Write `state` whole; durable when it returns.

        Raises:
            HeadraceError: CONTINUITY, where another process wrote since; SINK_UNREACHABLE and SINK_BUSY,
                after which the next `save` finds out what became of this one.
        """
        with self._lock:
            document = state.to_json()
            generations = document.pop(_GENERATIONS)
            if generations != self._saved_generations:  # first: a state never lists fewer than exist
                self._generations.save({_GENERATIONS: generations})
                self._saved_generations = generations
            self._progress.save(document)
            self._state = state

    def advance(
        self,
        reached: Lsn,
        counters: Counters,
        *,
        deferred: bool | None = None,
        last: KnownCommit | None = None,
        began: Lsn | None = None,
    ) -> PipelineState:
        """Note that all changes up to `reached` are durable or `deferred`; never moves back.

        Args:
            reached: position in the log (bytes).
            counters: added to those of the state.
            deferred: whether documents are deferred; by default they are counted.
            last: the last transaction before `reached`, where it is known.
            began: as in the state.

        Raises:
            HeadraceError: as `save`; CONTINUITY where the index of deferred keys was deleted or restored.
        """
        with self._lock:
            state = self._loaded()
            # Counted with the lock held: another thread may defer a whole generation now.
            deferred = self._deferred.count() > 0 if deferred is None else deferred
            # No key is left: because all documents are written, or because the index of the keys is gone.
            if not deferred and self._has_lost(state):
                raise HeadraceError(
                    Kind.CONTINUITY,
                    f"the index {self._deferred.index} was deleted or restored: documents that were to be "
                    "written are lost with it",
                    "Their changes are read from the slot once more.",
                )
            # Its identity is noted with `ahead`: only by it a restored index is known to lack keys.
            place = self._deferred_identity(state.deferred_place) if deferred else None
            state = state.advanced(
                reached, counters, deferred=deferred, deferred_in=place, last=last, began=began
            )
            self.save(state)
            return state

    def save_catalog(self, published: Mapping[str, int], catalog: str) -> None:
        """Write what the state says about the database's catalog.

        Raises:
            HeadraceError: as `save`.
        """
        with self._lock:
            self.save(dataclasses.replace(self._loaded(), published=published, catalog=catalog))

    def save_generations(self, generations: Sequence[GenerationState]) -> None:
        """Write only the list of generations, those of all sinks.

        Raises:
            HeadraceError: as `save`.
        """
        with self._lock:
            # A document of their own: the query may save its position now, and neither undoes the other.
            state = dataclasses.replace(self._loaded(), generations=tuple(generations))
            listed = state.to_json()[_GENERATIONS]
            self._generations.save({_GENERATIONS: listed})
            self._state, self._saved_generations = state, listed

    def forget_log(self) -> None:
        """Delete deferred keys and the position request: positions in a log that does not continue."""
        self._deferred.forget()
        self._client.call("DELETE", path(*position_request_document(self._key)), allow=(404,))

    def delete(self) -> None:
        """Delete the state and all that belongs to it: deferred keys, quarantine, notes and requests."""
        with self._lock:
            self.forget_log()
            stored = (self._generations.load() or {}).get(_GENERATIONS, ())
            for sink in sorted({generation.get("sink", "") for generation in stored} | {""}):
                Quarantine(self._client, self._key.of_sink(sink)).forget()
            for generation in stored:
                key = self._key.of_sink(generation.get("sink", ""))
                backfill_progress(self._client, key, generation["generation"]).delete()
                Verifications(self._client, self._key).forget(generation["index"])
            Mailbox(self._client, self._key).forget()
            # After what it names: a kill before leaves a state by which the deletion can be repeated.
            self._progress.delete()
            # Last of a sink: its keys are known by its generations.
            for sink in sorted({generation.get("sink", "") for generation in stored} - {""}):
                SecondarySinkNotes(self._client, self._key.of_sink(sink)).forget()
            self._generations.delete()
            self._state = self._saved_generations = None

    def _loaded(self) -> PipelineState:
        assert self._state is not None, "load or save first"
        return self._state

    def _deferred_identity(self, noted: Identity | None) -> Identity | None:
        """Return the identity of the index of deferred keys as it was when first noted."""
        if noted is not None and noted.is_known:
            return noted
        identity = self._deferred.identity
        return identity if noted is None or not noted.is_another(identity) else noted

    def _has_lost(self, state: PipelineState) -> bool:
        """Tell whether keys were deferred and have been lost."""
        if state.ahead is None:
            return False
        identity = self._deferred.identity
        return identity is None if state.deferred_in is None else state.deferred_in.is_another(identity)

    def _read(self, progress: Mapping[str, Any]) -> PipelineState:
        try:
            return PipelineState.from_json({**progress, _GENERATIONS: self._saved_generations or ()})
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the state of {self._key} in the index {self.index} cannot be read: {error!r}",
                "Use the version of Headrace that wrote it; or delete that document, drop the slot, and let "
                "the indexes be backfilled again.",
            ) from error
