"""Where does the state of a pipeline live, and how is it kept from two writers?

One document per pipeline in the hidden index `{prefix}headrace_meta`, its id the slot's name: a database
that was restored elsewhere under the same slot meets the old state and can be told apart by it.
"""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.parked import Parked
from headrace.sinks.opensearch.quarantine import Quarantine
from headrace.sinks.opensearch.state import Counters, PipelineState
from headrace.sinks.opensearch.wish import wish_document

_BODY = {
    "settings": {"index": {"number_of_shards": 1, "auto_expand_replicas": "0-1", "hidden": True}},
    "mappings": {
        "dynamic": False,
        "properties": {"updated_at": {"type": "date"}, "writer": {"type": "keyword"}},
    },
}


@dataclass(frozen=True, slots=True)
class _Seen:
    """The document's place in the index's history."""

    seq_no: int
    primary_term: int

    def query(self) -> dict[str, str | int]:
        return {"if_seq_no": self.seq_no, "if_primary_term": self.primary_term}


class MetaIndex:
    """The state of one pipeline; used from one thread.

    Every write names the version that was read before, so a second writer is noticed and never
    overwritten. Call `load` first.
    """

    def __init__(self, client: Client, slot: str, prefix: str = "") -> None:
        self._client = client
        self._prefix = prefix
        self.index = f"{prefix}headrace_meta"
        self._document = (self.index, "_doc", slot)
        self._slot = slot
        self._writer = uuid.uuid4().hex
        self._seen: _Seen | None = None
        self._state: PipelineState | None = None
        self._unsure = True

    def load(self) -> PipelineState | None:
        """What was saved last, by anyone; None where the pipeline is new.

        Raises:
            HeadraceError: CONTINUITY, where the document cannot be read.
        """
        found = self._get()
        self._adopt(found)
        return self._state

    def save(self, state: PipelineState) -> None:
        """Write `state` whole; durable when it returns.

        Raises:
            HeadraceError: CONTINUITY, where someone else wrote since; SINK_UNREACHABLE and SINK_BUSY,
                after which a further `save` finds out by itself what became of this one.
        """
        if self._unsure:
            self._find_out()
        self._unsure = True
        self._put(state)
        self._unsure = False

    def advance(self, reached: Lsn, counters: Counters, *, parked: bool = False) -> PipelineState:
        """Note, in one request, that all changes up to `reached` are durable or `parked`; never moves back.

        Raises:
            HeadraceError: as `save`.
        """
        assert self._state is not None, "load or save first"
        state = self._state.advanced(reached, counters, parked=parked)
        self.save(state)
        return state

    def delete(self) -> None:
        """Forget the pipeline, what it has parked, what was refused and what was asked of it."""
        Parked(self._client, self._slot, self._prefix).forget()
        Quarantine(self._client, self._slot, self._prefix).forget()
        for document in (self._document, wish_document(self.index, self._slot)):
            self._client.call("DELETE", path(*document), allow=(404,))
        self._seen, self._state = None, None

    def _put(self, state: PipelineState) -> None:
        now = dt.datetime.now(dt.UTC).isoformat()
        if self._seen is None:
            self._client.call("PUT", path(self.index), _BODY, allow=(400,))  # 400: it is there already
        condition = {"op_type": "create"} if self._seen is None else self._seen.query()
        body = {**state.to_json(), "updated_at": now, "writer": self._writer}
        answer = self._client.call("PUT", path(*self._document, query=condition), body, allow=(409,))
        if not answer.ok:
            raise self._conflict()
        self._remember(answer.json(), state)

    def _find_out(self) -> None:
        """After a write without an answer: take what is there if it is what we saw or what we wrote."""
        found = self._get()
        seen = _seen(found)
        if seen != self._seen and (found is None or found["_source"].get("writer") != self._writer):
            raise self._conflict()
        self._adopt(found)

    def _get(self) -> dict[str, Any] | None:
        answer = self._client.read(path(*self._document), allow=(404,))
        return answer.json() if answer.ok else None

    def _adopt(self, found: dict[str, Any] | None) -> None:
        self._seen = _seen(found)
        self._unsure = False
        if found is None:
            self._state = None
            return
        try:
            self._state = PipelineState.from_json(found["_source"])
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the state of slot {self._slot} in the index {self.index} cannot be read: {error!r}",
                "Delete that document and let the indexes be seeded again.",
            ) from error

    def _remember(self, answer: dict[str, Any], state: PipelineState) -> None:
        self._seen = _Seen(answer["_seq_no"], answer["_primary_term"])
        self._state = state

    def _conflict(self) -> HeadraceError:
        return HeadraceError(
            Kind.CONTINUITY,
            f"another process changed the state of slot {self._slot} in the index {self.index}",
            "Let only one Headrace run with this slot, then start again.",
        )


def _seen(found: dict[str, Any] | None) -> _Seen | None:
    return None if found is None else _Seen(found["_seq_no"], found["_primary_term"])
