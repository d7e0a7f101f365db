"""Make the versions of a table's rows from its changes: from when to when each was in the database. Pure.

They also say which rows live, and which were deleted when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.mirror.columns import PREFIX, extended
from headrace.mirror.keys import equal_keys, row_codes
from headrace.mirror.net_changes import DELETED, Ending, Reduced, newest_of_keys

_TIME = pa.timestamp("us", tz="UTC")
FIELDS = (
    pa.field("_valid_from", _TIME),
    pa.field("_valid_to", _TIME),
    pa.field("_from_lsn", pa.int64()),
    pa.field("_to_lsn", pa.int64()),
    pa.field("_is_current", pa.bool_()),
)
VALID_FROM, VALID_TO, FROM_LSN, TO_LSN, IS_CURRENT = (field.name for field in FIELDS)
ENDING = Ending((VALID_TO, TO_LSN, IS_CURRENT), live=(IS_CURRENT, True), span=(FROM_LSN, TO_LSN))
"""What becomes of a current version that ends."""
IS_DELETED, DELETED_AT = "_is_deleted", "_deleted_at"
DELETION_FIELDS = (pa.field(IS_DELETED, pa.bool_()), pa.field(DELETED_AT, _TIME))
# A row that is deleted already keeps its time: only one that lives gets an end.
DELETION = Ending((IS_DELETED, DELETED_AT), live=(IS_DELETED, False))
"""What becomes of a row that is deleted."""
_TYPE, _LSN, _TIMESTAMP = (PREFIX + name for name in ("change_type", "commit_lsn", "commit_timestamp"))
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowVersions:
    """What some changes make of a table's versions.

    Attributes:
        rows: the versions that they began: the table's columns, then `FIELDS`.
        closings: of each key whose version from before they ended: the key, `_valid_to` and `_to_lsn`.
        emptied: the time and position (bytes) of the first TRUNCATE, which ended all other versions.
    """

    rows: pa.Table
    closings: pa.Table
    emptied: tuple[pa.Scalar, int] | None

    @property
    def reduced(self) -> Reduced:
        """What is merged into the lake's table: versions that begin, and what ends others."""
        no, yes = pa.array([False, True])
        begun = extended(self.rows, {DELETED: no})
        ended = extended(self.closings, {IS_CURRENT: no, DELETED: yes})
        rows = pa.concat_tables([begun, ended], promote_options="default")
        return Reduced(rows, None if self.emptied is None else end_of(*self.emptied))


def row_versions(rows: pa.Table, key: Sequence[str]) -> RowVersions:
    """Make versions of `rows`, at least one.

    A version that its own transaction ended was in no commit, and is left out.

    Args:
        rows: in the schema of a `RowShape` with the prefix `PREFIX`, by ascending position, and complete.
        key: the key's columns.
    """
    own = [name for name in rows.column_names if not name.startswith(PREFIX)]
    kinds = rows.column(_TYPE)
    is_truncation = pc.equal(kinds, "truncate").to_numpy()
    truncations, events = np.flatnonzero(is_truncation), np.flatnonzero(~is_truncation)
    # After the last row: a version that ends there goes on.
    stop = len(rows)
    following, is_first = _following(equal_keys(rows.select(key)).take(pa.array(events)), events, stop)
    emptied_at = np.append(truncations, stop)
    ends = np.minimum(following, emptied_at[np.searchsorted(truncations, events)])
    lsn, time = rows.column(_LSN).to_numpy(), rows.column(_TIMESTAMP).combine_chunks()
    # What goes on is masked, but its place must be one.
    places = np.minimum(ends, stop - 1)
    ends_at = pa.array(places, mask=ends == stop)
    is_version = pc.not_equal(kinds.take(pa.array(events)), "delete").to_numpy()
    # A version that one commit began and ended was visible to nobody.
    is_version &= (ends == stop) | (lsn[events] != lsn[places])
    begins_at, ends_at = pa.array(events[is_version]), ends_at.filter(pa.array(is_version))
    times = {
        VALID_FROM: time.take(begins_at),
        VALID_TO: time.take(ends_at),
        FROM_LSN: pa.array(lsn).take(begins_at),
        TO_LSN: pa.array(lsn).take(ends_at),
        IS_CURRENT: ends_at.is_null(),
    }
    made = extended(rows.take(begins_at).select(own), times)
    firsts = events[is_first]
    # After a TRUNCATE no version of before is left to be ended.
    closed_at = pa.array(firsts[firsts < emptied_at[0]])
    ended = equal_keys(rows.take(closed_at).select(key))
    closings = extended(ended, {VALID_TO: time.take(closed_at), TO_LSN: pa.array(lsn).take(closed_at)})
    emptied = (time[int(truncations[0])], int(lsn[truncations[0]])) if len(truncations) else None
    return RowVersions(made, closings, emptied)


def end_of(time: pa.Scalar, lsn: int) -> dict[str, pa.Scalar]:
    """Return what a version gets that ends at a time and a position (bytes)."""
    return {VALID_TO: time, TO_LSN: pa.scalar(lsn, pa.int64()), IS_CURRENT: pa.scalar(value=False)}


def row_deletions(rows: pa.Table, key: Sequence[str]) -> Reduced:
    """Reduce `rows`, at least one, to the last state of each key that a commit showed.

    A row that was inserted and deleted between two batches stays like any other, but one that no commit
    showed does not.

    Args:
        rows: in the schema of a `RowShape` with the prefix `PREFIX`, by ascending position, and complete.
        key: the key's columns.
    """
    # The versions of `history` say all that is needed: a row's last one, and what ended without another.
    found = row_versions(rows, key)
    newest = found.rows.take(newest_of_keys(found.rows, key))
    own = [name for name in newest.column_names if name not in {field.name for field in FIELDS}]
    no, yes = pa.array([False, True])
    is_deleted = pc.invert(newest.column(IS_CURRENT))
    shown = extended(
        newest.select(own), {IS_DELETED: is_deleted, DELETED_AT: newest.column(VALID_TO), DELETED: no}
    )
    ended = found.closings.join(equal_keys(shown.select(key)), list(key), join_type="left anti")
    marks = extended(ended.select(key), {IS_DELETED: yes, DELETED_AT: ended.column(VALID_TO), DELETED: yes})
    return Reduced(
        pa.concat_tables([shown, marks], promote_options="default"),
        None if found.emptied is None else end_at(found.emptied[0]),
    )


def end_at(time: pa.Scalar) -> dict[str, pa.Scalar]:
    """Return what a row gets that is deleted at a time."""
    return {IS_DELETED: pa.scalar(value=True), DELETED_AT: time}


def _following(keys: pa.Table, events: _Numbers, stop: int) -> tuple[_Numbers, npt.NDArray[np.bool_]]:
    """Return of each event the row of the key's next one, `stop` for none, and whether it is the first."""
    codes = row_codes(keys)
    # Stable: the events of a key stay in the order of the log.
    order = np.argsort(codes, kind="stable")
    same = codes[order][1:] == codes[order][:-1]
    following = np.full(len(keys), stop, np.int64)
    following[order[:-1][same]] = events[order[1:][same]]
    is_first = np.ones(len(keys), np.bool_)
    is_first[order[1:][same]] = False
    return following, is_first
