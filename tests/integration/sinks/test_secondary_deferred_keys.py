"""What a sink lacks is one entry for each document, and is taken away only as it was."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import Client, Endpoint, GenerationState, MetaIndex, PipelineState
from headrace.sinks.opensearch.secondary_deferred_keys import EVERYTHING, Owed, SecondaryDeferredKeys
from headrace.sinks.opensearch.secondary_sinks import forget_sink
from headrace.sinks.opensearch.system_index import SystemIndex
from support.http_proxy import Answer, HttpProxy, Request
from support.snapshots import Snapshot

PREFIX = "backlog_test_"
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


@pytest.fixture
def backlog(client: Client) -> Iterator[SecondaryDeferredKeys]:
    one = SecondaryDeferredKeys(client, f"s{uuid.uuid4().hex[:8]}/b", PREFIX)
    yield one
    one.forget()


def test_a_document_has_one_entry_with_the_newest_version(
    backlog: SecondaryDeferredKeys, client: Client
) -> None:
    backlog.add("g", [("1",), ("2",), ("a", "b")], 10)
    backlog.add("g", [("1",)], 30)
    backlog.add("g", [("1",), ("2",)], 20)
    backlog.add("h", [EVERYTHING], 5)
    SecondaryDeferredKeys(client, "s/c", PREFIX).add("g", [("1",)], 1)
    assert backlog.oldest(10) == [
        Owed("h", EVERYTHING, 5),
        Owed("g", ("a", "b"), 10),
        Owed("g", ("2",), 20),
        Owed("g", ("1",), 30),
    ]
    assert (backlog.count(), backlog.count(["g"]), backlog.count(["x"])) == (4, 3, 0)
    SecondaryDeferredKeys(client, "s/c", PREFIX).forget()
    assert backlog.count() == 4


def test_what_is_due_again_meanwhile_stays(backlog: SecondaryDeferredKeys) -> None:
    backlog.add("g", [("1",), ("2",)], 10)
    taken = backlog.oldest(10)
    backlog.add("g", [("1",)], 11)
    backlog.done(taken)
    assert backlog.oldest(10) == [Owed("g", ("1",), 11)]
    backlog.done(taken)
    assert backlog.count() == 1


def test_its_loss_is_noticed_also_where_another_index_has_taken_its_place(client: Client) -> None:
    prefix = f"b{uuid.uuid4().hex[:8]}_"
    one, other = SecondaryDeferredKeys(client, "s/b", prefix), SecondaryDeferredKeys(client, "s/c", prefix)
    assert not one.is_lost()
    one.add("g", [("1",)], 10)
    assert not one.is_lost()
    client.call("DELETE", f"/{prefix}headrace_deferred_secondary")
    assert one.is_lost()
    other.add("g", [("1",)], 10)
    one.add("g", [("2",)], 11)
    assert (one.is_lost(), SecondaryDeferredKeys(client, "s/b", prefix).is_lost(), other.is_lost()) == (
        True,
        True,
        False,
    )
    one.renounce()
    assert not one.is_lost()
    client.call("DELETE", f"/{prefix}headrace_deferred_secondary")
    one.renounce()
    assert (one.is_lost(), other.is_lost()) == (False, True)
    one.add("g", [("1",)], 12)
    client.call("DELETE", f"/{prefix}headrace_deferred_secondary")
    assert one.is_lost()
    for each in (one, other):
        each.forget()
        assert not each.is_lost()
    client.call("DELETE", f"/{prefix}headrace_meta")


def test_what_waited_since_a_snapshot_that_is_restored_is_lost(
    opensearch: EmbeddedOpenSearch, client: Client
) -> None:
    prefix = f"b{uuid.uuid4().hex[:8]}_"
    one = SecondaryDeferredKeys(client, "s/b", prefix)
    one.add("g", [("1",)], 10)
    snapshot = Snapshot(opensearch, f"{prefix}headrace_deferred_secondary")
    one.add("g", [("2",)], 11)
    snapshot.close()
    assert not one.is_lost(), "closed is not lost"
    snapshot.restore()
    assert one.is_lost()
    one.add("g", [("3",)], 12)
    assert (one.is_lost(), SecondaryDeferredKeys(client, "s/b", prefix).is_lost()) == (True, True)
    one.renounce()
    assert not one.is_lost()

    known = SystemIndex(client, f"{prefix}headrace_deferred_secondary", {}).identity
    assert known is not None
    client.call("PUT", f"/{prefix}headrace_meta/_doc/s%2Fb.deferred", {"index": known.uuid})
    again = SecondaryDeferredKeys(client, "s/b", prefix)
    again.add("g", [("4",)], 13)
    snapshot.restore_in_place()
    assert again.is_lost(), "a note of an older version is completed"
    for name in ("meta", "deferred_secondary"):
        client.call("DELETE", f"/{prefix}headrace_{name}")


def test_a_sink_that_is_half_forgotten_is_not_taken_for_intact(opensearch: EmbeddedOpenSearch) -> None:
    """A start is killed while it forgets a sink, and the sink comes back: what waited for it may be gone."""
    prefix = f"b{uuid.uuid4().hex[:8]}_"
    cut: list[Request] = []

    def cut_off(request: Request) -> Answer | None:
        if cut or request.target.partition("?")[0].endswith("/_delete_by_query"):
            cut.append(request)
            return Answer(400, b"{}")
        return None

    with HttpProxy(opensearch.url) as front, closing(Client(Endpoint((front.url,)))) as client:
        meta = MetaIndex(client, "s", prefix)
        meta.load()
        meta.save(STATE)
        own = MetaIndex(client, "s/b", prefix)
        known = own.load()
        assert known is not None
        own.save(replace(known, generations=(GenerationState("users", "users_ab_1", "u", "ab", 1),)))
        SecondaryDeferredKeys(client, "s/b", prefix).add("users_ab_1", [("1",)], 10)

        front.spoil = cut_off
        with pytest.raises(HeadraceError):
            forget_sink(client, "s", prefix, "b")
        assert cut
        front.heal()
        again = MetaIndex(client, "s/b", prefix).load()
        assert again is not None
        assert again.generations == (), "what it lacks is not known any more"
        forget_sink(client, "s", prefix, "b")
        assert SecondaryDeferredKeys(client, "s/b", prefix).count() == 0
        for name in ("meta", "deferred_secondary"):
            client.call("DELETE", f"/{prefix}headrace_{name}")


def test_the_mark_says_why_nobody_waits(backlog: SecondaryDeferredKeys) -> None:
    assert backlog.why_away() is None
    backlog.away("it is full")
    assert backlog.why_away() == "it is full"
    backlog.back()
    assert backlog.why_away() is None


def test_an_index_that_the_cluster_refuses_to_make_is_told_of(opensearch: EmbeddedOpenSearch) -> None:
    """Its limit of shards, say: a 400, as where somebody else has just made it."""
    said = b'{"error": {"type": "validation_exception", "reason": "maximum shards open"}}'

    def refuse(request: Request) -> Answer | None:
        return Answer(400, said) if request.method == "PUT" else None

    with HttpProxy(opensearch.url, spoil=refuse) as front, closing(Client(Endpoint((front.url,)))) as client:
        one = SystemIndex(client, f"{PREFIX}refused_{uuid.uuid4().hex[:8]}", {})
        with pytest.raises(HeadraceError, match="maximum shards open") as caught:
            one.make()
        assert caught.value.kind is Kind.SINK_BUSY
        assert sum(request.method == "PUT" for request in front.requests) == 1
        front.heal()
        assert one.make() == one.make()
        client.call("DELETE", f"/{one.name}")
