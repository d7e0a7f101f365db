"""Compare transactions that the server sends again with those that were read before.

A restored storage, or another promoted standby, can have a log that differs from some place on and is already
longer than what was read. System, timeline and positions agree then. But its slot has an older position, so
the server sends again what was read after it. The last transaction that was read must come, exactly that
one, and no other between it and the position that was reached. Where none was read yet, none may come between
the beginning of the reading and that position.
"""

from __future__ import annotations

import numpy as np

from headrace.capture.offset import Offset
from headrace.capture.transactions import Transactions
from headrace.errors import NEW_CHECKPOINT, HeadraceError, Kind
from headrace.model.lsn import KnownCommit, Lsn, format_lsn
from headrace.pgoutput.columnar import Mask


class Recognition:
    """Remembers the last transaction that was read, and compares it with what the server sends again.

    Only transactions with a change count: servers before 15 may or may not send empty ones.

    Args:
        read: an offset up to which the log was read, with the last transaction before it. Where it has none,
            the reading begins there; None: at the beginning of the log.

    Attributes:
        last: the last transaction with a change that was read, or that there was none.
    """

    def __init__(self, read: Offset | None = None) -> None:
        read = read or Offset(0)
        self.last = read.last or KnownCommit.none_since(read.lsn)
        self._upto: Lsn = read.order[0]
        self._awaited = self._repeats = False

    @property
    def is_open(self) -> bool:
        """Whether the comparison is not finished; nothing may be confirmed before.

        After a confirmation the server would not send again what must be compared.
        """
        return self._awaited or self._repeats

    def connected(self, confirmed: Lsn, left: Lsn | None = None) -> None:
        """Begin the comparison for a new connection.

        Args:
            confirmed: the slot's confirmed position (bytes).
            left: where the timeline that was read ended, if the server is on another; what was read after
                it is not compared.
        """
        if left is not None:
            self._upto = min(self._upto, left)
        # The server sends nothing before the confirmed position: what lies there cannot be compared.
        self._awaited = self.last.exists and confirmed <= self.last.lsn
        self._repeats = confirmed < self._upto and self.last.lsn < self._upto

    def beginning(self, resume: Lsn) -> Lsn:
        """Return where to begin instead of `resume` (bytes), so that the last transaction is sent again.

        The server leaves out what lies before the slot's confirmed position.
        """
        return min(resume, self.last.lsn)

    def look(self, transactions: Transactions) -> None:
        """Compare the next transactions of the log with what is remembered, then remember the last.

        Raises:
            HeadraceError: OTHER_LOG.
        """
        if not len(transactions.xid):
            return
        filled = _with_changes(transactions)
        self._compare(transactions, filled, self.last)
        # Commits come in order: once one lies after what was read, all that was to be repeated has come.
        self._repeats = self._repeats and bool(transactions.commit_lsn[-1] < self._upto)
        new = np.flatnonzero(filled & (transactions.commit_lsn >= self.last.next_lsn))
        if len(new):
            self.last = _commit_at(transactions, int(new[-1]))
            self._upto = max(self._upto, self.last.lsn + 1)
        self._upto = max(self._upto, int(transactions.end_lsn.max(initial=0)))

    def passed(self, lsn: Lsn) -> None:
        """Note that the server has no more transactions before `lsn`.

        Raises:
            HeadraceError: OTHER_LOG.
        """
        # Past that position without the transaction: in this log it never happened.
        if self._awaited and lsn >= self._upto and lsn > self.last.lsn:
            raise _another(f"the {self.last}, which was read last, is not in the log any more")
        self._repeats = self._repeats and lsn < self._upto
        self._upto = max(self._upto, lsn)

    def _compare(self, transactions: Transactions, filled: Mask, last: KnownCommit) -> None:
        at = np.flatnonzero(transactions.commit_lsn == last.lsn)
        if len(at) and last.exists:
            now = _commit_at(transactions, int(at[0]))
            # Position, xid and time: a restored server gives out positions and xids again, the time differs.
            if now != last:
                raise _another(f"the {last}, which was read last, is transaction {now.xid} there now")
            self._awaited = False
        if self._awaited and (transactions.commit_lsn > last.lsn).any():
            raise _another(f"the {last}, which was read last, is not in the log any more")
        new = np.flatnonzero(
            filled & (transactions.commit_lsn >= last.next_lsn) & (transactions.commit_lsn < self._upto)
        )
        if len(new):
            now = _commit_at(transactions, int(new[0]))
            before = f"the last before that was the {last}" if last.exists else "none had come by then"
            raise _another(
                f"the {now} was not there when the log was read up to {format_lsn(self._upto)}: {before}"
            )


def _with_changes(transactions: Transactions) -> Mask:
    filled: Mask = np.bincount(transactions.owner, minlength=len(transactions.xid)) > 0
    # The batch may begin inside a transaction whose changes came before.
    if len(transactions.sequence) and transactions.owner[0] == 0 and transactions.sequence[0] > 1:
        filled[0] = True
    return filled


def _commit_at(transactions: Transactions, place: int) -> KnownCommit:
    columns = (transactions.commit_lsn, transactions.xid, transactions.commit_time)
    return KnownCommit(*(int(column[place]) for column in columns))


def _another(what: str) -> HeadraceError:
    return HeadraceError(
        Kind.OTHER_LOG,
        f"{what}: the database's storage was put back to an earlier time, or its log is that of another "
        "standby that was promoted",
        NEW_CHECKPOINT,
    )
