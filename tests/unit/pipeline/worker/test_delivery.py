"""A pace is an upper bound, on average."""

from __future__ import annotations

import pytest

from headrace.pipeline.worker.delivery import limit_rate


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("per_second", [0.5, 3, 1000])
def test_items_come_no_faster(per_second: float) -> None:
    clock = Clock()
    items = list(limit_rate(range(600), per_second, clock=clock.read, sleep=clock.sleep))
    assert items == list(range(600))
    assert clock.now == pytest.approx(600 / per_second)


def test_without_a_pace_nobody_waits() -> None:
    clock = Clock()
    assert list(limit_rate(range(600), None, clock=clock.read, sleep=clock.sleep)) == list(range(600))
    assert clock.now == 0.0
