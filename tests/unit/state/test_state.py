"""The state of a pipeline and its JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from headrace.state import Counters, GenerationState, PipelineState

STATE = PipelineState(
    system_identifier="7301234567890123456",
    timeline=1,
    database_oid=16384,
    slot="headrace",
    publication="headrace",
    phase="creating",
    consistent_point=0x1600000010,
    applied=0x1600000010,
    generations=(
        GenerationState(
            "users",
            "users_ab_1",
            "uuid-1",
            "ab",
            0x1600000020,
            as_of=0x1600000018,
            published=True,
            pinned="cd",
        ),
        GenerationState("users", "users_cd_2", "uuid-3", "cd", frozen="a column was dropped"),
        GenerationState("orders", "orders_cd_2", "uuid-2", "cd", joined=0x1600000019),
    ),
    catalog="what a fingerprint's text is",
    counters=Counters(changes=5, batches=1),
)


def test_it_comes_back_from_json_as_it_was() -> None:
    assert PipelineState.from_json(json.loads(json.dumps(STATE.to_json()))) == STATE


def test_positions_are_written_as_postgresql_prints_them() -> None:
    assert STATE.to_json()["applied"] == "16/10"


def test_a_batch_moves_it_forward_and_adds_up() -> None:
    after = STATE.advanced(0x1600000030, Counters(changes=2, upserts=1, deletes=1, batches=1))
    assert after == replace(STATE, applied=0x1600000030, counters=Counters(7, 1, 1, 2))


def test_a_repeated_batch_never_moves_it_back() -> None:
    assert STATE.advanced(1, Counters()).applied == STATE.applied


def test_an_index_is_served_by_what_is_published() -> None:
    assert STATE.served("users") == STATE.generations[0]
    assert STATE.served("orders") is None
    assert not replace(STATE, phase="following").backfilled
    assert replace(STATE, phase="following").without("orders_cd_2").backfilled


def test_generations_are_changed_in_their_place() -> None:
    first, second, third = STATE.generations
    new = GenerationState("users", "users_ef_3", "w", "ef")
    after = STATE.changed(replace(second, frozen=""), new)
    assert after.generations == (first, replace(second, frozen=""), third, new)
