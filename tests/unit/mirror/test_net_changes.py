"""Are changes cut into parts whose missing values fit into memory, and no moved row in two?"""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.mirror.columns import PREFIX
from headrace.mirror.net_changes import count_lacking, first_changes

# Of each change its position, and whether a value lacks; the row at (1, 2) moved to another key.
CHANGES = [((1, 1), True), ((1, 2), False), ((1, 2), True), ((1, 3), False), ((2, 1), True), ((2, 2), False)]


def table(changes: list[tuple[tuple[int, int], bool]]) -> pa.Table:
    return pa.table(
        {
            PREFIX + "commit_lsn": pa.array([lsn for (lsn, _), _ in changes], pa.int64()),
            PREFIX + "commit_seq": pa.array([sequence for (_, sequence), _ in changes], pa.int64()),
            PREFIX + "unchanged": pa.array(
                [["v"] if lacks else None for _, lacks in changes], pa.list_(pa.string())
            ),
        }
    )


@pytest.mark.parametrize(("lacking", "length"), [(1, 1), (2, 4), (3, 6), (100, 6)])
def test_the_first_changes_are_as_many_as_may_lack_values(lacking: int, length: int) -> None:
    rows = table(CHANGES)
    found = first_changes(rows, lacking)
    assert found.equals(rows.slice(0, length))
    assert count_lacking(found) <= lacking


def test_changes_at_one_position_stay_together() -> None:
    moved = table([((1, 1), True), ((1, 1), True), ((1, 2), True)])
    assert len(first_changes(moved, 1)) == 2
    together = table([((1, 1), False)] * 3)
    assert len(first_changes(together, 1)) == 3
