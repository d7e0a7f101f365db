"""Hold positions in the write-ahead log, and the transactions that were read there.

An LSN is a 64-bit byte address; PostgreSQL prints it as two hexadecimal halves, `16/B374D848`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

Lsn = int
"""A log sequence number: bytes since the beginning of the log, 0 ≤ lsn < 2**64."""

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def parse_lsn(text: str) -> Lsn:
    """Parse an LSN as PostgreSQL prints it.

    Raises:
        ValueError: `text` is not of the form `X/X`.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not an LSN: {text!r} (expected a form like 16/B374D848)")
    return (int(match[1], 16) << 32) | int(match[2], 16)


def format_lsn(lsn: Lsn) -> str:
    """Format `lsn` as PostgreSQL prints it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True)
class KnownCommit:
    """A committed transaction that was read; no other log has one with the same three values.

    Attributes:
        lsn: the address of its commit record (bytes).
        xid: its 32-bit id; -1 where no transaction was read (see `none_since`).
        time: the time of its commit, microseconds since 1970-01-01 UTC.
    """

    lsn: Lsn
    xid: int
    time: int

    @classmethod
    def none_since(cls, lsn: Lsn) -> Self:
        """Return what says that the log was read from `lsn` on, and no transaction with a change came."""
        return cls(lsn, -1, 0)

    @property
    def exists(self) -> bool:
        """Whether it is a transaction."""
        return self.xid >= 0

    @property
    def next_lsn(self) -> Lsn:
        """The first address that the commit record of a later transaction can have (bytes)."""
        # Its own record begins there; where there was none, one may still begin at the position itself.
        return self.lsn + self.exists

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
