"""Do tables stay fit to be read: few files, none that no version of late has, nothing lost?"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import DataScan

from headrace.config.mirror import Format, MirrorConfig, MirroredTables
from headrace.mirror.iceberg.folder_catalog import FolderCatalog
from headrace.mirror.iceberg.table import IcebergTable
from headrace.mirror.lake import POSITIONS, Lake
from headrace.mirror.upkeep import SMALL_FILES, LakeUpkeep
from headrace.model.names import TableName
from headrace.reporter import SilentReporter
from support.followed_mirror import Told
from support.lake import FORMATS, lake_at

TABLE = TableName("public", "t")
SCHEMA = pa.schema([pa.field("k", pa.int64(), metadata={"headrace.column": "1"}), pa.field("v", pa.string())])


def config(folder: Path, **values: Any) -> MirrorConfig:
    return MirrorConfig(location=str(folder), tables=(MirroredTables(tables=("*.*",)),), **values)


def append(lake: Lake, number: int) -> None:
    batch = pa.RecordBatch.from_pydict({"k": [number], "v": [f"row {number}"]}, SCHEMA)
    files = lake.write(TABLE, SCHEMA, [batch])
    lake.commit(TABLE, SCHEMA, files, (number + 1, 0), adds=number > 0)


@pytest.mark.parametrize("kind", FORMATS)
def test_small_files_are_joined_and_those_of_old_versions_removed(kind: Format, tmp_path: Path) -> None:
    lake = lake_at(tmp_path, kind)
    upkeep = LakeUpkeep(lake, config(tmp_path, retention="1h"), SilentReporter())
    for number in range(SMALL_FILES - 1):
        append(lake, number)
    upkeep.tend([TABLE])
    assert len(data_files(tmp_path)) == SMALL_FILES - 1, "not enough of them"

    append(lake, SMALL_FILES)
    upkeep.tend([TABLE])
    table = lake.open(TABLE)
    assert table is not None
    assert table.count_files(1 << 30) == 1
    assert table.position == (SMALL_FILES + 1, 0)
    assert table.schema.equals(SCHEMA, check_metadata=True)
    numbers = sorted(row["k"] for batch in table.rows() for row in batch.to_pylist())
    assert numbers == [*range(SMALL_FILES - 1), SMALL_FILES]
    assert len(data_files(tmp_path)) == SMALL_FILES + 1, "readers of older versions still find theirs"

    orphan = data_files(tmp_path)[0].parent / "part-of-a-killed-program.parquet"
    orphan.write_bytes(b"")
    long_ago = time.time() - 7200
    for file in data_files(tmp_path):
        os.utime(file, (long_ago, long_ago))
    LakeUpkeep(lake, config(tmp_path, retention="1h"), SilentReporter()).tend([TABLE])
    assert not orphan.exists()
    assert sorted(row["k"] for batch in table.rows() for row in batch.to_pylist()) == numbers


@pytest.mark.parametrize("kind", FORMATS)
def test_joined_files_stay_that_a_clock_ahead_takes_for_old_ones(
    kind: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times of files are those of the server that has them."""
    lake = lake_at(tmp_path, kind)
    for number in range(SMALL_FILES):
        append(lake, number)
    now = time.time
    monkeypatch.setattr("time.time", lambda: now() + 7200)
    LakeUpkeep(lake, config(tmp_path, retention="1h"), SilentReporter()).tend([TABLE])
    table = lake.open(TABLE)
    assert table is not None
    assert table.count_files(1 << 30) == 1
    assert sorted(row["k"] for batch in table.rows() for row in batch.to_pylist()) == [*range(SMALL_FILES)]


def test_what_another_program_did_to_a_table_keeps_no_other_from_being_tended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has deleted rows by delete files, or commits while old versions are ended."""
    lake = lake_at(tmp_path, "iceberg")
    for number in range(2):
        append(lake, number)
    now, told = time.time, Told()
    tend = LakeUpkeep(lake, config(tmp_path, retention="1h"), told).tend

    def lose(*_: object) -> None:
        raise CommitFailedException("too late")

    monkeypatch.setattr("time.time", lambda: now() + 7200)
    monkeypatch.setattr(FolderCatalog, "commit_table", lose)
    tend([TABLE])
    monkeypatch.setattr(DataScan, "plan_files", lambda _: [SimpleNamespace(delete_files={"a.parquet"})])
    tend([TABLE])
    assert [text for text in told.texts if "another program has written the lake's table t meanwhile" in text]
    assert [text for text in told.texts if "another program has deleted rows" in text]


@pytest.mark.parametrize("kind", FORMATS)
def test_old_files_of_tables_that_nobody_writes_are_removed_one_table_at_a_time(
    kind: Format, tmp_path: Path
) -> None:
    lake = lake_at(tmp_path, kind)
    other = TableName("public", "other")
    batch = pa.RecordBatch.from_pydict({"k": [1], "v": ["x"]}, SCHEMA)
    for name in (TABLE, other):
        lake.commit(name, SCHEMA, lake.write(name, SCHEMA, [batch]), (1, 0))
        (Path(lake.path(name)) / "part-of-a-killed-program.parquet").write_bytes(b"")
    long_ago = time.time() - 7200
    for file in tmp_path.rglob("*.parquet"):
        os.utime(file, (long_ago, long_ago))
    upkeep = LakeUpkeep(lake, config(tmp_path, retention="1h"), SilentReporter())
    for left in (1, 0):
        upkeep.tend([], {TABLE: 0, other: 0})
        assert len([*tmp_path.rglob("part-of-a-killed-program.parquet")]) == left


@pytest.mark.parametrize("is_noted", [False, True])
def test_the_version_that_is_noted_stays_while_a_transaction_is_written_in_parts(
    is_noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_at(tmp_path, "iceberg")
    versions = []
    for number in range(4):
        append(lake, number)
        table = lake.open(TABLE)
        assert table is not None
        versions.append(table.version)
    now = time.time
    monkeypatch.setattr("time.time", lambda: now() + 7200)
    noted = {TABLE: versions[1]} if is_noted else {}
    LakeUpkeep(lake, config(tmp_path, retention="1h"), SilentReporter()).tend([TABLE], noted)
    table = lake.open(TABLE)
    assert isinstance(table, IcebergTable)
    left = [snapshot.snapshot_id for snapshot in table.table.snapshots()]
    assert left == (versions[1:] if is_noted else versions[-1:])
    if is_noted:
        assert table.find_other_commit(versions[1]) is None


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_that_has_lost_files_keeps_no_other_from_being_tended(kind: Format, tmp_path: Path) -> None:
    lake, told = lake_at(tmp_path, kind), Told()
    for number in range(SMALL_FILES):
        append(lake, number)
    data_files(tmp_path)[0].unlink()
    LakeUpkeep(lake, config(tmp_path, retention="1h"), told).tend([TABLE])
    assert [text for text in told.texts if text.startswith("the files of t stay as they are: ")]


@pytest.mark.parametrize("kind", FORMATS)
def test_tables_of_a_schema_that_is_called_like_the_positions_stay(kind: Format, tmp_path: Path) -> None:
    lake = lake_at(tmp_path, kind)
    name = POSITIONS.name
    tables = [TableName(name, "t"), TableName(name.upper(), "t"), TableName("public", name)]
    for table in (*tables, POSITIONS):
        batch = pa.RecordBatch.from_pydict({"k": [1], "v": [str(table)]}, SCHEMA)
        lake.commit(table, SCHEMA, lake.write(table, SCHEMA, [batch]), (1, 0))
    long_ago = time.time() - 7200
    for file in tmp_path.rglob("*"):
        os.utime(file, (long_ago, long_ago))
    LakeUpkeep(lake, config(tmp_path, retention="1h"), SilentReporter()).tend(tables)
    for table in tables:
        found = lake.open(table)
        assert found is not None
        assert [row["v"] for batch in found.rows() for row in batch.to_pylist()] == [str(table)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"retention": "59m"}, "an hour at least"),
        ({"retention": "long"}, "must be like"),
        ({"file_size": "0MiB"}, "greater than or equal"),
        ({"interval": "30"}, "must be like"),
    ],
)
def test_a_size_or_time_that_cannot_be_meant_is_refused(
    values: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError, match=message):
        config(tmp_path, **values)


def data_files(folder: Path) -> list[Path]:
    return list((folder / "public" / "t").rglob("*.parquet"))
