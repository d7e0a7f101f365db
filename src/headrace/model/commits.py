"""Identify a transaction of the log by its position, id and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headrace.model.lsn import Lsn, format_lsn, parse_lsn


@dataclass(frozen=True, slots=True)
class KnownCommit:
    """A committed transaction that was read; no other log has one with the same three values.

    Attributes:
        lsn: the address of its commit record (bytes).
        xid: its 32-bit id.
        time: the time of its commit, microseconds since 1970-01-01 UTC.
    """

    lsn: Lsn
    xid: int
    time: int

    def __str__(self) -> str:
        return f"transaction {self.xid} at {format_lsn(self.lsn)}"

    def to_json(self) -> dict[str, Any]:
        """Return the transaction as a checkpoint stores it."""
        return {"lsn": format_lsn(self.lsn), "xid": self.xid, "time": self.time}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> Self | None:
        """Read what `to_json` wrote; None for None.

        Raises:
            KeyError, ValueError: `to_json` did not write it.
        """
        if stored is None:
            return None
        return cls(parse_lsn(str(stored["lsn"])), int(stored["xid"]), int(stored["time"]))
