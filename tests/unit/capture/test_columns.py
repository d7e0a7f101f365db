"""Changes as Arrow columns: NULL is no absence, and nothing that is not UTF-8 passes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.capture.columns import Cells, ChunkBuilder, progress_batch
from headrace.errors import HeadraceError, Kind
from headrace.model import CHANGES_SCHEMA, Op, TableName, decode_changes

TABLE = TableName("public", "t")


def builder(*rows: tuple[Op, Cells | None, Cells | None]) -> ChunkBuilder:
    chunk = ChunkBuilder()
    for number, (op, before, after) in enumerate(rows, 1):
        chunk.append(
            TABLE, op, before, after, commit_lsn=64, sequence=number, commit_time=1_000_001, xid=9, size=10
        )
    return chunk


def test_null_absent_and_empty_stay_apart() -> None:
    batch = builder(
        (Op.INSERT, None, [("a", None), ("b", b"")]),
        (Op.UPDATE, [], [("a", b"1")]),
        (Op.DELETE, [("a", b"1")], None),
        (Op.TRUNCATE, None, None),
    ).seal()
    assert batch.schema == CHANGES_SCHEMA
    batch.validate(full=True)
    changes = list(decode_changes(batch))
    assert [change.op for change in changes] == [Op.INSERT, Op.UPDATE, Op.DELETE, Op.TRUNCATE]
    assert [change.before for change in changes] == [None, {}, {"a": "1"}, None]
    assert [change.after for change in changes] == [{"a": None, "b": ""}, {"a": "1"}, None, None]


def test_a_row_says_where_and_when_it_was_committed() -> None:
    [row] = builder((Op.INSERT, None, [("Größe", "größer".encode())])).seal().to_pylist()
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
    }


def test_sealing_empties_the_builder() -> None:
    chunk = builder((Op.INSERT, None, [("a", b"1")]))
    assert (len(chunk), chunk.bytes > 10) == (1, True)
    assert chunk.seal().num_rows == 1
    assert (len(chunk), chunk.bytes) == (0, 0)
    empty = chunk.seal()
    assert empty.num_rows == 0
    assert empty.schema == CHANGES_SCHEMA


def test_a_value_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(HeadraceError, match="not UTF-8") as raised:
        builder((Op.INSERT, None, [("a", b"\xff")])).seal()
    assert raised.value.kind is Kind.DATABASE


def test_progress_is_a_row_but_no_change() -> None:
    batch = progress_batch(100, 200)
    assert batch.schema == CHANGES_SCHEMA
    assert list(decode_changes(batch)) == []
    [row] = batch.to_pylist()
    assert (row["op"], row["_commit_lsn"], row["_commit_seq"]) == ("progress", 100, 200)
