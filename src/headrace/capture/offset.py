"""The exact position up to which the log was read, as a checkpoint stores it.

An offset holds a position between transactions (`lsn`: the end of the last commit before it, which may be
confirmed). Where a batch had to end inside a large transaction, it also holds the place in that transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import KnownCommit, Lsn, format_lsn, parse_lsn

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Offset:
    """A place in the log up to which everything has been read.

    Attributes:
        lsn: the end of the last transaction that was read whole (bytes); the slot may be confirmed up to it.
        transaction: the commit record's address of the transaction that was read in part, else None.
        sequence: the last change of that transaction that was read.
        last: the last transaction of which a change was read; None where it is not known.
    """

    lsn: Lsn
    transaction: Lsn | None = None
    sequence: int = 0
    last: KnownCommit | None = field(default=None, compare=False)

    @property
    def version(self) -> Lsn:
        """The version of documents that are read once everything up to this offset is visible (bytes).

        Inside a transaction it is the first position after the beginning of the commit record: a standby
        that has replayed up to that position has replayed the record.
        """
        return self.lsn if self.transaction is None else self.transaction + 1

    def not_before(self, lsn: Lsn) -> Offset:
        """Return the same place with a confirmable position of at least `lsn`, which must lie before it.

        The reader knows the commits before a place, but not the positions without changes at which a batch
        ended after them; the slot may already be confirmed up to such a position.
        """
        return self if self.lsn >= lsn else replace(self, lsn=lsn)

    @property
    def order(self) -> tuple[Lsn, int]:
        """The sort key for offsets of one log."""
        if self.transaction is None:
            # -1: the end of a commit lies before each place in a transaction whose commit record is there.
            return self.lsn, -1
        return self.transaction, self.sequence

    def to_json(self) -> dict[str, Any]:
        """Return the offset as a dict of texts and numbers, as Spark stores it."""
        whole: dict[str, Any] = {"version": _VERSION, "lsn": format_lsn(self.lsn)}
        if self.transaction is not None:
            whole |= {"transaction": format_lsn(self.transaction), "sequence": self.sequence}
        if self.last is not None:
            whole["last"] = self.last.to_json()
        return whole

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Offset:
        """Read the offset that `to_json` wrote.

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
