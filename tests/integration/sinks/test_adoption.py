"""A name that readers know passes to a generation of ours in one step, and back."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import Client, Generation, Generations
from headrace.sinks.opensearch.adoption import AliasHolder, adopt, holders

BODY: dict[str, Any] = {"settings": {"index": {}}, "mappings": {"properties": {"n": {"type": "long"}}}}


@pytest.fixture
def name(client: Client) -> Iterator[str]:
    one = f"n{uuid.uuid4().hex[:8]}"
    yield one
    for holder in (*client.read(f"/{one}*").json(), *client.read(f"/new_{one}*").json()):
        client.call("DELETE", f"/{holder}", allow=(404,))


@pytest.fixture
def ours(client: Client, name: str) -> Generation:
    """What is served beside the old index, under a prefix."""
    generations = Generations(client, f"new_{name}_")
    made = generations.create("users", "ab", BODY)
    generations.publish(made)
    return made


def test_an_alias_of_another_tool_passes_over_and_back(client: Client, name: str, ours: Generation) -> None:
    """The index behind it stays, and its filter is remembered."""
    old, other = f"{name}_flusso_1", f"{name}_flusso_2"
    narrow = {"filter": {"term": {"n": 1}}}
    client.call("PUT", f"/{old}", {"aliases": {name: {}}, "mappings": BODY["mappings"]})
    client.call("PUT", f"/{other}", {"aliases": {name: narrow}, "mappings": BODY["mappings"]})
    back = adopt(client, name, ours.index)
    assert holders(client, name) == [AliasHolder(ours.index)]
    assert client.read(f"/{old}").ok
    assert adopt(client, name, ours.index) == [back[0]], "again changes nothing"
    client.call("POST", "/_aliases", {"actions": back})
    assert holders(client, name) == [AliasHolder(old), AliasHolder(other, narrow)]


def test_an_index_of_that_name_goes_only_where_that_is_said(
    client: Client, name: str, ours: Generation
) -> None:
    """PGSync writes to an index of the name itself."""
    client.call("PUT", f"/{name}", {"mappings": BODY["mappings"]})
    with pytest.raises(HeadraceError, match="is an index, not an alias") as caught:
        adopt(client, name, ours.index)
    assert caught.value.kind is Kind.SINK_REJECTED
    assert "--delete-index" in caught.value.remedy
    assert holders(client, name) == [AliasHolder(name, None)]
    adopt(client, name, ours.index, delete_index=True)
    assert holders(client, name) == [AliasHolder(ours.index)]


def test_a_name_that_is_free_is_taken(client: Client, name: str, ours: Generation) -> None:
    assert adopt(client, name, ours.index) == [{"remove": {"index": f"new_{name}_users_*", "alias": name}}]
    assert holders(client, name) == [AliasHolder(ours.index)]


def test_an_adopted_name_goes_along_to_the_next_generation(
    client: Client, name: str, ours: Generation
) -> None:
    old = f"{name}_flusso_1"
    client.call("PUT", f"/{old}", {"aliases": {name: {}}, "mappings": BODY["mappings"]})
    back = adopt(client, name, ours.index)
    generations = Generations(client, f"new_{name}_")
    later = generations.create("users", "cd", BODY)
    generations.publish(later)
    assert holders(client, name) == [AliasHolder(later.index)]
    assert generations.published("users") == later
    assert client.read(f"/{later.index}/_alias/*.write").ok
    client.call("POST", "/_aliases", {"actions": back})
    assert holders(client, name) == [AliasHolder(old)], "the way back holds for every generation"
