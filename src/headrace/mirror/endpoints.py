"""Name the two ends of a mirror: the database, and the lake."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.mirror.lake import Lake
from headrace.mirror.selection import Selection


@dataclass(frozen=True, slots=True)
class MirrorEndpoints:
    """Where a mirror reads and writes.

    Attributes:
        url: the database.
        slot: the slot that is followed.
        publication: what it sends.
        selection: which tables, and what of them.
        lake: the tables that are written.
    """

    url: str
    slot: str
    publication: str
    selection: Selection
    lake: Lake
