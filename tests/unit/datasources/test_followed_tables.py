"""What do offsets say of the tables that a checkpoint follows, and what becomes of one that is new?"""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.capture import Offset
from headrace.datasources.followed_tables import (
    added_tables,
    exclude_tables,
    since_fields,
    since_of,
    snapshot_progress,
    table_fields,
    tables_of,
)
from headrace.datasources.initial_snapshot import SnapshotProgress
from headrace.datasources.options import read_options
from headrace.datasources.source_options import CdcOptions
from headrace.datasources.starting_offsets import later_offset
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA
from headrace.model.names import TableName

A, B, ODD = TableName("public", "a"), TableName("public", "b"), TableName("My shop", 'x"*.y')


def options(policy: str = "refuse", **more: str) -> CdcOptions:
    given = {"url": "postgresql://db/shop", "slot": "s", "tables": "a, b", "newTables": policy, **more}
    return read_options(CdcOptions, given, "postgres_cdc")


def test_names_are_readable_and_read_again() -> None:
    assert table_fields([B, A]) == {"tables": ["public.a", "public.b"]}
    assert tables_of(table_fields([ODD, A])) == (ODD, A)
    assert table_fields([]) == {}
    assert tables_of({}) is None
    progress = SnapshotProgress(2, 3, (ODD, A))
    assert SnapshotProgress.from_json(progress.to_json()) == progress
    assert SnapshotProgress(1, 2).to_json() == {"snapshot": {"attempt": 1, "parts": 2}}


def test_a_new_table_is_refused_where_nobody_said_what_to_do_with_it() -> None:
    assert added_tables({}, [A, B], options()) == ()
    assert added_tables(table_fields([A, B]), [A], options()) == ()
    with pytest.raises(HeadraceError, match="does not follow b") as caught:
        added_tables(table_fields([A]), [A, B], options())
    assert caught.value.kind is Kind.USAGE
    assert added_tables(table_fields([A]), [A, B], options("follow")) == (B,)
    with pytest.raises(HeadraceError, match="the checkpoint follows a, not b"):
        added_tables(table_fields([A]), [B], options(tables="b"))


@pytest.mark.parametrize(
    ("policy", "before", "after"),
    [
        ("follow", None, None),
        ("follow", SnapshotProgress(1, 2), SnapshotProgress(1, 2, (A,))),
        ("follow", SnapshotProgress(1, 2, (A,)), SnapshotProgress(1, 2, (A,))),
        ("snapshot", None, SnapshotProgress(0, 0, (B,))),
        ("snapshot", SnapshotProgress(1, 2), SnapshotProgress(1, 2)),
        ("snapshot", SnapshotProgress(1, 2, (A,)), SnapshotProgress(1, 2, (A, B))),
    ],
)
def test_whose_rows_are_read(
    policy: str, before: SnapshotProgress | None, after: SnapshotProgress | None
) -> None:
    stored = table_fields([A])
    assert snapshot_progress(before, stored, (B,), options(policy)) == after
    assert snapshot_progress(before, stored, (), options(policy)) == before


def test_the_changes_of_all_tables_but_some() -> None:
    rows = [{"schema": one.schema, "table": one.name, "_xid": n} for n, one in enumerate([A, B, ODD, A])]
    batch = pa.RecordBatch.from_pylist(rows, schema=CHANGES_SCHEMA)
    [found] = exclude_tables([batch], {B: None, TableName("public", "none"): None}, {})
    assert found.column("_xid").to_pylist() == [0, 2, 3]


def test_what_was_read_as_rows_is_not_told_again() -> None:
    """Also not that a partition was emptied, which has a name of its own."""
    leaf = TableName("public", "b_1")
    rows = [
        {"schema": table.schema, "table": table.name, "_commit_lsn": lsn}
        for table, lsn in [(A, 5), (B, 5), (leaf, 6), (B, 7), (leaf, 8)]
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=CHANGES_SCHEMA)
    [found] = exclude_tables([batch], {B: 7}, {leaf: B})
    places = zip(found.column("table").to_pylist(), found.column("_commit_lsn").to_pylist(), strict=True)
    assert list(places) == [("a", 5), ("b", 7), ("b_1", 8)]


def test_from_where_on_changes_count_is_kept_until_the_log_is_read_so_far() -> None:
    since = {B: 0x16B3748, ODD: 0x100000001}
    stored = since_fields(since, 0)
    assert stored == {"since": {'"My shop"."x""*.y"': "1/1", "public.b": "0/16B3748"}}
    assert since_of(stored) == since
    assert since_fields(since, 0x16B3748) == {"since": {'"My shop"."x""*.y"': "1/1"}}
    assert since_fields(since, 0x100000001) == since_fields({}, 0) == {}
    assert since_of({}) == {}


def test_behind_a_gap_the_log_goes_on_where_the_slot_begins() -> None:
    assert later_offset(Offset(5), None) == Offset(5)
    assert later_offset(Offset(5), Offset(7)) == Offset(7)
    assert later_offset(Offset(9), Offset(7)) == Offset(9)
    assert later_offset(Offset(5, 8, 2), Offset(7)) == Offset(7, 8, 2), (
        "the slot begins before that transaction"
    )
    assert later_offset(Offset(5, 6, 2), Offset(7)) == Offset(7)


class _Counted(str):
    """A name that says how often it was compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_thousands_of_tables_are_not_each_compared_with_all_others() -> None:
    count = 2_000
    now = [TableName("public", _Counted(f"t{number}")) for number in range(count)]
    _Counted.compared = 0
    assert added_tables(table_fields(now), now, options()) == ()
    assert _Counted.compared <= 20 * count
