"""Store the keys of documents that are written later, for changes that already count as read.

Keys are deferred where a change affects very many documents, and where a secondary sink does not accept its
documents. A hidden index in the cluster that keeps the state holds batches of keys of one generation, with
the highest version at which they were due. A batch is deleted once its documents are durable.

Secondary sinks have an index of their own. The primary's is refreshed and counted after each batch of
changes, and what a failing sink lacks must not make that slower.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.model.changes import Key
from headrace.model.lsn import Lsn
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.documents import document
from headrace.sinks.opensearch.shard_history import Identity
from headrace.state.key import StateKey
from headrace.state.system_index import SystemIndex, up_to

# Stands for the keys of all documents of the generation.
ALL_KEYS: Key = ()

_PROPERTIES = {
    "slot": {"type": "keyword"},
    "generation": {"type": "keyword"},
    "version": {"type": "long"},
    "keys": {"type": "object", "enabled": False},
}


@dataclass(frozen=True, slots=True)
class KeyBatch:
    """Keys of some documents of one generation, which are stored, written and deleted together.

    Attributes:
        id: names the generation and the keys: the same keys deferred again are the same batch.
        generation: the name of the generation.
        version: a log position (bytes) that is visible to every later read of the database (decision 0015).
        keys: of the root rows; empty where the batch was read without its keys.
    """

    id: str
    generation: str
    version: Lsn
    keys: tuple[Key, ...] = ()


class DeferredKeys:
    """The deferred keys of one sink; used from one thread.

    Args:
        client: of the cluster that keeps the state.
        key: names the sink.
        note_index: called with the identity of the index before keys are stored.
    """

    def __init__(
        self, client: Client, key: StateKey, note_index: Callable[[Identity], None] = lambda _: None
    ) -> None:
        self._client = client
        self._owner = key.id
        self._note_index = note_index
        self.index = f"{key.prefix}headrace_deferred{'_secondary' if key.sink else ''}"
        self._batches = SystemIndex(client, self.index, _PROPERTIES)

    @property
    def identity(self) -> Identity | None:
        """Return the index's identity; it differs from a former one if the index was deleted or restored."""
        return self._batches.identity

    def add(self, generation: str, batches: Iterable[Sequence[Key]], version: Lsn) -> None:
        """Store the keys of each batch; durable when it returns. A stored batch with a newer version stays.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY: some may be stored; it may be called again.
        """
        # Before the keys: an index that is gone later is then known to have held some.
        self._note_index(self._batches.ensure())
        about = {"slot": self._owner, "generation": generation, "version": version}
        self._batches.write(
            (
                "index",
                up_to(version, self._id(generation, keys)),
                {**about, "keys": {"of": [list(key) for key in keys]}},
            )
            for keys in batches
        )

    def count(self, generations: Collection[str] | None = None, *, up_to: Lsn | None = None) -> int:
        """Count the batches, of all or of these generations; 0: all documents that were due are durable.

        Args:
            generations: whose batches; None: those of all.
            up_to: the highest version (bytes); None: any.
        """
        return self._batches.count(self._query(generations, up_to=up_to))

    def count_by_generation(self) -> dict[str, int]:
        """Count the batches of each generation that has any."""
        return self._batches.count_by("generation", self._query()) if self._batches.refresh() else {}

    def oldest(self, most: int, *, with_keys: bool = True, without: Collection[str] = ()) -> list[KeyBatch]:
        """Read at most `most` batches with the lowest versions.

        Args:
            most: how many.
            with_keys: whether their keys are read too.
            without: generations whose batches are left out.
        """
        fields = None if with_keys else ("generation", "version")
        found = self._batches.oldest(self._query(without=without), most, fields)
        return [_batch(hit["_id"], hit["_source"]) for hit in found]

    def get(self, identity: str) -> KeyBatch | None:
        """Read one batch with its keys; None where it was deleted."""
        found = document(self._client, self.index, identity)
        return None if found is None else _batch(identity, found)

    def done(self, batches: Iterable[KeyBatch]) -> None:
        """Delete batches: their documents are durable, or not needed any more.

        A batch that was deferred again meanwhile, at a newer version, stays.

        Raises:
            HeadraceError: as `add`.
        """
        # A delete with a version would create an index that is gone, without its mapping.
        if self._batches.refresh():
            self._batches.write(("delete", up_to(batch.version, batch.id), None) for batch in batches)

    def forget(self) -> None:
        """Delete all batches of the sink."""
        if not self._batches.refresh():
            return
        # Conflicts are batches that a worker has deleted meanwhile.
        query = {"conflicts": "proceed", "refresh": "true", **self._client.primaries()}
        target = path(self.index, "_delete_by_query", query=query)
        try:
            self._client.call("POST", target, {"query": self._query()})
        except HeadraceError as error:
            if error.kind is not Kind.SINK_UNREACHABLE:  # else the cluster continues the deletion by itself
                raise

    def _query(
        self,
        generations: Collection[str] | None = None,
        without: Collection[str] = (),
        up_to: Lsn | None = None,
    ) -> dict[str, Any]:
        terms: list[dict[str, Any]] = [{"term": {"slot": self._owner}}]
        if up_to is not None:
            terms.append({"range": {"version": {"lte": up_to}}})
        if generations is not None:
            terms.append({"terms": {"generation": sorted(generations)}})
        query: dict[str, Any] = {"filter": terms}
        if without:
            query["must_not"] = [{"terms": {"generation": sorted(without)}}]
        return {"bool": query}

    # By content: deferred again after a kill, the same keys replace themselves.
    def _id(self, generation: str, keys: Sequence[Key]) -> str:
        return hashlib.sha256(json.dumps([self._owner, generation, *keys]).encode()).hexdigest()


def _batch(identity: str, found: dict[str, Any]) -> KeyBatch:
    keys = found.get("keys", {"of": ()})["of"]
    return KeyBatch(identity, found["generation"], found["version"], tuple(map(tuple, keys)))
