"""Which documents are still to be written for changes that count as read?

A change that touches very many documents would keep every later one waiting. The keys of its documents are
deferred: written in chunks to the system index `{prefix}headrace_deferred`. Each chunk is deleted once its
documents are durable. Until none is left the slot stays before that change.
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
    """Some documents of one generation.

    Attributes:
        id: of the chunk.
        index: the logical index.
        target: the generation's write alias, as it was when they were deferred.
        version: a position that whoever assembles them now sees (decision 0015), in bytes.
        keys: of the root rows; empty where only the chunk was asked for.
    """

    id: str
    index: str
    target: str
    version: Lsn
    keys: tuple[Key, ...] = ()


class DeferredKeys:
    """The deferred documents of one pipeline."""

    def __init__(self, client: Client, slot: str, prefix: str = "") -> None:
        self._client = client
        self._slot = slot
        self.index = f"{prefix}headrace_deferred"
        self._chunks = SystemIndex(client, self.index, _PROPERTIES)

    @property
    def identity(self) -> Identity | None:
        """Another one where what was deferred cannot be there still: the index was deleted, or restored."""
        return self._chunks.identity

    def defer(self, index: str, target: str, version: Lsn, chunks: Iterable[Sequence[Key]]) -> None:
        """Keep the keys of each chunk; durable when it returns. What is deferred twice is written twice.

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
        """How many chunks there are; 0 says that all documents of changes that are read are durable."""
        return self._chunks.count(self._own())

    def chunks(self, most: int) -> list[Chunk]:
        """The oldest chunks, without their keys."""
        found = self._chunks.oldest(self._own(), most, ("index", "target", "version"))
        return [_chunk(hit["_id"], hit["_source"]) for hit in found]

    def chunk(self, identity: str) -> Chunk | None:
        """One chunk with its keys; None where it is done."""
        answer = self._client.read(path(self.index, "_doc", identity), allow=(404,))
        found = answer.json()
        return _chunk(identity, found["_source"]) if found.get("found") else None

    def done(self, chunks: Iterable[Chunk]) -> None:
        """The documents of these chunks are durable, or nobody wants them any more."""
        self._chunks.write(("delete", {"_id": chunk.id}, None) for chunk in chunks)

    def forget(self) -> None:
        """Take all chunks of the pipeline away."""
        while found := self.chunks(1_000):
            self.done(found)

    def _own(self) -> dict[str, Any]:
        return {"term": {"slot": self._slot}}


def _chunk(identity: str, found: dict[str, Any]) -> Chunk:
    keys = found.get("keys", {"of": ()})["of"]
    return Chunk(identity, found["index"], found["target"], found["version"], tuple(map(tuple, keys)))
