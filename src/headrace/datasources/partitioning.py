"""Divide a batch's documents among tasks.

Every task of a large batch resolves all of its changes to documents and keeps those of its share: each
document is written once, whichever rows lead to it, and no data are exchanged between tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.columns import progress_batch
from headrace.model import Key, Lsn, Op

LEAST_ROWS = 1_000
"""A batch of fewer changes is not divided."""

_NUMBER, _COUNT = "share", "shares"


@dataclass(frozen=True, slots=True)
class TaskShare:
    """Share `number` of `count`, from 0."""

    number: int = 0
    count: int = 1

    def own(self, keys: Iterable[Key]) -> list[Key]:
        """Return the keys that belong to this share."""
        if self.count == 1:
            return list(keys)
        return [key for key in keys if crc32("\0".join(map(str, key)).encode()) % self.count == self.number]


@dataclass(frozen=True, slots=True)
class Task:
    """What a task has to do.

    Attributes:
        rows: the changes, in `CHANGES_SCHEMA`.
        position: what is applied once every task of the batch is done (bytes).
        version: of the documents (bytes).
        share: the documents that this task writes.
    """

    rows: pa.Table
    position: Lsn
    version: Lsn
    share: TaskShare

    @classmethod
    def of(cls, changes: pa.Table) -> Self:
        """Read a partition's rows, the last of which holds the batch's progress."""
        is_progress = pc.equal(changes.column("op"), Op.PROGRESS.value)
        [progress] = changes.filter(is_progress).to_pylist()[-1:]
        share = {name: int(value) for name, value in progress["after"] or ()}
        return cls(
            changes.filter(pc.invert(is_progress)),
            progress["_commit_lsn"],
            progress["_commit_seq"],
            TaskShare(share.get(_NUMBER, 0), share.get(_COUNT, 1)),
        )


def plan_tasks(
    batches: list[pa.RecordBatch],
    position: Lsn,
    version: Lsn,
    max_tasks: int,
    least_rows: int = LEAST_ROWS,
) -> list[list[pa.RecordBatch]]:
    """Return the rows for each task: the whole batch, and the task's share.

    Args:
        batches: the changes.
        position: as `Task`.
        version: as `Task`.
        max_tasks: for a large batch.
        least_rows: a batch of so many changes is large.
    """
    rows = sum(batch.num_rows for batch in batches)
    count = max_tasks if rows >= least_rows else 1
    return [
        [*batches, progress_batch(position, version, {_NUMBER: str(number), _COUNT: str(count)})]
        for number in range(count)
    ]
