"""What is read is not read again, and what is not is never left out."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.names import CtidRange, TableName
from headrace.snapshot.ranges import RangesDone, cut

TABLE, LAST = TableName("public", "users"), 60


def planned(blocks: int, step: int, filenode: int = 7) -> list[CtidRange]:
    return [CtidRange(first, last, TABLE, filenode) for first, last in cut(blocks, step)]


def blocks_of(parts: list[CtidRange]) -> list[int]:
    """Of a file that has grown to LAST blocks."""
    return [
        block
        for part in parts
        for block in range(part.first_block, (LAST if part.last_block is None else part.last_block) + 1)
    ]


@given(st.integers(0, 40), st.integers(1, 9), st.data())
def test_the_rest_is_what_was_not_read(blocks: int, step: int, data: st.DataObject) -> None:
    """Also where the file has grown and is cut otherwise."""
    parts = planned(blocks, step)
    read = parts[: data.draw(st.integers(0, len(parts)))]
    done = RangesDone()
    for part in read:
        done = done.done(part)
    done = RangesDone.from_json(json.loads(json.dumps(done.to_json())))
    again = planned(data.draw(st.integers(blocks, LAST)), data.draw(st.integers(1, 9)))
    rest = blocks_of(done.left(again))
    assert sorted(rest + blocks_of(read)) == list(range(LAST + 1))


def test_a_range_behind_a_gap_is_read_again() -> None:
    first, second, third, *_ = parts = planned(20, 3)
    done = RangesDone().done(first).done(third)
    assert done.left(parts) == parts[1:]
    assert done.done(second).done(first).left(parts) == parts[2:]


def test_a_rewritten_file_is_read_from_the_beginning() -> None:
    done = RangesDone()
    for part in planned(20, 5):
        done = done.done(part)
    assert done.left(planned(20, 5)) == []
    new = planned(20, 5, filenode=8)
    assert done.left(new) == new
    assert done.done(new[0]).left(new) == new[1:]


def test_a_range_of_no_file_is_always_read() -> None:
    whole = CtidRange(0, None, TABLE)
    assert RangesDone().done(whole).left([whole]) == [whole]
    assert RangesDone().done(replace(whole, table=None)).left([whole]) == [whole]
