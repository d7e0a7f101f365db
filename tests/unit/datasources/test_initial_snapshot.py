"""Many small tables share a task, and a large one has several."""

from __future__ import annotations

from headrace.datasources.initial_snapshot import group_parts
from headrace.model.names import CtidRange, TableName
from headrace.snapshot.planning import PlannedPart


def planned(number: int, blocks: int | None) -> tuple[TableName, PlannedPart]:
    table = TableName("public", f"t{number}")
    return table, PlannedPart((CtidRange(0, None, table),), blocks)


def test_small_tables_are_read_together() -> None:
    parts = [planned(number, 1) for number in range(10_000)]
    made = list(group_parts(parts, 2048))
    assert [one for some in made for one in some] == parts
    assert [len(some) for some in made] == [100] * 100


def test_no_task_reads_more_than_its_size_because_tables_are_together() -> None:
    parts = [planned(number, blocks) for number, blocks in enumerate([3, 10, 4, 6, None, 1, 0])]
    assert [[int(table.name[1:]) for table, _ in some] for some in group_parts(parts, 10)] == [
        [0],
        [1],
        [2, 3],
        [4],
        [5, 6],
    ]
