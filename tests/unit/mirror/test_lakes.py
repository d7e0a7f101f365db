"""Are changed rows found by keys of any type, also where statistics leave files out?"""

from __future__ import annotations

import datetime as dt
import errno
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.config.mirror import Format
from headrace.errors import HeadraceError, Kind
from headrace.mirror.delta import DeltaLake
from headrace.mirror.files import DataFile, write_files
from headrace.mirror.lake import Lake, reaching
from headrace.mirror.net_changes import DELETED
from headrace.mirror.python_values import python_rows, python_values
from headrace.model.names import TableName
from support.lake import FORMATS, MAIN_FORMAT, lake_at

TABLE = TableName("public", "t")
LONG = "x" * 40
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "it's", 'a"b\\', "a\nb", "Ä", "ä", LONG + "1", LONG + "2", "~"]),
    "decimal": (pa.decimal128(20, 4), [Decimal("-0.0001"), Decimal(0), Decimal("1234567890123456.7891")]),
    "int64": (pa.int64(), [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)],
    ),
    "local": (pa.timestamp("us"), [dt.datetime(1900, 1, 1), dt.datetime(2026, 1, 1, 0, 0, 0, 1)]),  # noqa: DTZ001
    "bool": (pa.bool_(), [False, True]),
    "bytes": (pa.binary(), [b"", b"\x00\xff", b"\xff\xff"]),
    "float": (pa.float64(), [float("-inf"), -0.5, 1e308, float("inf"), float("nan")]),
    "far day": (pa.date32(), [106_751_982, -106_639_853]),
    "far moment": (pa.timestamp("us", "UTC"), [9_223_371_244_800_000_000, 0]),
}


@pytest.mark.parametrize("form", MAIN_FORMAT)
@pytest.mark.parametrize("kind", KEYS)
def test_rows_are_changed_deleted_and_inserted_by_keys_of_any_type(
    kind: str, form: Format, tmp_path: Path
) -> None:
    """Each key has a file of its own; then each is changed alone, deleted alone and inserted alone."""
    key_type, given = KEYS[kind]
    keys = python_values(pa.array(given, key_type))
    schema = pa.schema([pa.field("k", key_type), pa.field("v", pa.int64())])
    lake = lake_at(tmp_path, form)
    expected: dict[Any, int] = {}
    files = []
    for value, key in enumerate(keys):
        expected[key] = value
        batch = pa.RecordBatch.from_pydict({"k": [key], "v": [value]}, schema)
        files += lake.write(TABLE, schema, [batch])
    lake.commit(TABLE, schema, files, (1, 0))
    assert stored(lake) == expected
    for number, key in enumerate(keys):
        for value, is_deleted in ((100 + number, False), (0, True), (200 + number, False)):
            rows = pa.table({"k": pa.array([key], key_type), "v": pa.array([value]), DELETED: [is_deleted]})
            table = lake.open(TABLE)
            assert table is not None
            table.merge(rows, ["k"], (2 + number, 0))
            expected.pop(key)
            expected |= {} if is_deleted else {key: value}
            assert stored(lake) == expected
            expected.setdefault(key, value)


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_that_another_mirror_has_written_meanwhile_is_left_alone(
    form: Format, tmp_path: Path
) -> None:
    """One that hangs, is thought dead and wakes up would put back rows of the time before."""
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.int64())])
    late, lake = lake_at(tmp_path, form), lake_at(tmp_path, form)

    def files(value: int) -> list[DataFile]:
        return lake.write(TABLE, schema, [pa.RecordBatch.from_pydict({"k": [value], "v": [value]}, schema)])

    loaded = files(1)
    lake.commit(TABLE, schema, files(1), (1, 0))
    with pytest.raises(HeadraceError, match="another program has written"):
        late.commit(TABLE, schema, loaded, (1, 0))
    read = late.open(TABLE)
    lake.commit(TABLE, schema, files(2), (2, 0), lake.open(TABLE), adds=True)
    for adds in (False, True):
        with pytest.raises(HeadraceError, match="another program has written"):
            late.commit(TABLE, schema, files(3), (2, 0), read, adds=adds)
    assert stored(lake) == {1: 1, 2: 2}
    late.commit(TABLE, schema, files(4), (3, 0), late.open(TABLE))
    assert stored(lake) == {4: 4}


def stored(lake: Lake) -> dict[Any, int]:
    """The rows by key, each of which must be there once."""
    table = lake.open(TABLE)
    assert table is not None
    rows = [row for batch in table.rows() for row in python_rows(batch)]
    found = {row["k"]: row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), "No space left on device (os error 28)"]
)
def test_a_full_disk_is_told_whoever_met_it(error: OSError | str, form: Format, tmp_path: Path) -> None:
    """Delta's library, and what writes the metadata of Iceberg tables, have errors of their own."""
    lake = lake_at(tmp_path, form)
    kind = next(kind for kind in lake.errors if kind is not OSError)
    with pytest.raises(HeadraceError) as told, reaching(lake):
        raise error if isinstance(error, OSError) else kind(error)
    assert told.value.kind is Kind.DISK


def test_infinite_moments_are_written_without_bounds(tmp_path: Path) -> None:
    """Python has no such days."""
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    far = pa.array([9_224_318_016_000_000]).cast(schema.types[0]), pa.array([106_762_940], pa.int32())
    batch = pa.record_batch([far[0], far[1].cast(pa.date32())], schema=schema)
    [file] = write_files(DeltaLake(str(tmp_path)).folder(TABLE), schema, [batch])
    assert json.loads(file.statistics) == {
        "numRecords": 1,
        "minValues": {},
        "maxValues": {},
        "nullCount": {"at": 0, "day": 0},
    }


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["a b", "a#b", "ä", "a?b", "a:b", "it's", "a%20b"])
def test_a_folder_may_be_called_as_it_likes_or_is_refused(name: str, form: Format, tmp_path: Path) -> None:
    folder = tmp_path / name
    if "%" in name and form == "delta":
        with pytest.raises(HeadraceError, match="has a % in its path"):
            lake_at(folder, form)
        return
    lake = lake_at(folder, form)
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.int64())])
    for value in (1, 2):
        files = lake.write(TABLE, schema, [pa.RecordBatch.from_pydict({"k": [value], "v": [value]}, schema)])
        lake.commit(TABLE, schema, files, (value, 0), adds=value > 1)
    assert stored(lake) == {1: 1, 2: 2}
    assert [path.name for path in tmp_path.iterdir()] == [name]
