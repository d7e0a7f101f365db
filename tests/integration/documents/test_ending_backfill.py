"""A backfill that is ended ends soon, whatever it compares and whoever is away."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.config.deployment import BackfillConfig
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import until
from headrace.pipeline.backfill import Backfill
from headrace.pipeline.worker.plan import Endpoints, Work
from headrace.postgres.connection import connect, execute, query
from headrace.sinks.opensearch import Endpoint
from headrace.spark.jobs import JobGate
from headrace.spark.session import LocalSpark, local_spark
from headrace.state import GenerationState, PipelineState, StateKey, StateStore
from headrace.status.board import StatusBoard
from integration.documents.indexed_database import IndexedDatabase
from support.http_proxy import Cut, HttpProxy, Request

SCHEMA = """
version: 1
table: person
primary_key: id
fields:
  - keyword: name
"""
TABLES = (
    "CREATE TABLE person (id int PRIMARY KEY, name text)",
    "INSERT INTO person SELECT n, 'p' || n FROM generate_series(1, 30) AS n",
)


class World(IndexedDatabase):
    """A database and its documents, of which one is missing in the index."""

    def __init__(self, url: str, front: HttpProxy, node: str, folder: Path, spark: LocalSpark) -> None:
        super().__init__(url, node, folder, SCHEMA)
        self.front = front
        self.spark = spark
        made = self.new_generation()
        self.name = made.index
        self.spec = replace(self.spec, name=made.index)
        key = StateKey(f"s{uuid.uuid4().hex[:8]}", "test_ending_")
        self.work = Work(self.plan_of(made, key=key), Endpoints(url, Endpoint((front.url,))))
        position = self.position()
        self.generation = GenerationState("people", made.index, "1", "aa", joined=position)
        state = PipelineState("7", 1, 5, "s", "p", "following", position, position, (self.generation,))
        self.store = StateStore(self.client, key)
        self.store.load()
        self.store.save(state)
        filled = self.backfill()
        assert until(lambda: (seen := filled.seen()) is not None and seen.complete, 60), filled.seen()
        self.client.call("DELETE", f"/{made.index}/_doc/7")

    def waits_for_a_lock(self) -> bool:
        with connect(self.url) as connection:
            here = "SELECT wait_event_type FROM pg_stat_activity WHERE datname = current_database()"
            return ("Lock",) in query(connection, here)

    def backfill(self) -> Backfill:
        """Fill the index, behind what an earlier one has filled: then only the ids are compared."""
        filling = Backfill(
            self.generation,
            self.spark,
            self.work,
            self.store,
            StatusBoard(),
            snapshot=None,
            limits=BackfillConfig(),
            job_gate=JobGate(),
        )
        filling.start()
        return filling


@pytest.fixture(scope="module")
def spark() -> Iterator[LocalSpark]:
    with local_spark(master="local[2]") as one:
        yield one


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
