"""Changes as Python values, for comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.model.changes import Op
from headrace.model.names import TableName


@dataclass(frozen=True, slots=True)
class Change:
    """One change as a Python value."""

    table: TableName
    op: Op
    before: dict[str, str | None] | None
    after: dict[str, str | None] | None
    commit_lsn: int
    commit_seq: int


def decode_changes(batch: pa.RecordBatch | pa.Table) -> Iterator[Change]:
    """Yield the changes of a batch as Python values."""
    for row in batch.to_pylist():
        yield Change(
            table=TableName(row["schema"], row["table"]),
            op=Op(row["op"]),
            before=None if row["before"] is None else dict(row["before"]),
            after=None if row["after"] is None else dict(row["after"]),
            commit_lsn=row["_commit_lsn"],
            commit_seq=row["_commit_seq"],
        )
