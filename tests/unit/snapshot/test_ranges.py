from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.snapshot.ranges import cut


@given(blocks=st.integers(0, 5000), step=st.integers(1, 700))
def test_ranges_follow_each_other_from_the_first_block_and_the_last_has_no_end(
    blocks: int, step: int
) -> None:
    ranges = list(cut(blocks, step))
    assert ranges[0][0] == 0
    assert ranges[-1][1] is None
    for (_, last), (first, _) in pairwise(ranges):
        assert last is not None
        assert first == last + 1
    assert blocks - ranges[-1][0] <= step + (step + 1) // 2


def test_an_empty_table_is_one_range() -> None:
    assert list(cut(0, 128)) == [(0, None)]
