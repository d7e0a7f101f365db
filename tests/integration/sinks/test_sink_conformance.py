"""The sinks that come with Headrace do what every sink does."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.model.changes import DocumentOperation
from headrace.sinks.stdout.writer import StdoutWriter
from headrace.testing.conformance import INDEX, DocumentSinkConformance, SinkConformance
from headrace.testing.memory_sink import MemorySink
from integration.sinks.opensearch_sink import OpenSearchUnderTest


class Memory:
    def __init__(self) -> None:
        self.writer = MemorySink(
            reject=lambda one: "no such field" if b'"wrong"' in (one.body or b"") else None
        )

    def documents(self) -> dict[str, Any]:
        return self.writer.documents(INDEX)


class Stdout:
    """What a reader of the stream has who applies one line after the other."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.writer = StdoutWriter(self._stream)

    def documents(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for line in self._stream.getvalue().splitlines():
            told = json.loads(line)
            if told["op"] == "delete":
                found.pop(told["id"], None)
            else:
                found[told["id"]] = told["document"]
        return found


class TestMemory(DocumentSinkConformance):
    @pytest.fixture
    def sink(self) -> Memory:
        return Memory()


class TestOpenSearch(DocumentSinkConformance):
    @pytest.fixture
    def sink(self, opensearch: EmbeddedOpenSearch) -> Iterator[OpenSearchUnderTest]:
        one = OpenSearchUnderTest(opensearch.url)
        yield one
        one.close()

    def test_a_document_is_found_under_its_routing(self, sink: OpenSearchUnderTest) -> None:
        sink.writer.write([DocumentOperation(INDEX, "1", 1, b'{"n":1}', "eu")])
        assert sink.routed("1", "eu") == {"n": 1}


class TestStdout(SinkConformance):
    """A stream has no memory: it fences nothing and refuses nothing."""

    @pytest.fixture
    def sink(self) -> Stdout:
        return Stdout()
