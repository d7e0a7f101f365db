"""What is a stretch of the log, decoded, before it has the form that someone wants?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.capture.offset import Offset
from headrace.pgoutput import Relation
from headrace.pgoutput.batch import Bytes, Numbers
from headrace.pgoutput.columnar import Cells, Letters, Tuples


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """Changes in the order of the log; all arrays but `cells` and `data` are `(changes,)`.

    A TRUNCATE is one change for each of its tables, without tuples.

    Attributes:
        relations: the descriptions that `relation` points into.
        relation: which of them each change has.
        op: the message's letter.
        commit_lsn: where the commit record of its transaction begins (bytes).
        sequence: its place in the transaction, from 1.
        commit_time: microseconds since 1970-01-01 UTC.
        xid: the transaction's 32-bit id.
        old_kind: OLD_KEY, OLD_ROW or NO_TUPLE.
        old, new: its tuples.
        cells: where all tuples' values lie in `data`.
        data: the messages' bytes.
        weight: the bytes that it counts for in limits.
    """

    relations: tuple[Relation, ...]
    relation: Numbers
    op: Letters
    commit_lsn: Numbers
    sequence: Numbers
    commit_time: Numbers
    xid: Numbers
    old_kind: Letters
    old: Tuples
    new: Tuples
    cells: Cells
    data: Bytes
    weight: Numbers

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True, slots=True)
class ChangeEnds:
    """Where a batch may end in a stretch of the log, ascending; all arrays are `(places,)`.

    Attributes:
        lsn: the end of a commit (bytes), or, for a last place inside a transaction, of the commit before.
        xid: the transaction that ends there, or is cut.
        bytes: the weight of the changes before it in this stretch.
        rows: the number of changes before it in this stretch.
        inside: the last place where that is inside a transaction, else None.
    """

    lsn: Numbers
    xid: Numbers
    bytes: Numbers
    rows: Numbers
    inside: Offset | None = None

    def __len__(self) -> int:
        return len(self.lsn)

    def offset(self, index: int) -> Offset:
        """The place at `index`."""
        if self.inside is not None and index in {len(self) - 1, -1}:
            return self.inside
        return Offset(int(self.lsn[index]))

    @classmethod
    def of(cls, *places: tuple[Offset, int, int, int]) -> ChangeEnds:
        """From (offset, xid, bytes, rows) each."""
        numbers = [(offset.lsn, xid, size, rows) for offset, xid, size, rows in places]
        lsn, xids, sizes, rows = np.array(numbers, np.int64).reshape(-1, 4).T
        last = places[-1][0] if places else None
        return cls(
            lsn, xids, sizes, rows, last if last is not None and last.transaction is not None else None
        )
