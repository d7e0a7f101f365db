"""What every sink that keeps documents does; each sink runs the same tests."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from headrace.model import DocumentOperation
from headrace.sinks.contract import DocumentWriter, WriteResult
from headrace.sinks.opensearch import Client, Endpoint, Generations, OpenSearchWriter, WriterOptions
from headrace.sinks.opensearch.contents import document, documents, refresh
from headrace.testing.memory_sink import MemorySink

INDEX = "users"
BODY = {
    "settings": {"index": {"gc_deletes": "1h"}},
    "mappings": {"dynamic": "strict", "properties": {"n": {"type": "long"}, "s": {"type": "keyword"}}},
}


class Sink(Protocol):
    """A writer and a look at what it wrote."""

    writer: DocumentWriter

    def held(self) -> dict[str, Any]: ...

    def routed(self, identity: str, routing: str) -> Any: ...


class Memory:
    def __init__(self) -> None:
        self.writer = MemorySink(
            reject=lambda one: "no such field" if b'"wrong"' in (one.body or b"") else None
        )

    def held(self) -> dict[str, Any]:
        return self.writer.documents(INDEX)

    def routed(self, identity: str, routing: str) -> Any:
        return self.held().get(identity)


class OpenSearch:
    def __init__(self, url: str) -> None:
        self._client = Client(Endpoint((url,)))
        self._generations = Generations(self._client, f"t{uuid.uuid4().hex[:8]}_")
        self._generation = self._generations.create(INDEX, "ab", BODY)
        options = WriterOptions(max_bytes=100_000)
        self.writer = OpenSearchWriter(self._client, {INDEX: self._generation.target}, options)

    def held(self) -> dict[str, Any]:
        refresh(self._client, self._generation.index)
        return dict(documents(self._client, self._generation.index))

    def routed(self, identity: str, routing: str) -> Any:
        return document(self._client, self._generation.index, identity, routing)

    def close(self) -> None:
        self.writer.close()
        self._generations.drop(self._generation)
        self._client.close()


@pytest.fixture(params=["memory", "opensearch"])
def sink(request: pytest.FixtureRequest) -> Iterator[Sink]:
    if request.param == "memory":
        yield Memory()
        return
    one = OpenSearch(request.getfixturevalue("opensearch").url)
    yield one
    one.close()


def upsert(identity: str, version: int, routing: str | None = None, **content: Any) -> DocumentOperation:
    return DocumentOperation(INDEX, identity, version, json.dumps(content).encode(), routing)


def delete(identity: str, version: int) -> DocumentOperation:
    return DocumentOperation(INDEX, identity, version, None)


def counts(result: WriteResult) -> tuple[int, int, int, int]:
    return result.upserted, result.deleted, result.fenced, len(result.rejected)


def test_nothing_in_nothing_out(sink: Sink) -> None:
    assert sink.writer.write([]) == WriteResult()
    assert sink.held() == {}


def test_an_older_version_is_fenced_and_counts_as_done(sink: Sink) -> None:
    sink.writer.write([upsert("1", 20, n=2)])
    assert counts(sink.writer.write([upsert("1", 10, n=1)])) == (0, 0, 1, 0)
    assert sink.held() == {"1": {"n": 2}}


def test_the_same_version_again_is_written_again(sink: Sink) -> None:
    sink.writer.write([upsert("1", 20, n=2)])
    assert counts(sink.writer.write([upsert("1", 20, n=2)])) == (1, 0, 0, 0)


def test_an_older_upsert_does_not_bring_a_deleted_document_back(sink: Sink) -> None:
    sink.writer.write([upsert("1", 10, n=1)])
    assert counts(sink.writer.write([delete("1", 30)])) == (0, 1, 0, 0)
    assert counts(sink.writer.write([upsert("1", 20, n=2)])) == (0, 0, 1, 0)
    assert sink.held() == {}


def test_deleting_what_never_was_succeeds_and_fences(sink: Sink) -> None:
    assert counts(sink.writer.write([delete("9", 30)])) == (0, 1, 0, 0)
    assert counts(sink.writer.write([upsert("9", 20, n=2)])) == (0, 0, 1, 0)


def test_a_newer_upsert_comes_back_after_a_delete(sink: Sink) -> None:
    sink.writer.write([delete("1", 30)])
    sink.writer.write([upsert("1", 31, n=3)])
    assert sink.held() == {"1": {"n": 3}}


def test_operations_on_one_id_in_one_write_end_at_the_newest(sink: Sink) -> None:
    sink.writer.write([upsert("1", 1, n=1), delete("1", 2), upsert("1", 3, n=3)])
    assert sink.held() == {"1": {"n": 3}}


def test_a_rejected_document_never_fails_its_neighbours(sink: Sink) -> None:
    result = sink.writer.write(
        [upsert("1", 1, n=1), upsert("2", 1, wrong=1), upsert("", 1, n=3), upsert("4", 1, n=4)]
    )
    assert counts(result) == (2, 0, 0, 2)
    assert {one.id: bool(one.reason) for one in result.rejected} == {"2": True, "": True}
    assert sink.held() == {"1": {"n": 1}, "4": {"n": 4}}


def test_a_long_run_is_written_whole(sink: Sink) -> None:
    operations = (upsert(str(n), 1, n=n, s="x" * 200) for n in range(5_000))
    assert counts(sink.writer.write(operations)) == (5_000, 0, 0, 0)
    held = sink.held()
    assert len(held) == 5_000
    assert held["4711"] == {"n": 4711, "s": "x" * 200}


def test_odd_ids_and_texts_survive(sink: Sink) -> None:
    ids = [
        "ä",
        "日本語",
        "😀",
        'a"b',
        "a\\b",
        "a/b?c#d%20",
        " ",
        "a\nb",
        "\x01",
        "_x",
        "é" * 256,
        "-1",
        "a:b",
    ]
    result = sink.writer.write(upsert(one, 1, s=one) for one in ids)
    assert result.rejected == ()
    assert sink.held() == {one: {"s": one} for one in ids}


def test_the_highest_version_fits(sink: Sink) -> None:
    assert counts(sink.writer.write([upsert("1", 2**63 - 1, n=1)])) == (1, 0, 0, 0)


def test_a_document_is_found_under_its_routing(sink: Sink) -> None:
    sink.writer.write([upsert("1", 1, routing="eu", n=1)])
    assert sink.routed("1", "eu") == {"n": 1}
