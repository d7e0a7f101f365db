"""What was read long ago is read again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.sinks import age
from headrace.sinks.age import TimeLimit, within


class Clock:
    """What `age` takes for the time."""

    def __init__(self) -> None:
        self.now = 0.0

    def slow(self, seconds: float) -> Iterator[int]:
        """Yield two items, the second one so much later."""
        yield 1
        self.now += seconds
        yield 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(age, "_now", lambda: one.now)
    return one


def test_items_within_the_time_are_the_same(clock: Clock) -> None:
    assert list(within(clock.slow(60.0), 60.0)) == [1, 2]


def test_the_time_runs_from_the_first_request(clock: Clock) -> None:
    items = within(clock.slow(61.0), 60.0)
    clock.now += 61.0
    assert next(items) == 1
    with pytest.raises(HeadraceError, match="read again") as caught:
        next(items)
    assert caught.value.kind is Kind.SINK_BUSY


def test_a_limit_without_time_is_over_at_once() -> None:
    limit = TimeLimit(0.0)
    time.sleep(0.001)
    with pytest.raises(HeadraceError):
        limit.check()
