"""Generations are made, published, replaced and dropped."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import DocumentOperation
from headrace.sinks.opensearch import Client, Generations, IndexOptions, OpenSearchWriter
from headrace.sinks.opensearch.documents import count, document, ids
from headrace.sinks.opensearch.endpoint import Endpoint
from support.http_proxy import HttpProxy, Request

OPTIONS = IndexOptions(number_of_replicas=2, refresh_interval="7s")
BODY: dict[str, Any] = {"settings": {"index": {}}, "mappings": {"properties": {"n": {"type": "long"}}}}


@pytest.fixture
def generations(client: Client) -> Iterator[Generations]:
    one = Generations(client, f"g{uuid.uuid4().hex[:8]}_")
    yield one
    for name in ("users", "users_old"):
        for generation in one.existing(name):
            one.drop(generation)


def settings(client: Client, index: str) -> dict[str, Any]:
    found = client.read(f"/{index}/_settings").json()[index]["settings"]["index"]
    assert isinstance(found, dict)
    return found


def test_a_generation_is_made_for_backfill_and_finished_for_searching(
    client: Client, generations: Generations
) -> None:
    made = generations.create("users", "ab12", BODY)
    backfill = settings(client, made.index)
    assert (backfill["refresh_interval"], backfill["number_of_replicas"]) == ("-1", "0")
    assert backfill["uuid"] == made.uuid
    OpenSearchWriter(client, {"users": made.target}).write(
        [DocumentOperation("users", str(n), 1, b'{"n":1}') for n in range(25)]
    )
    generations.finish(made, OPTIONS)
    lasting = settings(client, made.index)
    assert (lasting["refresh_interval"], lasting["number_of_replicas"]) == ("7s", "2")
    assert (backfill["gc_deletes"], lasting["gc_deletes"]) == ("24h", "2h")
    generations.publish(made)
    assert count(client, made.index) == 25


def test_a_generation_whose_shards_no_node_takes_is_dropped_with_the_clusters_reason(
    opensearch: EmbeddedOpenSearch, generations: Generations
) -> None:
    """The server waited as long for the shards as the client for the answer, which never came."""
    client = Client(Endpoint((opensearch.url,), timeout=4))
    impatient = Generations(client, generations.alias(""))
    settings = {"index": {"routing.allocation.require._name": "nobody"}}
    with pytest.raises(HeadraceError, match=r"taken its shards: node does not match.*nobody") as caught:
        impatient.create("users", "ab", {**BODY, "settings": settings})
    assert (caught.value.kind, impatient.existing("users")) == (Kind.SINK_BUSY, [])
    client.close()


def test_many_generations_are_looked_at_in_few_requests(
    opensearch: EmbeddedOpenSearch, generations: Generations
) -> None:
    made = [generations.create(name, "ab", BODY) for name in ("users", "users_old")]
    generations.publish(made[0])
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(f"{request.method} {request.target.rpartition('/')[2].partition('?')[0]}")

    with HttpProxy(opensearch.url, spoil=note) as front:
        client = Client(Endpoint((front.url,)))
        counted = Generations(client, generations.alias(""))
        served = {"users": made[0].index, "users_old": made[1].index}
        served |= {f"missing{number}": "m" for number in range(18)}
        found = counted.faults_of_aliases(served)
        assert len(asked) == 3, "once more where one is missing, if the cluster knows what it has"
        client.close()
    assert found.keys() == served.keys() - {"users"}
    assert "leads to nothing" in found["users_old"]


def test_the_next_generation_has_the_next_number_whatever_its_hash(generations: Generations) -> None:
    first = generations.create("users", "ab", BODY)
    second = generations.create("users", "cd", BODY)
    other = generations.create("users_old", "ab", BODY)
    assert (first.number, second.number, other.number) == (1, 2, 1)
    assert generations.existing("users") == [first, second]


def test_an_index_that_somebody_made_keeps_no_generation_from_being_made(
    client: Client, generations: Generations
) -> None:
    taken = f"{generations.alias('users')}_ab_1"
    client.call("PUT", f"/{taken}", {})
    assert generations.create("users", "ab", BODY).number == 2
    client.call("DELETE", f"/{taken}")


def test_what_became_of_generations_is_seen_by_name(client: Client, generations: Generations) -> None:
    many = [generations.create("users", "ab", BODY) for _ in range(3)]
    names = [generation.index for generation in many]
    generations.publish(many[0])
    alias = generations.alias("users")
    client.call("PUT", f"/{alias}_cd_1", {})  # somebody else's
    found = generations.find([*(f"unknown{number}" for number in range(50)), "users"])
    assert [found[generation.index].uuid for generation in many] == [generation.uuid for generation in many]
    assert found[names[0]].aliases == {many[0].target, alias}
    assert found.keys() == set(names)

    client.call("DELETE", f"/{names[0]}")
    client.call("DELETE", f"/{names[1]}")
    client.call("PUT", f"/{names[1]}", {"aliases": {many[1].target: {}}})
    client.call("POST", f"/{names[2]}/_close")
    assert generations.find(["users"]).keys() == {names[2]}, "one that is closed is not lost"
    taken = {"index": names[1], "alias": many[2].target, "is_hidden": True}
    client.call("POST", "/_aliases", {"actions": [{"add": taken}]})
    targets = [generation.target for generation in many]
    found_behind = {alias: set(indexes) for alias, indexes in generations.behind(targets).items()}
    assert found_behind == {many[1].target: {names[1]}, many[2].target: set(names[1:])}
    client.call("DELETE", f"/{alias}_cd_1")


def test_publishing_moves_the_alias_and_nothing_else_stays_behind_it(
    client: Client, generations: Generations
) -> None:
    first, second = generations.create("users", "ab", BODY), generations.create("users", "cd", BODY)
    assert generations.published("users") is None
    generations.publish(first)
    assert generations.published("users") == first
    generations.publish(second)
    generations.publish(second)
    assert generations.published("users") == second
    assert list(client.read(f"/_alias/{generations.alias('users')}").json()) == [second.index]
    generations.drop(first)
    generations.drop(first)
    assert generations.existing("users") == [second]


def test_what_is_written_while_readers_are_led_to_an_index_is_found_there_at_once(
    opensearch: EmbeddedOpenSearch, client: Client, generations: Generations
) -> None:
    """Whoever writes asks for a refresh of the alias, which leads to the index before until then."""
    made = generations.create("users", "ab", BODY)
    writer = OpenSearchWriter(client, {"users": made.target})

    def write(request: Request) -> None:
        if request.target.startswith("/_aliases"):
            writer.write([DocumentOperation("users", "1", 1, b'{"n":1}')])

    with (
        HttpProxy(opensearch.url, spoil=write) as proxy,
        contextlib.closing(Client(Endpoint((proxy.url,)))) as through,
    ):
        Generations(through, generations.alias("")).publish(made)
    assert count(client, generations.alias("users")) == 1


def test_a_name_that_someone_else_holds_is_not_taken(client: Client, generations: Generations) -> None:
    made = generations.create("users", "ab", BODY)
    name = generations.alias("users")
    client.call("PUT", f"/{name}")
    with pytest.raises(HeadraceError, match="is taken by an index") as caught:
        generations.publish(made)
    assert caught.value.kind is Kind.SINK_REJECTED
    client.call("DELETE", f"/{name}")
    client.call("PUT", f"/x_{name}", {"aliases": {name: {}}})
    with pytest.raises(HeadraceError, match=f"alias of the index x_{name}"):
        generations.publish(made)
    client.call("DELETE", f"/x_{name}")


def test_an_index_that_only_looks_like_a_generation_is_left_alone(
    client: Client, generations: Generations
) -> None:
    strange = f"{generations.alias('users')}_ab_7"
    client.call("PUT", f"/{strange}")
    assert generations.existing("users") == []
    client.call("DELETE", f"/{strange}")


def test_a_mapping_that_the_server_refuses_is_told_with_its_reason(generations: Generations) -> None:
    wrong = {"settings": {"index": {}}, "mappings": {"properties": {"n": {"type": "nonsense"}}}}
    with pytest.raises(HeadraceError, match="nonsense") as caught:
        generations.create("users", "ab", wrong)
    assert caught.value.kind is Kind.SINK_REJECTED


def test_every_id_is_enumerated_once(client: Client, generations: Generations) -> None:
    made = generations.create("users", "ab", BODY)
    expected = {str(n) for n in range(2_345)}
    writer = OpenSearchWriter(client, {"users": made.target})
    writer.write(DocumentOperation("users", one, 1, b'{"n":1}') for one in expected)
    assert document(client, made.index, "7") == {"n": 1}
    assert document(client, made.index, "none") is None
    generations.finish(made, OPTIONS)
    found = list(ids(client, made.index, size=100))
    assert len(found) == len(expected)
    assert set(found) == expected
