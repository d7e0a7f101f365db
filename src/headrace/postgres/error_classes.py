"""Decide what an error of the server means: whether it passes, and what ends with it. Pure.

One table: the first row that fits decides. The SQLSTATE comes first. A text is looked at only where one
state has several meanings, because servers of another language translate it. The texts of class XX, and the
names of files, are mostly not translated.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class ErrorClass(enum.Enum):
    """What an error of the server means for a reader."""

    AWAY = "away"
    """The server, the session or its resources are gone for now: tried again for as long as it takes."""
    PASSES = "passes"
    """A fault of the server's own that usually passes: tried again, with a limit."""
    LOG_REMOVED = "log removed"
    """A piece of the log is not there. Once, it passes; where it lasts, the slot is lost: a gap."""
    NOT_PRIMARY = "not the primary"
    """The server takes no writes, or decodes no log, as in a failover: waited for as one that is away."""
    READ_ONLY = "read-only"
    """The transaction is read-only: the server is not the primary now, or the role's default says so."""
    TOO_LARGE = "too large"
    """A row that no server can send."""
    REFUSED = "refused"
    """What the user, or Headrace, has to change."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of the table.

    Attributes:
        states: SQLSTATEs, or their beginnings.
        words: what the text holds, as a pattern; empty: any text.
        log: whether the row is only for commands that read the log. In other statements functions of users
            and extensions run too, and some raise the same states for what they find in a row.
    """

    meaning: ErrorClass
    states: tuple[str, ...]
    words: str = ""
    log: bool = False


_SEGMENT = r"(?<![0-9a-f])[0-9a-f]{24}(?![0-9a-f])"
"""The name of a file of the log."""

_ONLY_SEGMENT = rf'^[^":,/]*{_SEGMENT}[^":,]*$'
"""A sentence about a segment, without a path, a place in it or an error of the system."""

_DATA_FILE = r'"(pg_\w+|base|global)/'
"""The quoted name of a file in the server's data directory."""

_TABLE = (
    # The server waits for a standby, or stopped while it did. It is not the slot that is read which is meant.
    _Row(ErrorClass.AWAY, ("22023", "55000"), "synchronized_standby_slots"),
    _Row(ErrorClass.AWAY, ("08", "40", "57", "53000", "53100", "53200", "53300", "55P03")),
    _Row(ErrorClass.AWAY, ("25P03", "25P04")),  # ended by a limit on idle or long transactions
    _Row(ErrorClass.TOO_LARGE, ("54000",), log=True),
    _Row(ErrorClass.TOO_LARGE, ("XX000",), "invalid memory alloc request size", log=True),
    _Row(ErrorClass.LOG_REMOVED, ("58P01",), _SEGMENT, log=True),
    # A removed segment may be an internal error too, as one is that cannot be read.
    _Row(ErrorClass.LOG_REMOVED, ("XX000",), _ONLY_SEGMENT, log=True),
    _Row(
        ErrorClass.NOT_PRIMARY,
        ("55000", "XX000"),
        r"\bRO \(Read Only\) node|\b(writer|reader) (node|instance)",
    ),
    _Row(
        ErrorClass.NOT_PRIMARY,
        ("0A000", "25006", "55000"),
        r"\b(in|during) recovery|recovery is in progress|from the primary server",
    ),
    _Row(ErrorClass.READ_ONLY, ("25006",)),
    _Row(ErrorClass.PASSES, ("58030", "72000")),  # an error of the disk; a snapshot that is too old
    _Row(ErrorClass.PASSES, ("42501",), _DATA_FILE),  # a file system that has become read-only
    _Row(
        ErrorClass.PASSES,
        ("55000", "58P01", "XX000"),
        "cache lookup failed|catalog is missing|could not open relation with OID|tuple concurrently"
        "|unrecognized SI message|pfree called with invalid pointer|could not find block containing chunk"
        r"|stale file handle|disk quota exceeded|page ?server|\[neon_smgr\]|parallel worker"
        "|dynamic shared|shared memory segment",
    ),
    # A server that was restored without the history of its timelines runs.
    _Row(ErrorClass.REFUSED, ("58P01",), r"\b[0-9a-f]{8}\.history\b"),
    _Row(ErrorClass.PASSES, ("58", "XX"), log=True),
)


def classify(state: str, text: str, *, log: bool = False) -> ErrorClass:
    """Return what an error means.

    Args:
        state: its SQLSTATE; empty where the connection broke without one.
        text: its message.
        log: whether it answers a command that reads the log, or works with slots.
    """
    if not state:
        return ErrorClass.AWAY
    for row in _TABLE:
        is_for_command = log or not row.log
        if is_for_command and state.startswith(row.states) and re.search(row.words, text, re.IGNORECASE):
            return row.meaning
    return ErrorClass.REFUSED
