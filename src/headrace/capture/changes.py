"""Decoded changes of a part of the log, as numpy arrays, before they become Arrow batches."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.capture.offset import Offset
from headrace.model.trace import CommitContext
from headrace.pgoutput.batch import Bytes, Numbers
from headrace.pgoutput.columnar import Cells, Letters, Tuples
from headrace.pgoutput.messages import Relation


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """Decoded changes in log order, as arrays; all but `cells` and `data` have shape `(changes,)`.

    A TRUNCATE is one change for each of its tables, without tuples.

    Attributes:
        relations: the relations of the changes.
        relation: the index in `relations` of each change.
        op: the letter of each change's message.
        commit_lsn: where the commit record of its transaction begins (bytes).
        sequence: the change's number in its transaction, from 1.
        commit_time: microseconds since 1970-01-01 UTC.
        xid: the transaction's 32-bit id.
        old_kind: OLD_KEY, OLD_ROW or NO_TUPLE.
        old, new: the tuples before and after the change.
        cells: where all values of the tuples lie in `data`.
        data: the messages' bytes.
        weight: the bytes that each change counts in limits.
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
    """The places in a part of the log at which a batch may end, ascending; all arrays are `(places,)`.

    Attributes:
        lsn: the end of a commit (bytes), or, for a last place inside a transaction, of the commit before.
        xid: the transaction that ends at the place, or is cut there.
        bytes: the weight of the changes before the place in this part.
        rows: the number of changes before the place in this part.
        inside: the last place, if it is inside a transaction; else None.
        contexts: the trace contexts of the transactions that end in this part, in order.
    """

    lsn: Numbers
    xid: Numbers
    bytes: Numbers
    rows: Numbers
    inside: Offset | None = None
    contexts: tuple[CommitContext, ...] = ()

    def __len__(self) -> int:
        return len(self.lsn)

    def offset(self, index: int) -> Offset:
        """Return the place at `index` as an offset."""
        if self.inside is not None and index in {len(self) - 1, -1}:
            return self.inside
        return Offset(int(self.lsn[index]))
