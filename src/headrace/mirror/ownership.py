"""Refuse a lake's table that another program has written, and say what makes it right again."""

from __future__ import annotations

from headrace.errors import HeadraceError, Kind
from headrace.mirror.lake import LakeTable
from headrace.mirror.positions import TablePosition
from headrace.mirror.tables import MirroredTable

_REPAIR = "Run `headrace mirror verify --repair`: it makes its rows right, and accepts what is there."
_RELOAD = (
    "What it had in between is gone for good. Run `headrace mirror --reload`: it reads all tables anew, and "
    "keeps the versions and changes that are there."
)


def check_own(lake: LakeTable, known: TablePosition, table: MirroredTable) -> None:
    """Make sure that nobody else has written a table since its position was noted.

    Raises:
        HeadraceError: CONTINUITY.
    """
    other = lake.find_other_commit(known.version)
    if other is not None:
        remedy = _REPAIR if _can_be_repaired(lake, known, table) else _RELOAD
        raise HeadraceError(
            Kind.CONTINUITY, f"another program has written the lake's table {lake.name} ({other})", remedy
        )


def check_repairable(lake: LakeTable, known: TablePosition, table: MirroredTable) -> None:
    """Make sure that a comparison with the database can tell whether all rows of a table are right.

    Raises:
        HeadraceError: CONTINUITY.
    """
    if not _can_be_repaired(lake, known, table):
        check_own(lake, known, table)


def _can_be_repaired(lake: LakeTable, known: TablePosition, table: MirroredTable) -> bool:
    """Tell whether the database has what a table may lack: it knows no past versions and no changes."""
    return table.mode == "current" or (table.mode == "history" and not lake.is_put_back(known.version))
