import itertools

import pytest

from headrace.status.phases import TRANSITIONS, Event, Phase, State


def run(*events: Event) -> Phase:
    state = State()
    for event in events:
        state = state.after(event)
    return state.phase


@pytest.mark.parametrize(
    ("events", "phase"),
    [
        ((), Phase.STARTING),
        ((Event.BACKFILLING,), Phase.BACKFILLING),
        ((Event.FOLLOWING,), Phase.LIVE),
        ((Event.BACKFILLING, Event.FOLLOWING), Phase.LIVE),
        ((Event.BACKFILLING, Event.FOLLOWING, Event.BACKFILLING), Phase.BACKFILLING),
        ((Event.RECOVERED,), Phase.STARTING),
    ],
)
def test_a_run_goes_from_start_to_live(events: tuple[Event, ...], phase: Phase) -> None:
    assert run(*events) is phase


@pytest.mark.parametrize(
    "before", [(), (Event.BACKFILLING,), (Event.FOLLOWING,)], ids=["starting", "backfilling", "live"]
)
def test_trouble_ends_where_it_began(before: tuple[Event, ...]) -> None:
    assert run(*before, Event.FAILED) is Phase.DEGRADED
    assert run(*before, Event.FAILED, Event.FAILED, Event.RECOVERED) is run(*before)


def test_a_recovered_run_remembers_only_its_last_trouble() -> None:
    assert run(Event.BACKFILLING, Event.FAILED, Event.FOLLOWING, Event.FAILED, Event.RECOVERED) is Phase.LIVE


@pytest.mark.parametrize("late", list(Event))
def test_nothing_wakes_a_stopped_run(late: Event) -> None:
    assert run(Event.FOLLOWING, Event.STOPPED, late) is Phase.STOPPED


def test_every_phase_can_stop_and_all_are_reachable() -> None:
    running = set(Phase) - {Phase.STOPPED}
    assert {phase for phase, event in TRANSITIONS if event is Event.STOPPED} == running
    reached = {run(*events) for length in range(3) for events in itertools.product(Event, repeat=length)}
    assert reached == set(Phase)
