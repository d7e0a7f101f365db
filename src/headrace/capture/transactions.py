"""Find the transaction of each message, and its number in it. Pure and columnar.

Positions count every row and truncate as the server decodes them, before any filter (decision 0004): (commit
record, sequence) is the same for every reader.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.model.lsn import Lsn
from headrace.pgoutput.batch import MessageBatch, Numbers
from headrace.pgoutput.columnar import DELETE, INSERT, TRUNCATE, UPDATE, Letters, Mask, Numerals, letter_set
from headrace.pgoutput.cursor import broken
from headrace.pgoutput.frames import POSTGRES_EPOCH_US

BEGIN, COMMIT = b"BC"
# Beyond it the sum with PostgreSQL's epoch would overflow.
_LATEST_US = 1 << 62
_BEGIN_SIZE, _COMMIT_SIZE = 21, 26
_IS_CHANGE = letter_set(bytes((INSERT, UPDATE, DELETE, TRUNCATE)))


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that began in a batch of messages and did not end in it.

    Attributes:
        commit_lsn: where its commit record begins (bytes).
        commit_time: microseconds since 1970-01-01 UTC.
        xid: its 32-bit id.
        sequence: how many changes of it were seen.
        kept: whether one of them was kept.
    """

    commit_lsn: int
    commit_time: int
    xid: int
    sequence: int = 0
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions of a batch, and each change's place in them, as arrays.

    Attributes:
        commit_lsn, commit_time, xid: of each transaction, `(transactions,)`.
        commit_messages: the indices of the commit messages, in order; the last transaction may have none.
        end_lsn: the ends of those commits, to be confirmed (bytes).
        changes: the indices of the messages that are rows or truncates.
        owner: the index of the transaction of each of these changes.
        sequence: the number of each change in its transaction, from 1.
        unfinished: the last transaction, if it has no commit yet.
    """

    commit_lsn: Numbers
    commit_time: Numbers
    xid: Numbers
    commit_messages: Numbers
    end_lsn: Numbers
    changes: Numbers
    owner: Numbers
    sequence: Numbers
    unfinished: OpenTransaction | None

    def around(self, message: int) -> tuple[Lsn, int]:
        """Return the commit record's address (bytes) and the xid of the transaction that holds a message."""
        place = self.place_of(message)
        return int(self.commit_lsn[place]), int(self.xid[place])

    def place_of(self, message: int) -> int:
        """Return the index of the transaction that holds a message."""
        place = int(np.searchsorted(self.commit_messages, message))
        if place >= len(self.xid):
            raise broken("a message of a transaction stands outside a transaction")
        return place


def find_transactions(batch: MessageBatch, letters: Letters, before: OpenTransaction | None) -> Transactions:
    """Find the transactions of `batch`; `before` is the unfinished one of the batch before it.

    Raises:
        HeadraceError: PROTOCOL where transactions overlap or a change stands outside of one.
    """
    begins, commits = letters == BEGIN, letters == COMMIT
    is_change = _IS_CHANGE[letters]
    # A batch may begin inside a transaction: that one is number 0.
    carried = int(before is not None)
    begun = np.cumsum(begins) + carried
    _check_order(begins, commits, is_change, begun - np.cumsum(commits))
    numerals = Numerals(batch.data)
    first, last = _begins_of(batch, begins, _BEGIN_SIZE), _begins_of(batch, commits, _COMMIT_SIZE)
    # Begin: letter, commit record (8 bytes), time (8), xid (4).
    # Commit: letter, flags (1), record (8), end (8), time (8).
    commit_lsn = numerals.int64(first + 1)
    time, xid = numerals.int64(first + 9) + POSTGRES_EPOCH_US, numerals.uint32(first + 17)
    if (commit_lsn < 0).any() or (time > _LATEST_US).any() or (time < -_LATEST_US).any():
        raise broken("a transaction has an impossible position or time")
    if before is not None:
        commit_lsn = np.concatenate(([before.commit_lsn], commit_lsn))
        time, xid = np.concatenate(([before.commit_time], time)), np.concatenate(([before.xid], xid))
    # The end of the record, not its beginning: a reader confirms what lies before a position.
    end_lsn = numerals.int64(last + 10)
    if (numerals.int64(last + 2) != commit_lsn[: len(last)]).any() or (
        end_lsn < commit_lsn[: len(last)]
    ).any():
        raise broken("a transaction ends that did not begin")
    changes = np.flatnonzero(is_change)
    owner = begun[changes] - 1
    count = np.bincount(owner, minlength=len(xid))
    done = before.sequence if before is not None else 0
    sequence = np.arange(1, len(changes) + 1) - (np.cumsum(count) - count)[owner]
    if done:
        # The number goes on, so that a position does not depend on how the log was cut into batches.
        sequence[owner == 0] += done
    unfinished = None
    if len(xid) > len(last):
        seen = int(count[-1]) + (done if len(xid) == 1 else 0)
        unfinished = OpenTransaction(int(commit_lsn[-1]), int(time[-1]), int(xid[-1]), seen)
    return Transactions(
        commit_lsn, time, xid, np.flatnonzero(commits), end_lsn, changes, owner, sequence, unfinished
    )


def _check_order(begins: Mask, commits: Mask, changes: Mask, depth: Numbers) -> None:
    """Raise PROTOCOL if transactions overlap; `depth` is the number of open ones after each message."""
    if (depth[begins] != 1).any():
        raise broken("a transaction begins inside another")
    if (depth[commits] != 0).any() or (depth[changes] != 1).any():
        raise broken("a change stands outside a transaction")


def _begins_of(batch: MessageBatch, chosen: Mask, size: int) -> Numbers:
    """Return where the chosen messages begin; each must be `size` bytes long."""
    begin = batch.begin[chosen]
    if (batch.end[chosen] - begin != size).any():
        raise broken(f"a message that must have {size} bytes has others")
    return begin
