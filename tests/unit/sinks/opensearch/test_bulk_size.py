"""The size of a bulk follows what the cluster takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.sinks.opensearch.bulk_size import SMALLEST, BulkSize

MOST = 8 << 20


def test_what_is_refused_is_halved_once_whoever_tells() -> None:
    """Several senders have requests of the old size under way."""
    size = BulkSize(MOST)
    size.overloaded(MOST)
    size.overloaded(MOST)
    assert size.bytes == MOST // 2


def test_a_bulk_that_was_bounded_by_its_count_says_what_was_too_much() -> None:
    size = BulkSize(MOST)
    size.overloaded(1 << 20)
    assert size.bytes == 1 << 19


def test_it_grows_back_in_small_steps_and_only_by_what_was_large() -> None:
    size = BulkSize(MOST)
    size.overloaded(MOST)
    before = size.bytes
    size.accepted(1_000)
    assert size.bytes == before
    size.accepted(before)
    assert 0 < size.bytes - before <= MOST // 32
    for _ in range(32):
        size.accepted(size.bytes)
    assert size.bytes == MOST


def test_what_is_always_too_large_is_not_tried_again() -> None:
    size = BulkSize(MOST)
    size.too_large(MOST)
    for _ in range(100):
        size.accepted(size.bytes)
    assert size.bytes == MOST // 2


@given(
    st.lists(st.tuples(st.sampled_from(["overloaded", "too_large", "accepted"]), st.integers(1, 2 * MOST)))
)
def test_it_stays_between_the_smallest_and_what_is_asked_for(events: list[tuple[str, int]]) -> None:
    size = BulkSize(MOST)
    for what, sent in events:
        getattr(size, what)(sent)
        assert SMALLEST <= size.bytes <= MOST
