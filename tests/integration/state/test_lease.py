"""Two processes never hold one lease, and a dead one holds none for long."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import Client, Endpoint
from headrace.sinks.opensearch.client import path
from headrace.state import StateKey
from headrace.state.lease import (
    LOST_SECONDS,
    Lease,
    LeaseHolder,
    find_others,
    find_running,
    read_slot_lease,
    slot_lease,
)
from support.http_proxy import Answer, Cut, HttpProxy, Request

ELSEWHERE = replace(LeaseHolder.here("s1"), host="elsewhere", machine="another", pid=17)


@pytest.fixture
def prefix(client: Client) -> Iterator[str]:
    one = f"l{uuid.uuid4().hex[:8]}_"
    yield one
    client.call("DELETE", f"/{one}headrace_meta", allow=(404,))


def lease(client: Client, prefix: str, slot: str = "s1", *, beat: float = 0.1, me: Any = None,
          patience: float = 30.0) -> Lease:  # fmt: skip
    return Lease(client, StateKey(slot, prefix), ["users"], patience=patience, beat=beat, me=me)


def test_a_second_process_is_refused_and_told_who_the_first_is(client: Client, prefix: str) -> None:
    """By its slot, and where that is another by its index."""
    with lease(client, prefix):
        for slot, what in (("s1", "the slot 's1'"), ("s2", f"the index {prefix}users")):
            with pytest.raises(HeadraceError, match=what) as refused, lease(client, prefix, slot):
                pass
            assert refused.value.kind is Kind.SLOT_IN_USE
            assert f"pid {os.getpid()}, since " in refused.value.cause
        assert read_slot_lease(client, StateKey("s1", prefix)).holder is not None
    with lease(client, prefix, "s2"):
        pass
    assert read_slot_lease(client, StateKey("s2", prefix)).holder is None


def test_an_index_that_another_deployment_writes_is_found_before_anything_is_made(
    client: Client, prefix: str
) -> None:
    assert find_others(client, StateKey("s2", prefix), ["users"]) == []
    with lease(client, prefix):
        [error] = find_others(client, StateKey("s2", prefix), ["users", "orders"])
        assert f"the index {prefix}users" in error.cause
        assert "`prefix`" in error.remedy
        assert find_others(client, StateKey("s1", prefix), ["users"]) == [], "its own run"
    assert find_others(client, StateKey("s2", prefix), ["users"]) == []


def test_a_run_is_found_while_it_lives_wherever_it_is(client: Client, prefix: str) -> None:
    """Whether it reads its slot does not matter; one of another machine is known by its renewals."""
    key = StateKey("s1", prefix)
    assert find_running(client, key) is None
    with lease(client, prefix):
        found = find_running(client, key)
        assert found is not None
        assert found.pid == os.getpid()
    assert find_running(client, key) is None
    with lease(client, prefix, me=ELSEWHERE):
        assert find_running(client, key, patience=30.0) == ELSEWHERE
    with lease(client, prefix, beat=60.0, me=ELSEWHERE):
        assert find_running(client, key, patience=0.5) is None, "it died without deleting its lease"


@pytest.mark.parametrize(
    ("address", "holder", "reached"),
    [
        ("127.0.0.1:9464", None, "127.0.0.1:9464"),
        ("0.0.0.0:9464", None, "127.0.0.1:9464"),
        ("[::]:9464", ELSEWHERE, "elsewhere:9464"),
        ("", None, ""),
    ],
)
def test_the_lease_tells_where_the_run_shows_its_status(
    client: Client, prefix: str, address: str, holder: LeaseHolder | None, reached: str
) -> None:
    key = StateKey("s1", prefix)
    with Lease(client, key, [], me=holder, address=address):
        assert read_slot_lease(client, key).address == reached


def test_one_that_is_silent_elsewhere_is_taken_over_after_a_while(client: Client, prefix: str) -> None:
    """And where it was only suspended, it is told when it wakes up."""
    with lease(client, prefix, beat=60.0, me=ELSEWHERE) as silent:
        began = time.monotonic()
        with lease(client, prefix, patience=0.8) as mine:
            assert time.monotonic() - began >= 0.8
            silent.renew()
            lost = silent.lost()
            assert lost is not None
            assert lost.kind is Kind.SLOT_IN_USE
            assert mine.lost() is None


def test_one_that_was_lost_is_held_again_once_it_is_entered_again(client: Client, prefix: str) -> None:
    """A secondary sink takes its lease anew for as long as its run lives."""
    mine = lease(client, prefix)
    for _ in range(2):
        with mine:
            assert mine.lost() is None
            wait_until(lambda: beat(client, prefix) > 1, "it is renewed")
            assert mine.lost() is None
            client.call("DELETE", f"/{prefix}headrace_meta")
            wait_until(lambda: mine.lost() is not None, "it is lost")
            client.call("DELETE", f"/{prefix}headrace_meta", allow=(404,))


def test_one_that_died_on_this_machine_is_taken_over_at_once(client: Client, prefix: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        stat = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()
        me = replace(LeaseHolder.here("s1"), pid=other.pid, born=stat[19])
        assert not me.gone
        with lease(client, prefix, beat=60.0, me=me):
            other.kill()
            other.wait()
            with lease(client, prefix):
                pass  # the dead one's beat would have lasted for a minute


def test_many_leases_are_renewed_in_one_request(opensearch: EmbeddedOpenSearch, prefix: str) -> None:
    many = [f"index{number}" for number in range(30)]
    with HttpProxy(opensearch.url) as front, closing(Client(Endpoint((front.url,)))) as client:
        with Lease(client, StateKey("s1", prefix), many, beat=60.0) as mine:
            mine.renew()
            for _ in range(3):
                front.requests.clear()
                mine.renew()
                assert [one.target for one in front.requests] == [f"/{prefix}headrace_meta/_bulk"]
            assert mine.lost() is None
        assert read_slot_lease(client, StateKey("s1", prefix)).holder is None


def test_more_indexes_are_held_later(client: Client, prefix: str) -> None:
    """One that another process holds is refused, and those that were held stay so."""
    with lease(client, prefix) as mine, Lease(client, StateKey("s2", prefix), ["orders"], beat=0.1):
        mine.hold(["users", "products"])
        with pytest.raises(HeadraceError, match=f"the index {prefix}orders") as refused:
            mine.hold(["orders"])
        assert refused.value.kind is Kind.SLOT_IN_USE
        mine.renew()
        assert mine.lost() is None
        with (
            pytest.raises(HeadraceError, match=f"the index {prefix}products"),
            Lease(client, StateKey("s3", prefix), ["products"], patience=30.0, beat=0.1),
        ):
            pass


def test_a_lease_that_is_released_is_free_at_once_and_can_be_held_again(client: Client, prefix: str) -> None:
    with lease(client, prefix) as mine:
        mine.hold(["users", "products"])
        mine.renew()
        mine.release_others(["users"])
        began = time.monotonic()
        with Lease(client, StateKey("s2", prefix), ["products"], beat=0.1) as other:
            mine.renew()
            assert (mine.lost(), other.lost()) == (None, None)
            with pytest.raises(HeadraceError, match=f"the index {prefix}products"):
                mine.hold(["products"])
        mine.hold(["users", "products"])
        assert time.monotonic() - began < 10.0
        mine.renew()
        assert mine.lost() is None


def test_one_that_stands_by_waits_for_its_slot_alone(client: Client, prefix: str) -> None:
    """Another deployment may have an index now that this one had; without it, this one can be entered."""
    waiting = Lease(client, StateKey("s2", prefix), ["users", "orders"], patience=30.0, beat=0.1)
    with lease(client, prefix):
        assert waiting.slot_holder() is None
        with pytest.raises(HeadraceError, match=f"the index {prefix}users"), waiting:
            pass
        waiting.choose(["orders"])
        for _ in range(2):
            with waiting:
                assert Lease(client, StateKey("s2", prefix), [], beat=0.1).slot_holder() is not None


def test_a_request_that_hangs_costs_no_lease(opensearch: EmbeddedOpenSearch, prefix: str) -> None:
    """Whoever looks on sees the beat change within the time after which a lease counts as lost."""
    ended = threading.Event()

    def hang(request: Request) -> Cut | None:
        if not ended.is_set() and "_bulk" in request.target:
            ended.wait(60.0)
            return Cut(unheard=True)
        return None

    endpoint = Endpoint((opensearch.url,), timeout=60.0)
    with (
        HttpProxy(opensearch.url) as front,
        closing(Client(replace(endpoint, urls=(front.url,)))) as client,
        Lease(client, StateKey("s1", prefix), ["users"], beat=60.0) as mine,
    ):
        mine.renew()
        front.spoil = hang
        began = time.monotonic()
        mine.renew()
        assert time.monotonic() - began < LOST_SECONDS / 2
        ended.set()
        before = beat(client, prefix)
        mine.renew()
        mine.renew()
        assert beat(client, prefix) > before
        assert mine.lost() is None


def test_a_renewal_whose_answer_was_lost_was_our_own(opensearch: EmbeddedOpenSearch, prefix: str) -> None:
    with (
        HttpProxy(opensearch.url) as front,
        closing(Client(Endpoint((front.url,)))) as client,
        Lease(client, StateKey("s1", prefix), ["users"], beat=60.0) as mine,
    ):
        for spoiled in (Cut(), None, Answer(429), None):
            front.spoil = lambda _, spoiled=spoiled: spoiled  # type: ignore[misc]
            mine.renew()
            assert mine.lost() is None
        assert beat(client, prefix) == 4


@pytest.mark.parametrize(
    "body", [b"<html><title>Log in</title></html>", b'{"ok":true}', b"[]", b'{"items":[']
)
def test_a_page_of_a_gateway_in_the_answers_place_ends_no_lease(
    opensearch: EmbeddedOpenSearch, prefix: str, body: bytes
) -> None:
    with (
        HttpProxy(opensearch.url) as front,
        closing(Client(Endpoint((front.url,)))) as client,
        Lease(client, StateKey("s1", prefix), ["users"], beat=60.0) as mine,
    ):
        for _ in range(2):  # one renewal reads first, the next only writes
            mine.renew()
            before = beat(client, prefix)
            front.spoil = lambda _: Answer(200, body)
            mine.renew()
            assert mine.lost() is None
            front.spoil = lambda _: None
            mine.renew()
            assert beat(client, prefix) > before


def test_a_lease_whose_renewal_nobody_understands_is_lost(
    opensearch: EmbeddedOpenSearch, prefix: str
) -> None:
    """Else its thread would end, and the run would go on while another one takes it over."""
    with (
        HttpProxy(opensearch.url) as front,
        closing(Client(Endpoint((front.url,)))) as client,
        Lease(client, StateKey("s1", prefix), ["users"], beat=0.1) as mine,
    ):
        front.spoil = lambda _: Answer(200, b'{"docs":[1],"items":[1]}')
        wait_until(lambda: mine.lost() is not None, "it is lost")
        front.spoil = lambda _: None
        lost = mine.lost()
        assert lost is not None
        assert lost.kind is Kind.INTERNAL


def wait_until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 10.0
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def beat(client: Client, prefix: str) -> int:
    key = StateKey("s1", prefix)
    found: int = client.read(path(key.meta_index, "_doc", slot_lease(key))).json()["_source"]["beat"]
    return found
