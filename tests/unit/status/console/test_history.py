from dataclasses import dataclass

import pytest

from headrace.state import Counters
from headrace.status import Phase, StatusBoard
from headrace.status.board import Positions
from headrace.status.console.history import History
from headrace.status.stages import Stages


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass
class Run:
    """A board that is looked at each second."""

    clock: Clock
    board: StatusBoard
    history: History

    def on(self, seconds: int, log: int = 0, confirmed: int = 0) -> None:
        """Look, while the log and the confirmed position grow by so much a second."""
        for _ in range(seconds):
            self.clock.now += 1
            before = self.board.view().positions
            self.board.set_positions(
                Positions((before.confirmed or 0) + confirmed, before.applied, (before.current or 0) + log)
            )
            self.history.observe(self.board.view(), self.clock.now)


def begin() -> Run:
    clock = Clock(50_000.0)
    return Run(clock, StatusBoard(["users"], clock=clock, wall=clock), History())


def test_the_curve_has_a_point_each_five_seconds_and_no_more_than_an_hour() -> None:
    run = begin()
    run.on(5000, log=100, confirmed=100)
    assert len(run.history.points) == 720
    assert run.history.points[-1].time - run.history.points[0].time == 719 * 5


def test_since_is_when_the_phase_began() -> None:
    run = begin()
    run.on(3)
    assert run.history.since == 50_000.0
    run.board.enter(Phase.LIVE)
    run.on(10)
    assert run.history.since == 50_004.0


def test_rates_are_of_the_last_half_minute() -> None:
    run = begin()
    run.on(100, log=5_000, confirmed=1_000)
    run.on(40, log=700, confirmed=900)
    rates = run.history.rates()
    assert rates.log == pytest.approx(700)
    assert rates.confirmed == pytest.approx(900)
    assert run.history.log_rate() == pytest.approx((100 * 5_000 + 40 * 700) / 140, rel=0.05)


def test_the_rate_of_changes_ignores_what_earlier_runs_counted() -> None:
    run = begin()
    run.on(5)
    run.board.set_counts(Counters(changes=1_000_000))
    run.on(5)
    assert run.history.rates().changes == 0
    run.board.set_counts(Counters(changes=1_000_050))
    run.on(5)
    changes = run.history.rates().changes
    assert changes is not None
    assert 5 <= changes <= 10


def test_stages_have_a_rate_and_the_time_of_a_batch() -> None:
    run = begin()
    run.on(1)
    run.board.note(
        stages=Stages(
            4, captured=40, resolved=20, resolve_seconds=0.4, write_seconds=2.0, tables={"public.a": 30}
        )
    )
    run.on(10)
    rates = run.history.rates()
    assert rates.stages["captured"] == 4
    assert rates.stages["resolved"] == 2
    assert rates.batch_seconds["resolved"] == pytest.approx(0.1)
    assert rates.batch_seconds["written"] == pytest.approx(0.5)
    assert rates.tables == {"public.a": 3}


def test_when_the_position_moved_last_is_remembered() -> None:
    run = begin()
    run.on(3, log=100, confirmed=100)
    run.on(60, log=100, confirmed=0)
    assert run.history.moved_at == 50_003.0


def test_events_of_more_than_a_day_ago_are_forgotten() -> None:
    run = begin()
    run.on(1)
    assert [event.text for event in run.history.events] == ["the run began"]
    run.clock.now += 90_000
    run.board.enter(Phase.LIVE)
    run.on(1)
    assert [event.text[:4] for event in run.history.events] == ["live"]
