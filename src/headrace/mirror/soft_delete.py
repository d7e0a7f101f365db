"""What the lake holds of a table whose deleted rows stay: its rows as they are, and as they last were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from headrace.mirror.deletions import ENDING, FIELDS, IS_DELETED, end_at, row_deletions
from headrace.mirror.digests import hashes
from headrace.mirror.modes import CurrentMode, LoadMoment, Rows, with_fields
from headrace.mirror.net_changes import Lookup, Reduced

_Batch = TypeVar("_Batch", pa.RecordBatch, pa.Table)


class SoftDeleteMode(CurrentMode):
    """The rows as they are, and those that were deleted as they last were."""

    fields = FIELDS
    ending = ENDING

    def loaded(self, batch: _Batch, _: LoadMoment) -> _Batch:
        """Return the rows, which live."""
        return with_fields(batch, self.fields, {IS_DELETED: False})

    def kept(
        self, old: Rows, moment: LoadMoment, key: Sequence[str], loaded: Rows
    ) -> Iterator[pa.RecordBatch]:
        """Yield the lake's rows whose key was not loaded, deleted by now; none where the key is another.

        Keys are compared by hashes of 64 bits, which are exact for one integer.
        """
        if not key:
            return
        # Hashes in place of keys: all keys of a large table would not fit into memory as Python's values.
        live = np.sort(np.concatenate([np.empty(0, np.uint64), *(hashes(batch, key) for batch in loaded)]))
        time = pa.scalar(moment.time, FIELDS[1].type)
        for batch in old:
            wanted = hashes(batch, key)
            is_live = np.searchsorted(live, wanted, "right") > np.searchsorted(live, wanted)
            yield ENDING.ended(batch.filter(pa.array(~is_live)), end_at(time))

    def reduced(self, rows: pa.Table, key: Sequence[str], look: Lookup) -> Reduced:
        """Reduce the changes to the last state of each key that a commit showed."""
        return row_deletions(rows, key, look)
