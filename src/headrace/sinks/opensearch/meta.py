"""Where does the state of a pipeline live, and how is it kept from two writers?

Two documents per pipeline in the hidden index `{prefix}headrace_meta`. One, its id the slot's name, says how
far it is; whoever commits a batch writes it. The other, `SLOT.generations`, says which generations there are;
the run writes it, also while batches are committed. A database that was restored elsewhere under the same
slot meets the old state and can be told apart by it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.model import KnownCommit, Lsn
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.control_requests import ControlRequests
from headrace.sinks.opensearch.deferred_keys import DeferredKeys
from headrace.sinks.opensearch.position_request import position_request_document
from headrace.sinks.opensearch.quarantine import Quarantine
from headrace.sinks.opensearch.shard_history import Identity
from headrace.sinks.opensearch.state import Counters, GenerationState, PipelineState
from headrace.sinks.opensearch.state_document import StateDocument, build_notes, meta_index

_GENERATIONS = "generations"


class MetaIndex:
    """The state of one pipeline; used from one thread.

    Every write names the version that was read before, so a second writer is noticed and never
    overwritten. Call `load` first.

    Args:
        slot: the pipeline's. With `SLOT/SINK` it is the state of a secondary sink: the pipeline's own, with
            the sink's generations; only those are written.
    """

    def __init__(self, client: Client, slot: str, prefix: str = "") -> None:
        self._client = client
        self._prefix = prefix
        self._slot = slot
        self.index = meta_index(prefix)
        what = f"the state of slot {slot}"
        pipeline, _, self._sink = slot.partition("/")
        self._progress = StateDocument(client, self.index, pipeline, what)
        self._list = StateDocument(client, self.index, f"{slot}.{_GENERATIONS}", what)
        self._deferred = DeferredKeys(client, pipeline, prefix)
        self._state: PipelineState | None = None
        self._kept: Sequence[Any] | None = None

    def load(self) -> PipelineState | None:
        """What was saved last, by anyone; None where the pipeline is new.

        Where the index of what was deferred is gone, or was restored, nothing is ahead: it is still in the
            log.

        Raises:
            HeadraceError: CONTINUITY, where the document cannot be read.
        """
        progress, generations = self._progress.load(), self._list.load()
        self._kept = None if generations is None else generations.get(_GENERATIONS)
        if self._sink and self._kept is None:
            self._kept = ()
        state = None if progress is None else self._read(progress)
        if state is not None and self._has_lost(state):
            state = dataclasses.replace(state, ahead=None, deferred_in=None)
        self._state = state
        return state

    def look(self) -> None:
        """See that the state is still the one that was loaded or saved last.

        Raises:
            HeadraceError: CONTINUITY, where someone else wrote, or the cluster was restored;
                SINK_UNREACHABLE, SINK_BUSY.
        """
        self._progress.look()

    def save(self, state: PipelineState) -> None:
        """Write `state` whole; durable when it returns.

        Raises:
            HeadraceError: CONTINUITY, where someone else wrote since; SINK_UNREACHABLE and SINK_BUSY,
                after which a further `save` finds out by itself what became of this one.
        """
        whole = state.to_json()
        generations = whole.pop(_GENERATIONS)
        if generations != self._kept:  # first: a state never names fewer than were made
            self._list.save({_GENERATIONS: generations})
            self._kept = generations
        if not self._sink:
            self._progress.save(whole)
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

        `last` is the last transaction before that place, where it is known; `began` as in the state.

        Raises:
            HeadraceError: as `save`; CONTINUITY where the index of what was deferred is gone, or was
                restored.
        """
        assert self._state is not None, "load or save first"
        if not deferred and self._has_lost(self._state):
            raise HeadraceError(
                Kind.CONTINUITY,
                f"somebody deleted or restored the index {self._deferred.index}: documents that were to be "
                "written are lost with it",
                "Start `headrace run` again: it reads their changes from the slot once more.",
            )
        place = self._place_of_parked(self._state.deferred_place) if deferred else None
        state = self._state.advanced(
            reached, counters, deferred=deferred, deferred_in=place, last=last, began=began
        )
        self.save(state)
        return state

    def keep(self, generations: Sequence[GenerationState]) -> None:
        """Write only which generations there are; batches may be committed meanwhile by another process.

        Raises:
            HeadraceError: as `save`.
        """
        assert self._state is not None, "load or save first"
        state = dataclasses.replace(self._state, generations=tuple(generations))
        listed = state.to_json()[_GENERATIONS]
        self._list.save({_GENERATIONS: listed})
        self._state, self._kept = state, listed

    def forget_log(self) -> None:
        """Forget what was deferred and what somebody waits for: places in a log that does not go on."""
        self._deferred.forget()
        self._client.call("DELETE", path(*position_request_document(self.index, self._slot)), allow=(404,))

    def delete(self) -> None:
        """Forget the pipeline, what it has deferred, what was refused and what was asked of it."""
        DeferredKeys(self._client, self._slot, self._prefix).forget()
        Quarantine(self._client, self._slot, self._prefix).forget()
        self._client.call("DELETE", path(*position_request_document(self.index, self._slot)), allow=(404,))
        for one in (self._list.load() or {}).get(_GENERATIONS, ()):
            build_notes(self._client, self._slot, self._prefix, one["generation"]).delete()
            ControlRequests(self._client, self._slot, self._prefix).forget([one["index"]])
        if not self._sink:
            self._progress.delete()
        self._list.delete()
        self._state = self._kept = None

    def _place_of_parked(self, noted: Identity | None) -> Identity | None:
        """Which index documents are deferred in, as it was when that was noted first."""
        if noted is not None and noted.is_known:
            return noted
        found = self._deferred.identity
        return found if noted is None or not noted.is_another(found) else noted

    def _has_lost(self, state: PipelineState) -> bool:
        """Whether documents were deferred, and are not known any more."""
        if state.ahead is None:
            return False
        found = self._deferred.identity
        return found is None if state.deferred_in is None else state.deferred_in.is_another(found)

    def _read(self, progress: Mapping[str, Any]) -> PipelineState:
        older = {} if self._kept is None else {_GENERATIONS: self._kept}
        try:
            return PipelineState.from_json({**progress, **older})
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the state of slot {self._slot} in the index {self.index} cannot be read: {error!r}",
                "Delete that document and let the indexes be seeded again.",
            ) from error
