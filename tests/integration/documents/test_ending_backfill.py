"""A backfill that is ended ends soon, whatever it compares and whoever is away."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import until
from headrace.postgres.connection import connect, execute, query
from headrace.spark.session import LocalSpark
from headrace.state import DeferredKeys
from integration.documents.backfilled_database import BackfilledDatabase
from support.http_proxy import Cut, HttpProxy, Request

TABLES = (
    "CREATE TABLE person (id int PRIMARY KEY, name text)",
    "INSERT INTO person SELECT n, 'p' || n FROM generate_series(1, 30) AS n",
)


class World(BackfilledDatabase):
    """A database and its documents, of which one is missing in the index."""

    def __init__(self, url: str, front: HttpProxy, node: str, folder: Path, spark: LocalSpark) -> None:
        super().__init__(url, front, node, folder, spark)
        filled = self.backfill()
        assert until(lambda: (seen := filled.seen()) is not None and seen.complete, 60), filled.seen()
        self.client.call("DELETE", f"/{self.name}/_doc/7")

    def waits_for_a_lock(self) -> bool:
        with connect(self.url) as connection:
            here = "SELECT wait_event_type FROM pg_stat_activity WHERE datname = current_database()"
            return ("Lock",) in query(connection, here)


@pytest.fixture
def world(
    make_database: Callable[..., str], opensearch: EmbeddedOpenSearch, spark: LocalSpark, tmp_path: Path
) -> Iterator[World]:
    with HttpProxy(opensearch.url) as front:
        one = World(make_database(TABLES), front, opensearch.url, tmp_path, spark)
        yield one
        one.close()


def test_it_waits_for_no_cluster_that_is_away(world: World) -> None:
    refused = threading.Event()

    def refuse(request: Request) -> Cut | None:
        if "_bulk" not in request.target or world.name.encode() not in request.body:
            return None
        refused.set()
        return Cut(unheard=True)

    world.front.spoil = refuse
    filling = world.backfill()
    assert refused.wait(30), "it assembles what is missing"
    filling.end()
    assert until(lambda: filling.seen() is None, 20)


def test_it_waits_until_what_is_deferred_is_written(world: World) -> None:
    """Readers who were led there before would see older documents than in the index before."""
    deferred, looks = DeferredKeys(world.client, world.key), threading.Event()
    state = world.store.current
    assert state is not None
    deferred.add(world.name, [[("7",)]], state.reached)
    deferred.add(world.name, [[("8",)]], state.reached + 1)  # of a change that comes only now

    def look(request: Request) -> None:
        if f"{deferred.index}/_count" in request.target:
            looks.set()

    world.front.spoil = look
    ended = world.backfill()
    assert looks.wait(60), ended.seen()
    ended.end()
    assert until(lambda: ended.seen() is None, 20)
    looks.clear()
    filling = world.backfill()
    assert looks.wait(60), filling.seen()
    assert (seen := filling.seen()) is not None
    assert not seen.complete
    deferred.done(deferred.oldest(1))
    assert until(lambda: (seen := filling.seen()) is not None and seen.complete, 60)


def test_a_document_of_another_program_does_not_fail_it(world: World) -> None:
    foreign = {"index": {"_index": world.name, "_id": "no\0row"}}
    world.client.exchange("POST", "/_bulk?refresh=true", f"{json.dumps(foreign)}\n{{}}\n".encode())
    filling = world.backfill()
    assert until(lambda: (seen := filling.seen()) is not None and seen.complete, 60), filling.seen()


def test_it_waits_for_no_statement(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that compares the ids of a large table; here it waits for a lock."""
    monkeypatch.setattr("headrace.pipeline.backfill.BACKFILL_LOCK_SECONDS", 600.0)
    with connect(world.url) as other:

        def lock(request: Request) -> None:
            if f"{world.name}/_refresh" in request.target:  # the ids are compared next
                execute(other, "BEGIN")
                execute(other, "LOCK TABLE person")

        world.front.spoil = lock
        filling = world.backfill()
        assert until(world.waits_for_a_lock, 30)
        filling.end()
        joining = threading.Thread(target=filling.join, daemon=True)
        joining.start()
        joining.join(60)
        assert not joining.is_alive()


def test_it_lists_no_more_ids(world: World) -> None:
    listing, goes_on = threading.Event(), threading.Event()

    def hang(request: Request) -> None:
        if f"{world.name}/_search" in request.target:
            listing.set()
            goes_on.wait(60)

    world.front.spoil = hang
    filling = world.backfill()
    assert listing.wait(30)
    filling.end()
    world.front.requests.clear()
    goes_on.set()
    assert until(lambda: filling.seen() is None, 20)
    further = [request.target for request in world.front.requests if request.method != "DELETE"]
    assert not [target for target in further if "_search" in target or "_bulk" in target], further
