"""The pipeline's state survives, and two writers never overwrite each other."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import urllib3

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import Counters, DeferredKeys, GenerationState, PipelineState, StateKey, StateStore
from headrace.state.deferred_keys import ALL_KEYS
from integration.sinks.scripted_server import Reply, Request, scripted
from support.http_proxy import Answer, Cut, HttpProxy
from support.http_proxy import Request as Passing
from support.snapshots import Snapshot

STATE = PipelineState(
    system_identifier="7301234567890123456",
    timeline=1,
    database_oid=16384,
    slot="headrace",
    publication="headrace",
    phase="creating",
    consistent_point=16,
    applied=16,
)


@pytest.fixture
def prefix(client: Client) -> Iterator[str]:
    one = f"s{uuid.uuid4().hex[:8]}_"
    yield one
    for index in ("meta", "deferred"):
        client.call("DELETE", f"/{one}headrace_{index}", allow=(404,))


def meta(client: Client, prefix: str) -> StateStore:
    return StateStore(client, StateKey("headrace", prefix))


def test_a_new_pipeline_has_no_state(client: Client, prefix: str) -> None:
    assert meta(client, prefix).load() is None


def test_what_was_saved_is_loaded_by_the_next_process(client: Client, prefix: str) -> None:
    backfilled = replace(
        STATE, phase="following", generations=(GenerationState("users", "users_ab_1", "u", "ab", 17),)
    )
    first = meta(client, prefix)
    first.save(STATE)
    first.save(backfilled)
    assert meta(client, prefix).load() == backfilled


def test_advancing_is_kept_and_never_goes_back(client: Client, prefix: str) -> None:
    one = meta(client, prefix)
    one.save(STATE)
    one.advance(100, Counters(changes=3, batches=1))
    after = one.advance(50, Counters(batches=1))
    assert (after.applied, after.counters) == (100, Counters(changes=3, batches=2))
    assert meta(client, prefix).load() == after


def test_what_was_deferred_and_is_gone_is_still_in_the_log(client: Client, prefix: str) -> None:
    """Somebody deleted the index that only Headrace knows of: the slot stands before it all."""
    deferred, running = DeferredKeys(client, StateKey("headrace", prefix)), meta(client, prefix)
    running.save(STATE)
    deferred.add("users_ab_1", [[("1",)], [("2",)]], 100)
    running.advance(100, Counters(), deferred=True)
    assert meta(client, prefix).load() == replace(STATE, ahead=100, deferred_in=deferred.identity)
    client.call("DELETE", f"/{prefix}headrace_deferred")
    with pytest.raises(HeadraceError, match="headrace_deferred") as caught:
        running.advance(100, Counters())
    assert caught.value.kind is Kind.CONTINUITY
    assert meta(client, prefix).load() == STATE, "the next start begins where the slot stands"


def test_a_state_whose_index_is_closed_is_waited_for(client: Client, prefix: str) -> None:
    """As it is in a restore in place."""
    one = meta(client, prefix)
    one.save(STATE)
    client.call("POST", f"/{prefix}headrace_meta/_close")
    for use in (
        one.load,
        one.check_unchanged,
        lambda: one.advance(100, Counters()),
        meta(client, prefix).load,
    ):
        with pytest.raises(HeadraceError, match="closed") as caught:
            use()
        assert caught.value.kind is Kind.SINK_BUSY
        assert caught.value.remedy.startswith("Open it")
    client.call("POST", f"/{prefix}headrace_meta/_open")
    client.read(f"/_cluster/health/{prefix}headrace_meta?wait_for_status=yellow&timeout=60s")
    assert one.advance(100, Counters()).applied == 100


def test_a_state_that_the_cluster_has_lost_is_not_blamed_on_another_process(
    client: Client, prefix: str
) -> None:
    one = meta(client, prefix)
    one.save(STATE)
    client.call("DELETE", f"/{prefix}headrace_meta")
    for use in (one.check_unchanged, lambda: one.advance(100, Counters())):
        with pytest.raises(HeadraceError, match="is gone from the index") as caught:
            use()
        assert caught.value.kind is Kind.CONTINUITY
    assert meta(client, prefix).load() is None


def test_what_was_deferred_since_a_snapshot_that_is_restored_is_still_in_the_log(
    opensearch: EmbeddedOpenSearch, client: Client, prefix: str
) -> None:
    deferred, running = DeferredKeys(client, StateKey("headrace", prefix)), meta(client, prefix)
    running.save(STATE)
    deferred.add("users_ab_1", [[("1",)]], 90)
    snapshot = Snapshot(opensearch, f"{prefix}headrace_deferred")
    deferred.add("users_ab_1", [[("2",)]], 100)
    running.advance(100, Counters(), deferred=True)
    snapshot.close()
    found = meta(client, prefix).load()
    assert found is not None
    assert found.ahead == 100, "closed is not lost"
    snapshot.restore()
    assert running.advance(110, Counters(), deferred=True).ahead == 110
    [left] = deferred.oldest(10)
    deferred.done([left])
    with pytest.raises(HeadraceError, match="was deleted or restored") as caught:
        running.advance(120, Counters())
    assert caught.value.kind is Kind.CONTINUITY
    assert meta(client, prefix).load() == STATE, "the next start begins where the slot stands"


def test_what_was_not_known_of_the_index_of_what_is_deferred_is_noted_later(
    client: Client, prefix: str
) -> None:
    deferred, running = DeferredKeys(client, StateKey("headrace", prefix)), meta(client, prefix)
    running.save(STATE)
    deferred.add("users_ab_1", [[("1",)]], 100)
    client.call("POST", f"/{prefix}headrace_deferred/_close")
    first = running.advance(100, Counters(), deferred=True).deferred_in
    assert first is not None
    assert not first.is_known
    client.call("POST", f"/{prefix}headrace_deferred/_open")
    client.read(f"/_cluster/health/{prefix}headrace_deferred?wait_for_status=yellow&timeout=60s")
    later = running.advance(110, Counters(), deferred=True).deferred_in
    assert later == deferred.identity
    assert later is not None
    assert later.is_known


def test_what_was_deferred_in_an_index_that_another_pipeline_made_again_is_still_in_the_log(
    client: Client, prefix: str
) -> None:
    deferred, running = DeferredKeys(client, StateKey("headrace", prefix)), meta(client, prefix)
    running.save(STATE)
    deferred.add("users_ab_1", [[("1",)]], 100)
    running.advance(100, Counters(), deferred=True)
    client.call("DELETE", f"/{prefix}headrace_deferred")
    DeferredKeys(client, StateKey("other", prefix)).add("users_ab_1", [[("1",)]], 100)
    with pytest.raises(HeadraceError, match="headrace_deferred"):
        running.advance(100, Counters())
    assert meta(client, prefix).load() == STATE


def test_what_is_deferred_while_a_batch_is_noted_stays_noted(
    opensearch: EmbeddedOpenSearch, client: Client, prefix: str
) -> None:
    """A generation is deferred by another thread than the one that has just counted nothing."""
    key, threads = StateKey("headrace", prefix), []
    deferred = DeferredKeys(client, key)
    deferred.add("users_ab_1", [[("1",)]], 100)
    deferred.done(deferred.oldest(1))

    def renew() -> None:
        deferred.add("users_ab_1", [[ALL_KEYS]], 100)
        running.advance(100, Counters(), deferred=True)

    def overtake(request: Passing) -> Answer | None:
        if "headrace_deferred/_count" not in request.target:
            return None
        threads.append(threading.Thread(target=renew))
        threads[0].start()
        threads[0].join(2.0)
        return Answer(200, b'{"count":0,"_shards":{"total":1,"successful":1,"failed":0}}')

    with HttpProxy(opensearch.url) as front, contextlib.closing(Client(Endpoint((front.url,)))) as behind:
        running = StateStore(behind, key)
        running.save(STATE)
        front.spoil = overtake
        running.advance(100, Counters())
        threads[0].join(30)
    found = meta(client, prefix).load()
    assert found is not None
    assert found.ahead == 100


def test_what_was_deferred_and_is_written_is_applied(client: Client, prefix: str) -> None:
    deferred, running = DeferredKeys(client, StateKey("headrace", prefix)), meta(client, prefix)
    running.save(STATE)
    deferred.add("users_ab_1", [[("1",)]], 100)
    running.advance(100, Counters(), deferred=True)
    deferred.forget()
    assert meta(client, prefix).load() == replace(STATE, ahead=100, deferred_in=deferred.identity)
    assert running.advance(100, Counters()) == replace(STATE, applied=100)


def test_a_second_writer_is_noticed_by_the_first(client: Client, prefix: str) -> None:
    first, second = meta(client, prefix), meta(client, prefix)
    first.save(STATE)
    second.load()
    second.advance(100, Counters())
    with pytest.raises(HeadraceError, match="another process") as caught:
        first.advance(200, Counters())
    assert caught.value.kind is Kind.CONTINUITY
    with pytest.raises(HeadraceError, match="another process"):
        first.save(STATE)
    assert meta(client, prefix).load() == replace(STATE, applied=100)


@pytest.mark.parametrize("by", ["save", "look", "save after a write without an answer"])
def test_an_earlier_state_of_its_own_is_a_restored_cluster(
    opensearch: EmbeddedOpenSearch, client: Client, prefix: str, by: str
) -> None:
    """As a snapshot of the same run leaves it; the state is the only witness, and stays."""
    document = f"/{prefix}headrace_meta/_doc/headrace"
    with HttpProxy(opensearch.url) as front:
        one = StateStore(Client(Endpoint((front.url,))), StateKey("headrace", prefix))
        one.save(STATE)
        one.check_unchanged()
        earlier = client.read(document).json()["_source"]
        one.advance(100, Counters())
        one.check_unchanged()
        client.call("PUT", document, earlier)
        if by.endswith("answer"):
            front.spoil = lambda request: Cut(unheard=True) if request.method == "PUT" else None
            with pytest.raises(HeadraceError):
                one.advance(150, Counters())
            front.heal()
        with pytest.raises(HeadraceError, match="restored from a snapshot") as caught:
            one.check_unchanged() if by == "look" else one.advance(200, Counters())
    assert caught.value.kind is Kind.CONTINUITY
    assert meta(client, prefix).load() == STATE


def test_a_state_that_was_not_read_is_not_overwritten(client: Client, prefix: str) -> None:
    meta(client, prefix).save(STATE)
    with pytest.raises(HeadraceError, match="another process"):
        meta(client, prefix).save(replace(STATE, applied=1))


def test_a_deleted_pipeline_can_be_made_again(client: Client, prefix: str) -> None:
    one = meta(client, prefix)
    one.save(STATE)
    one.delete()
    assert one.load() is None
    one.save(STATE)
    assert one.load() == STATE


def test_a_state_that_is_not_ours_is_told(client: Client, prefix: str) -> None:
    client.call("PUT", f"/{prefix}headrace_meta/_doc/headrace", {"applied": 7})
    with pytest.raises(HeadraceError, match="cannot be read"):
        meta(client, prefix).load()


@pytest.mark.parametrize("applied", [True, False])
def test_a_write_without_an_answer_is_looked_up_before_the_next(
    opensearch: Any, client: Client, prefix: str, applied: bool
) -> None:
    """Whether the lost write was applied or not, the next one succeeds."""
    behind = urllib3.PoolManager()
    cut: list[bool] = []

    def forward(request: Request) -> Reply:
        if not (cut and not applied):
            response = behind.request(
                request.method,
                opensearch.url + request.target,
                body=request.body or None,
                headers={"content-type": "application/json"},
            )
        if cut:
            cut.clear()
            return None
        return response.status, response.data

    with scripted(forward) as front:
        one = StateStore(Client(Endpoint((front.url,))), StateKey("headrace", prefix))
        one.save(STATE)
        cut.append(True)
        with pytest.raises(HeadraceError) as caught:
            one.advance(100, Counters())
        assert caught.value.kind is Kind.SINK_UNREACHABLE
        one.advance(200, Counters())
    found = meta(client, prefix).load()
    assert found is not None
    assert found.applied == 200


def test_a_write_that_comes_late_is_no_other_process(
    opensearch: EmbeddedOpenSearch, client: Client, prefix: str
) -> None:
    """A write without an answer reaches the server after the look for it, and before the next write."""
    lost: list[Passing] = []

    with HttpProxy(opensearch.url) as front:

        def hold(request: Passing) -> Cut | None:
            if request.method != "PUT":
                return None
            if not lost:
                lost.append(request)
                return Cut(unheard=True)
            front.heal()
            assert front.forward(lost[0]).status in (200, 201)
            return None

        one = StateStore(Client(Endpoint((front.url,))), StateKey("headrace", prefix))
        one.save(STATE)
        front.spoil = hold
        with pytest.raises(HeadraceError) as caught:
            one.advance(100, Counters())
        assert caught.value.kind is Kind.SINK_UNREACHABLE
        one.advance(200, Counters())
        one.advance(300, Counters())
    found = meta(client, prefix).load()
    assert found is not None
    assert found.applied == 300
