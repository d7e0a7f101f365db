"""A new generation is built beside the one that is read, which stays right until, and behind, the swap."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.postgres.connection import connect, execute
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import GenerationState, StateKey, StateStore
from headrace.state.orders import Mailbox, OrderKind, new_order


@pytest.fixture(scope="module")
def pipeline(deploy: Deploy) -> Iterator[Headrace]:
    with deploy(users=60) as one:
        one.start()
        one.wait_ready()
        yield one


def typed(pipeline: Headrace, *words: str) -> subprocess.CompletedProcess[str]:
    """A command beside the run."""
    arguments = [sys.executable, "-m", "headrace", *words, "--config", str(pipeline.config)]
    return subprocess.run(
        [*arguments, "--slot", pipeline.name], capture_output=True, text=True, timeout=100, check=False
    )


def listed(pipeline: Headrace, index: str) -> dict[str, dict[str, Any]]:
    """What `headrace indexes` says, by state."""
    done = typed(pipeline, "indexes", "--format", "json")
    assert done.returncode == 0, done.stderr
    return {one["state"]: one for one in json.loads(done.stdout) if one["index"] == index}


def generations(pipeline: Headrace, index: str) -> dict[str, GenerationState]:
    """What the state says, by what it says."""
    with closing(Client(Endpoint((pipeline.sink_url,)))) as client:
        state = StateStore(client, StateKey(pipeline.name, pipeline.prefix)).load()
    assert state is not None
    found = {}
    for one in state.of(index):
        name = "building" if one.building else "retained"
        name = "failed" if one.frozen and one.building else name
        found["served" if one.published else name] = one
    return found


def ask(pipeline: Headrace, index: str, what: str) -> None:
    """As the commands do."""
    with closing(Client(Endpoint((pipeline.sink_url,)))) as client:
        Mailbox(client, StateKey(pipeline.name, pipeline.prefix)).submit(new_order(OrderKind(what), index))


class Searching(threading.Thread):
    """Searches an alias again and again, and notes what is missing."""

    def __init__(self, pipeline: Headrace, index: str, expected: int) -> None:
        super().__init__()
        self._target = f"{pipeline.sink_url}/{pipeline.prefix}{index}/_count"
        self._expected = expected
        self._ended = threading.Event()
        self.wrong: list[object] = []
        self.searches = 0

    def run(self) -> None:
        pool = urllib3.PoolManager()
        while not self._ended.wait(0.005):
            answer = pool.request("GET", self._target)
            self.searches += 1
            if answer.status != 200 or answer.json()["count"] != self._expected:
                self.wrong.append(answer.data)

    def end(self) -> None:
        self._ended.set()
        self.join()


class Writing(threading.Thread):
    """Changes rows all the time; never how many documents there are."""

    def __init__(self, pipeline: Headrace) -> None:
        super().__init__()
        self._shop = pipeline.shop
        self._ended = threading.Event()
        self.commits = 0

    def run(self) -> None:
        while not self._ended.wait(0.02):
            self.commits += 1
            self._shop.run(
                f"UPDATE order_items SET quantity = quantity % 9 + 1 WHERE id % 53 = {self.commits % 53}",
                f"UPDATE users SET name = name || '.' WHERE id = {self.commits % 60 + 1}",
            )

    def end(self) -> None:
        self._ended.set()
        self.join()


def reader_of_slot(pipeline: Headrace) -> int:
    """The process that reads the log; another query has another one."""
    with connect(pipeline.shop.url) as connection:
        slot = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1"
        [(pid,)] = execute(connection, slot, (pipeline.name,))
    return int(pid)


@pytest.mark.long
def test_readers_and_writers_notice_nothing_of_a_reindex(pipeline: Headrace) -> None:
    before = listed(pipeline, "users")
    count = len(pipeline.documents("users"))
    reader = reader_of_slot(pipeline)
    ask(pipeline, "orders", "rollback")  # to nothing: what the stream writes stays as it is
    searching, writing = Searching(pipeline, "users", count), Writing(pipeline)
    searching.start()
    writing.start()
    try:
        done = typed(pipeline, "reindex", "users", "--wait", "60")
        assert done.returncode == 0, done.stderr + pipeline.last_output()
        time.sleep(0.5)
    finally:
        searching.end()
        writing.end()
    assert searching.wrong == []
    assert searching.searches > 50
    pipeline.converges()
    after = listed(pipeline, "users")
    assert after["retained"]["generation"] == before["served"]["generation"]
    assert after["served"]["documents"] >= count
    assert set(listed(pipeline, "orders")) == {"served"}
    ask(pipeline, "users", "reindex")
    dropped = f"{pipeline.sink_url}/{before['served']['generation']}"
    pipeline.wait_until(lambda: urllib3.request("HEAD", dropped).status == 404, "did not drop it", 100)
    assert reader_of_slot(pipeline) == reader, "the stream was never ended"
    pipeline.shop.run("UPDATE users SET name = name || ';'")
    pipeline.converges()


@pytest.mark.long
def test_a_rollback_finds_everything_that_was_written_since(pipeline: Headrace) -> None:
    if "retained" not in generations(pipeline, "users"):
        ask(pipeline, "users", "reindex")
        pipeline.wait_until(lambda: "retained" in generations(pipeline, "users"), "did not build it", 100)
    before = generations(pipeline, "users")
    pipeline.shop.run("UPDATE users SET name = name || '!'", "DELETE FROM users WHERE id = 7")
    pipeline.converges()
    done = typed(pipeline, "rollback", "users", "--wait", "30")
    assert done.returncode == 0, done.stderr + pipeline.last_output()
    after = generations(pipeline, "users")
    assert after["served"].generation == before["retained"].generation
    assert after["retained"].generation == before["served"].generation
    pipeline.converges()
    pipeline.shop.run("UPDATE users SET name = name || '?'")
    pipeline.converges()


@pytest.mark.long
@pytest.mark.parametrize("failpoint", ["made", "joined", "range", "filled", "swapped"])
def test_killed_in_a_reindex(pipeline: Headrace, failpoint: str) -> None:
    """At each commit point of a generation, with a writer: the next start goes on, and nothing is wrong."""
    pipeline.terminate()
    before = generations(pipeline, "orders")["served"].generation
    pipeline.start(failpoint=failpoint)
    pipeline.wait_ready()
    ask(pipeline, "orders", "reindex")
    writing = Writing(pipeline)
    writing.start()
    try:
        pipeline.wait_failpoint()
        pipeline.shop.run("DELETE FROM orders WHERE id = (SELECT max(id) FROM orders)")
        pipeline.kill()
        count = len(pipeline.documents("orders"))
        assert count > 0, "readers see a whole generation"
        pipeline.start()
        pipeline.wait_ready()
        pipeline.wait_until(lambda: not building(pipeline, "orders"), "did not build it", 100)
    finally:
        writing.end()
    pipeline.converges()
    after = generations(pipeline, "orders")
    assert after["served"].generation != before
    assert after["retained"].generation == before
    pipeline.shop.run("UPDATE orders SET status = 'paid' WHERE id % 2 = 0")
    pipeline.converges()


def building(pipeline: Headrace, index: str) -> bool:
    found = {one["name"]: one for one in pipeline.status().get("indexes", ())}
    return found.get(index, {}).get("phase") != "live" or found[index]["building"] is not None


@pytest.mark.long
def test_a_changed_file_is_built_behind_the_served_one_and_can_be_put_back(pipeline: Headrace) -> None:
    """The former generation is followed from the schema that it was made for, across starts."""
    schema = pipeline.config.parent / "users.schema.yml"
    declared = schema.read_text()
    pipeline.terminate()
    before = generations(pipeline, "users")["served"].generation
    schema.write_text(declared + "  - constant: version\n    value: 2\n")
    pipeline.start()
    pipeline.wait_ready()
    pipeline.wait_until(lambda: not building(pipeline, "users"), "did not build it", 100)
    assert generations(pipeline, "users")["retained"].generation == before
    pipeline.shop.run("UPDATE users SET name = name || '#'")
    pipeline.terminate()
    schema.write_text(declared)
    pipeline.start()
    pipeline.wait_ready()
    assert generations(pipeline, "users")["served"].generation == before, "it was only kept, not built"
    pipeline.converges()


@pytest.mark.long
def test_a_build_that_fails_leaves_the_old_one_serving(pipeline: Headrace) -> None:
    """The schema's mapping refuses what the rows hold; the old generation goes on, and says why."""
    schema = pipeline.config.parent / "orders.schema.yml"
    declared = schema.read_text()
    pipeline.terminate()
    before = generations(pipeline, "orders")["served"].generation
    wrong = "  - custom: misfit\n    column: status\n    postgres: [varchar]\n    opensearch: date\n"
    schema.write_text(declared + wrong)
    pipeline.start()
    pipeline.wait_until(lambda: "failed" in generations(pipeline, "orders"), "did not fail", 100)
    failed = generations(pipeline, "orders")
    assert failed["served"].generation == before
    assert "refused" in failed["failed"].frozen
    pipeline.shop.run("UPDATE orders SET status = 'paid' WHERE id % 3 = 0")
    schema.write_text(declared)
    pipeline.converges()
    pipeline.wait_ready()
    pipeline.terminate()
    pipeline.start()
    pipeline.wait_ready()
    assert "failed" not in generations(pipeline, "orders")
    pipeline.converges()


@pytest.mark.long
def test_an_index_that_is_added_leaves_the_others_as_they_are(pipeline: Headrace) -> None:
    """And where nothing is to be kept, what is replaced is dropped."""
    declared = pipeline.config.read_text()
    before = {name: generations(pipeline, name)["served"] for name in ("users", "orders", "products")}
    pipeline.terminate()
    added = '[[index]]\nname = "people"\nschema = "users.schema.yml"\n[generations]\nkeep = 0\n'
    pipeline.config.write_text(f"{declared}\n{added}")
    pipeline.start()
    pipeline.wait_ready()
    pipeline.converges()
    assert {name: generations(pipeline, name)["served"] for name in before} == before
    assert pipeline.documents("people") == pipeline.documents("users")
    first = generations(pipeline, "people")["served"]
    ask(pipeline, "people", "reindex")
    pipeline.wait_until(
        lambda: generations(pipeline, "people").get("served", first).generation != first.generation,
        "did not rebuild it",
        100,
    )
    pipeline.shop.run("UPDATE users SET name = name || '+'")
    pipeline.converges()
    assert set(generations(pipeline, "people")) == {"served"}
    target = f"{pipeline.sink_url}/{first.generation}"
    pipeline.wait_until(lambda: urllib3.request("HEAD", target).status == 404, "did not drop it", 60)
    assert pipeline.documents("people") == pipeline.documents("users")
    pipeline.terminate()
    pipeline.config.write_text(declared)
    pipeline.start()
    pipeline.wait_ready()
