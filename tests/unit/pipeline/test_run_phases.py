"""Does the table of phases lead every run to its end?"""

from __future__ import annotations

from headrace.pipeline.run_phases import TRANSITIONS, PhaseOutcome, RunPhase


def test_every_phase_but_the_last_has_a_successor_and_can_be_reached() -> None:
    assert TRANSITIONS.keys() == set(RunPhase) - {RunPhase.STOPPED}
    reached = {phase for row in TRANSITIONS.values() for phase in row.values()}
    assert reached | {RunPhase.STARTING} == set(RunPhase)


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


def test_a_stop_is_confirmed_wherever_a_run_waits_for_long() -> None:
    """Only one that stands by has nothing to confirm."""
    stoppable = {phase for phase, row in TRANSITIONS.items() if PhaseOutcome.STOP in row}
    stoppable.remove(RunPhase.STANDING_BY)
    assert stoppable == {RunPhase.FOLLOWING, RunPhase.RETRYING}
    assert {TRANSITIONS[phase][PhaseOutcome.STOP] for phase in stoppable} == {RunPhase.STOPPING}
