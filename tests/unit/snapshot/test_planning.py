"""Parts of about the same size hold every block once, and small files share one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.model.names import TableName
from headrace.snapshot.planning import File, PlannedPart, group_files


def file(number: int, blocks: int, filenode: int | None = 1) -> File:
    return File(TableName("public", f"t{number}"), blocks, 8192, filenode)


def shown(parts: Sequence[PlannedPart]) -> list[list[tuple[str, int, int | None]]]:
    return [[(str(one.table), one.first_block, one.last_block) for one in part.ranges] for part in parts]


@pytest.mark.parametrize(
    ("blocks", "target", "parts"),
    [
        ([], 10, []),
        ([0], 10, [[("t0", 0, None)]]),
        ([24], 10, [[("t0", 0, 9)], [("t0", 10, None)]]),
        (
            [3, 0, 4, 20],
            10,
            [[("t0", 0, None), ("t1", 0, None), ("t2", 0, None)], [("t3", 0, 9)], [("t3", 10, None)]],
        ),
        ([4, 4, 4, 4], 8, [[("t0", 0, None), ("t1", 0, None), ("t2", 0, None)], [("t3", 0, None)]]),
    ],
)
def test_files_are_cut_and_put_together(
    blocks: list[int], target: int, parts: list[list[tuple[str, int, int | None]]]
) -> None:
    files = [file(number, size) for number, size in enumerate(blocks)]
    made = list(group_files(files, target))
    assert shown(made) == parts
    assert sum(part.blocks or 0 for part in made) == sum(blocks)


def test_what_has_no_blocks_is_a_part_of_its_own() -> None:
    files = [file(0, 3), file(1, 0, None), file(2, 3)]
    assert shown(list(group_files(files, 10))) == [[("t1", 0, None)], [("t0", 0, None), ("t2", 0, None)]]
