"""A name that readers know passes to a generation of ours in one step, and back."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import Client, Generation, Generations
from headrace.sinks.opensearch.adoption import AliasHolder, holders
from headrace.sinks.opensearch.adoption import adopt as adopt_index
from headrace.sinks.opensearch.client import Answer

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


def adopt(client: Client, name: str, *, delete_index: bool = False) -> list[dict[str, Any]]:
    """What undoes it."""
    generations = Generations(client, f"new_{name}_")
    return adopt_index(client, generations, "users", name, delete_index=delete_index)[1]


def test_an_alias_of_another_tool_passes_over_and_back(client: Client, name: str, ours: Generation) -> None:
    """The index behind it stays, and its filter is remembered."""
    old, other = f"{name}_flusso_1", f"{name}_flusso_2"
    narrow = {"filter": {"term": {"n": 1}}}
    client.call("PUT", f"/{old}", {"aliases": {name: {}}, "mappings": BODY["mappings"]})
    client.call("PUT", f"/{other}", {"aliases": {name: narrow}, "mappings": BODY["mappings"]})
    back = adopt(client, name)
    assert holders(client, name) == [AliasHolder(ours.index)]
    assert client.read(f"/{old}").ok
    assert adopt(client, name) == [back[0]], "again changes nothing"
    client.call("POST", "/_aliases", {"actions": back})
    assert holders(client, name) == [AliasHolder(old), AliasHolder(other, narrow)]


def test_an_index_of_that_name_goes_only_where_that_is_said(
    client: Client, name: str, ours: Generation
) -> None:
    """PGSync writes to an index of the name itself."""
    client.call("PUT", f"/{name}", {"mappings": BODY["mappings"]})
    with pytest.raises(HeadraceError, match="is an index, not an alias") as caught:
        adopt(client, name)
    assert caught.value.kind is Kind.SINK_REJECTED
    assert "--delete-index" in caught.value.remedy
    assert holders(client, name) == [AliasHolder(name, None)]
    adopt(client, name, delete_index=True)
    assert holders(client, name) == [AliasHolder(ours.index)]


def test_a_name_that_is_free_is_taken(client: Client, name: str, ours: Generation) -> None:
    assert adopt(client, name) == [{"remove": {"index": f"new_{name}_users_*", "alias": name}}]
    assert holders(client, name) == [AliasHolder(ours.index)]


def test_an_adopted_name_goes_along_to_the_next_generation(
    client: Client, name: str, ours: Generation
) -> None:
    old = f"{name}_flusso_1"
    client.call("PUT", f"/{old}", {"aliases": {name: {}}, "mappings": BODY["mappings"]})
    back = adopt(client, name)
    generations = Generations(client, f"new_{name}_")
    later = generations.create("users", "cd", BODY)
    generations.publish(later)
    assert holders(client, name) == [AliasHolder(later.index)]
    assert generations.published("users") == later
    assert client.read(f"/{later.index}/_alias/*.write").ok
    client.call("POST", "/_aliases", {"actions": back})
    assert holders(client, name) == [AliasHolder(old)], "the way back holds for every generation"


class _BesideARun(Client):
    """A client whose next change of aliases meets a run that publishes just before."""

    publishes: Callable[[], None] | None = None

    def call(self, method: str, target: str, body: object = None, *, allow: Iterable[int] = ()) -> Answer:
        if target == "/_aliases" and (publish := self.publishes) is not None:
            self.publishes = None
            publish()
        return super().call(method, target, body, allow=allow)


def test_a_name_leads_to_the_generation_that_a_run_publishes_meanwhile(
    client: Client, name: str, ours: Generation
) -> None:
    """The generation before is dropped in time, and a name that leads to it goes with it."""
    old = f"{name}_flusso_1"
    client.call("PUT", f"/{old}", {"aliases": {name: {}}, "mappings": BODY["mappings"]})
    generations = Generations(client, f"new_{name}_")
    later = generations.create("users", "cd", BODY)
    with contextlib.closing(_BesideARun(client.endpoint)) as beside:
        beside.publishes = lambda: generations.publish(later)
        led, back = adopt_index(beside, generations, "users", name)
    assert led == later.index != ours.index
    assert holders(client, name) == [AliasHolder(later.index)]
    client.call("POST", "/_aliases", {"actions": back})
    assert holders(client, name) == [AliasHolder(old)]
