"""Does a table of versions hold those alone that a commit showed, where a transaction comes in parts?"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.mirror.columns import PREFIX
from headrace.mirror.delta import DeltaLake
from headrace.mirror.modes import MODES, LoadMoment
from headrace.model.names import TableName

TABLE = TableName("public", "t")
ROWS = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
CHANGES = pa.schema(
    [
        *ROWS,
        pa.field(PREFIX + "change_type", pa.string()),
        pa.field(PREFIX + "commit_lsn", pa.int64()),
        pa.field(PREFIX + "commit_seq", pa.int64()),
        pa.field(PREFIX + "commit_timestamp", pa.timestamp("us", tz="UTC")),
        pa.field(PREFIX + "unchanged", pa.list_(pa.string())),
    ]
)
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
FIRST = [("insert", 2, "part 1"), ("insert", 3, "part 1"), ("update", 1, "part 1"), ("insert", 4, "stays")]


@pytest.mark.parametrize(
    ("second", "versions"),
    [
        (
            [("update", 2, "part 2"), ("delete", 3, None), ("update", 1, "part 2")],
            [
                (1, "loaded", 9, 100),
                (1, "part 2", 100, None),
                (2, "part 2", 100, None),
                (4, "stays", 100, None),
            ],
        ),
        (
            [("truncate", None, None), ("insert", 2, "part 2")],
            [(1, "loaded", 9, 100), (2, "part 2", 100, None)],
        ),
    ],
    ids=["updated", "truncated"],
)
def test_versions_between_two_parts_of_a_transaction_are_left_out(
    second: list[tuple[str, int | None, str | None]], versions: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    lake, mode = DeltaLake(str(tmp_path)), MODES["history"]
    loaded = mode.loaded(pa.RecordBatch.from_pylist([{"id": 1, "name": "loaded"}], ROWS), LoadMoment(10, NOW))
    lake.commit(TABLE, loaded.schema, lake.write(TABLE, loaded.schema, [loaded]), (9, 0))
    sequence = 0
    for part in (FIRST, second):
        rows = []
        for kind, key, name in part:
            sequence += 1
            metadata = {
                "change_type": kind,
                "commit_lsn": 100,
                "commit_seq": sequence,
                "commit_timestamp": NOW,
            }
            rows.append(
                {"id": key, "name": name} | {PREFIX + name: value for name, value in metadata.items()}
            )
        table = lake.open(TABLE)
        assert table is not None
        mode.apply(lake, table, ["id"], pa.Table.from_pylist(rows, CHANGES), (100, sequence))
    table = lake.open(TABLE)
    assert table is not None
    stored = [row for batch in table.rows() for row in batch.to_pylist()]
    columns = ("id", "name", "_from_lsn", "_to_lsn")
    assert sorted(tuple(row[name] for name in columns) for row in stored) == versions
