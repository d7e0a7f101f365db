"""Does a load that was broken off take what it had read, and only what is still right?"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from headrace.config.mirror import MirrorConfig, MirroredTables, Mode
from headrace.mirror.delta import DeltaLake
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.iceberg.lake import IcebergLake
from headrace.mirror.lake import Lake
from headrace.mirror.load_journal import FOLDER
from headrace.mirror.load_units import LoadedUnit, LoadUnit, UnitLoader, load_in_threads, load_unit
from headrace.mirror.loading import LakeLoader
from headrace.mirror.selection import Selection
from headrace.mirror.waiting import WaitingTables
from headrace.model.names import TableName
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.provision import prepare_slot
from headrace.postgres.slot import drop_slot
from headrace.reporter import SilentReporter

T = TableName("public", "t")
SLOT = "mirror_load_resume"
UNIT_BYTES = 1 << 20
FILE_BYTES = UNIT_BYTES // 2
ROWS, BLOCKS_OF_UNIT = 24_000, 128
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
    """Loads one table into a lake whose units are of 1 MiB of it, and remembers which were taken."""

    def __init__(self, url: str, lake: AnyLake, mode: Mode = "current") -> None:
        self._url = url
        self.lake = lake
        parts = (MirroredTables(tables=("public.t",), mode=mode),)
        config = MirrorConfig(location=lake.location, slot=SLOT, publication=SLOT, tables=parts)
        self._selection = Selection(config)
        self.units: list[LoadedUnit] = []
        prepare_slot(url, slot=SLOT, publication=SLOT, tables=(T,), create=True)

    def load(self, units: int | None = None) -> int:
        """Load the table, or break off after some units; return how many were taken."""

        def load_some(lake: Lake, wanted: Iterator[LoadUnit]) -> Iterator[LoadedUnit]:
            for number, loaded in enumerate(load_in_threads(lake, wanted), 1):
                self.units.append(loaded)
                yield loaded
                if number == units:
                    raise BrokenOffError

        self.units = []
        with suppress(BrokenOffError):
            dict(self.loader(load_some).load([T]))
        return sum(loaded.is_taken for loaded in self.units)

    def loader(self, load_units: UnitLoader) -> LakeLoader:
        ends = MirrorEndpoints(self._url, SLOT, SLOT, self._selection, self.lake)
        report = SilentReporter()
        return LakeLoader(ends, report, WaitingTables(report), load_units=load_units)

    def rows(self) -> list[tuple[Any, ...]]:
        table = self.lake.open(T)
        assert table is not None
        found = pl.from_arrow(pa.Table.from_batches(table.rows(), table.schema))
        assert isinstance(found, pl.DataFrame)
        return sorted(found.select("id", "name", "large", "mood").rows())

    def notes(self) -> list[Path]:
        return [*Path(self.lake.path(T)).glob(f"**/{FOLDER}/*.json")]


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
        drop_slot(opened, SLOT)


def expected(connection: Connection) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in execute(connection, "SELECT id, name, large, mood::text FROM t"))


def test_units_that_were_read_are_not_read_again(
    connection: Connection, database: str, lake: AnyLake
) -> None:
    loading = Loading(database, lake)
    assert loading.load(units=4) == 0
    assert len(loading.notes()) == 4
    execute(connection, "INSERT INTO t SELECT i, 'later' FROM generate_series(30001, 30010) AS i")
    execute(connection, "VACUUM (FREEZE) t")
    assert loading.load() == 4
    assert len(loading.units) > 6
    assert loading.rows() == expected(connection)
    assert loading.notes() == []
    assert loading.load() == 0


def test_a_unit_that_has_other_rows_by_now_is_read_again(
    connection: Connection, database: str, lake: AnyLake
) -> None:
    loading = Loading(database, lake)
    loading.load(units=5)
    blocks = f"split_part(trim(ctid::text, '('), ',', 1)::int / {BLOCKS_OF_UNIT}"
    # one row goes; one moves within its unit; one moves to another unit, where there is room; one gets a key
    execute(connection, f"DELETE FROM t WHERE id = (SELECT min(id) FROM t WHERE {blocks} = 0)")
    execute(connection, "VACUUM t")
    execute(connection, f"UPDATE t SET name = 'new' WHERE id = (SELECT min(id) FROM t WHERE {blocks} = 1)")
    execute(connection, "UPDATE t SET id = -id WHERE id = 24000")
    assert loading.load() < 5
    assert loading.rows() == expected(connection)


@pytest.mark.long
@pytest.mark.parametrize(
    "between",
    [
        "TRUNCATE t; INSERT INTO t VALUES (1, 'a', repeat('b', 5000), 'happy')",
        "VACUUM FULL t",
        "CLUSTER t USING t_pkey",
        "ALTER TABLE t ADD COLUMN more int DEFAULT 7",
        "ALTER TABLE t ALTER name TYPE varchar(500)",
        "ALTER TABLE t DROP COLUMN name; ALTER TABLE t ADD COLUMN name text DEFAULT 'other'",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'glad'",
        "ALTER TABLE t RENAME TO s; CREATE TABLE t (LIKE s INCLUDING ALL); INSERT INTO t TABLE s",
    ],
)
def test_what_makes_all_rows_others_starts_a_load_anew(
    connection: Connection, database: str, lake: AnyLake, between: str
) -> None:
    loading = Loading(database, lake)
    loading.load(units=4)
    for statement in between.split("; "):
        execute(connection, statement)
    if "RENAME TO s" in between:
        execute(connection, f"ALTER PUBLICATION {SLOT} SET TABLE t")
    assert loading.load() == 0
    assert loading.rows() == expected(connection)


def _tear(loading: Loading) -> None:
    note = loading.notes()[0]
    note.write_text(note.read_text()[:-20])


def _remove_file(loading: Loading) -> None:
    file = next(Path(loading.lake.path(T)).glob("**/*.parquet"))
    noted = [note for note in loading.notes() if file.name in note.read_text()]
    if not noted:  # of a unit that was under way
        file.unlink()
        _remove_file(loading)
    file.unlink(missing_ok=True)


def _copy_note(loading: Loading) -> None:
    note = loading.notes()[0]
    note.with_name("copy.json").write_text(note.read_text())


@pytest.mark.long
@pytest.mark.parametrize(("harm", "taken"), [(_tear, 3), (_remove_file, 3), (_copy_note, 4)])
def test_what_is_wrong_with_a_note_costs_its_unit_alone(
    connection: Connection, database: str, lake: AnyLake, harm: Callable[[Loading], None], taken: int
) -> None:
    loading = Loading(database, lake)
    loading.load(units=4)
    harm(loading)
    assert loading.load() == taken
    assert loading.rows() == expected(connection)


def test_files_that_a_load_has_committed_are_not_taken_by_the_next(
    connection: Connection, database: str, lake: AnyLake
) -> None:
    loading = Loading(database, lake)
    loading.load(units=4)
    kept = {note: note.read_text() for note in loading.notes()}
    assert loading.load() == 4
    for note, text in kept.items():  # killed before the notes were removed
        note.write_text(text)
    assert loading.load() == 0
    assert loading.rows() == expected(connection)


def test_versions_and_changes_are_of_one_moment(connection: Connection, database: str, lake: AnyLake) -> None:
    for mode in ("history", "changes"):
        loading = Loading(database, type(lake)(f"{lake.location}/{mode}", FILE_BYTES), mode)
        loading.load(units=4)
        assert loading.notes() == []
        assert loading.load() == 0
        assert loading.rows() == expected(connection)


def test_rows_without_a_key_are_each_there_as_often_as_they_are(
    connection: Connection, database: str, lake: AnyLake
) -> None:
    execute(connection, "ALTER TABLE t DROP CONSTRAINT t_pkey")
    execute(connection, "ALTER TABLE t REPLICA IDENTITY FULL")
    execute(connection, "UPDATE t SET id = id % 10, name = 'same', large = NULL WHERE id < 2000")
    loading = Loading(database, lake)
    loading.load(units=4)
    execute(connection, "DELETE FROM t WHERE ctid = (SELECT max(ctid) FROM t WHERE name = 'same')")
    assert loading.load() > 0
    assert [row[:2] for row in loading.rows()] == [row[:2] for row in expected(connection)]


@pytest.mark.parametrize("seed", range(3))
def test_a_load_that_is_broken_off_again_and_again_is_right(
    connection: Connection, database: str, lake: AnyLake, seed: int
) -> None:
    draw = random.Random(seed)
    loading = Loading(database, lake)
    taken = 0
    for _ in range(5):
        taken += loading.load(units=draw.randint(3, 6))
        low = draw.randrange(ROWS)
        some = f"id BETWEEN {low} AND {low + draw.choice([1, 20, 3000])}"
        copied = f"SELECT id + 2000000, name, large, mood FROM t WHERE {some}"
        changes = (
            f"UPDATE t SET name = 'again' WHERE {some}",
            f"UPDATE t SET id = id + 1000000 WHERE {some}",
            f"DELETE FROM t WHERE {some}",
            f"INSERT INTO t {copied} ON CONFLICT DO NOTHING",
        )
        execute(connection, draw.choice(changes))
        if draw.random() < 0.5:
            execute(connection, "VACUUM t")
    taken += loading.load()
    assert taken
    assert loading.rows() == expected(connection)


def test_a_unit_can_be_read_by_another_process(connection: Connection, database: str, tmp_path: Path) -> None:
    loading = Loading(database, DeltaLake(str(tmp_path), FILE_BYTES))

    def load_copies(lake: Lake, units: Iterator[LoadUnit]) -> Iterator[LoadedUnit]:
        for unit in units:
            work = pickle.loads(pickle.dumps((lake, unit)))
            yield pickle.loads(pickle.dumps(load_unit(*work)))

    dict(loading.loader(load_copies).load([T]))
    assert loading.rows() == expected(connection)
