"""A generation of OpenSearch as the conformance suite looks at a sink."""

from __future__ import annotations

import uuid
from typing import Any

from headrace.sinks.opensearch import Client, Endpoint, Generations, OpenSearchWriter, WriterOptions
from headrace.sinks.opensearch.documents import document, documents, refresh
from headrace.testing.conformance import INDEX

BODY: dict[str, Any] = {
    "settings": {"index": {"gc_deletes": "1h"}},
    "mappings": {"dynamic": "strict", "properties": {"n": {"type": "long"}, "s": {"type": "keyword"}}},
}


class OpenSearchUnderTest:
    """A writer to a new generation, and a look at it."""

    def __init__(self, url: str) -> None:
        self.client = Client(Endpoint((url,)))
        self._generations = Generations(self.client, f"t{uuid.uuid4().hex[:8]}_")
        self.generation = self._generations.create(INDEX, "ab", BODY)
        options = WriterOptions(max_bytes=100_000)
        self.writer = OpenSearchWriter(self.client, {INDEX: self.generation.target}, options)

    def documents(self) -> dict[str, Any]:
        refresh(self.client, self.generation.index)
        return dict(documents(self.client, self.generation.index))

    def routed(self, identity: str, routing: str) -> Any:
        return document(self.client, self.generation.index, identity, routing)

    def close(self) -> None:
        self.writer.close()
        self._generations.drop(self.generation)
        self.client.close()
