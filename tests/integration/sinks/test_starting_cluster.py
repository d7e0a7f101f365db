"""A cluster that starts does not know yet what it has, nor whom it lets in: neither is taken for "no"."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator

import pytest

from headrace.embedded.jars import OPENSEARCH_3, Release
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind, Retry
from headrace.sinks.opensearch import Client, Endpoint, Generations
from headrace.sinks.opensearch import client as client_module
from headrace.state import DeferredKeys, Quarantine, Quarantined, StateKey
from headrace.state.orders import Mailbox, OrderKind, new_order
from headrace.state.orphans import orphans
from headrace.state.system_index import StateDocument
from support.http_proxy import Answer, HttpProxy, Request
from support.recovering import recovering
from support.releases import ELASTICSEARCH_7, OPENSEARCH_2

REFUSED = (
    b'{"error":{"type":"security_exception","reason":"unable to authenticate with provided credentials"},'
    b'"status":401}'
)
"""What Elasticsearch 8.19 answers until its security index is recovered."""
NO_ROLE = (
    b'{"error":{"type":"security_exception","reason":"action [indices:data/read/get] is unauthorized for user'
    b' [u] with effective roles [] (assigned roles [r] were not found)"},"status":403}'
)
"""What it answers then to a user of a file whose role is in that index."""

AT_ONCE = {"quarantine", "deferred", "oldest"}
"""What rests on requests that a cluster answers with 404 while it recovers."""

RELEASES = [
    OPENSEARCH_3,
    pytest.param(OPENSEARCH_2, marks=pytest.mark.long),
    pytest.param(ELASTICSEARCH_7, marks=pytest.mark.long),
]


@pytest.fixture(params=RELEASES, ids=lambda release: release.main.rpartition(".")[2])
def node(request: pytest.FixtureRequest) -> Iterator[EmbeddedOpenSearch]:
    release: Release = request.param
    with EmbeddedOpenSearch(heap="512m", short_lived=True, release=release) as node:
        yield node


@pytest.mark.long
def test_what_is_stored_is_never_said_to_be_absent_while_the_cluster_recovers(
    node: EmbeddedOpenSearch,
) -> None:
    with contextlib.closing(Client(Endpoint((node.url,), timeout=5), read_attempts=1)) as client:
        client.wait_until_ready()
        key = StateKey("slot", "p_")
        generation = Generations(client, "p_").create(
            "users", "ab", {"settings": {"index": {}}, "mappings": {"properties": {}}}
        )
        Generations(client, "p_").publish(generation)
        Quarantine(client, key).put([Quarantined.now("users", "1", "why", 5, generation.index)])
        DeferredKeys(client, key).add(generation.index, [[("1",)]], 7)
        Mailbox(client, key).submit(new_order(OrderKind.PAUSE))
        StateDocument(client, key.meta_index, "state", "the state").load()
        state = StateDocument(client, key.meta_index, "state", "the state")
        state.load()
        state.save({"a": 1})
        looks: dict[str, Callable[[], object]] = {
            "quarantine": lambda: len(Quarantine(client, key).entries()) == 1,
            "quarantined ids": lambda: bool(Quarantine(client, key).ids()),
            "counts": lambda: Quarantine(client, key).counts() == {"users": 1},
            "deferred": lambda: DeferredKeys(client, key).count() == 1,
            "oldest": lambda: len(DeferredKeys(client, key).oldest(5)) == 1,
            "identity": lambda: DeferredKeys(client, key).identity is not None,
            "state": lambda: StateDocument(client, key.meta_index, "state", "").load() is not None,
            "requests": lambda: len(Mailbox(client, key).read()) == 1,
            "existing": lambda: Generations(client, "p_").existing("users") == [generation],
            "published": lambda: Generations(client, "p_").published("users") == generation,
            "find": lambda: bool(Generations(client, "p_").find(["users"])),
            "all": lambda: len(Generations(client, "p_").all()) == 1,
            "aliases": lambda: Generations(client, "p_").faults_of_aliases({"users": generation.index}) == {},
            "orphans": lambda: len(orphans(client, "p_")) == 1,
        }
        assert {name: look() for name, look in looks.items()} == dict.fromkeys(looks, True)
        node.stop()
        unknown: set[str] = set()
        with recovering(node) as start:
            slow = itertools.cycle(looks.keys() - AT_ONCE)  # the cluster answers these once it knows
            while start.is_alive():
                unknown |= {name for name in [*AT_ONCE, next(slow)] if is_unknown(looks[name])}
        assert unknown >= AT_ONCE
        assert {name: look() for name, look in looks.items()} == dict.fromkeys(looks, True)


def is_unknown(look: Callable[[], object]) -> bool:
    """Look at a cluster that may not be there, or not know what it has; what it says must be right."""
    try:
        assert look()
    except HeadraceError as error:
        if error.retry is Retry.NEVER:
            raise
        return "not recovered" in error.cause
    return False


@pytest.fixture
def front(opensearch: EmbeddedOpenSearch) -> Iterator[HttpProxy]:
    with HttpProxy(opensearch.url) as front:
        yield front


def test_entries_of_a_shard_that_is_not_refreshed_are_not_said_to_be_absent(front: HttpProxy) -> None:
    key = StateKey("slot", f"t{uuid.uuid4().hex[:8]}_")
    with contextlib.closing(Client(Endpoint((front.url,)), read_attempts=1)) as client:
        deferred = DeferredKeys(client, key)
        deferred.add("users_1", [[("1",)]], 7)
        failed = Answer(200, b'{"_shards":{"total":2,"successful":0,"failed":1}}')
        front.spoil = lambda request: failed if request.target.endswith("/_refresh") else None
        with pytest.raises(HeadraceError, match=r"1 shard of the index .* failed to refresh") as caught:
            deferred.count()
        assert caught.value.kind is Kind.SINK_BUSY
        front.heal()
        assert deferred.count() == 1


def ask(client: Client) -> object:
    return client.call("GET", f"/{uuid.uuid4().hex}/_doc/1", allow=(404,)).status


def fails(client: Client) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        ask(client)
    return caught.value


def refuse(status: int, body: bytes, *, health: bool = True) -> Callable[[Request], Answer | None]:
    def spoil(request: Request) -> Answer | None:
        return Answer(status, body) if health or "_cluster/health" not in request.target else None

    return spoil


def test_credentials_that_were_accepted_are_refused_for_a_while(front: HttpProxy) -> None:
    with contextlib.closing(Client(Endpoint((front.url,), "u", "p"))) as client:
        assert ask(client) == 404
        front.spoil = refuse(401, REFUSED)
        error = fails(client)
        assert error.kind is Kind.SINK_BUSY
        assert "unable to authenticate" in error.cause
        front.heal()
        assert ask(client) == 404


def test_credentials_that_were_never_accepted_are_wrong(front: HttpProxy) -> None:
    front.spoil = refuse(401, REFUSED)
    with contextlib.closing(Client(Endpoint((front.url,), "u", "p"))) as client:
        error = fails(client)
    assert error.kind is Kind.AUTHENTICATION
    assert "unable to authenticate" in error.cause


def test_another_process_of_a_run_knows_that_they_were_accepted(front: HttpProxy) -> None:
    front.spoil = refuse(401, REFUSED)
    with contextlib.closing(Client(Endpoint((front.url,), "u", "p"), accepted=True)) as client:
        assert fails(client).kind is Kind.SINK_BUSY


def test_credentials_that_are_refused_for_too_long_are_wrong(
    front: HttpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(Client(Endpoint((front.url,), "u", "p"), accepted=True)) as client:
        front.spoil = refuse(401, REFUSED)
        assert fails(client).kind is Kind.SINK_BUSY
        monkeypatch.setattr(client_module, "_REFUSED_SECONDS", 0.0)
        assert fails(client).kind is Kind.AUTHENTICATION
        front.heal()
        ask(client)
        monkeypatch.undo()
        front.spoil = refuse(401, REFUSED)
        assert fails(client).kind is Kind.SINK_BUSY


def test_a_role_that_the_cluster_does_not_know_yet_is_waited_for(front: HttpProxy) -> None:
    with contextlib.closing(Client(Endpoint((front.url,), "u", "p"), accepted=True)) as client:
        front.spoil = refuse(403, NO_ROLE)
        error = fails(client)
    assert error.kind is Kind.SINK_BUSY
    assert "assigned roles [r] were not found" in error.cause


def test_a_role_that_lacks_one_right_is_not_waited_for(front: HttpProxy) -> None:
    with contextlib.closing(Client(Endpoint((front.url,), "u", "p"), accepted=True)) as client:
        front.spoil = refuse(403, NO_ROLE, health=False)
        assert fails(client).kind is Kind.AUTHENTICATION


def test_a_document_that_is_absent_costs_one_request(
    front: HttpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shard says so: only what the cluster's metadata says is looked at again."""
    monkeypatch.setattr(client_module, "_RESTART_SECONDS", 600.0)
    name = f"t{uuid.uuid4().hex[:8]}"
    with contextlib.closing(Client(Endpoint((front.url,)))) as client:
        client.call("PUT", f"/{name}", {"settings": {"number_of_replicas": 0}})
        front.requests.clear()
        assert client.call("GET", f"/{name}/_doc/1", allow=(404,)).status == 404
        assert len(front.requests) == 1
        client.call("DELETE", f"/{name}")
        front.requests.clear()
        assert client.call("GET", f"/{name}", allow=(404,)).status == 404
        assert len(front.requests) == 3
        assert client.call("GET", f"/{name}", allow=(404,)).status == 404
        assert len(front.requests) == 4
