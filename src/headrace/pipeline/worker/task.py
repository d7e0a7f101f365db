"""Divide a batch's documents among tasks.

Every task of a large batch resolves all of its changes to documents and keeps those of its share: each
document is written once, whichever rows lead to it, and no data are exchanged between tasks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.changes import CHANGES_SCHEMA, Key
from headrace.model.lsn import Lsn

# A batch of fewer changes is not divided.
LEAST_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class TaskShare:
    """Share `number` of `count`, from 0."""

    number: int = 0
    count: int = 1

    def own(self, keys: Iterable[Key]) -> list[Key]:
        """Return the keys that belong to this share."""
        if self.count == 1:
            return list(keys)
        # Not `hash`, which differs from process to process: two tasks would have a document, or none.
        return [key for key in keys if crc32("\0".join(map(str, key)).encode()) % self.count == self.number]


@dataclass(frozen=True, slots=True)
class Task:
    """What a task has to do.

    Attributes:
        rows: the changes, in `CHANGES_SCHEMA`.
        version: of the documents (bytes).
        share: the documents that this task writes.
    """

    rows: pa.Table
    version: Lsn
    share: TaskShare = TaskShare()

    def seconds_since_commit(self) -> float:
        """Return the seconds since the first of the changes was committed; 0 where that is unknown."""
        oldest: datetime | None = pc.min(self.rows.column("_commit_timestamp")).as_py()
        return 0.0 if oldest is None else max(0.0, time.time() - oldest.timestamp())

    def count_by_table(self) -> dict[str, int]:
        """Count the changes of each table, `SCHEMA.TABLE`."""
        counted = self.rows.group_by(["schema", "table"]).aggregate([([], "count_all")])
        return {f"{row['schema']}.{row['table']}": row["count_all"] for row in counted.to_pylist()}


def plan_tasks(
    batches: Sequence[pa.RecordBatch], version: Lsn, max_tasks: int, least_rows: int = LEAST_ROWS
) -> list[Task]:
    """Return the tasks of a batch: each has all of its changes, and a share of the documents.

    Args:
        batches: the changes.
        version: as `Task`.
        max_tasks: for a large batch.
        least_rows: a batch of so many changes is large.
    """
    rows = pa.Table.from_batches(batches, CHANGES_SCHEMA)
    count = max_tasks if rows.num_rows >= least_rows else 1
    return [Task(rows, version, TaskShare(number, count)) for number in range(count)]
