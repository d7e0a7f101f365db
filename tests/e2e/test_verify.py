"""Is what `headrace verify` and `headrace wait` say true, beside a run, and when it has ended?"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.cli import main
from headrace.tools.demo.shop import INDEXES
from support.shop_workload import Workload

pytestmark = pytest.mark.long

_SOON = 5.0
"""Seconds: far below the ten after which a quiet server is followed anyway; about one on a calm machine."""
_PAUSE = 0.05
"""Seconds between a writer's transactions: on any machine the pipeline keeps up."""
_AHEAD_OF_EVERY_LOG = 2**61


@dataclass
class Told:
    """What a command has printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    def drift(self) -> dict[str, int]:
        return {kind: self.report[kind]["count"] for kind in ("missing", "extra", "different")}


Type = Callable[..., Told]


@pytest.fixture(scope="module")
def live(deploy: Deploy) -> Iterator[Headrace]:
    """One deployment, with a prefix, for all tests of this file; the last one ends it."""
    with deploy(users=60) as pipeline:
        pipeline.start()
        pipeline.wait_ready()
        yield pipeline


@pytest.fixture
def typed(live: Headrace, capsys: pytest.CaptureFixture[str]) -> Type:
    """`typed("verify", "users")` is that command for this deployment."""

    def run(command: str, *words: str) -> Told:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([command, "--config", str(live.config), "--slot", live.name, *words])
        code = ended.value.code
        return Told(code if isinstance(code, int) else 0, *capsys.readouterr())

    return run


class Hand:
    """Alters an index behind the pipeline's back."""

    def __init__(self, live: Headrace, index: str) -> None:
        self._url = f"{live.sink_url}/{live.prefix}{index}"

    def put(self, key: str, document: object, version: int | None = None) -> None:
        self._ask("PUT", f"/_doc/{key}", document, version)

    def change(self, key: str, **values: object) -> None:
        self._ask("POST", f"/_update/{key}", {"doc": values})

    def delete(self, key: str, version: int | None = None) -> None:
        self._ask("DELETE", f"/_doc/{key}", None, version)

    def ids(self) -> list[str]:
        self._ask("POST", "/_refresh")
        found = urllib3.request("POST", f"{self._url}/_search?size=1000", json={"_source": False}).json()
        return sorted((hit["_id"] for hit in found["hits"]["hits"]), key=int)

    def _ask(self, method: str, path: str, body: object = None, version: int | None = None) -> None:
        fence = "" if version is None else f"?version_type=external_gte&version={version}"
        answer = urllib3.request(method, f"{self._url}{path}{fence}", json=body, timeout=30)
        assert answer.status < 300, answer.data


def verified(typed: Type, index: str, *words: str) -> Told:
    return typed("verify", index, "--format", "json", *words)


def test_wait_returns_when_a_commit_is_in_the_documents(live: Headrace, typed: Type) -> None:
    user = live.shop.id("SELECT min(id) FROM users WHERE deleted_at IS NULL")
    for number in range(3):
        live.shop.run(f"UPDATE users SET name = 'Waited {number}' WHERE id = {user}")
        told = typed("wait", "--searchable")
        assert told.code == 0, told.err
        assert live.documents("users")[str(user)]["name"] == f"Waited {number}"


def test_wait_is_short_where_nothing_happens_that_concerns_documents(live: Headrace, typed: Type) -> None:
    """The log grows, and no batch would come for ten seconds: whoever waits asks for one."""
    live.shop.run("CREATE TABLE IF NOT EXISTS elsewhere (id int)")
    for _ in range(3):
        live.shop.run("INSERT INTO elsewhere VALUES (1)")
        began = time.monotonic()
        told = typed("wait")
        assert told.code == 0, told.err
        assert time.monotonic() - began < _SOON


def test_wait_says_how_far_it_is_when_time_is_up(live: Headrace, typed: Type) -> None:
    told = typed("wait", "--lsn", "FF/0", "--timeout", "0.5")
    assert told.code == 1
    assert "[HEADRACE_BEHIND] FF/0 is not applied after 0.5 s" in told.err
    assert "the server itself stands at" in told.err


def test_wait_for_a_slot_that_the_cluster_does_not_know(live: Headrace, typed: Type) -> None:
    told = typed("wait", "--slot", "somebody_elses")
    assert told.code == 1
    assert "[HEADRACE_SLOT_UNKNOWN]" in told.err
    assert "somebody_elses" in told.err
    assert typed("wait", "--lsn", "16-0").code == 2


def test_the_page_answers_when_it_is_applied(live: Headrace) -> None:
    user = live.shop.id("SELECT min(id) FROM users WHERE deleted_at IS NULL")
    live.shop.run(f"UPDATE users SET name = 'Paged' WHERE id = {user}")
    began = time.monotonic()
    answer = live.ask("/wait?searchable=true&timeout=30")
    assert (answer.status, answer.json()["done"]) == (200, True)
    assert time.monotonic() - began < _SOON
    assert live.documents("users")[str(user)]["name"] == "Paged"
    late = live.ask("/wait?lsn=FF/0&timeout=0.3")
    assert (late.status, late.json()["lsn"], late.json()["done"]) == (504, "FF/0", False)
    assert late.json()["behind_bytes"] > 0
    assert live.ask("/wait?lsn=nowhere").status == 400


@pytest.mark.parametrize("index", INDEXES)
def test_an_index_that_is_right(live: Headrace, typed: Type, index: str) -> None:
    live.converges()
    told = verified(typed, index)
    assert told.code == 0, told.out
    documents = len(live.documents(index))
    assert (told.report["documents"], told.report["ids"]) == (documents, documents)
    assert told.drift() == {"missing": 0, "extra": 0, "different": 0}
    assert told.report["alias"] == f"{live.prefix}{index}"


def test_each_kind_of_drift_is_found_and_repaired(live: Headrace, typed: Type) -> None:
    live.converges()
    live.shop.run("CREATE TABLE log_goes_on (id int)")  # beyond the version that an edit by hand counts up
    hand = Hand(live, "orders")
    lost, lost_too, altered = hand.ids()[:3]
    total = live.documents("orders")[altered]["total"]
    hand.delete(lost)
    hand.delete(lost_too)
    hand.change(altered, total=123456.78)
    for extra in ("999999", "999998", "no%20number", "%C3%BC%3A1%0A"):
        hand.put(extra, {"id": 1})
    told = verified(typed, "orders")
    assert told.code == 1
    assert told.drift() == {"missing": 2, "extra": 4, "different": 1}
    [different] = told.report["different"]["first"]
    assert (different["id"], different["path"], different["found"]) == (altered, "total", "123456.78")
    assert float(different["expected"]) == float(total)
    assert {one["id"] for one in told.report["extra"]["first"]} == {"999999", "999998", "no number", "ü:1\n"}
    assert {one["id"] for one in told.report["missing"]["first"]} == {lost, lost_too}
    again = verified(typed, "orders", "--repair")
    assert (again.code, again.report["repair"]["repaired"]) == (0, 7), again.out
    assert live.differences() == []
    assert "is what the database says" in typed("verify", "orders").err


def test_a_document_that_is_ahead_of_the_log_is_told_and_left_alone(live: Headrace, typed: Type) -> None:
    """Nothing of ours can replace it, nor bring back what was deleted so: no repair may claim that it did."""
    live.converges()
    hand = Hand(live, "products")
    ahead, gone = hand.ids()[:2]
    document = live.documents("products")[ahead]
    hand.put(ahead, {"name": "from the future"}, _AHEAD_OF_EVERY_LOG)
    hand.delete(gone, _AHEAD_OF_EVERY_LOG)
    told = verified(typed, "products", "--repair")
    assert told.code == 1
    assert told.report["different"]["first"][0]["ahead"]
    left = told.report["repair"]["left"]
    assert {one["id"] for one in left["first"]} == {ahead, gone}
    assert all(one["why"].startswith("fenced: ") for one in left["first"])
    shown = typed("verify", "products")
    assert "ahead of the log" in shown.out
    assert told.report["generation"] in shown.err
    assert "need a new generation" in shown.err
    # What is as it should be is no drift, whatever its version.
    hand.put(ahead, _plain(document), _AHEAD_OF_EVERY_LOG)
    assert verified(typed, "products").drift() == {"missing": 1, "extra": 0, "different": 0}


def _plain(document: dict[str, Any]) -> Any:
    return json.loads(json.dumps(document, default=float))


def test_beside_writers_nothing_is_alarmed_and_what_is_wrong_is_found(live: Headrace, typed: Type) -> None:
    enough = threading.Event()
    hand = Hand(live, "users")
    with Workload(live.shop.url, seed=31) as one, Workload(live.shop.url, seed=32) as two:
        threads = [threading.Thread(target=work.run, args=(enough, _PAUSE)) for work in (one, two)]
        for thread in threads:
            thread.start()
        try:
            for index in ("users", "orders"):
                told = verified(typed, index)
                assert told.code == 0, told.out
            hand.put("999999", {"id": 999999})
            told = verified(typed, "users", "--repair")
            assert told.drift() == {"missing": 0, "extra": 1, "different": 0}, told.out
            assert (told.code, told.report["repair"]["repaired"]) == (0, 1), told.out
        finally:
            enough.set()
            for thread in threads:
                thread.join()
        assert one.done["commit"] + two.done["commit"] > 20
    assert typed("wait", "--searchable").code == 0
    assert verified(typed, "users").code == 0


def test_behind_a_run_that_has_ended(live: Headrace, typed: Type) -> None:
    """The last test of this file. What changed since is no drift, and what else is wrong nobody can tell."""
    live.terminate()
    assert verified(typed, "users").code == 0
    user = live.shop.id("SELECT min(id) FROM users WHERE deleted_at IS NULL")
    live.shop.run(f"UPDATE users SET name = 'Behind' WHERE id = {user}")
    late = typed("wait", "--timeout", "0.3")
    assert late.code == 1
    assert f"nobody reads the slot '{live.name}'" in late.err
    told = verified(typed, "users", "--repair")
    assert told.code == 1
    assert told.drift() == {"missing": 0, "extra": 0, "different": 0}
    assert told.report["undecided"]["count"] >= 1
    assert "nobody reads the slot" in told.report["undecided"]["why"]
