from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.errors import Kind
from headrace.postgres.slot import SlotFacts, slot_problem
from headrace.postgres.teardown import plan_teardown

SLOT = SlotFacts(
    name="s",
    plugin="pgoutput",
    kind="logical",
    database="shop",
    two_phase=False,
    temporary=False,
    active_pid=None,
    confirmed_flush=150,
    restart=100,
    wal_status="reserved",
    safe_wal_size=None,
    current=300,
)


@pytest.mark.parametrize(
    ("slot", "drops"),
    [
        (SLOT, True),
        (replace(SLOT, restart=None, wal_status="lost"), True),
        (replace(SLOT, database="another"), False),
        (replace(SLOT, plugin="wal2json"), False),
        (replace(SLOT, kind="physical", plugin=None, database=""), False),
    ],
)
def test_a_teardown_drops_only_a_slot_that_can_be_its_own(slot: SlotFacts, *, drops: bool) -> None:
    plan = plan_teardown([], publication=None, slot=slot, database="shop")
    assert (len(plan.steps), len(plan.warnings)) == ((1, 0) if drops else (0, 1))


def test_lag_and_retained_log_are_never_negative() -> None:
    """A standby's replayed position can lie before what its slot has confirmed."""
    assert (SLOT.lag, SLOT.retained) == (150, 200)
    behind = replace(SLOT, current=90)
    assert (behind.lag, behind.retained) == (0, 0)
    gone = replace(SLOT, confirmed_flush=None, restart=None)
    assert (gone.lag, gone.retained) == (0, 0)


@pytest.mark.parametrize(
    ("slot", "words"),
    [
        (replace(SLOT, wal_status="lost"), "wal_status is 'lost'"),
        (replace(SLOT, wal_status="lost", invalidation="wal_removed"), "max_slot_wal_keep_size"),
        (replace(SLOT, invalidation="idle_timeout"), "idle_replication_slot_timeout"),
        (replace(SLOT, invalidation="rows_removed"), "catalog"),
        (replace(SLOT, invalidation="something new"), "something new"),
    ],
)
def test_a_slot_that_the_server_gave_up_is_lost_for_its_reason(slot: SlotFacts, words: str) -> None:
    problem = slot_problem(slot, "shop")
    assert problem is not None
    assert problem.kind is Kind.SLOT_LOST
    assert words in problem.cause


def test_a_standbys_copy_is_not_read() -> None:
    problem = slot_problem(replace(SLOT, synced=True), "shop")
    assert problem is not None
    assert "promotion" in problem.cause
    assert slot_problem(SLOT, "shop") is None
