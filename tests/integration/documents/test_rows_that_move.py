"""A row that an update moves in its file, past a backfill that reads in ranges, is in the sink at the end."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.config.deployment import BackfillConfig
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import until
from headrace.pipeline.backfill import Backfill
from headrace.pipeline.worker.plan import Work
from headrace.sinks.opensearch.documents import document
from headrace.sinks.stdout.relay import Relay
from headrace.sinks.stdout.writer import StdoutWriter
from headrace.spark.session import LocalSpark
from headrace.state import Counters, PositionRequest, Quarantine
from headrace.state.quarantine import Quarantined
from integration.documents.backfilled_database import BackfilledDatabase
from support.http_proxy import HttpProxy, Request

_ROWS = 60_000
_MOVED, _DELETED = _ROWS - 1, 201
TABLES = (
    "CREATE TABLE person (id int PRIMARY KEY, name text, seen int, filler text)",
    "ALTER TABLE person REPLICA IDENTITY FULL",
    f"INSERT INTO person SELECT n, 'p' || n, 0, repeat('x', 100) FROM generate_series(1, {_ROWS}) AS n",
    # Its first pages have room for a row that moves.
    "DELETE FROM person WHERE id BETWEEN 100 AND 300",
    "VACUUM person",
)


class World(BackfilledDatabase):
    """A table of several ranges, which one task reads; a proxy lets its documents through."""

    limits = BackfillConfig(connections=1)

    def __init__(self, url: str, front: HttpProxy, node: str, folder: Path, spark: LocalSpark) -> None:
        super().__init__(url, front, node, folder, spark)
        plan = replace(self.work.plan, quarantine={self.name: "keep"})
        self.work = replace(self.work, plan=plan)
        self.moved = threading.Event()

    def move_a_row(self, request: Request) -> None:
        """Update the last row, whose page is full, once the first range is read: it moves there."""
        if f'"_index":"{self.generation.write_alias}"'.encode() not in request.body or self.moved.is_set():
            return
        self.moved.set()
        self.writer.execute("UPDATE person SET seen = 1 WHERE id = %s", (_MOVED,))
        [(block,)] = self.writer.execute(
            "SELECT (ctid::text::point)[0] FROM person WHERE id = %s", (_MOVED,)
        ).fetchall()
        assert block < 10


@pytest.fixture
def world(
    make_database: Callable[..., str], opensearch: EmbeddedOpenSearch, spark: LocalSpark, tmp_path: Path
) -> Iterator[World]:
    with HttpProxy(opensearch.url) as front:
        one = World(make_database(TABLES), front, opensearch.url, tmp_path, spark)
        yield one
        one.close()


def is_complete(filling: Backfill) -> bool:
    seen = filling.seen()
    assert seen is None or seen.failure is None, seen
    return seen is not None and seen.complete


def test_an_index_is_compared_where_the_stream_is_not_so_far(world: World) -> None:
    world.front.spoil = world.move_a_row
    filling = world.backfill()
    assert until(lambda: is_complete(filling), 120), filling.seen()
    assert world.moved.is_set()
    assert document(world.client, world.name, str(_MOVED)) is not None


def test_a_sink_that_lists_no_ids_waits_for_the_stream(world: World) -> None:
    printed = io.StringIO()
    world.writer.execute("UPDATE person SET seen = 1 WHERE id = 1")
    with Relay(StdoutWriter(printed)) as relay:
        plan = replace(world.work.plan, kind="stdout", quarantine={})
        endpoints = replace(world.work.endpoints, options=relay.options())
        world.work = Work(plan, endpoints)
        filling = world.backfill()
        request = PositionRequest(world.client, world.key)
        assert until(lambda: request.read() > 0, 120), filling.seen()
        assert len(printed.getvalue().splitlines()) == _ROWS - _DELETED
        assert not is_complete(filling)
        world.store.advance(request.read(), Counters(changes=1))
        assert until(lambda: is_complete(filling), 60), filling.seen()


def test_what_was_refused_and_is_gone_or_right_leaves_the_quarantine(world: World) -> None:
    """A row was read, deleted by the stream, and refused when its range was written."""
    filling = world.backfill()
    assert until(lambda: is_complete(filling), 120), filling.seen()
    quarantine = Quarantine(world.client, world.key)
    at = world.position()
    quarantine.put([Quarantined.now(world.name, id_, "refused", at, world.name) for id_ in ("5", "200")])
    world.store.advance(at, Counters(changes=1))
    # Behind an earlier one, whose last ranges may have been written since its last note.
    filling = world.backfill()
    assert until(lambda: is_complete(filling), 120), filling.seen()
    assert quarantine.entries() == []
