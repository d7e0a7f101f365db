"""Make of a table's changes which rows live, and which were deleted when. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.mirror.columns import extended
from headrace.mirror.keys import equal_keys
from headrace.mirror.net_changes import DELETED, Ending, Reduced, newest_of_keys
from headrace.mirror.versions import FIELDS as VERSION_FIELDS
from headrace.mirror.versions import IS_CURRENT, VALID_TO, row_versions

IS_DELETED, DELETED_AT = "_is_deleted", "_deleted_at"
_TIME = pa.timestamp("us", tz="UTC")
FIELDS = (pa.field(IS_DELETED, pa.bool_()), pa.field(DELETED_AT, _TIME))
# A row that is deleted already keeps its time: only one that lives gets an end.
ENDING = Ending((IS_DELETED, DELETED_AT), live=(IS_DELETED, False))
"""What becomes of a row that is deleted."""


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
    own = [name for name in newest.column_names if name not in {field.name for field in VERSION_FIELDS}]
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
