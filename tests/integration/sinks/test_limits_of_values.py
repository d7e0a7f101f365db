"""What is too large for a parser of the cluster costs its own document, and no other of the bulk."""

from __future__ import annotations

import contextlib
import json
import uuid

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.model.changes import DocumentOperation
from headrace.sinks.opensearch import Client, Endpoint, Generations, OpenSearchWriter
from headrace.sinks.opensearch.documents import documents, refresh

BODY = {
    "settings": {"index": {}},
    "mappings": {
        "properties": {
            "flat": {"type": "flat_object"},
            "n": {"type": "double"},
            "open": {"type": "object", "enabled": False},
        }
    },
}


def nested(levels: int) -> bytes:
    return b'{"open":' + b'{"a":' * levels + b"1" + b"}" * levels + b"}"


def test_a_value_beyond_a_limit_of_the_cluster_costs_its_own_document(opensearch: EmbeddedOpenSearch) -> None:
    bodies = {
        "first": b'{"n":1}',
        "largest leaf": json.dumps({"flat": {"a": "x" * 32_000}}).encode(),
        "leaf": json.dumps({"flat": {"a": "x" * 33_000}}).encode(),
        "digits": b'{"n":1' + b"0" * 1100 + b"}",
        "deepest": nested(900),
        "deep": nested(1200),
        "last": b'{"n":2}',
    }
    with contextlib.closing(Client(Endpoint((opensearch.url,)))) as client:
        generations = Generations(client, f"l{uuid.uuid4().hex[:8]}_")
        made = generations.create("things", "ab", BODY)
        with contextlib.closing(OpenSearchWriter(client, {"things": made.target})) as writer:
            result = writer.write(
                [DocumentOperation("things", name, 1, body) for name, body in bodies.items()]
            )
        refresh(client, made.index)
        assert {document.id for document in result.rejected} == {"leaf", "digits", "deep"}
        assert set(dict(documents(client, made.index))) == {"first", "largest leaf", "deepest", "last"}
        generations.drop(made)
