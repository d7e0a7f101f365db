"""`indexes`, `reindex` and `rollback` where nothing runs."""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from dataclasses import replace

import pytest

from headrace.pipeline.source_of_run import new_state
from headrace.postgres.connection import connect, execute
from headrace.postgres.server import inspect_server
from headrace.postgres.slot import create_slot
from headrace.sinks.opensearch import Client, Endpoint, Generations
from headrace.state import GenerationState, Mailbox, OrderKind, StateKey, StateStore
from headrace.state.lease import Lease
from integration.cli.command_line import Deployment


def left_by_a_run(deployment: Deployment) -> list[GenerationState]:
    """One that is served, one that is built, one that was deleted in the cluster."""
    with create_slot(deployment.url, deployment.name) as slot, connect(deployment.url) as connection:
        server = inspect_server(connection)
    with closing(Client(Endpoint((deployment.sink,)))) as client:
        found = []
        for hash_ in ("aa", "bb", "cc"):
            made = Generations(client).create(
                deployment.name, hash_, {"settings": {"index": {}}, "mappings": {}}
            )
            found.append(GenerationState(deployment.name, made.index, made.uuid, hash_))
        served, building, deleted = found
        generations = [
            replace(served, backfilled_at=1, published=True),
            building,
            replace(deleted, backfilled_at=1, frozen="a column was dropped"),
        ]
        client.call("DELETE", f"/{deleted.generation}")
        state = replace(
            new_state(server, deployment.name, deployment.name),
            phase="following",
            consistent_point=slot.consistent_point,
            applied=slot.consistent_point,
            generations=tuple(generations),
        )
        StateStore(client, StateKey(deployment.name, "")).save(state)
    return generations


@pytest.mark.long
def test_generations_are_listed_and_orders_wait_for_a_run(whole: Deployment) -> None:
    assert "has no state of the slot" in whole.type("indexes").refused(1, "SLOT_UNKNOWN")
    assert whole.type("setup", "--yes").code == 0
    made = left_by_a_run(whole)

    told = whole.type("indexes", "--format", "json")
    rows = {one["generation"]: one for one in json.loads(told.out)}
    assert [rows[one.generation]["state"] for one in made] == ["served", "building", "gone"]
    assert [rows[one.generation]["documents"] for one in made] == [0, 0, None]
    assert rows[made[2].generation]["reason"] == "a column was dropped"

    with closing(Client(Endpoint((whole.sink,)))) as client:
        body = {"settings": {"index": {}}, "mappings": {"properties": {"rows": {"type": "nested"}}}}
        orphan = Generations(client).create(whole.name, "dd", body)
        document = {"rows": [{"n": number} for number in range(5)]}
        for index in (orphan.index, made[0].generation):
            client.call("PUT", f"/{index}/_mapping", body["mappings"])
            client.call("PUT", f"/{index}/_doc/1?refresh=true", document)
        rows = {one["generation"]: one for one in json.loads(whole.type("indexes", "--format", "json").out)}
        assert rows[made[0].generation]["documents"] == 1, "nested rows are no documents"
        assert (rows[orphan.index]["state"], rows[orphan.index]["documents"]) == ("orphaned", 1)
        assert f"DELETE /{orphan.index}" in " ".join(whole.type("indexes").err.split())
        Generations(client).drop(orphan)

    refused = whole.type("rollback", whole.name).refused(2, "USAGE")
    assert "is stopped: a column was dropped" in refused
    assert "no enabled index" in whole.type("reindex", "nothing").refused(2, "USAGE")
    asked = whole.type("reindex", whole.name)
    assert (asked.code, "no run is active" in asked.err) == (0, True)
    human = whole.type("indexes")
    assert human.out.splitlines()[0].split() == [
        "index",
        "generation",
        "state",
        "documents",
        "size",
        "age",
        "hash",
    ]
    assert "reindex was ordered" in human.err
    assert whole.type("reindex", whole.name, "--wait", "0.1").refused(1, "BEHIND")
    with closing(Client(Endpoint((whole.sink,)))) as client:
        [order] = Mailbox(client, StateKey(whole.name, "")).open_orders()
        assert order.kind is OrderKind.REINDEX
    assert whole.type("teardown", "--indexes", "--yes").code == 0
    assert whole.left_in_cluster() == []


def test_a_run_that_does_not_read_its_slot_at_the_moment_is_heard(whole: Deployment) -> None:
    """As one that waits for something, or begins its query anew: it holds its lease meanwhile."""
    assert whole.type("setup", "--yes").code == 0
    left_by_a_run(whole)
    nobody = whole.type("reload", "--wait", "1")
    assert (nobody.code, "no run is active" in nobody.err) == (0, True)
    with (
        closing(Client(Endpoint((whole.sink,)))) as client,
        Lease(client, StateKey(whole.name, ""), [whole.name]),
    ):
        asked = whole.type("reindex", whole.name)
        assert (asked.code, "no run is active" in asked.err) == (0, False)
        late = whole.type("reload", "--wait", "1").refused(1, "BEHIND")
        assert f"the run (host {socket.gethostname()}, pid {os.getpid()}, since " in late
        with connect(whole.url) as connection:
            execute(connection, "INSERT INTO people VALUES (1, 'Ann')")
        behind = whole.type("wait", "--timeout", "0.2").refused(1, "BEHIND")
        assert "does not read the slot" in behind
    assert whole.type("teardown", "--indexes", "--yes").code == 0
