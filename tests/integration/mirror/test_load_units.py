"""Are units of a load read anywhere, and is a load that was broken off begun again?"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from headrace.config.mirror import MirrorConfig, MirroredTables
from headrace.mirror.delta import DeltaLake
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.iceberg.lake import IcebergLake
from headrace.mirror.lake import Lake
from headrace.mirror.load_units import LoadedUnit, LoadUnit, UnitLoader, load_in_threads, load_unit
from headrace.mirror.loading import LakeLoader
from headrace.mirror.selection import Selection
from headrace.mirror.spark_loading import load_in_task
from headrace.mirror.waiting import WaitingTables
from headrace.model.names import TableName
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.provision import prepare_slot
from headrace.postgres.slot import drop_slot
from headrace.reporter import SilentReporter

T = TableName("public", "t")
SLOT = "mirror_load_units"
UNIT_BYTES = 1 << 20
FILE_BYTES = UNIT_BYTES // 2
CREATE = (
    "CREATE TYPE mood AS ENUM ('sad', 'happy')",
    "CREATE TABLE t (id int PRIMARY KEY, name text, large text, mood mood) WITH (autovacuum_enabled = off)",
    "ALTER TABLE t ALTER large SET STORAGE EXTERNAL",
    """INSERT INTO t SELECT i, repeat(md5(i::text), 10),
                            CASE WHEN i % 100 = 0 THEN repeat('x', 3000) || i END, 'sad'
       FROM generate_series(1, 24000) AS i""",
)


class BrokenOffError(Exception):
    """Ends a load as a kill does."""


class Loading:
    """Loads one table into a lake whose units are of 1 MiB of it."""

    def __init__(self, url: str, lake: AnyLake) -> None:
        self._url = url
        self.lake = lake
        parts = (MirroredTables(tables=("public.t",)),)
        config = MirrorConfig(location=lake.location, slot=SLOT, publication=SLOT, tables=parts)
        self._selection = Selection(config)
        prepare_slot(url, slot=SLOT, publication=SLOT, tables=(T,), create=True)

    def load(self, units: int | None = None) -> None:
        """Load the table, or break off after some units."""

        def load_some(lake: Lake, wanted: Iterator[LoadUnit]) -> Iterator[LoadedUnit]:
            for number, loaded in enumerate(load_in_threads(lake, wanted), 1):
                yield loaded
                if number == units:
                    raise BrokenOffError

        with suppress(BrokenOffError):
            dict(self.loader(load_some).load([T], {}))

    def loader(self, load_units: UnitLoader) -> LakeLoader:
        ends = MirrorEndpoints(self._url, SLOT, SLOT, self._selection, self.lake)
        report = SilentReporter()
        return LakeLoader(ends, report, WaitingTables(report), threading.Event(), load_units)

    def rows(self) -> list[tuple[Any, ...]]:
        table = self.lake.open(T)
        assert table is not None
        found = pl.from_arrow(pa.Table.from_batches(table.rows(), table.schema))
        assert isinstance(found, pl.DataFrame)
        return sorted(found.select("id", "name", "large", "mood").rows())


AnyLake = DeltaLake | IcebergLake


@pytest.fixture(params=[DeltaLake, IcebergLake])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> AnyLake:
    """A lake of either format."""
    made: AnyLake = request.param(str(tmp_path), FILE_BYTES)
    return made


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with connect(database) as opened:
        for statement in CREATE:
            execute(opened, statement)
        yield opened
        drop_slot(opened, SLOT, timeout=60)


def expected(connection: Connection) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in execute(connection, "SELECT id, name, large, mood::text FROM t"))


def test_a_load_that_is_broken_off_is_begun_again(
    connection: Connection, database: str, lake: AnyLake
) -> None:
    loading = Loading(database, lake)
    for _ in range(2):
        loading.load(units=4)
        execute(connection, "UPDATE t SET id = -id, name = 'moved' WHERE id BETWEEN 500 AND 600")
        execute(connection, "DELETE FROM t WHERE id = -550")
    loading.load()
    assert loading.rows() == expected(connection)


def test_a_unit_can_be_read_by_another_process(connection: Connection, database: str, tmp_path: Path) -> None:
    loading = Loading(database, DeltaLake(str(tmp_path), FILE_BYTES))

    def load_copies(lake: Lake, units: Iterator[LoadUnit]) -> Iterator[LoadedUnit]:
        for unit in units:
            work = pickle.loads(pickle.dumps((lake, unit)))
            yield pickle.loads(pickle.dumps(load_unit(*work)))

    dict(loading.loader(load_copies).load([T], {}))
    assert loading.rows() == expected(connection)


def test_the_slot_is_kept_in_use_by_whatever_loads(
    connection: Connection, database: str, tmp_path: Path
) -> None:
    """A batch loads tables as well as a start does."""
    loading = Loading(database, DeltaLake(str(tmp_path), FILE_BYTES))

    def load_watched(lake: Lake, units: Iterator[LoadUnit]) -> Iterator[LoadedUnit]:
        assert [thread for thread in threading.enumerate() if thread.name == "headrace keep"]
        return load_in_threads(lake, units)

    assert [*dict(loading.loader(load_watched).load([T], {}))] == [T]


def test_a_task_returns_what_a_library_does_not_take_as_the_tables_own_error(
    connection: Connection, database: str, tmp_path: Path
) -> None:
    """Raised in a task it would be a line of Spark's text, which says nothing of whose error it is."""
    loading = Loading(database, DeltaLake(str(tmp_path), FILE_BYTES))
    found: list[object] = []

    def load_unfit(lake: Lake, units: Iterator[LoadUnit]) -> Iterator[LoadedUnit]:
        for unit in units:
            field = pa.field("mood", pa.int32())
            schema = unit.schema.set(unit.schema.get_field_index("mood"), field)
            found.append(pickle.loads(pickle.dumps(load_in_task(lake, replace(unit, schema=schema)))))
        raise BrokenOffError

    with suppress(BrokenOffError):
        dict(loading.loader(load_unfit).load([T], {}))
    assert {*map(type, found)} == {pa.ArrowInvalid}
