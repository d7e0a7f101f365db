"""Tell whether a part of a table still has the rows that an earlier snapshot saw there.

A row that is changed gets another version with the changing transaction's id, wherever that stands. So where
a snapshot sees no version by a transaction that may have been open in an earlier one, it sees none that the
earlier one did not see; and where it sees as many rows, it sees the same ones. Freezing keeps the ids. What
moves versions (VACUUM FULL, CLUSTER) gives the table another file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.model.names import CtidRange
from headrace.postgres.session import ReadSession
from headrace.snapshot.ranges import Queries, check_filenode
from headrace.snapshot.reading import RowSelection, select

_BOUNDS = """
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""
_HALF, _ALL = 1 << 31, 1 << 32


@dataclass(frozen=True, slots=True)
class SnapshotBounds:
    """The transactions that a snapshot sees, about.

    Attributes:
        oldest: each transaction before it had ended (64 bits).
        following: none from here on had begun.
    """

    oldest: int
    following: int

    def can_judge(self, earlier: int) -> bool:
        """Tell whether ids of this snapshot compare with `earlier`, the `oldest` of another one.

        Rows have 32 bits of them.
        """
        return 0 <= self.following - earlier < _HALF


def read_bounds(session: ReadSession) -> SnapshotBounds:
    """Read which transactions the snapshot of a session sees."""
    [(oldest, following)] = session.query(_BOUNDS)
    return SnapshotBounds(oldest, following)


def has_same_rows(
    session: Queries, selection: RowSelection, parts: Sequence[CtidRange], *, oldest: int, rows: int
) -> bool:
    """Tell whether parts of a table have the rows that an earlier snapshot saw, in the same places.

    Args:
        session: in a snapshot that can judge `oldest`.
        selection: which rows are meant.
        parts: the parts, each of a table's own file.
        oldest: of the earlier snapshot.
        rows: how many rows that saw.

    Raises:
        HeadraceError: CONTINUITY where the table was rewritten meanwhile; CONNECTION, DATABASE.
    """
    # both ages count from one id, which stays the same in a transaction
    newer = f"count(*) FILTER (WHERE age(xmin) <= age('{oldest % _ALL}'::xid))"
    found = 0
    for part in parts:
        [(number, changed)] = session.query(select(selection, ["count(*)", newer], part))
        check_filenode(session, part)
        if changed:
            return False
        found += number
    return found == rows
