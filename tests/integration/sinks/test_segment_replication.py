"""Replicas that copy segments find a document later than a refresh says: the primaries are asked."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import until
from headrace.model.changes import DocumentOperation
from headrace.sinks.opensearch import Client, Endpoint, Generation, Generations, OpenSearchWriter
from headrace.sinks.opensearch.client import path
from headrace.sinks.opensearch.documents import count, ids, read_documents, refresh
from headrace.sinks.opensearch.replicas import await_replicas, replication_type
from headrace.sinks.opensearch.settings import index_warnings
from headrace.state import Counters, DeferredKeys, PipelineState, StateKey, StateStore
from headrace.state.system_index import StateDocument

pytestmark = pytest.mark.long  # a cluster of two nodes of its own
ROUNDS, DOCUMENTS = 25, 200
BODY: dict[str, Any] = {
    "settings": {"index": {"number_of_shards": 2}},
    "mappings": {"properties": {"s": {"type": "text"}}},
}
STATE = PipelineState(
    system_identifier="1",
    timeline=1,
    database_oid=1,
    slot="s",
    publication="p",
    phase="following",
    consistent_point=1,
    applied=1,
)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Of two nodes that copy segments if nobody says otherwise."""
    segments = {"cluster.indices.replication.strategy": "SEGMENT"}
    with (
        EmbeddedOpenSearch(heap="512m", short_lived=True, nodes=2, settings=segments) as nodes,
        contextlib.closing(Client(Endpoint((nodes.url,)))) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def generation(client: Client) -> Generation:
    made = Generations(client, "t_").create("users", "ab", BODY)
    client.call("PUT", path(made.index, "_settings"), {"index": {"number_of_replicas": 1}})
    client.read(f"/_cluster/health/{made.index}?wait_for_status=green&timeout=60s")
    assert replication_type(client, made.index) == "SEGMENT"
    return made


def test_what_is_refreshed_is_found(client: Client, generation: Generation) -> None:
    text = "all work and no play " * 50
    with contextlib.closing(OpenSearchWriter(client, {"users": generation.target})) as writer:
        for number in range(1, ROUNDS + 1):
            known = {f"{number}-{n}" for n in range(DOCUMENTS)}
            body = f'{{"s":"{text}{number}"}}'.encode()
            writer.write([DocumentOperation("users", one, number, body) for one in known])
            assert read_documents(client, generation.index, sorted(known)).keys() == known
            refresh(client, generation.index)
            assert count(client, generation.index) == number * DOCUMENTS
            assert known <= set(ids(client, generation.index))


def test_check_names_an_index_that_copies_segments(client: Client, generation: Generation) -> None:
    [said] = index_warnings(client, generation.index, "the index users")
    assert "segment replication" in said


def test_a_reader_of_replicas_finds_what_was_waited_for(client: Client, generation: Generation) -> None:
    before = count(client, generation.index)
    with contextlib.closing(OpenSearchWriter(client, {"users": generation.target})) as writer:
        for number in range(1, 6):
            body = b'{"s":"%s"}' % (b"never a day " * 500)
            writer.write([DocumentOperation("users", f"w{number}-{n}", 1, body) for n in range(DOCUMENTS)])
            refresh(client, generation.index)
            await_replicas(client, generation.index, 60.0)
            target = path(generation.index, "_count", query={"preference": "_replica"})
            assert client.read(target).json()["count"] == before + number * DOCUMENTS


def test_replicas_that_are_ahead_of_their_primary_are_waited_for_no_longer(client: Client) -> None:
    """Reading a new document by its id lets replicas find it, and the primary only after a refresh.

    Nobody else refreshes an index with `refresh_interval = -1`.
    """
    made = Generations(client, "t_").create("ahead", "ab", {**BODY, "settings": {"index": {}}})
    client.call("PUT", path(made.index, "_settings"), {"index": {"number_of_replicas": 1}})
    client.read(f"/_cluster/health/{made.index}?wait_for_status=green&timeout=60s")
    client.call("PUT", path(made.index, "_doc", "1"), {"s": "a"})
    refresh(client, made.index)
    await_replicas(client, made.index, 30.0)
    client.call("PUT", path(made.index, "_doc", "2"), {"s": "b"})
    assert client.read(path(made.index, "_doc", "2")).json()["found"]

    def found(copy: str) -> int:
        target = path(made.index, "_count", query={"preference": copy})
        return int(client.read(target).json()["count"])

    until(lambda: found("_replica") == 2, 30.0)
    assert found("_primary") == 1
    await_replicas(client, made.index, 10.0)
    assert found("_primary") == found("_replica") == 2


def test_what_headrace_remembers_is_the_same_in_every_copy(client: Client) -> None:
    prefix = f"p{uuid.uuid4().hex[:8]}_"
    kept = StateDocument(client, f"{prefix}headrace_meta", "s", "a state")
    deferred = DeferredKeys(client, StateKey("s", prefix))
    for number in range(1, 21):
        kept.save({"number": number})
        found = StateDocument(client, f"{prefix}headrace_meta", "s", "a state").load()
        assert found is not None
        assert found["number"] == number
        deferred.add("users_1", [[(str(number),)]], number)
        assert deferred.count() == number
        assert len(deferred.oldest(100)) == number
    for one in ("meta", "deferred"):
        assert replication_type(client, f"{prefix}headrace_{one}") == "DOCUMENT"


@pytest.mark.parametrize("how", ["stale", "empty"])
def test_a_copy_that_somebody_forces_to_be_the_primary_has_another_history(client: Client, how: str) -> None:
    """As after the loss of every good copy: what was written since, or everything, is gone."""
    prefix = f"f{uuid.uuid4().hex[:8]}_"
    deferred, running = DeferredKeys(client, StateKey("s", prefix)), StateStore(client, StateKey("s", prefix))
    deferred.add("users_1", [[("1",)]], 1)
    client.read(f"/_cluster/health/{deferred.index}?wait_for_status=green&timeout=60s")
    before = deferred.identity
    assert before is not None
    assert all(before.history)
    running.save(STATE)
    with no_new_copies(client):
        primary, replica = copies(client, deferred.index)
        reroute(client, one("cancel", deferred.index, replica))
        deferred.add("users_1", [[("2",)]], 2)
        running.advance(2, Counters(), deferred=True)
        reroute(
            client,
            one("cancel", deferred.index, primary, allow_primary=True),
            one(f"allocate_{how}_primary", deferred.index, replica, accept_data_loss=True),
        )
        client.read(f"/_cluster/health/{deferred.index}?wait_for_status=yellow&timeout=60s")
        assert deferred.count() == (1 if how == "stale" else 0), "the last chunk is lost"
        assert before.is_another(deferred.identity)
        found = StateStore(client, StateKey("s", prefix)).load()
    assert found is not None
    assert found.ahead is None, "it is in the log still"


@contextlib.contextmanager
def no_new_copies(client: Client) -> Iterator[None]:
    """The cluster does not mend by itself what is taken from it."""

    def allocate(what: str | None) -> None:
        settings = {"transient": {"cluster.routing.allocation.enable": what}}
        client.call("PUT", "/_cluster/settings", settings)

    allocate("none")
    try:
        yield
    finally:
        allocate(None)


def copies(client: Client, index: str) -> tuple[str, str]:
    """The nodes that have the primary and the replica of its only shard."""
    found = client.read(f"/_cat/shards/{index}?format=json&h=prirep,node").json()
    nodes = {one["prirep"]: str(one["node"]) for one in found}
    return nodes["p"], nodes["r"]


def one(command: str, index: str, node: str, **how: bool) -> dict[str, Any]:
    return {command: {"index": index, "shard": 0, "node": node, **how}}


def reroute(client: Client, *commands: dict[str, Any]) -> None:
    client.call("POST", "/_cluster/reroute", {"commands": commands})
