"""Store the keys of documents that a secondary sink did not accept when they were due.

The hidden index `{prefix}headrace_deferred_secondary`, in the cluster that keeps the state, holds a set of
(generation, key): one entry for each, with the highest version at which it was due. While the sink counts as
away, a mark document exists, and documents are deferred without trying the sink. Another document notes the
identity of the index that holds the entries, so that its loss is noticed.
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
from headrace.sinks.opensearch.system_index import SystemIndex, meta_index

EVERYTHING: Key = ()
"""Stands for all documents of the generation, instead of a key."""

_PROPERTIES = {
    "slot": {"type": "keyword"},
    "generation": {"type": "keyword"},
    "version": {"type": "long"},
    "key": {"type": "object", "enabled": False},
}


@dataclass(frozen=True, slots=True)
class Owed:
    """A document that is to be written to the sink.

    Attributes:
        generation: the concrete index.
        key: of the root row, or `EVERYTHING`.
        version: a log position (bytes) that is visible to every later read of the database (decision 0015).
    """

    generation: str
    key: Key
    version: Lsn


class SecondaryDeferredKeys:
    """The deferred keys of one secondary sink; used from one thread.

    Args:
        client: of the cluster that keeps the state.
        slot: `SLOT/SINK`.
        prefix: of that cluster's index names.
    """

    def __init__(self, client: Client, slot: str, prefix: str = "") -> None:
        self._client = client
        self._slot = slot
        self._entries = SystemIndex(client, f"{prefix}headrace_deferred_secondary", _PROPERTIES)
        self._mark = path(meta_index(prefix), "_doc", f"{slot}.away")
        self._place = (meta_index(prefix), "_doc", f"{slot}.deferred")
        self._noted: Identity | None = None

    def add(self, generation: str, keys: Iterable[Key], version: Lsn) -> None:
        """Store keys; durable when it returns. An entry with a newer version stays unchanged.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY: some may be stored; it may be called again.
        """
        self._note(self._entries.make())
        owed = (Owed(generation, key, version) for key in keys)
        self._entries.write(("index", self._parameters(entry), self._source(entry)) for entry in owed)

    def done(self, owed: Sequence[Owed]) -> None:
        """Delete entries of documents that were written at their version or a later one; newer entries stay.

        Raises:
            HeadraceError: as `add`.
        """
        self._entries.write(("delete", self._parameters(entry), None) for entry in owed)

    def oldest(self, most: int, generations: Collection[str] | None = None) -> list[Owed]:
        """Read at most `most` entries with the lowest versions."""
        return [_owed(hit["_source"]) for hit in self._entries.oldest(self._query(generations), most)]

    def count(self, generations: Collection[str] | None = None) -> int:
        """Count the entries, of all or of these generations."""
        return self._entries.count(self._query(generations))

    def is_lost(self) -> bool:
        """Tell whether entries were lost: their index was deleted, replaced or restored."""
        noted = self._read_noted()
        return noted is not None and noted.is_another(self._entries.identity)

    def renounce(self) -> None:
        """Give up lost entries: note the identity of the index as it is now."""
        identity = self._entries.identity
        if identity is None:
            self._delete_noted()
        else:
            self._client.call("PUT", path(*self._place), identity.to_json())

    def away(self, reason: str) -> None:
        """Note that the sink does not answer, so that documents are deferred without trying it."""
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        self._client.call("PUT", self._mark, {"reason": reason, "updated_at": now})

    def why_away(self) -> str | None:
        """Return why the sink counts as away; None where it does not."""
        answer = self._client.read(self._mark, allow=(404,))
        return str(answer.json()["_source"]["reason"]) if answer.ok else None

    def back(self) -> None:
        """Note that the sink accepts documents again."""
        self._client.call("DELETE", self._mark, allow=(404,))

    def forget(self) -> None:
        """Delete all entries and marks of the sink."""
        self.back()
        self._delete_noted()
        if not self._entries.refreshed():
            return
        query = {"conflicts": "proceed", "refresh": "true", **self._client.primaries()}
        target = path(self._entries.name, "_delete_by_query", query=query)
        try:
            self._client.call("POST", target, {"query": self._query(None)})
        except HeadraceError as error:
            if error.kind is not Kind.SINK_UNREACHABLE:  # else the cluster continues the deletion by itself
                raise

    def _note(self, identity: Identity) -> None:
        """Note the index's identity before the first entry; a note of a former index stays."""
        if self._noted == identity:
            return
        target = path(*self._place, query={"op_type": "create"})
        if not self._client.call("PUT", target, identity.to_json(), allow=(409,)).ok:
            noted = self._read_noted()  # perhaps by an older version, which noted no history
            if noted is not None and not noted.is_known and not noted.is_another(identity):
                self._client.call("PUT", path(*self._place), identity.to_json())
        self._noted = identity

    def _read_noted(self) -> Identity | None:
        answer = self._client.read(path(*self._place), allow=(404,))
        return Identity.from_json(answer.json()["_source"]) if answer.ok else None

    def _delete_noted(self) -> None:
        self._client.call("DELETE", path(*self._place), allow=(404,))

    def _query(self, generations: Collection[str] | None) -> dict[str, Any]:
        terms: list[dict[str, Any]] = [{"term": {"slot": self._slot}}]
        if generations is not None:
            terms.append({"terms": {"generation": sorted(generations)}})
        return {"bool": {"filter": terms}}

    def _parameters(self, entry: Owed) -> dict[str, Any]:
        return {"_id": self._key(entry), "version": entry.version, "version_type": "external_gte"}

    def _source(self, entry: Owed) -> dict[str, Any]:
        return {
            "slot": self._slot,
            "generation": entry.generation,
            "version": entry.version,
            "key": {"of": list(entry.key)},
        }

    def _key(self, entry: Owed) -> str:
        parts = json.dumps([self._slot, entry.generation, list(entry.key)])
        return hashlib.sha256(parts.encode()).hexdigest()


def _owed(source: dict[str, Any]) -> Owed:
    return Owed(source["generation"], tuple(source["key"]["of"]), source["version"])
