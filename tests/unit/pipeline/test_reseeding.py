"""What does a run remember of the log before a gap, and whose slot does it drop?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.pipeline.reseeding import is_own, is_reseeding, with_log, without_log
from headrace.state import GenerationState
from unit.pipeline.test_continuity import SERVER, SLOT, STATE

SERVED = GenerationState("users", "users_aa_1", "1", "aa", backfilled_at=10, published=True)
BUILDING = GenerationState("orders", "orders_bb_1", "2", "bb", joined=30)
FOLLOWING = replace(STATE, generations=(SERVED, BUILDING), ahead=250)


def test_behind_a_gap_nothing_is_followed_and_what_readers_see_stays() -> None:
    state = without_log(FOLLOWING, "the slot is gone")
    assert [(one.frozen, one.published) for one in state.generations] == [
        ("the slot is gone", True),
        ("the slot is gone", False),
    ]
    assert (state.phase, state.ahead, state.applied) == ("creating", None, STATE.applied)


def test_a_start_after_a_kill_knows_whether_it_was_the_first() -> None:
    state = without_log(FOLLOWING, "the slot is gone")
    assert is_reseeding(state)
    assert not is_reseeding(replace(STATE, phase="creating", generations=())), "the first, which has nothing"
    assert not is_reseeding(with_log(state, SERVER, 500)), "it has its slot"


def test_the_new_log_counts_from_its_beginning() -> None:
    state = with_log(without_log(FOLLOWING, "promoted"), replace(SERVER, timeline=2), 50)
    assert (state.phase, state.timeline, state.consistent_point, state.applied) == ("following", 2, 50, 50)
    assert [one.followed for one in state.generations] == [False, False]


@pytest.mark.parametrize(
    ("confirmed", "own"), [(None, False), (99, False), (100, True), (200, True), (201, False)]
)
def test_a_slot_is_ours_where_we_can_have_confirmed_it(confirmed: int | None, own: bool) -> None:
    """STATE began at 100, and 200 is applied."""
    assert is_own(replace(SLOT, confirmed_flush=confirmed), STATE) is own
