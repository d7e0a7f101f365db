"""What was read long ago is read again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.sinks.age import TimeLimit, within


def slow(seconds: float) -> Iterator[int]:
    yield 1
    time.sleep(seconds)
    yield 2


def test_items_within_the_time_are_the_same() -> None:
    assert list(within(slow(0.0), 60.0)) == [1, 2]


def test_the_time_runs_from_the_first_request() -> None:
    items = within(slow(0.2), 0.1)
    time.sleep(0.2)
    assert next(items) == 1
    with pytest.raises(HeadraceError, match="read again") as caught:
        next(items)
    assert caught.value.kind is Kind.SINK_BUSY


def test_a_limit_without_time_is_over_at_once() -> None:
    limit = TimeLimit(0.0)
    time.sleep(0.001)
    with pytest.raises(HeadraceError):
        limit.check()
