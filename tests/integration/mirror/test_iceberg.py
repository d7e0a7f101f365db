"""Does an Iceberg lake hold what was written, in a catalog too, and old versions as they were?"""

from __future__ import annotations

import os
import time
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.utils.config import Config

from headrace.errors import HeadraceError, Kind
from headrace.mirror.iceberg import removal
from headrace.mirror.iceberg.lake import IcebergLake
from headrace.mirror.iceberg.table import IcebergTable
from headrace.mirror.lake import POSITIONS
from headrace.mirror.net_changes import DELETED
from headrace.model.names import TableName
from support import stranger

ITEMS = TableName("Sales dept", "items")
SCHEMA = pa.schema(
    [pa.field("id", pa.int16(), metadata={"headrace.column": "1"}), pa.field("name", pa.string())]
)


@pytest.fixture(params=["folder", "catalog"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IcebergLake:
    """A lake whose one table has two rows."""
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr(
        "pyiceberg.catalog._ENV_CONFIG", Config()
    )  # it reads the environment when it is imported
    lake = IcebergLake("catalog:shop" if request.param == "catalog" else str(tmp_path / "lake"))
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "name": ["a", "b"]}, SCHEMA)
    lake.commit(ITEMS, SCHEMA, lake.write(ITEMS, SCHEMA, [rows]), (1, 0))
    return lake


def opened(lake: IcebergLake) -> IcebergTable:
    table = lake.open(ITEMS)
    assert table is not None
    return table


def rows(table: IcebergTable, version: int | None = None) -> list[tuple[object, ...]]:
    return sorted(pl.scan_iceberg(table.table, snapshot_id=version).collect().rows())


def merge(table: IcebergTable, position: int, number: int, name: str | None) -> None:
    new = pa.table({"id": pa.array([number], pa.int16()), "name": [name], DELETED: [name is None]})
    table.merge(new, ["id"], (position, 0))


def test_another_reader_sees_each_version_with_the_columns_that_it_had(lake: IcebergLake) -> None:
    first = opened(lake)
    assert first.schema.equals(SCHEMA, check_metadata=True)
    merge(opened(lake), 2, 1, None)
    merge(opened(lake), 3, 3, "c")
    second = opened(lake)
    altered = pa.schema([pa.field("id", pa.int64()), SCHEMA.field("name"), pa.field("more", pa.int32())])
    batch = pa.RecordBatch.from_pydict({"id": [2**40], "name": ["x"], "more": [7]}, altered)
    lake.commit(ITEMS, altered, lake.write(ITEMS, altered, [batch]), (4, 0), second)
    last = opened(lake)
    assert rows(last) == [(2**40, "x", 7)]
    assert rows(last, second.version) == [(2, "b"), (3, "c")]
    assert rows(last, first.version) == [(1, "a"), (2, "b")]
    numbers = [[field.field_id for field in table.table.schema().fields] for table in (second, last)]
    assert numbers == [[1, 2], [3, 2, 4]]
    assert last.find_other_commit(first.version) is None


def test_a_writer_that_is_behind_is_refused_and_the_catalogs_table_stays(lake: IcebergLake) -> None:
    behind, meanwhile = opened(lake), opened(lake)
    merge(meanwhile, 2, 2, "x")
    with pytest.raises(HeadraceError, match="another program has written") as refused:
        merge(behind, 3, 2, "stale")
    assert refused.value.kind is Kind.CONTINUITY
    with pytest.raises(HeadraceError, match="another program has written"):
        behind.join_files(1 << 30)
    assert rows(opened(lake)) == [(1, "a"), (2, "x")]


def test_columns_that_another_program_altered_are_told(lake: IcebergLake) -> None:
    before = opened(lake)
    with opened(lake).table.update_schema() as update:
        update.rename_column("name", "title")
    assert opened(lake).find_other_commit(before.version) == "other columns"


def test_a_table_that_was_rolled_back_is_told(lake: IcebergLake) -> None:
    first = opened(lake).version
    merge(opened(lake), 2, 2, "x")
    second = opened(lake).version
    opened(lake).table.manage_snapshots().rollback_to_snapshot(first).commit()
    found = opened(lake)
    assert found.position == (1, 0)
    assert found.find_other_commit(second) == f"snapshot {first} is in the place of {second}"


def test_the_position_outlives_another_programs_upkeep(lake: IcebergLake) -> None:
    first = opened(lake).version
    stranger.rewrite(opened(lake))
    opened(lake).table.maintenance.expire_snapshots().by_id(first).commit()
    assert opened(lake).position == (1, 0)
    merge(opened(lake), 2, 2, "x")
    assert rows(opened(lake)) == [(1, "a"), (2, "x")]


def test_upkeep_by_a_program_in_java_is_no_other_commit(lake: IcebergLake) -> None:
    """It leaves the number of a snapshot that it removes in the one behind."""
    first = opened(lake).version
    stranger.rewrite(opened(lake))
    table = opened(lake)
    metadata = table.table.metadata
    left = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id != first]
    table.table.metadata = metadata.model_copy(update={"snapshots": left})
    assert table.find_other_commit(first) is None


def test_rows_that_another_program_changed_are_told_whose_snapshots_are_removed(lake: IcebergLake) -> None:
    first = opened(lake).version
    stranger.delete(opened(lake), "id = 1")
    second = opened(lake).version
    stranger.rewrite(opened(lake))
    opened(lake).table.maintenance.expire_snapshots().by_ids([first, second]).commit()
    last = opened(lake).version
    assert opened(lake).find_other_commit(first) == f"snapshot {last} is in the place of {first}"


def test_files_that_no_version_has_are_removed_and_no_others(lake: IcebergLake) -> None:
    first = opened(lake)
    stranger.rewrite(first)
    merge(opened(lake), 2, 2, "x")
    table = opened(lake)
    folder = Path(table.uri.removeprefix("file://"))
    orphan = folder / "data" / "part-of-a-killed-program.parquet"
    orphan.touch()
    for file in folder.rglob("*.*"):
        os.utime(file, (0, 0))
    assert table.remove_files(3600) == 1 + 2, "with what the other program wrote in vain"
    assert not orphan.exists()
    versions = [snapshot.snapshot_id for snapshot in table.table.snapshots()]
    assert [rows(opened(lake), version) for version in versions[-2:]] == [
        [(1, "a"), (2, "b")],
        [(1, "a"), (2, "x")],
    ]
    assert opened(lake).remove_files(-1) == 2 + 2 + 2, "data files, lists of them, and lists of lists"
    assert rows(opened(lake)) == [(1, "a"), (2, "x")]
    assert [snapshot.snapshot_id for snapshot in opened(lake).table.snapshots()] == versions[-1:]


def test_files_of_a_commit_under_way_stay_where_versions_end_for_their_number(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "_MOST_SNAPSHOTS", 1)
    monkeypatch.setattr(removal, "_HOUR", -1.0)
    under_way = Path(opened(lake).uri.removeprefix("file://")) / "data" / "part-of-a-commit.parquet"
    under_way.touch()
    merge(opened(lake), 2, 2, "x")
    merge(opened(lake), 3, 2, "y")
    assert opened(lake).remove_files(3600) > 0
    assert len(opened(lake).table.snapshots()) == 1
    assert under_way.exists()


def test_a_clock_that_is_set_back_is_waited_for(lake: IcebergLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers in Java and Rust refuse a table whose history goes back."""
    now = time.time
    monkeypatch.setattr("time.time", lambda: now() - 7200)
    with pytest.raises(HeadraceError, match="clock") as refused:
        merge(opened(lake), 2, 1, "x")
    assert refused.value.kind is Kind.SINK_BUSY
    opened(lake).remove_files(-10_000)
    monkeypatch.setattr("time.time", now)
    merge(opened(lake), 3, 1, "y")
    assert rows(opened(lake)) == [(1, "y"), (2, "b")]


def test_own_tables_are_apart_from_the_databases(lake: IcebergLake) -> None:
    for number in (1, 2):
        rows = pa.table({"number": [number]})
        files = lake.write(POSITIONS, rows.schema, rows.to_batches())
        lake.commit(POSITIONS, rows.schema, files, (0, 0), lake.open(POSITIONS))
    own = lake.open(POSITIONS)
    assert own is not None
    assert [batch.to_pydict() for batch in own.rows()] == [{"number": [2]}]


def test_an_empty_table_is_a_table(lake: IcebergLake) -> None:
    lake.commit(ITEMS, SCHEMA, [], (5, 0), opened(lake))
    assert (rows(opened(lake)), opened(lake).position) == ([], (5, 0))
    merge(opened(lake), 6, 9, "z")
    assert rows(opened(lake)) == [(9, "z")]


def test_an_unknown_catalog_is_refused_by_name() -> None:
    with pytest.raises(HeadraceError, match="the catalog nowhere cannot be opened") as refused:
        IcebergLake("catalog:nowhere").open(ITEMS)
    assert refused.value.kind is Kind.CONFIG


@pytest.mark.long
def test_lists_of_files_do_not_grow_with_each_commit(tmp_path: Path) -> None:
    lake = IcebergLake(str(tmp_path))
    rows_ = pa.RecordBatch.from_pydict({"id": [0], "name": ["a"]}, SCHEMA)
    lake.commit(ITEMS, SCHEMA, lake.write(ITEMS, SCHEMA, [rows_]), (1, 0))
    for number in range(1, 60):
        merge(opened(lake), number, number, "n")
        if number % 2:
            merge(opened(lake), number, number, None)
    table = opened(lake)
    snapshot = table.table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.table.io)) <= 60
    assert rows(table) == [(0, "a"), *((number, "n") for number in range(2, 60, 2))]
