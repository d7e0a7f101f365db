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


def other_program(table: MirroredTable, what: str, *, is_put_back: bool) -> HeadraceError:
    """Return the error of a table that another program has written, with what makes it right again.

    Args:
        table: the table.
        what: the other program's commit.
        is_put_back: whether the lake's table is an older copy of itself.
    """
    return HeadraceError(
        Kind.CONTINUITY,
        f"another program has written the lake's table {table.name} ({what})",
        _REPAIR if _can_be_repaired(table, is_put_back=is_put_back) else _RELOAD,
    )


def check_repairable(lake: LakeTable, known: TablePosition, table: MirroredTable) -> None:
    """Make sure that a comparison with the database can tell whether all rows of a table are right.

    Raises:
        HeadraceError: CONTINUITY.
    """
    is_put_back = lake.is_put_back(known.version)
    what = None
    if not _can_be_repaired(table, is_put_back=is_put_back):
        what = lake.find_other_commit(known.version)
    if what is not None:
        raise other_program(table, what, is_put_back=is_put_back)


def _can_be_repaired(table: MirroredTable, *, is_put_back: bool) -> bool:
    """Tell whether the database has what a table may lack.

    It knows no changes, and of an older copy neither the versions nor the deleted rows that came since.
    """
    # What the past was, the database cannot say; rows as they are, it can.
    keeps_past = table.mode == "history" or table.soft_delete
    return table.mode != "changes" and not (keeps_past and is_put_back)
