"""Does a mirror notice what was done to its tables' rows that the log does not tell?"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from headrace.config.mirror import MirrorConfig, MirroredTables, Mode
from headrace.mirror.mirrored_lake import MirroredLake
from headrace.postgres.connection import connect, execute
from headrace.reporter import SilentReporter
from support.followed_mirror import FollowedMirror

SLOT = "mirror_drift"
SETUP = (
    "CREATE TYPE mood AS ENUM ('sad', 'glad')",
    "CREATE TABLE plain (id int PRIMARY KEY, moods mood[], price numeric(10,2))",
    "INSERT INTO plain SELECT i, ARRAY['sad', 'glad']::mood[], i FROM generate_series(1, 100) AS i",
    "CREATE TYPE pair AS ENUM ('a', 'b')",
    "CREATE TYPE span AS RANGE (subtype = pair)",
    "CREATE TABLE ranged (id int PRIMARY KEY, span span)",
    "INSERT INTO ranged VALUES (1, '[a,b]')",
    "CREATE TABLE multiranged (id int PRIMARY KEY, spans span_multirange)",
    "INSERT INTO multiranged VALUES (1, '{[a,b]}')",
    "CREATE TABLE parted (id int PRIMARY KEY, name text) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE middle PARTITION OF parted FOR VALUES FROM (100) TO (200)",
    "INSERT INTO parted SELECT i, 'n' || i FROM generate_series(0, 199) AS i",
)
DRIFTS: dict[str, tuple[str, ...]] = {
    "a partition is detached": ("ALTER TABLE parted DETACH PARTITION low",),
    "a partition is dropped": ("DROP TABLE low",),
    "a filled partition is attached": (
        "CREATE TABLE high AS SELECT i AS id, 'h' AS name FROM generate_series(200, 250) AS i",
        "ALTER TABLE high ALTER id SET NOT NULL",
        "ALTER TABLE parted ATTACH PARTITION high FOR VALUES FROM (200) TO (300)",
    ),
    "a partition is written while it is detached": (
        "ALTER TABLE parted DETACH PARTITION low",
        "DELETE FROM low WHERE id < 50",
        "ALTER TABLE parted ATTACH PARTITION low FOR VALUES FROM (0) TO (100)",
    ),
    "a label is renamed": ("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",),
    "a label within ranges is renamed": ("ALTER TYPE pair RENAME VALUE 'a' TO 'first'",),
    "values are computed anew": ("ALTER TABLE plain ALTER price TYPE numeric(10,2) USING price * 2",),
    "values of a renamed column are computed anew": (
        "ALTER TABLE plain RENAME price TO cost",
        "ALTER TABLE plain ALTER cost TYPE numeric(10,2) USING cost * 2",
    ),
}
HARMLESS = {
    "a partition is made": ("CREATE TABLE high PARTITION OF parted FOR VALUES FROM (200) TO (300)",),
    "a label is added": ("ALTER TYPE mood ADD VALUE 'calm'",),
    "a table is packed": ("VACUUM FULL plain",),
    "an index is made": ("CREATE INDEX ON plain (price)", "ANALYZE plain", "VACUUM plain"),
}


class Loads(SilentReporter):
    """Remembers what was loaded."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def info(self, text: str) -> None:
        if text.startswith("loading "):
            self.names.append(text)


@pytest.mark.long
@pytest.mark.parametrize("drift", DRIFTS)
def test_a_table_whose_rows_became_others_beside_the_log_is_read_anew(
    drift: str, url: str, tmp_path: Path
) -> None:
    mirror = prepared(url, tmp_path, Loads())
    run(url, DRIFTS[drift])
    assert mirror.is_altered()
    again = prepared(url, tmp_path, Loads())
    found = {one.table.name: one.is_right for one in again.comparer().compare()}
    assert [name for name, is_right in found.items() if not is_right] == []
    assert not again.is_altered()


@pytest.mark.long
@pytest.mark.parametrize("alteration", HARMLESS)
def test_a_table_whose_rows_stay_is_not_read_anew(alteration: str, url: str, tmp_path: Path) -> None:
    prepared(url, tmp_path, Loads())
    run(url, HARMLESS[alteration])
    run(url, ["INSERT INTO parted VALUES (250, 'by the log')"] if "partition" in alteration else [])
    loads = Loads()
    mirror = prepared(url, tmp_path, loads)
    assert loads.names == []
    assert not mirror.is_altered()


@pytest.mark.parametrize("alteration", ["RENAME TO first", "SET SCHEMA attic"])
def test_a_truncated_partition_is_noticed_that_is_called_otherwise_by_now(
    alteration: str, url: str, tmp_path: Path
) -> None:
    mirror = FollowedMirror.of(url, tmp_path, SLOT, MirroredTables(tables=("public.parted",)))
    mirror.prepare()
    run(url, ["CREATE SCHEMA attic", "TRUNCATE low", f"ALTER TABLE low {alteration}"])
    run(url, ["INSERT INTO parted VALUES (1, 'behind it')"])
    mirror.follow()
    ids = pl.read_delta(str(tmp_path / "public" / "parted"))["id"].sort().to_list()
    assert ids == [1, *range(100, 200)]


def test_a_table_that_got_the_name_of_a_renamed_one_is_followed(url: str, tmp_path: Path) -> None:
    """The log has the renaming, and the mirror reads it again at each start."""
    mirror = FollowedMirror.of(url, tmp_path, SLOT, MirroredTables(tables=("public.plain",)))
    mirror.prepare()
    run(url, ["INSERT INTO plain VALUES (101)", "ALTER TABLE plain RENAME TO plain_2026"])
    run(url, ["CREATE TABLE plain (id int PRIMARY KEY)", "INSERT INTO plain VALUES (1)"])
    run(url, ["DELETE FROM plain_2026 WHERE id > 50"])
    mirror.follow()
    run(url, ["INSERT INTO plain VALUES (2)"])
    mirror.follow()
    assert mirror.wrong() == []


def test_versions_of_a_table_that_was_made_again_keep_their_columns(url: str, tmp_path: Path) -> None:
    prepared(url, tmp_path, Loads(), mode="history")
    made_again = "CREATE TABLE plain (id int PRIMARY KEY, moods mood[], weight numeric(10,2))"
    run(url, ["DROP TABLE plain", made_again, "INSERT INTO plain VALUES (1, '{sad}', 7)"])
    prepared(url, tmp_path, Loads(), mode="history")
    rows = pl.read_delta(str(tmp_path / "public" / "plain")).filter(pl.col("id") == 1).sort("_from_lsn")
    assert rows["moods"].to_list() == [["sad", "glad"], ["sad"]]
    assert rows["price"].to_list() == [1, None]
    assert rows["weight"].to_list() == [None, 7]


def prepared(url: str, folder: Path, report: Loads, mode: Mode = "current") -> MirroredLake:
    """A mirror that has loaded its tables."""
    parts = (MirroredTables(tables=("public.*",), mode=mode),)
    config = MirrorConfig(location=str(folder), slot=SLOT, publication=SLOT, tables=parts)
    mirror = MirroredLake(url, config, report, threading.Event())
    mirror.set_up()
    mirror.prepare()
    return mirror


def run(url: str, statements: Sequence[str]) -> None:
    with connect(url) as connection:
        for statement in statements:
            execute(connection, statement)
