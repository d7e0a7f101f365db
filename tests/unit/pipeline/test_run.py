"""Which phase follows in a run, and which failures does it try again after?"""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.run import TRANSITIONS, PhaseOutcome, RunPhase, _may_pass


@pytest.mark.parametrize(
    ("kind", "fifth", "hundredth"),
    [
        (Kind.CONNECTION, True, True),
        (Kind.SLOT_IN_USE, True, True),
        (Kind.NO_FREE_SLOT, True, True),
        (Kind.SPARK, True, False),
        (Kind.CONTINUITY, False, False),
        (Kind.SLOT_LOST, False, False),
        (Kind.SLOT_UNKNOWN, False, False),
    ],
)
def test_waiting_goes_on_for_ever_where_it_helps(kind: Kind, fifth: bool, hundredth: bool) -> None:
    error = HeadraceError(kind, "it failed")
    assert (_may_pass(error, 5), _may_pass(error, 100)) == (fifth, hundredth)


def test_every_phase_but_the_last_has_a_successor_and_can_be_reached() -> None:
    assert TRANSITIONS.keys() == set(RunPhase) - {RunPhase.STOPPED}
    reached = {phase for row in TRANSITIONS.values() for phase in row.values()}
    assert reached == set(RunPhase) - {RunPhase.STARTING}


def test_every_outcome_has_a_place() -> None:
    assert {outcome for row in TRANSITIONS.values() for outcome in row} == set(PhaseOutcome)


def test_only_a_run_that_followed_is_set_up_again() -> None:
    """A start that does not fit the database ends with the error, and so does one that was repeated."""
    repeatable = {phase for phase, row in TRANSITIONS.items() if PhaseOutcome.ALTERED in row}
    assert repeatable == {phase for phase, row in TRANSITIONS.items() if PhaseOutcome.GAP in row}
    assert not repeatable & {
        RunPhase.STARTING,
        RunPhase.SETTING_UP,
        RunPhase.RESTARTING,
        RunPhase.RESEEDING,
        RunPhase.STOPPING,
    }
