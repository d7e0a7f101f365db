"""What only OpenSearch does: ids and documents that endanger a request, targets that are gone."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation
from headrace.sinks.opensearch import (
    Client,
    Endpoint,
    Generation,
    Generations,
    OpenSearchWriter,
    WriterOptions,
)
from headrace.sinks.opensearch.documents import documents, refresh
from headrace.state.system_index import SystemIndex

BODY: dict[str, Any] = {
    "settings": {"index": {"gc_deletes": "1h"}},
    "mappings": {"dynamic": "strict", "properties": {"n": {"type": "long"}, "s": {"type": "keyword"}}},
}


@pytest.fixture
def generations(client: Client) -> Generations:
    return Generations(client, f"t{uuid.uuid4().hex[:8]}_")


@pytest.fixture
def users(generations: Generations) -> Iterator[Generation]:
    one = generations.create("users", "ab", BODY)
    yield one
    generations.drop(one)


def upsert(identity: str, body: bytes = b'{"n":1}', version: int = 1) -> DocumentOperation:
    return DocumentOperation("users", identity, version, body)


def held(client: Client, generation: Generation) -> dict[str, Any]:
    refresh(client, generation.index)
    return dict(documents(client, generation.index))


def test_an_id_that_is_none_is_rejected_alone(client: Client, users: Generation) -> None:
    """Flusso's hole 23: an id over 512 bytes ends the process, whatever the policy says."""
    result = OpenSearchWriter(client, {"users": users.target}).write(
        [upsert("a"), upsert("é" * 257), upsert(""), upsert("b")]
    )
    assert [one.reason for one in result.rejected] == [
        "the document id has 514 bytes, OpenSearch takes at most 512",
        "the document id is empty",
    ]
    assert set(held(client, users)) == {"a", "b"}


def test_broken_json_and_wrong_values_are_rejected_alone(client: Client, users: Generation) -> None:
    bodies = [b'{"n":1}', b'{"n":"x"}', b'{"n":', b'{"m":1}', b'{"n":2}', b"[]", b""]
    result = OpenSearchWriter(client, {"users": users.target}).write(
        upsert(str(at), body) for at, body in enumerate(bodies)
    )
    assert held(client, users) == {"0": {"n": 1}, "4": {"n": 2}}
    assert {one.id for one in result.rejected} == {"1", "2", "3", "5", "6"}
    assert result.upserted == 2


def test_line_feeds_between_tokens_are_no_end(client: Client, users: Generation) -> None:
    OpenSearchWriter(client, {"users": users.target}).write([upsert("1", b'{\n"n":\n1}')])
    assert held(client, users) == {"1": {"n": 1}}


def test_a_document_over_max_bytes_goes_alone(client: Client, users: Generation) -> None:
    large = json.dumps({"s": "x" * 8_000}).encode()
    writer = OpenSearchWriter(client, {"users": users.target}, WriterOptions(max_bytes=1_000))
    result = writer.write([upsert("1"), upsert("2", large), upsert("3")])
    assert (result.upserted, result.rejected) == (3, ())


@pytest.mark.parametrize("body", [b'{"n":1}', None])
def test_a_dropped_generation_is_an_error_and_no_new_index(
    client: Client, generations: Generations, users: Generation, body: bytes | None
) -> None:
    """OpenSearch would make the missing index by itself, with guessed types."""
    generations.drop(users)
    with pytest.raises(HeadraceError) as caught:
        OpenSearchWriter(client, {"users": users.target}).write([DocumentOperation("users", "1", 1, body)])
    assert caught.value.kind is Kind.SINK_REJECTED
    assert "users" in caught.value.cause
    assert client.read(f"/{users.target}*").json() == {}


def test_compressed_requests_are_understood(opensearch: Any, users: Generation) -> None:
    client = Client(Endpoint((opensearch.url,), gzip=True))
    assert OpenSearchWriter(client, {"users": users.target}).write([upsert("1")]).upserted == 1
    assert held(client, users) == {"1": {"n": 1}}


def test_a_read_only_index_is_named_and_refuses_no_document(client: Client, users: Generation) -> None:
    client.call("PUT", f"/{users.index}/_settings", {"index.blocks.write": True})
    with pytest.raises(HeadraceError) as caught:
        OpenSearchWriter(client, {"users": users.target}).write([upsert("1")])
    assert (caught.value.kind, caught.value.units) == (Kind.LOCKED, frozenset(["users"]))


def test_a_lost_shard_is_named_and_holds_up_no_other_index(opensearch: Any, users: Generation) -> None:
    """The server waits for a shard for a minute: nobody listened when it said which index has lost one."""
    client = Client(Endpoint((opensearch.url,), timeout=2))
    lost = f"{users.index}_lost"
    unassigned = {"settings": {"index.routing.allocation.require._name": "nobody"}}
    client.call("PUT", f"/{lost}?wait_for_active_shards=0", {**unassigned, "aliases": {f"{lost}.write": {}}})
    writer = OpenSearchWriter(client, {"users": users.target, "lost": f"{lost}.write"})
    with pytest.raises(HeadraceError, match="index lost now: unavailable_shards_exception") as caught:
        writer.write([upsert("1"), DocumentOperation("lost", "1", 1, b"{}")])
    with pytest.raises(HeadraceError, match="does not take an entry: unavailable_shards_exception"):
        SystemIndex(client, lost, {}).write([("index", {"_id": "1"}, {})])
    client.call("DELETE", f"/{lost}")
    assert (caught.value.kind, caught.value.units) == (Kind.LOCKED, frozenset(["lost"]))
    assert held(client, users) == {"1": {"n": 1}}


def test_the_first_node_that_answers_serves(opensearch: Any, users: Generation) -> None:
    client = Client(Endpoint(("http://127.0.0.1:9", opensearch.url)))
    assert client.wait_until_ready(10)
    assert OpenSearchWriter(client, {"users": users.target}).write([upsert("1")]).upserted == 1


def test_what_is_no_documents_fault_rejects_none(client: Client, users: Generation) -> None:
    """A closed index, an alias that leads to two: with `skip` each change meanwhile was passed over."""
    stranger = f"{users.index}_stranger"
    client.call("PUT", f"/{stranger}", {"aliases": {users.target: {"is_hidden": True}}})
    changes = [upsert("a"), DocumentOperation("users", "b", 1, None)]
    with pytest.raises(HeadraceError, match="no write index") as caught:
        OpenSearchWriter(client, {"users": users.target}).write(changes)
    assert caught.value.kind is Kind.LOCKED
    client.call("DELETE", f"/{stranger}")
    client.call("POST", f"/{users.index}/_close")
    with pytest.raises(HeadraceError, match="index_closed_exception") as caught:
        OpenSearchWriter(client, {"users": users.target}).write(changes)
    assert caught.value.kind is Kind.LOCKED
    client.call("POST", f"/{users.index}/_open?wait_for_active_shards=1")
    result = OpenSearchWriter(client, {"users": users.target}).write(changes)
    assert (result.upserted, result.deleted, result.rejected) == (1, 1, ())
