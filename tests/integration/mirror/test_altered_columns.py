"""Is a lake right whatever was done to columns between two looks at the catalog, and what costs a load?"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from headrace.config.mirror import Mask, MirroredTables, Mode
from support.followed_mirror import FollowedMirror, run

SLOT = "mirror_altered_columns"
SETUP = (
    "CREATE TABLE a (id int PRIMARY KEY, n int, v varchar(20), c char(5), at timestamptz, p numeric(10,2))",
    "ALTER TABLE a ADD q numeric(20,10) DEFAULT 0",
    "INSERT INTO a SELECT i, i, 'value ' || i, 'c', '2026-01-01 10:00:00.6', i FROM generate_series(1, 9) i",
    "UPDATE a SET p = p + 0.25",
    "CREATE DOMAIN number AS int",
    # one with a TOAST table, whose large values are in no update that leaves them
    "CREATE TABLE w (id int PRIMARY KEY, large text, other text)",
    "ALTER TABLE w ALTER large SET STORAGE EXTERNAL, ALTER other SET STORAGE EXTERNAL",
    "INSERT INTO w SELECT i, repeat('l', 3000), repeat('o', 3000) FROM generate_series(1, 9) AS i",
    # one whose partition has its columns in another order
    "CREATE TABLE t (id int PRIMARY KEY, n int, v int) PARTITION BY RANGE (id)",
    "CREATE TABLE part (v int, n int, id int NOT NULL)",
    "ALTER TABLE t ATTACH PARTITION part FOR VALUES FROM (0) TO (100)",
    "INSERT INTO t SELECT i, i, -i FROM generate_series(1, 9) AS i",
)
REWRITTEN = {
    "fewer digits of a moment": "ALTER TABLE a ALTER at TYPE timestamptz(0)",
    "more blanks": "ALTER TABLE a ALTER c TYPE char(10)",
    "a shorter text": "ALTER TABLE a ALTER v TYPE varchar(3) USING left(v, 3)",
    "a longer text, computed": "ALTER TABLE a ALTER v TYPE varchar(30) USING v || '!'",
    "a domain": "ALTER TABLE a ALTER n TYPE number USING n * 2",
    "a small number has all digits": "ALTER TABLE a ALTER q TYPE numeric",
    "fewer digits of a number": "ALTER TABLE a ALTER p TYPE numeric(10,1)",
    "another scale": "ALTER TABLE a ALTER p TYPE numeric(12,3) USING p / 3",
    "the key, to a domain": "ALTER TABLE a ALTER id TYPE number USING id * 2",
    "the key, computed": "ALTER TABLE a ALTER id TYPE int USING id + 1",
}
USED_TWICE = {
    "added, dropped and added": (
        "ALTER TABLE a ADD x int",
        "INSERT INTO a (id, x) VALUES (10, 5)",
        "ALTER TABLE a DROP x",
        "ALTER TABLE a ADD x int DEFAULT 7",
    ),
    "added, dropped and added in another type": (
        "ALTER TABLE a ADD x text",
        "INSERT INTO a (id, x) VALUES (10, 'five')",
        "ALTER TABLE a DROP x",
        "ALTER TABLE a ADD x int DEFAULT 7",
    ),
    "added, renamed and added": (
        "ALTER TABLE a ADD x int",
        "INSERT INTO a (id, x) VALUES (10, 5)",
        "ALTER TABLE a RENAME x TO y",
        "ALTER TABLE a ADD x int DEFAULT 7",
    ),
    "added and swapped": (
        "ALTER TABLE a ADD x int, ADD y int",
        "INSERT INTO a (id, x, y) VALUES (10, 5, 6)",
        "ALTER TABLE a RENAME x TO z",
        "ALTER TABLE a RENAME y TO x",
        "ALTER TABLE a RENAME z TO y",
    ),
    "added and renamed": (
        "ALTER TABLE a ADD x int",
        "INSERT INTO a (id, x) VALUES (10, 5)",
        "ALTER TABLE a RENAME x TO y",
    ),
    "added and renamed after an update": (
        "ALTER TABLE a ADD x int",
        "UPDATE a SET x = 5 WHERE id = 1",
        "ALTER TABLE a RENAME x TO y",
    ),
    "dropped, and added under its name, and renamed": (
        "ALTER TABLE a DROP n",
        "ALTER TABLE a ADD n int",
        "INSERT INTO a (id, n) VALUES (10, 5)",
        "ALTER TABLE a RENAME n TO x",
    ),
    "swapped and swapped back": (
        *(
            swap := (
                "ALTER TABLE a RENAME n TO z",
                "ALTER TABLE a RENAME p TO n",
                "ALTER TABLE a RENAME z TO p",
            )
        ),
        "INSERT INTO a (id, n, p) VALUES (10, 5, 6)",
        "UPDATE a SET n = 5, p = 6 WHERE id = 1",
        *swap,
    ),
    "swapped and swapped back, one of them dropped": (
        *swap,
        "INSERT INTO a (id, n, p) VALUES (10, 5, 6)",
        *swap,
        "ALTER TABLE a DROP n",
    ),
    "swapped and swapped back beside large values": (
        *(
            swap_large := (
                "ALTER TABLE w RENAME large TO z",
                "ALTER TABLE w RENAME other TO large",
                "ALTER TABLE w RENAME z TO other",
            )
        ),
        "UPDATE w SET large = 'new' WHERE id = 1",
        *swap_large,
    ),
    "swapped beside large values, and one renamed": (
        *swap_large,
        "UPDATE w SET large = 'new' WHERE id = 1",
        "ALTER TABLE w RENAME large TO x",
        "ALTER TABLE w RENAME other TO large",
    ),
    "added, and swapped and swapped back with a large value": (
        "ALTER TABLE w ADD x text",
        "ALTER TABLE w RENAME large TO z",
        "ALTER TABLE w RENAME x TO large",
        "UPDATE w SET large = 'new' WHERE id = 1",
        "ALTER TABLE w RENAME large TO x",
        "ALTER TABLE w RENAME z TO large",
    ),
    "added to a partitioned table and swapped": (
        "ALTER TABLE t ADD x int, ADD y int",
        "INSERT INTO t (id, x, y) VALUES (10, 5, 6)",
        "ALTER TABLE t RENAME x TO z",
        "ALTER TABLE t RENAME y TO x",
        "ALTER TABLE t RENAME z TO y",
    ),
    "added beside large values and renamed": (
        "ALTER TABLE w ADD x text",
        "UPDATE w SET x = 'new' WHERE id = 1",
        "ALTER TABLE w RENAME x TO y",
        "ALTER TABLE w ADD x text DEFAULT 'later'",
    ),
}
IN_PLACE = {
    "a column is added": ("ALTER TABLE a ADD x int DEFAULT 7",),
    "columns are added": ("ALTER TABLE a ADD x int DEFAULT 7, ADD y text", "ALTER TABLE a ADD z int"),
    "a column is added beside large values": ("ALTER TABLE w ADD x int DEFAULT 7",),
    "columns are added beside large values": ("ALTER TABLE w ADD x int DEFAULT 7, ADD y text",),
    "a column is added to a partitioned table": ("ALTER TABLE t ADD x int DEFAULT 7",),
    "columns are dropped": (
        "ALTER TABLE a DROP n, DROP c",
        "ALTER TABLE w DROP other",
        "ALTER TABLE t DROP n",
    ),
    "a column is renamed": ("ALTER TABLE a RENAME v TO x", "ALTER TABLE w RENAME other TO x"),
    "a column is renamed and one added": ("ALTER TABLE a RENAME v TO x", "ALTER TABLE a ADD y int DEFAULT 7"),
    "a text is longer": ("ALTER TABLE a ALTER v TYPE varchar(40)",),
    "a text has no limit": ("ALTER TABLE a ALTER v TYPE text",),
    "a number has more digits": ("ALTER TABLE a ALTER p TYPE numeric(12,2)",),
    "a number has all digits": ("ALTER TABLE a ALTER p TYPE numeric",),
    "a default is set": ("ALTER TABLE a ALTER n SET DEFAULT 7", "ALTER TABLE w ALTER id SET STATISTICS 7"),
}
_WRITES = (
    "INSERT INTO a (id) VALUES ({0}0)",
    "UPDATE a SET id = -{0} WHERE id = {0}",
    "DELETE FROM a WHERE id = 3 + {0}",
    "INSERT INTO w (id, large) VALUES ({0}0, repeat('n', 3000))",
    "UPDATE w SET id = -{0} WHERE id = {0}",
    "INSERT INTO t (id) VALUES ({0}0)",
    "UPDATE t SET id = 20 + {0} WHERE id = {0}",
)


@pytest.mark.parametrize("mode", ["current", "history"])
@pytest.mark.parametrize("alteration", REWRITTEN)
def test_a_table_whose_rows_an_alteration_wrote_anew_is_read_anew(
    alteration: str, mode: Mode, url: str, tmp_path: Path
) -> None:
    mirror = mirror_of(url, tmp_path, mode)
    mirror.prepare()
    run(url, REWRITTEN[alteration], "UPDATE a SET p = 1 WHERE id = 4")
    mirror.follow()
    assert mirror.wrong() == []


@pytest.mark.long
@pytest.mark.parametrize("looks_between", [False, True])
@pytest.mark.parametrize("alteration", USED_TWICE)
def test_a_name_that_two_columns_had_between_two_looks_gives_no_column_the_values_of_another(
    alteration: str, looks_between: bool, url: str, tmp_path: Path
) -> None:
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    run(url, *USED_TWICE[alteration])
    if looks_between:  # the log's changes come after the look that saw the alteration
        mirror.prepare()
    mirror.follow()
    assert mirror.wrong() == []


@pytest.mark.long
@pytest.mark.parametrize("looks_between", [False, True])
@pytest.mark.parametrize("alteration", IN_PLACE)
def test_a_table_is_altered_in_place_where_nothing_is_in_doubt(
    alteration: str, looks_between: bool, url: str, tmp_path: Path
) -> None:
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    run(url, *(write.format(1) for write in _WRITES))
    for number, statement in enumerate(IN_PLACE[alteration], 2):
        run(url, statement, *(write.format(number) for write in _WRITES))
    told = mirror.prepare()[2].texts if looks_between else []
    told += mirror.follow()
    assert not [text for text in told if "loading" in text]
    assert mirror.wrong() == []


@pytest.mark.long
@pytest.mark.parametrize(
    "rewrite", ["VACUUM FULL {0}", "CLUSTER {0} USING {0}_pkey", "ALTER TABLE {0} ALTER id TYPE bigint"]
)
@pytest.mark.parametrize("table", ["a", "w"])
def test_rows_older_than_a_column_have_its_default_also_where_the_table_was_written_anew_since(
    table: str, rewrite: str, url: str, tmp_path: Path
) -> None:
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    run(url, f"INSERT INTO {table} (id) VALUES (10)", f"ALTER TABLE {table} ADD x int DEFAULT 7")
    mirror.prepare()
    run(url, rewrite.format(table), f"INSERT INTO {table} (id) VALUES (11)")
    mirror.follow()
    assert mirror.wrong() == []


@pytest.mark.long
@pytest.mark.parametrize("rewrite", ["VACUUM FULL {0}", "CLUSTER {0} USING {0}_pkey"])
@pytest.mark.parametrize("table", ["a", "w"])
def test_a_column_whose_default_a_rewrite_put_into_the_rows_is_read(
    table: str, rewrite: str, url: str, tmp_path: Path
) -> None:
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    added = f"ALTER TABLE {table} ADD x int DEFAULT 7"
    run(url, added, rewrite.format(table), f"INSERT INTO {table} (id) VALUES (10)")
    mirror.follow()
    assert mirror.wrong() == []


def test_a_table_that_was_packed_once_is_altered_in_place_later(url: str, tmp_path: Path) -> None:
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    run(url, "VACUUM FULL a")
    mirror.follow()
    run(url, "ALTER TABLE a ADD x int DEFAULT 7", "INSERT INTO a (id) VALUES (10)")
    assert not [text for text in mirror.follow() if "loading" in text]
    assert mirror.wrong() == []


def test_a_masked_column_s_default_is_not_in_the_lake(url: str, tmp_path: Path) -> None:
    parts = MirroredTables(tables=("public.a",), masks={"x": "redact"}), MirroredTables(tables=("public.*",))
    run(url, "ALTER TABLE a ADD x text", "ALTER TABLE a DROP x", "ALTER TABLE a ADD x text")
    mirror = FollowedMirror.of(url, tmp_path, SLOT, *parts)
    mirror.prepare()
    masks: dict[str, Mask] = {"x": "redact", "y": "redact"}
    run(url, "INSERT INTO a (id) VALUES (10)", "ALTER TABLE a ADD y text DEFAULT 'secret'")
    mirror = FollowedMirror.of(
        url, tmp_path, SLOT, MirroredTables(tables=("public.a",), masks=masks), parts[1]
    )
    mirror.follow()
    rows = pl.read_delta(str(tmp_path / "public" / "a"))
    assert rows["y"].to_list() == ["***"] * 10
    stored = [path.read_bytes() for path in (tmp_path / "public" / "a").rglob("*") if path.is_file()]
    assert not [content for content in stored if b"secret" in content]


def mirror_of(url: str, folder: Path, mode: Mode = "current") -> FollowedMirror:
    return FollowedMirror.of(url, folder, SLOT, MirroredTables(tables=("public.*",), mode=mode))


def test_deleted_rows_keep_their_values_where_columns_are_renamed_and_the_table_is_read_again(
    url: str, tmp_path: Path
) -> None:
    mirror = FollowedMirror.of(url, tmp_path, SLOT, MirroredTables(tables=("public.a",), soft_delete=True))
    mirror.prepare()
    run(url, "DELETE FROM a WHERE id = 3")
    mirror.follow()
    renamed = ("ALTER TABLE a RENAME id TO number", "ALTER TABLE a RENAME v TO other")
    run(url, *renamed, "ALTER TABLE a ALTER n TYPE int USING n * 2")
    assert "loading a" in mirror.follow()
    rows = pl.read_delta(str(tmp_path / "public" / "a")).filter("_is_deleted")
    assert rows.select("number", "other").rows() == [(3, "value 3")]
    assert mirror.wrong() == []
