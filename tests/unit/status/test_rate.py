"""How fast, and how long still."""

from __future__ import annotations

import pytest

from headrace.status.rate import Rate


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
