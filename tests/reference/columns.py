"""The slow, obvious way from changes to Arrow: one value after the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa

from headrace.model.changes import CHANGES_SCHEMA, Op
from headrace.model.names import TableName

Cells = tuple[Sequence[str], Sequence[bytes | None]]
"""One side of a row: column names, and PostgreSQL's text for each."""


class _Side:
    """The maps of one side (before or after) of all rows."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.values: list[bytes | None] = []
        self.sizes: list[int] = []
        self.missing: list[bool] = []

    def append(self, cells: Cells | None) -> None:
        self.missing.append(cells is None)
        if cells is None:
            self.sizes.append(0)
            return
        names, values = cells
        self.sizes.append(len(names))
        self.names.extend(names)
        self.values.extend(values)

    def array(self) -> pa.Array:
        offsets = pa.array([0, *accumulate(self.sizes)], pa.int32())
        values = pa.array(self.values, pa.binary()).cast(pa.string())
        return pa.MapArray.from_arrays(
            offsets, pa.array(self.names, pa.string()), values, mask=pa.array(self.missing, pa.bool_())
        )


class ChunkBuilder:
    """Collects changes; used by one thread."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.bytes = 0
        self._schema: list[str] = []
        self._table: list[str] = []
        self._op: list[str] = []
        self._before = _Side()
        self._after = _Side()
        self._lsn: list[int] = []
        self._seq: list[int] = []
        self._time: list[int] = []
        self._xid: list[int] = []
        self._identity: list[list[str] | None] = []

    def __len__(self) -> int:
        return len(self._op)

    def append(
        self,
        table: TableName,
        op: Op,
        before: Cells | None,
        after: Cells | None,
        *,
        commit_lsn: int,
        sequence: int,
        commit_time: int,
        xid: int,
        size: int,
        identity: list[str] | None = None,
    ) -> None:
        """Add one change; `size` is its message's length in bytes."""
        self._schema.append(table.schema)
        self._table.append(table.name)
        self._op.append(op.value)
        self._before.append(before)
        self._after.append(after)
        self._lsn.append(commit_lsn)
        self._seq.append(sequence)
        self._time.append(commit_time)
        self._xid.append(xid)
        self._identity.append(identity)
        self.bytes += size + 64

    def seal(self) -> pa.RecordBatch:
        """All changes so far as one batch in `CHANGES_SCHEMA`; the builder is empty afterwards."""
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(self._schema, pa.string()),
                pa.array(self._table, pa.string()),
                pa.array(self._op, pa.string()),
                self._before.array(),
                self._after.array(),
                pa.array(self._lsn, pa.int64()),
                pa.array(self._seq, pa.int64()),
                pa.array(self._time, pa.timestamp("us", tz="UTC")),
                pa.array(self._xid, pa.int64()),
                pa.array(self._identity, pa.list_(pa.string())),
            ],
            schema=CHANGES_SCHEMA,
        )
        self._clear()
        return batch
