"""Which documents did the cluster refuse, why, and since when?

Each has an entry in the hidden index `{prefix}headrace_quarantine`, durable before the position moves past
the change that made it. Beside the entries of a pipeline stands a mark that changes with each new one: who
writes documents reads it first, and so knows whether one of them is to leave.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.model import Lsn, format_lsn, parse_lsn
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.contents import documents
from headrace.sinks.opensearch.system_index import SystemIndex

_PROPERTIES = {"slot": {"type": "keyword"}, "index": {"type": "keyword"}, "at": {"type": "date"}}

Held = Mapping[str, Collection[str]]
"""Ids by generation."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One refused document.

    Attributes:
        index: the logical index.
        generation: which of its indexes refused it.
        id: the document's, also one that can never be an id there.
        position: the version that was refused, in bytes of the log.
        at: when, ISO 8601 in UTC.
    """

    index: str
    id: str
    reason: str
    position: Lsn
    at: str
    generation: str

    @classmethod
    def now(cls, index: str, id_: str, reason: str, position: Lsn, generation: str) -> Quarantined:
        """Refused at this moment."""
        at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        return cls(index, id_, reason, position, at, generation)


class Quarantine:
    """The refused documents of one pipeline; used from one thread."""

    def __init__(self, client: Client, slot: str, prefix: str = "") -> None:
        self._client = client
        self._slot = slot
        self.index = f"{prefix}headrace_quarantine"
        self._entries = SystemIndex(client, self.index, _PROPERTIES)
        self._mark = path(self.index, "_doc", f"{slot}.mark")
        self._seen: object = None
        self._held: dict[str, set[str]] = {}

    def put(self, entries: Sequence[Quarantined]) -> None:
        """Keep entries; durable when it returns. A document has one: a later one takes its place.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY, after which it may be called again.
        """
        if not entries:
            return
        self._entries.make()
        self._entries.write(
            ("index", self._about(one.generation, one.id), self._source(one)) for one in entries
        )
        self._client.call("PUT", self._mark, {"at": entries[-1].at})

    def drop(self, generation: str, ids: Iterable[str]) -> None:
        """Forget entries; nothing happens where there is none."""
        gone = list(ids)
        self._entries.write(("delete", self._about(generation, one), None) for one in gone)
        self._held.get(generation, set()).difference_update(gone)

    def held(self) -> Held:
        """The ids that have an entry; asks the cluster for them only where there are new ones."""
        answer = self._client.read(self._mark, allow=(404,))
        seen = answer.json().get("_seq_no") if answer.ok else None
        if seen != self._seen:
            self._held = {}
            for one in self.entries():
                self._held.setdefault(one.generation, set()).add(one.id)
            self._seen = seen
        return self._held

    def entries(self, index: str | None = None, id_: str | None = None) -> list[Quarantined]:
        """All, or those of an index or a document; oldest first."""
        if not self._entries.refreshed():
            return []
        held = documents(self._client, self.index)
        found = [_entry(source) for _, source in held if self._is_ours(source)]
        wanted = (one for one in found if index in (None, one.index) and id_ in (None, one.id))
        return sorted(wanted, key=lambda one: (one.at, one.index, one.id))

    def counts(self) -> dict[str, int]:
        """How many there are, by index."""
        asked = {
            "size": 0,
            "query": {"term": {"slot": self._slot}},
            "aggs": {"indexes": {"terms": {"field": "index", "size": 10_000}}},
        }
        target = path(self.index, "_search", query=self._client.primaries())
        answer = self._client.read(target, asked, allow=(404,))
        found = answer.json()["aggregations"]["indexes"]["buckets"] if answer.ok else []
        return dict(Counter({one["key"]: one["doc_count"] for one in found}))

    def forget(self, generation: str | None = None) -> None:
        """Take all entries of the pipeline away, or those of a generation."""
        for one in self.entries():
            if generation in (None, one.generation):
                self.drop(one.generation, [one.id])
        if generation is None:
            self._client.call("DELETE", self._mark, allow=(404,))

    def _about(self, generation: str, id_: str) -> dict[str, Any]:
        """The entry of any id, also of an empty one or one that is too long."""
        parts = (self._slot, generation, id_)
        return {"_id": hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()}

    def _source(self, one: Quarantined) -> dict[str, Any]:
        return {
            "slot": self._slot,
            "index": one.index,
            "generation": one.generation,
            "id": one.id,
            "reason": one.reason,
            "position": format_lsn(one.position),
            "at": one.at,
        }

    def _is_ours(self, source: Mapping[str, Any]) -> bool:
        return source.get("slot") == self._slot


def _entry(source: Mapping[str, Any]) -> Quarantined:
    position = parse_lsn(source["position"])
    return Quarantined(
        source["index"], source["id"], source["reason"], position, source["at"], source["generation"]
    )
