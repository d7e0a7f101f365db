"""Store the keys of documents that are written later, for changes that already count as read.

A change that affects very many documents would delay every later one. The keys of its documents are deferred:
they are written in chunks to the system index `{prefix}headrace_deferred`. Each chunk is deleted once its
documents are durable. Until all are deleted, the slot is not confirmed past that change.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.model import Key, Lsn
from headrace.sinks.opensearch.client import Client, path
from headrace.sinks.opensearch.shard_history import Identity
from headrace.sinks.opensearch.system_index import SystemIndex

_PROPERTIES = {
    "slot": {"type": "keyword"},
    "target": {"type": "keyword"},
    "version": {"type": "long"},
    "keys": {"type": "object", "enabled": False},
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Keys of some documents of one generation.

    Attributes:
        id: of the chunk.
        index: the logical index.
        target: the generation's write alias at the time when they were deferred.
        version: a log position (bytes) that is visible to every later read of the database (decision 0015).
        keys: of the root rows; empty where the chunk was read without its keys.
    """

    id: str
    index: str
    target: str
    version: Lsn
    keys: tuple[Key, ...] = ()


class DeferredKeys:
    """The deferred keys of one pipeline."""

    def __init__(self, client: Client, slot: str, prefix: str = "") -> None:
        self._client = client
        self._slot = slot
        self.index = f"{prefix}headrace_deferred"
        self._chunks = SystemIndex(client, self.index, _PROPERTIES)

    @property
    def identity(self) -> Identity | None:
        """Return the index's identity; it differs from a former one if the index was deleted or restored."""
        return self._chunks.identity

    def defer(self, index: str, target: str, version: Lsn, chunks: Iterable[Sequence[Key]]) -> None:
        """Store the keys of each chunk; durable when it returns. What is deferred twice is written twice.

        Raises:
            HeadraceError: SINK_UNREACHABLE, SINK_BUSY: some may be deferred or none.
        """
        common = {"slot": self._slot, "index": index, "target": target, "version": version}
        self._chunks.make()
        self._chunks.write(
            ("index", {"_id": uuid.uuid4().hex}, {**common, "keys": {"of": [list(key) for key in keys]}})
            for keys in chunks
        )

    def count(self) -> int:
        """Count the chunks; 0 means that all documents of changes that were read are durable."""
        return self._chunks.count(self._slot_query())

    def chunks(self, most: int) -> list[Chunk]:
        """Read the oldest chunks, without their keys."""
        found = self._chunks.oldest(self._slot_query(), most, ("index", "target", "version"))
        return [_chunk(hit["_id"], hit["_source"]) for hit in found]

    def chunk(self, identity: str) -> Chunk | None:
        """Read one chunk with its keys; None where it is done."""
        answer = self._client.read(path(self.index, "_doc", identity), allow=(404,))
        found = answer.json()
        return _chunk(identity, found["_source"]) if found.get("found") else None

    def done(self, chunks: Iterable[Chunk]) -> None:
        """Delete chunks: their documents are durable, or not needed any more."""
        self._chunks.write(("delete", {"_id": chunk.id}, None) for chunk in chunks)

    def forget(self) -> None:
        """Delete all chunks of the pipeline."""
        while found := self.chunks(1_000):
            self.done(found)

    def _slot_query(self) -> dict[str, Any]:
        return {"term": {"slot": self._slot}}


def _chunk(identity: str, found: dict[str, Any]) -> Chunk:
    keys = found.get("keys", {"of": ()})["of"]
    return Chunk(identity, found["index"], found["target"], found["version"], tuple(map(tuple, keys)))
