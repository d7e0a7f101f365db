"""Which documents does a secondary sink still lack, because it did not take them when they were due?

A set of (generation, key) in the hidden index `{prefix}headrace_deferred_secondary` of the cluster that keeps
the state: one entry for each, however often it was due, with the highest version at which it was. Beside it
stands a
mark for as long as the sink counts as away: nobody then waits for it before deferring. Another one names the
index that the entries are in and the history of its shard, so that its loss is noticed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.model import Key, Lsn
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.shard_history import Identity
from headrace.sinks.opensearch.state_document import meta_index
from headrace.sinks.opensearch.system_index import SystemIndex

EVERYTHING: Key = ()
"""Instead of a key: whatever the generation holds."""

_PROPERTIES = {
    "slot": {"type": "keyword"},
    "generation": {"type": "keyword"},
    "version": {"type": "long"},
    "key": {"type": "object", "enabled": False},
}


@dataclass(frozen=True, slots=True)
class Owed:
    """A document that is due.

    Attributes:
        key: of the root row, or `EVERYTHING`.
        version: a position that whoever assembles it now sees (decision 0015), in bytes.
    """

    generation: str
    key: Key
    version: Lsn


class SecondaryDeferredKeys:
    """What one secondary sink lacks; used from one thread.

    Args:
        client: of the cluster that keeps the state.
        slot: `SLOT/SINK`.
    """

    def __init__(self, client: Client, slot: str, prefix: str = "") -> None:
        self._client = client
        self._slot = slot
        self._entries = SystemIndex(client, f"{prefix}headrace_deferred_secondary", _PROPERTIES)
        self._mark = path(meta_index(prefix), "_doc", f"{slot}.away")
        self._place = (meta_index(prefix), "_doc", f"{slot}.backlog")
        self._noted: Identity | None = None

    def add(self, generation: str, keys: Iterable[Key], version: Lsn) -> None:
        """Keep documents; durable when it returns. What is there with a newer version stays as it is.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY: some may be kept; it may be called again.
        """
        self._note(self._entries.make())
        owed = (Owed(generation, key, version) for key in keys)
        self._entries.write(("index", self._about(one), self._kept(one)) for one in owed)

    def done(self, owed: Sequence[Owed]) -> None:
        """These are written, at the version that they had or a later one; what came since stays.

        Raises:
            HeadraceError: as `add`.
        """
        self._entries.write(("delete", self._about(one), None) for one in owed)

    def oldest(self, most: int, generations: Collection[str] | None = None) -> list[Owed]:
        """Those that are due for the longest time."""
        return [_owed(hit["_source"]) for hit in self._entries.oldest(self._own(generations), most)]

    def count(self, generations: Collection[str] | None = None) -> int:
        """How many there are, of all or of these generations."""
        return self._entries.count(self._own(generations))

    def is_lost(self) -> bool:
        """Whether somebody has deleted entries: no index has them, another one, or one that was restored."""
        noted = self._noted_before()
        return noted is not None and noted.is_another(self._entries.identity)

    def renounce(self) -> None:
        """Nobody wants what was lost any more."""
        kept = self._entries.identity
        if kept is None:
            self._forget_place()
        else:
            self._client.call("PUT", path(*self._place), kept.to_json())

    def away(self, reason: str) -> None:
        """The sink does not answer: nobody needs to find that out again."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        self._client.call("PUT", self._mark, {"reason": reason, "updated_at": now})

    def why_away(self) -> str | None:
        """Why it counts as away; None where it does not."""
        answer = self._client.read(self._mark, allow=(404,))
        return str(answer.json()["_source"]["reason"]) if answer.ok else None

    def back(self) -> None:
        """The sink takes documents again."""
        self._client.call("DELETE", self._mark, allow=(404,))

    def forget(self) -> None:
        """Take all of it away."""
        self.back()
        self._forget_place()
        if not self._entries.refreshed():
            return
        query = {"conflicts": "proceed", "refresh": "true", **self._client.primaries()}
        target = path(self._entries.name, "_delete_by_query", query=query)
        try:
            self._client.call("POST", target, {"query": self._own(None)})
        except HeadraceError as error:
            if error.kind is not Kind.SINK_UNREACHABLE:  # else the cluster goes on by itself
                raise

    def _note(self, identity: Identity) -> None:
        """Remember, before the first entry, which index it is in; a note of a former one stays."""
        if self._noted == identity:
            return
        target = path(*self._place, query={"op_type": "create"})
        if not self._client.call("PUT", target, identity.to_json(), allow=(409,)).ok:
            noted = self._noted_before()  # by an older version perhaps, which knew no history
            if noted is not None and not noted.is_known and not noted.is_another(identity):
                self._client.call("PUT", path(*self._place), identity.to_json())
        self._noted = identity

    def _noted_before(self) -> Identity | None:
        answer = self._client.read(path(*self._place), allow=(404,))
        return Identity.from_json(answer.json()["_source"]) if answer.ok else None

    def _forget_place(self) -> None:
        self._client.call("DELETE", path(*self._place), allow=(404,))

    def _own(self, generations: Collection[str] | None) -> dict[str, Any]:
        mine: list[dict[str, Any]] = [{"term": {"slot": self._slot}}]
        if generations is not None:
            mine.append({"terms": {"generation": sorted(generations)}})
        return {"bool": {"filter": mine}}

    def _about(self, one: Owed) -> dict[str, Any]:
        return {"_id": self._key(one), "version": one.version, "version_type": "external_gte"}

    def _kept(self, one: Owed) -> dict[str, Any]:
        return {
            "slot": self._slot,
            "generation": one.generation,
            "version": one.version,
            "key": {"of": list(one.key)},
        }

    def _key(self, one: Owed) -> str:
        parts = json.dumps([self._slot, one.generation, list(one.key)])
        return hashlib.sha256(parts.encode()).hexdigest()


def _owed(source: dict[str, Any]) -> Owed:
    return Owed(source["generation"], tuple(source["key"]["of"]), source["version"])
