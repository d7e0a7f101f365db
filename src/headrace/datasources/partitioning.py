"""Which part of a batch's documents does a task write?

Every task of a large batch leads all of its changes to documents and keeps those that its share has: each
document is written once, whichever rows lead to it, and nothing is exchanged between tasks.
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
"""A batch of fewer changes is one task's."""

_NUMBER, _COUNT = "share", "shares"


@dataclass(frozen=True, slots=True)
class TaskShare:
    """Number `number` of `count`, from 0."""

    number: int = 0
    count: int = 1

    def own(self, keys: Iterable[Key]) -> list[Key]:
        """The keys that belong to this share."""
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
        share: those that this task writes.
    """

    rows: pa.Table
    position: Lsn
    version: Lsn
    share: TaskShare

    @classmethod
    def of(cls, changes: pa.Table) -> Self:
        """From a partition's rows, the last of which is the batch's progress."""
        is_progress = pc.equal(changes.column("op"), Op.PROGRESS.value)
        [told] = changes.filter(is_progress).to_pylist()[-1:]
        share = {name: int(value) for name, value in told["after"] or ()}
        return cls(
            changes.filter(pc.invert(is_progress)),
            told["_commit_lsn"],
            told["_commit_seq"],
            TaskShare(share.get(_NUMBER, 0), share.get(_COUNT, 1)),
        )


def shared(
    batches: list[pa.RecordBatch],
    position: Lsn,
    version: Lsn,
    most: int,
    least_rows: int = LEAST_ROWS,
) -> list[list[pa.RecordBatch]]:
    """What goes to each task: all of the batch, and which share is its own.

    Args:
        batches: the changes.
        position: as `Task`.
        version: as `Task`.
        most: tasks, where the batch is large.
        least_rows: which it is from so many changes on.
    """
    rows = sum(batch.num_rows for batch in batches)
    count = most if rows >= least_rows else 1
    return [
        [*batches, progress_batch(position, version, {_NUMBER: str(number), _COUNT: str(count)})]
        for number in range(count)
    ]
