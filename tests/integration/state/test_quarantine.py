"""Refused documents are kept with their reason, and leave when they are right."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.sinks.opensearch import Client
from headrace.state import Quarantine, Quarantined, StateKey

BAD = Quarantined(
    "users", "7", "mapper_parsing_exception", 0x1_0000_0010, "2026-01-02T03:04:05+00:00", "users_1"
)


@pytest.fixture
def prefix(client: Client) -> Iterator[str]:
    one = f"q{uuid.uuid4().hex[:8]}_"
    yield one
    client.call("DELETE", f"/{one}headrace_quarantine", allow=(404,))


def entry(**more: Any) -> Quarantined:
    return Quarantined(**{name: getattr(BAD, name) for name in BAD.__slots__} | more)


def test_nothing_is_there_before_anything_was_refused(client: Client, prefix: str) -> None:
    one = Quarantine(client, StateKey("s", prefix))
    assert (one.entries(), one.counts(), dict(one.ids())) == ([], {}, {})
    one.drop("users_1", {"1": 5})
    assert one.entries() == [], "no index was created"
    one.forget()


def test_what_was_put_is_there_for_everyone_and_once(client: Client, prefix: str) -> None:
    one = Quarantine(client, StateKey("s", prefix))
    one.put([BAD, entry(id="", index="orders"), entry(id="x" * 2_000)])
    one.put([entry(reason="another", at="2026-01-02T03:04:06+00:00")])
    found = Quarantine(client, StateKey("s", prefix)).entries()
    assert [(one.index, one.id[:9], one.reason) for one in found] == [
        ("orders", "", BAD.reason),
        ("users", "x" * 9, BAD.reason),
        ("users", "7", "another"),
    ]
    assert found[-1] == entry(reason="another", at="2026-01-02T03:04:06+00:00")
    assert one.counts() == {"users": 2, "orders": 1}
    assert one.entries("orders") == [found[0]]
    assert one.entries("users", "7") == [found[2]]


def test_a_writer_learns_of_an_entry_of_another_at_once_and_asks_only_then(
    client: Client, prefix: str
) -> None:
    here, there = Quarantine(client, StateKey("s", prefix)), Quarantine(client, StateKey("s", prefix))
    assert dict(here.ids()) == {}
    there.put([BAD])
    assert here.ids() == {"users_1": {"7"}}
    held = here.ids()
    assert here.ids() is held
    there.put([entry(id="8")])
    assert here.ids() == {"users_1": {"7", "8"}}
    here.drop("users_1", {"7": BAD.position})
    assert here.ids() == {"users_1": {"8"}}
    assert [one.id for one in there.entries()] == ["8"]


def test_pipelines_have_their_own_and_one_forgets_nothing_of_another(client: Client, prefix: str) -> None:
    mine, other = Quarantine(client, StateKey("s", prefix)), Quarantine(client, StateKey("t", prefix))
    mine.put([BAD])
    other.put([BAD])
    mine.forget()
    assert mine.entries() == []
    assert other.entries() == [BAD]


def test_generations_of_an_index_have_entries_of_their_own(client: Client, prefix: str) -> None:
    """What one accepts another may still refuse; one that is deleted takes its own along."""
    one = Quarantine(client, StateKey("s", prefix))
    one.put([BAD, entry(generation="users_2")])
    assert len(one.entries()) == 2
    assert one.counts() == {"users": 2}
    one.drop("users_2", {"7": BAD.position})
    assert one.entries() == [BAD]
    one.put([entry(generation="users_2", id="8")])
    one.forget("users_1")
    assert [(each.generation, each.id) for each in one.entries()] == [("users_2", "8")]


def test_who_is_behind_replaces_and_removes_no_later_refusal(client: Client, prefix: str) -> None:
    one = Quarantine(client, StateKey("s", prefix))
    one.put([BAD])
    one.put([entry(position=BAD.position - 1, reason="an older row")])
    assert one.ids() == {"users_1": {"7"}}
    one.drop("users_1", {"7": BAD.position - 1})
    assert one.entries() == [BAD]
    assert one.ids() == {"users_1": {"7"}}
    one.drop("users_1", {"7": BAD.position})
    assert not one.entries()
    assert not any(one.ids().values())
