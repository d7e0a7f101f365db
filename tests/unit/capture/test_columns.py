"""Changes as Arrow columns: NULL is no absence, and nothing that is not UTF-8 passes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headrace.capture import Offset
from headrace.capture.columns import WIDEST_COMPARED, KeptColumns, Projection, changes_batch, covers
from headrace.capture.translation import Translation
from headrace.errors import HeadraceError, Kind
from headrace.model.changes import CHANGES_SCHEMA, Op
from headrace.model.names import TableName
from headrace.pgoutput.messages import Relation, RelationColumn, Truncate
from reference.encoding import batch_of
from reference.pgoutput import UNCHANGED, Begin, Commit, Delete, Insert, Message, Update
from support.changes import decode_changes

TABLE = TableName("public", "t")


def columns(*names: str) -> Relation:
    return Relation(
        1, TABLE, "d", tuple(RelationColumn(name, key=False, type_oid=25, type_modifier=-1) for name in names)
    )


def batch(*messages: Message, projection: Projection | None = None) -> pa.RecordBatch:
    whole = [Begin(64, 1_000_001, 9), *messages, Commit(64, 96, 1_000_001)]
    rows, _ = Translation(Offset(0)).take(batch_of(whole))
    return changes_batch(rows, projection)


def test_null_absent_and_empty_stay_apart() -> None:
    found = batch(
        columns("a", "b"),
        Insert(1, (None, b"")),
        Update(1, (None, None), old_is_key=True, new=(b"1", None)),
        columns(),
        Delete(1, (), old_is_key=False),
        Insert(1, ()),
        Truncate((1,), cascade=False, restart_identity=False),
    )
    assert found.schema == CHANGES_SCHEMA
    found.validate(full=True)
    changes = list(decode_changes(found))
    assert [change.op for change in changes] == [Op.INSERT, Op.UPDATE, Op.DELETE, Op.INSERT, Op.TRUNCATE]
    assert [change.before for change in changes] == [None, {}, {}, None, None]
    assert [change.after for change in changes] == [
        {"a": None, "b": ""},
        {"a": "1", "b": None},
        None,
        {},
        None,
    ]


def test_a_row_says_where_and_when_it_was_committed() -> None:
    [row] = batch(columns("Größe"), Insert(1, ("größer".encode(),))).to_pylist()
    assert row == {
        "schema": "public",
        "table": "t",
        "op": "c",
        "before": None,
        "after": [("Größe", "größer")],
        "_commit_lsn": 64,
        "_commit_seq": 1,
        "_commit_timestamp": datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC),
        "_xid": 9,
        "_identity": [],
    }


def test_a_row_says_which_old_values_the_log_has() -> None:
    table = replace(
        columns("a", "b"), columns=tuple(RelationColumn(name, name != "a", 25, -1) for name in "abc")
    )
    whole = replace(table, oid=2, replica_identity="f")
    row = (b"1", b"2", b"3")
    found = batch(table, whole, Insert(1, row), Insert(2, row), Update(1, None, old_is_key=False, new=row))
    assert found.column("_identity").to_pylist() == [["b", "c"], None, ["b", "c"]]


def test_no_changes_are_an_empty_batch() -> None:
    empty = batch()
    assert empty.num_rows == 0
    assert empty.schema == CHANGES_SCHEMA


def test_a_value_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(HeadraceError, match="not UTF-8") as raised:
        batch(columns("a"), Insert(1, (b"\xff",)))
    assert raised.value.kind is Kind.DATABASE


def test_only_the_columns_that_are_asked_for_are_taken_over() -> None:
    other = replace(columns("a", "body"), oid=2, table=TableName("public", "other"))
    found = batch(
        columns("id", "body", "fk", "name"),
        other,
        Insert(1, (b"1", b"x" * 100, None, b"n")),
        Update(
            1,
            (b"1", b"x" * 100, b"7", b"o" * (WIDEST_COMPARED + 1)),
            old_is_key=False,
            new=(b"1", UNCHANGED, None, UNCHANGED),
        ),
        Delete(1, (b"1", b"y", b"7", b"n"), old_is_key=False),
        Insert(2, (b"5", b"6")),
        projection={TABLE: KeptColumns(frozenset({"id", "fk"}), frozenset({"name"}))},
    )
    found.validate(full=True)
    assert [(change.before, change.after) for change in decode_changes(found)] == [
        (None, {"id": "1", "fk": None, "name": "n"}),
        ({"id": "1", "fk": "7"}, {"id": "1", "fk": None}),
        ({"id": "1", "fk": "7", "name": "n"}, None),
        (None, {}),
    ]


def test_what_is_kept_covers_what_asks_for_no_more() -> None:
    kept = {TABLE: KeptColumns(frozenset({"id"}), frozenset({"name"}))}
    assert covers(kept, {TABLE: KeptColumns(frozenset({"id"}), frozenset({"id", "name"}))})
    assert not covers(kept, {TABLE: KeptColumns(frozenset({"name"}))})
    assert not covers(kept, {TableName("public", "other"): KeptColumns(frozenset({"id"}))})
