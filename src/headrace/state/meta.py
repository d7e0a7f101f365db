"""Store a pipeline's state in OpenSearch, safe from a second writer.

Each pipeline has two documents in the hidden index `{prefix}headrace_meta`. One, whose id is the slot's name,
says how far the pipeline is; the process that commits a batch writes it. The other, `SLOT.generations`, lists
the generations; the driver writes it, also while batches are committed. A restored copy of the database with
the same slot finds the old state there, and can be recognised by it.
"""

from __future__ import annotations

import dataclasses
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
from headrace.state.system_index import StateDocument, backfill_progress
from headrace.state.verifications import Verifications

_GENERATIONS = "generations"


class MetaIndex:
    """The state of one pipeline; used from one thread.

    Every write names the version that was read before, so a second writer is noticed and never overwritten.
    Call `load` first.

    Args:
        client: of the cluster that keeps the state.
        key: names the state. That of a secondary sink is the pipeline's own, with the sink's generations;
            only those are written.
    """

    def __init__(self, client: Client, key: StateKey) -> None:
        self._client = client
        self._key = key
        self.index = key.meta_index
        what = f"the state of {key}"
        pipeline = key.of_pipeline()
        self._progress = StateDocument(client, self.index, pipeline.id, what)
        self._generations = StateDocument(client, self.index, f"{key.id}.{_GENERATIONS}", what)
        self._deferred = DeferredKeys(client, pipeline)
        self._state: PipelineState | None = None
        self._saved_generations: Sequence[Any] | None = None

    def load(self) -> PipelineState | None:
        """Read the state that was saved last, by any process; None where the pipeline is new.

        Where the index of deferred keys was deleted or restored, `ahead` is dropped: those changes are still
        in the log.

        Raises:
            HeadraceError: CONTINUITY, where the document cannot be read.
        """
        progress, generations = self._progress.load(), self._generations.load()
        self._saved_generations = None if generations is None else generations.get(_GENERATIONS)
        if self._key.sink and self._saved_generations is None:
            self._saved_generations = ()
        state = None if progress is None else self._read(progress)
        if state is not None and self._has_lost(state):
            state = dataclasses.replace(state, ahead=None, deferred_in=None)
        self._state = state
        return state

    def check_unchanged(self) -> None:
        """Check that the stored state is the one that was loaded or saved last.

        Raises:
            HeadraceError: CONTINUITY, where another process wrote, or the cluster was restored;
                SINK_UNREACHABLE, SINK_BUSY.
        """
        self._progress.check_unchanged()

    def save(self, state: PipelineState) -> None:
        """Write `state` whole; durable when it returns.

        Raises:
            HeadraceError: CONTINUITY, where another process wrote since; SINK_UNREACHABLE and SINK_BUSY,
                after which the next `save` finds out what became of this one.
        """
        document = state.to_json()
        generations = document.pop(_GENERATIONS)
        if generations != self._saved_generations:  # first: a state never lists fewer generations than exist
            self._generations.save({_GENERATIONS: generations})
            self._saved_generations = generations
        if not self._key.sink:
            self._progress.save(document)
        self._state = state

    def advance(
        self,
        reached: Lsn,
        counters: Counters,
        *,
        deferred: bool = False,
        last: KnownCommit | None = None,
        began: Lsn | None = None,
    ) -> PipelineState:
        """Note, in one request, that all changes up to `reached` are durable or `deferred`; never moves back.

        Args:
            reached: position in the log (bytes).
            counters: added to those of the state.
            deferred: whether documents are deferred.
            last: the last transaction before `reached`, where it is known.
            began: as in the state.

        Raises:
            HeadraceError: as `save`; CONTINUITY where the index of deferred keys was deleted or restored.
        """
        assert self._state is not None, "load or save first"
        if not deferred and self._has_lost(self._state):
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the index {self._deferred.index} was deleted or restored: documents that were to be "
                "written are lost with it",
                "Start `headrace run` again: it reads their changes from the slot once more.",
            )
        place = self._deferred_identity(self._state.deferred_place) if deferred else None
        state = self._state.advanced(
            reached, counters, deferred=deferred, deferred_in=place, last=last, began=began
        )
        self.save(state)
        return state

    def save_catalog(self, published: Mapping[str, int], catalog: str) -> None:
        """Write what the state says about the database's catalog.

        Raises:
            HeadraceError: as `save`.
        """
        assert self._state is not None, "load or save first"
        self.save(dataclasses.replace(self._state, published=published, catalog=catalog))

    def save_generations(self, generations: Sequence[GenerationState]) -> None:
        """Write only the list of generations; another process may commit batches meanwhile.

        Raises:
            HeadraceError: as `save`.
        """
        assert self._state is not None, "load or save first"
        state = dataclasses.replace(self._state, generations=tuple(generations))
        listed = state.to_json()[_GENERATIONS]
        self._generations.save({_GENERATIONS: listed})
        self._state, self._saved_generations = state, listed

    def forget_log(self) -> None:
        """Delete deferred keys and the position request: positions in a log that does not continue."""
        self._deferred.forget()
        self._client.call("DELETE", path(*position_request_document(self._key)), allow=(404,))

    def delete(self) -> None:
        """Delete the state, the deferred keys of a pipeline, the quarantine and orders."""
        if not self._key.sink:  # those of a secondary sink stay until its generations are deleted
            self.forget_log()
        Quarantine(self._client, self._key).forget()
        for generation in (self._generations.load() or {}).get(_GENERATIONS, ()):
            backfill_progress(self._client, self._key, generation["generation"]).delete()
            Verifications(self._client, self._key).forget(generation["index"])
        if not self._key.sink:
            Mailbox(self._client, self._key).forget()
            self._progress.delete()
        self._generations.delete()
        self._state = self._saved_generations = None

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
        generations = {} if self._saved_generations is None else {_GENERATIONS: self._saved_generations}
        try:
            return PipelineState.from_json({**progress, **generations})
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the state of {self._key} in the index {self.index} cannot be read: {error!r}",
                "Delete that document and let the indexes be backfilled again.",
            ) from error
