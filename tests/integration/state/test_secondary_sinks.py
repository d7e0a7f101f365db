"""What a sink lacks is one entry for each document, and is taken away only as it was."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import Key
from headrace.model.lsn import Lsn
from headrace.sinks.opensearch import Client, Endpoint
from headrace.state import PipelineState, StateKey
from headrace.state.deferred_keys import ALL_KEYS
from headrace.state.sink_notes import SecondarySinkNotes
from headrace.state.system_index import SystemIndex
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
def notes(client: Client) -> Iterator[SecondarySinkNotes]:
    one = SecondarySinkNotes(client, StateKey(f"s{uuid.uuid4().hex[:8]}", PREFIX, "b"))
    yield one
    one.forget()


def stored(notes: SecondarySinkNotes) -> list[tuple[str, tuple[Key, ...], Lsn]]:
    return [(batch.generation, batch.keys, batch.version) for batch in notes.deferred.oldest(10)]


def test_a_document_has_one_entry_with_the_newest_version(notes: SecondarySinkNotes, client: Client) -> None:
    notes.deferred.add("g", [[("1",)], [("2",)], [("a", "b")]], 10)
    notes.deferred.add("g", [[("1",)]], 30)
    notes.deferred.add("g", [[("1",)], [("2",)]], 20)
    notes.deferred.add("h", [[ALL_KEYS]], 5)
    SecondarySinkNotes(client, StateKey("s", PREFIX, "c")).deferred.add("g", [[("1",)]], 1)
    assert stored(notes) == [
        ("h", (ALL_KEYS,), 5),
        ("g", (("a", "b"),), 10),
        ("g", (("2",),), 20),
        ("g", (("1",),), 30),
    ]
    counted = notes.deferred
    assert (counted.count(), counted.count(["g"]), counted.count(["x"])) == (4, 3, 0)
    SecondarySinkNotes(client, StateKey("s", PREFIX, "c")).forget()
    assert notes.deferred.count() == 4


def test_what_is_due_again_meanwhile_stays(notes: SecondarySinkNotes) -> None:
    notes.deferred.add("g", [[("1",)], [("2",)]], 10)
    taken = notes.deferred.oldest(10)
    notes.deferred.add("g", [[("1",)]], 11)
    notes.deferred.done(taken)
    assert stored(notes) == [("g", (("1",),), 11)]
    notes.deferred.done(taken)
    assert notes.deferred.count() == 1


def test_what_is_done_makes_no_index_in_the_place_of_a_deleted_one(client: Client) -> None:
    """It would have no mapping, so that nothing could be sorted by its version any more."""
    one = SecondarySinkNotes(client, StateKey("s", f"b{uuid.uuid4().hex[:8]}_", "b"))
    one.deferred.add("g", [[("1",)]], 10)
    taken = one.deferred.oldest(10)
    client.call("DELETE", f"/{one.deferred.index}")
    one.deferred.done(taken)
    assert one.deferred.identity is None
    one.forget()


def test_its_loss_is_noticed_also_where_another_index_has_taken_its_place(client: Client) -> None:
    prefix = f"b{uuid.uuid4().hex[:8]}_"
    one, other = (
        SecondarySinkNotes(client, StateKey("s", prefix, "b")),
        SecondarySinkNotes(client, StateKey("s", prefix, "c")),
    )
    assert not one.has_lost_keys()
    one.deferred.add("g", [[("1",)]], 10)
    assert not one.has_lost_keys()
    client.call("DELETE", f"/{prefix}headrace_deferred_secondary")
    assert one.has_lost_keys()
    other.deferred.add("g", [[("1",)]], 10)
    one.deferred.add("g", [[("2",)]], 11)
    assert (
        one.has_lost_keys(),
        SecondarySinkNotes(client, StateKey("s", prefix, "b")).has_lost_keys(),
        other.has_lost_keys(),
    ) == (True, True, False)
    client.call("DELETE", f"/{prefix}headrace_deferred_secondary")
    one.deferred.add("g", [[("1",)]], 12)
    client.call("DELETE", f"/{prefix}headrace_deferred_secondary")
    assert one.has_lost_keys()
    for each in (one, other):
        each.forget()
        assert not each.has_lost_keys()
    client.call("DELETE", f"/{prefix}headrace_meta")


def test_what_waited_since_a_snapshot_that_is_restored_is_lost(
    opensearch: EmbeddedOpenSearch, client: Client
) -> None:
    prefix = f"b{uuid.uuid4().hex[:8]}_"
    one = SecondarySinkNotes(client, StateKey("s", prefix, "b"))
    one.deferred.add("g", [[("1",)]], 10)
    snapshot = Snapshot(opensearch, f"{prefix}headrace_deferred_secondary")
    one.deferred.add("g", [[("2",)]], 11)
    snapshot.close()
    assert not one.has_lost_keys(), "closed is not lost"
    snapshot.restore()
    assert one.has_lost_keys()
    one.deferred.add("g", [[("3",)]], 12)
    assert (one.has_lost_keys(), SecondarySinkNotes(client, StateKey("s", prefix, "b")).has_lost_keys()) == (
        True,
        True,
    )

    known = SystemIndex(client, f"{prefix}headrace_deferred_secondary", {}).identity
    assert known is not None
    client.call("PUT", f"/{prefix}headrace_meta/_doc/s%2Fb.deferred", {"index": known.uuid})
    again = SecondarySinkNotes(client, StateKey("s", prefix, "b"))
    again.deferred.add("g", [[("4",)]], 13)
    snapshot.restore_in_place()
    assert again.has_lost_keys(), "a note of an older version is completed"
    for name in ("meta", "deferred_secondary"):
        client.call("DELETE", f"/{prefix}headrace_{name}")


def test_the_mark_says_why_nobody_waits(notes: SecondarySinkNotes) -> None:
    assert notes.why_away() is None
    notes.note_away("it is full")
    assert notes.why_away() == "it is full"
    notes.note_available()
    assert notes.why_away() is None


def test_an_index_that_the_cluster_refuses_to_make_is_told_of(opensearch: EmbeddedOpenSearch) -> None:
    """Its limit of shards, say: a 400, as where somebody else has just made it."""
    said = b'{"error": {"type": "validation_exception", "reason": "maximum shards open"}}'

    def refuse(request: Request) -> Answer | None:
        return Answer(400, said) if request.method == "PUT" else None

    with HttpProxy(opensearch.url, spoil=refuse) as front, closing(Client(Endpoint((front.url,)))) as client:
        one = SystemIndex(client, f"{PREFIX}refused_{uuid.uuid4().hex[:8]}", {})
        with pytest.raises(HeadraceError, match="maximum shards open") as caught:
            one.ensure()
        assert caught.value.kind is Kind.SINK_BUSY
        assert sum(request.method == "PUT" for request in front.requests) == 1
        front.heal()
        assert one.ensure() == one.ensure()
        client.call("DELETE", f"/{one.name}")


def test_many_entries_pass_a_proxy_that_takes_one_mebibyte(opensearch: EmbeddedOpenSearch) -> None:
    def refuse(request: Request) -> Answer | None:
        return Answer(413) if len(request.body) > 1 << 20 else None

    with HttpProxy(opensearch.url, spoil=refuse) as front, closing(Client(Endpoint((front.url,)))) as client:
        entries = SystemIndex(client, f"{PREFIX}many_{uuid.uuid4().hex[:8]}", {"version": {"type": "long"}})
        entries.ensure()
        entries.write(
            ("index", {"_id": str(number)}, {"version": number, "text": os.urandom(512).hex()})
            for number in range(5_000)
        )
        assert entries.count({"match_all": {}}) == 5_000
        client.call("DELETE", f"/{entries.name}")
