"""What a stream shows."""

from __future__ import annotations

import io
import json

from headrace.model.changes import DocumentOperation
from headrace.sinks.base import WriteResult
from headrace.sinks.stdout.writer import StdoutWriter

OPERATIONS = [
    DocumentOperation("users", "42", 7, b'{"email":"ada@x.io","n":1.10}'),
    DocumentOperation("users", "7", 8, None),
]


def test_an_envelope_per_operation_with_the_documents_own_bytes() -> None:
    stream = io.StringIO()
    result = StdoutWriter(stream, now=lambda: "T").write(OPERATIONS)
    first, second = stream.getvalue().splitlines()
    assert first.endswith(',"document":{"email":"ada@x.io","n":1.10}}')
    shown = json.loads(first)
    assert (shown["seq"], shown["op"], shown["id"], shown["index"]) == (1, "upsert", "42", "users")
    assert (shown["meta"], shown["lsn"]) == ({"fields": 2, "bytes": 29}, 7)
    deleted = json.loads(second)
    assert (deleted["seq"], deleted["op"], "document" in deleted) == (2, "delete", False)
    assert result == WriteResult(upserted=1, deleted=1, bytes=len(stream.getvalue()))


def test_a_pretty_envelope_says_the_same() -> None:
    stream = io.StringIO()
    StdoutWriter(stream, pretty=True).write(OPERATIONS[:1])
    assert stream.getvalue().count("\n") > 10
    assert json.loads(stream.getvalue())["document"] == {"email": "ada@x.io", "n": 1.1}
