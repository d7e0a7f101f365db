"""How far has the log been read, exactly, in a form that survives a restart?

An offset is a whole-transaction position (`lsn`: the end of the last commit before it, what may be
confirmed) and, only where a batch had to end inside a large transaction, the place in that transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.model import KnownCommit, Lsn, format_lsn, parse_lsn

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Offset:
    """Everything up to here has been read.

    Attributes:
        lsn: the end of the last transaction that is read whole; the slot may be confirmed up to here.
        transaction: the commit record's address of the transaction that is read in part, else None.
        sequence: the last message of it that is read.
        last: the last transaction with a change that is read, whole or in part; None where it is not known.
    """

    lsn: Lsn
    transaction: Lsn | None = None
    sequence: int = 0
    last: KnownCommit | None = field(default=None, compare=False)

    @property
    def version(self) -> Lsn:
        """The version of documents that are read when everything up to here is visible (bytes).

        Inside a transaction that is the first position behind the beginning of its commit record: a
        standby that has replayed up to there has replayed the record.
        """
        return self.lsn if self.transaction is None else self.transaction + 1

    def not_before(self, lsn: Lsn) -> Offset:
        """The same place; what may be confirmed there is no less than `lsn`, which lies before it.

        The reader knows the commits before a place, and not the quiet positions behind them that a batch
        ended at: a slot that was confirmed there is ahead of those.
        """
        return self if self.lsn >= lsn else replace(self, lsn=lsn)

    @property
    def order(self) -> tuple[Lsn, int]:
        """Sorts offsets of one log."""
        if self.transaction is None:
            return self.lsn, -1
        return self.transaction, self.sequence

    def covers(self, commit_lsn: Lsn, sequence: int) -> bool:
        """Whether the change at (commit record, sequence) lies before or at this offset."""
        if self.transaction is None:
            return commit_lsn < self.lsn
        return (commit_lsn, sequence) <= (self.transaction, self.sequence)

    def to_json(self) -> dict[str, Any]:
        """A dict of text and numbers, as Spark stores it."""
        whole: dict[str, Any] = {"version": _VERSION, "lsn": format_lsn(self.lsn)}
        if self.transaction is not None:
            whole |= {"transaction": format_lsn(self.transaction), "sequence": self.sequence}
        if self.last is not None:
            whole["last"] = self.last.to_json()
        return whole

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Offset:
        """The offset that `to_json` wrote.

        Raises:
            HeadraceError: CONTINUITY where a newer Headrace or another source wrote it.
        """
        try:
            if stored["version"] != _VERSION:
                raise ValueError(stored["version"])  # noqa: TRY301
            inside = stored.get("transaction")
            return cls(
                parse_lsn(str(stored["lsn"])),
                None if inside is None else parse_lsn(str(inside)),
                int(stored.get("sequence", 0)),
                KnownCommit.from_json(stored.get("last")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the checkpoint holds an offset that this version cannot read: {dict(stored)}",
                "Use the version that wrote it, or start with a new checkpoint.",
            ) from error
