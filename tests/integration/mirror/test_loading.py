"""Is a first load that was broken off taken up where it ended?"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.cli import main
from headrace.config.mirror import MirrorConfig, MirroredTables
from headrace.mirror.formats import open_lake
from headrace.mirror.mirrored_lake import MirroredLake
from headrace.mirror.positions import PositionsTable
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from headrace.reporter import SilentReporter

FIRST, SECOND = TableName("public", "first"), TableName("public", "second")
SLOT = "mirror_loading"


class Loads(SilentReporter):
    """Remembers what was loaded."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def info(self, text: str) -> None:
        if text.startswith("loading "):
            self.names.append(text.removeprefix("loading "))


def test_a_load_that_ends_at_a_table_does_not_read_those_before_it_again(
    database: str, tmp_path: Path
) -> None:
    config = MirrorConfig(
        location=str(tmp_path), slot=SLOT, publication=SLOT, tables=(MirroredTables(tables=("public.*",)),)
    )
    with connect(database) as connection:
        execute(connection, "CREATE TABLE first (id int PRIMARY KEY)")
        execute(connection, "CREATE TABLE second (id int PRIMARY KEY, day date)")
        execute(connection, "INSERT INTO first VALUES (1)")
        execute(connection, "INSERT INTO second VALUES (1, '500000-01-01')")  # no lake has that day
        try:
            assert prepare(database, config, Loads()) == [FIRST]
            assert list(PositionsTable(open_lake(config), SLOT).read().tables) == [FIRST]

            execute(connection, "UPDATE second SET day = '2026-01-01'")
            again = Loads()
            assert set(prepare(database, config, again)) == {FIRST, SECOND}
            assert again.names == [str(SECOND)]
        finally:
            drop_slot(connection, SLOT, timeout=60)


def prepare(url: str, config: MirrorConfig, report: Loads) -> list[TableName]:
    """Do what a run does before it follows the log."""
    mirror = MirroredLake(url, config, report, threading.Event())
    mirror.set_up()
    return mirror.prepare()


@pytest.mark.parametrize(
    "options", [{"partition_by": ("month",)}, {"masks": {"month": "null"}}, {"columns": ("id", "month")}]
)
def test_stored_generated_columns_can_be_named_before_anything_is_published(
    options: dict[str, Any], database: str, tmp_path: Path
) -> None:
    parts = (MirroredTables(tables=("public.first",), **options), MirroredTables(tables=("public.*",)))
    config = MirrorConfig(location=str(tmp_path), slot=SLOT, publication=SLOT, tables=parts)
    with connect(database) as connection:
        if connection.info.server_version < 180000:
            pytest.skip("before PostgreSQL 18 the log has no generated column")
        month = "month int GENERATED ALWAYS AS (date_part('month', day)::int) STORED"
        execute(connection, f"CREATE TABLE first (id int PRIMARY KEY, day timestamp, {month})")
        key = month.replace("STORED", "STORED PRIMARY KEY")
        execute(connection, f"CREATE TABLE second (id int, day timestamp, {key})")
        execute(connection, "INSERT INTO first VALUES (1, '2026-11-26')")
        execute(connection, "INSERT INTO second VALUES (1, '2026-11-26')")
        try:
            assert set(prepare(database, config, Loads())) == {FIRST, SECOND}
            expected = None if "masks" in options else 11
            assert pl.read_delta(str(tmp_path / "public" / "first"))["month"].to_list() == [expected]
            assert pl.read_delta(str(tmp_path / "public" / "second"))["month"].to_list() == [11]
        finally:
            drop_slot(connection, SLOT, timeout=60)


def test_a_plan_tells_what_a_start_loads_and_changes_nothing(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(
        f'[source]\ntype = "postgres"\nconnection_url = "{database}"\n[mirror]\nlocation = "lake"\n'
        f'slot = "{SLOT}"\npublication = "{SLOT}"\n[[mirror.tables]]\ntables = ["public.*"]\n'
    )
    with connect(database) as connection:
        execute(connection, "CREATE TABLE first (id int PRIMARY KEY)")
        execute(connection, "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)")
        execute(connection, "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (100)")
        execute(connection, "INSERT INTO parted SELECT generate_series(0, 99)")
        execute(connection, "ANALYZE")
        try:
            assert checked(file, capsys) == [("first", 0, True), ("parted", 100, True)]
            assert not (tmp_path / "lake").exists()
            config = MirrorConfig(
                location=str(tmp_path / "lake"),
                slot=SLOT,
                publication=SLOT,
                tables=(MirroredTables(tables=("public.first",)),),
            )
            prepare(database, config, Loads())
            assert checked(file, capsys) == [("first", 0, False), ("parted", 100, True)]
        finally:
            drop_slot(connection, SLOT, timeout=60)


def checked(file: Path, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, int, bool]]:
    """What `headrace mirror check` says of each table: its rows, and whether it will be loaded."""
    with pytest.raises(SystemExit) as ended:
        main(["mirror", "check", "--config", str(file), "--format", "json"])
    assert ended.value.code == 0
    found = json.loads(capsys.readouterr().out)["tables"]
    return [(table["table"], table["size"]["rows"], table["complete"] is None) for table in found]
