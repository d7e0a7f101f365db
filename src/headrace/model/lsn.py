"""Parse and format positions in the write-ahead log.

An LSN is a 64-bit byte address; PostgreSQL prints it as two hexadecimal halves, `16/B374D848`.
"""

from __future__ import annotations

import re

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
