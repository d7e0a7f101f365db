"""What follows from what is there and what is asked for; every row of the table is one story."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.generation_states import (
    Next,
    apply_request,
    plan_from_files,
    superseded,
    unpinned,
    why_built,
)
from headrace.state import ControlRequest, GenerationState

SERVED = GenerationState("users", "users_aa_1", "1", "aa", backfilled_at=10, published=True)
KEPT = GenerationState("users", "users_bb_2", "2", "bb", backfilled_at=20)
BUILDING = GenerationState("users", "users_cc_3", "3", "cc", joined=30)
FROZEN = replace(SERVED, frozen="a column was dropped")
REINDEX = ControlRequest("users", "reindex", "n1")
ROLLBACK = replace(REINDEX, kind="rollback", number="n2")


@pytest.mark.parametrize(
    ("found", "wanted", "then"),
    [
        ((), "aa", Next(make=True)),
        ((SERVED,), "aa", Next()),
        ((SERVED,), "bb", Next(make=True)),
        ((SERVED, KEPT), "aa", Next()),
        ((SERVED, KEPT), "cc", Next(make=True)),
        ((SERVED, BUILDING), "cc", Next()),
        ((BUILDING,), "cc", Next()),
        ((SERVED, BUILDING), "dd", Next(make=True, drop=(BUILDING,))),
        ((SERVED, BUILDING), "aa", Next(drop=(BUILDING,))),
        ((FROZEN,), "aa", Next(make=True)),
        ((FROZEN, replace(BUILDING, hash="aa")), "aa", Next()),
        (
            (SERVED, replace(BUILDING, frozen="refused")),
            "cc",
            Next(make=True, drop=(replace(BUILDING, frozen="refused"),)),
        ),
        ((replace(SERVED, pinned="bb"), KEPT), "bb", Next()),
        ((replace(SERVED, pinned="bb"), KEPT), "cc", Next(make=True)),
        ((replace(FROZEN, pinned="bb"),), "bb", Next(make=True)),
        ((SERVED, replace(BUILDING, hash="aa", request="n1")), "aa", Next()),
    ],
)
def test_the_files_decide(found: tuple[GenerationState, ...], wanted: str, then: Next) -> None:
    assert plan_from_files(found, wanted) == then


@pytest.mark.parametrize(
    ("found", "request_", "why"),
    [
        ((), "", "this deployment did not follow it until now"),  # new, or disabled for a run
        ((BUILDING,), "", "none is complete yet"),
        ((SERVED,), "n1", "a reindex was asked for"),
        ((FROZEN,), "", "a column was dropped"),
        ((SERVED,), "", "its schema file, its settings or the types of its columns changed since users_aa_1"),
    ],
)
def test_why_another_generation_is_built(found: tuple[GenerationState, ...], request_: str, why: str) -> None:
    assert why in why_built(found, request_)


def test_a_file_that_is_put_back_finds_its_generation_kept() -> None:
    assert plan_from_files((SERVED, KEPT), "bb") == Next(serve=KEPT)
    frozen = replace(KEPT, frozen="a column was dropped")
    assert plan_from_files((SERVED, frozen), "bb") == Next(make=True)


def test_a_reindex_builds_beside_what_is_served_and_is_done_once() -> None:
    assert apply_request((SERVED, BUILDING), "aa", REINDEX) == Next(make=True, drop=(BUILDING,), request="n1")
    made = replace(BUILDING, request="n1")
    assert apply_request((SERVED, made), "aa", REINDEX) == Next()


def test_a_rollback_swaps_and_pins_until_the_file_changes() -> None:
    back = replace(KEPT, pinned="aa", request="n2")
    assert apply_request((SERVED, KEPT), "aa", ROLLBACK) == Next(serve=back, request="n2")
    after = (replace(SERVED, published=False), replace(back, published=True))
    assert apply_request(after, "aa", ROLLBACK) == Next(), "a kill must not swap it back"
    assert plan_from_files(after, "aa") == Next()
    assert plan_from_files(after, "dd") == Next(make=True)
    assert unpinned(after, "aa") == []
    assert unpinned(after, "bb") == [replace(after[1], pinned="")], "the file may become what it was later"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((SERVED, BUILDING), "no generation of users is kept"),
        ((SERVED, replace(KEPT, frozen="x")), "is stopped: x"),
    ],
)
def test_there_may_be_no_way_back(found: tuple[GenerationState, ...], said: str) -> None:
    with pytest.raises(HeadraceError, match=said) as refused:
        apply_request(found, "aa", ROLLBACK)
    assert refused.value.kind is Kind.USAGE


def test_the_one_that_was_served_is_kept_first() -> None:
    older = replace(KEPT, generation="users_00_0")
    found = (older, KEPT, SERVED, BUILDING)
    assert superseded(found, KEPT.generation, 1) == [older]
    assert superseded(found, older.generation, 1) == [KEPT]
    assert superseded(found, None, 2) == []
    assert superseded(found, None, 0) == [older, KEPT]
    assert superseded((replace(KEPT, frozen="x"), SERVED), KEPT.generation, 1) == [replace(KEPT, frozen="x")]
