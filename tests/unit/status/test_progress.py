"""How far behind, and how fast."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.status.progress import LagSamples, Rate, bytes_behind


def followed(*pairs: tuple[int, float], capacity: int = 1024) -> LagSamples:
    samples = LagSamples(capacity=capacity)
    for lsn, time in pairs:
        samples = samples.observed(lsn, time)
    return samples


def test_bytes_are_a_difference_never_negative_and_unknown_without_a_slot() -> None:
    assert bytes_behind(100, 140) == 40
    assert bytes_behind(140, 100) == 0
    assert bytes_behind(None, 100) is None
    assert bytes_behind(100, None) is None


def test_seconds_count_from_when_the_confirmed_position_was_last_the_newest() -> None:
    samples = followed((10, 0.0), (20, 1.0), (20, 5.0), (30, 6.0))
    assert samples.seconds_behind(20, 8.0) == 3.0
    assert samples.seconds_behind(25, 8.0) == 3.0
    assert samples.seconds_behind(10, 8.0) == 8.0


def test_an_equal_position_is_not_late_however_long_ago_it_was_seen() -> None:
    assert followed((10, 0.0)).seconds_behind(10, 3600.0) == 0.0
    assert followed((10, 0.0)).seconds_behind(11, 3600.0) == 0.0


def test_a_position_before_the_first_sample_is_at_least_that_late() -> None:
    assert followed((100, 50.0), (200, 60.0)).seconds_behind(1, 65.0) == 15.0


def test_nothing_is_known_without_a_slot_or_a_sample() -> None:
    assert LagSamples().seconds_behind(1, 0.0) is None
    assert followed((1, 0.0)).seconds_behind(None, 1.0) is None


def test_a_server_that_went_back_begins_a_new_history() -> None:
    samples = followed((100, 0.0), (200, 1.0), (50, 2.0), (60, 3.0))
    assert samples.seconds_behind(50, 4.0) == 2.0


def test_a_full_ring_still_reaches_back_to_its_first_sample() -> None:
    samples = followed(*((n, float(n)) for n in range(10_000)), capacity=64)
    assert len(samples.ring) <= 64
    assert samples.seconds_behind(0, 10_000.0) == 10_000.0
    assert samples.seconds_behind(9_990, 10_000.0) == 10.0


@given(
    steps=st.lists(st.tuples(st.integers(0, 50), st.floats(0.01, 10)), min_size=1, max_size=200),
    confirmed=st.integers(0, 5000),
)
def test_lag_is_never_negative_and_a_later_position_is_never_later(
    steps: list[tuple[int, float]], confirmed: int
) -> None:
    """Whatever the history: 0 ≤ lag, and whoever has confirmed more is at most as late."""
    samples, lsn, now = LagSamples(capacity=16), 0, 0.0
    for grown, waited in steps:
        lsn, now = lsn + grown, now + waited
        samples = samples.observed(lsn, now)
    nearer, farther = (samples.seconds_behind(c, now) for c in (confirmed + 1, confirmed))
    assert nearer is not None
    assert farther is not None
    assert 0 <= nearer <= farther


def test_nobody_knows_before_the_first_report() -> None:
    assert (Rate().per_second, Rate().seconds_for(3)) == (None, None)


def test_the_latest_reports_count_most() -> None:
    rate = Rate()
    rate.add(1_000, 2.0, 4)
    assert (rate.per_second, rate.seconds_for(10)) == (500.0, 5.0)
    for _ in range(20):
        rate.add(100, 1.0, 1)
    assert rate.per_second == pytest.approx(100, rel=0.01)
    assert rate.seconds_for(10) == pytest.approx(10, rel=0.01)


def test_a_job_that_still_runs_tells_the_speed_before_its_first_range_is_finished() -> None:
    assert Rate().including(500, 10.0, 0, 0.0).per_second == 50.0
    assert Rate().including(500, 10.0, 0, 0.0).seconds_for(1) is None
    before = Rate(100.0, 2.0)
    assert before.including(100, 10.0, 0, 0.0) == Rate(55.0, 2.0, 10.0)
    assert before.including(100, 10.0, 10, 10.0) == Rate(55.0, 1.5)


def test_what_is_left_becomes_less_while_nothing_is_finished() -> None:
    """One of two ranges took 20 seconds; the other one has been read for 5, 15 and 25 since."""
    left = [Rate().including(1_000, seconds, 1, 20.0).seconds_for(1) for seconds in (20.0, 25.0, 35.0, 45.0)]
    assert left == [20.0, 15.0, 5.0, 0.0]
