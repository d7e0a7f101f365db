"""Does a mirror hold what the database holds, whatever is written, altered or killed?"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.config.mirror import Format
from headrace.model.names import TableName
from support.lake import Mirrored, count_merges
from support.slots import drop_slots

ROOT = Path(__file__).parents[2]
TABLES = (
    """CREATE TABLE items (
        id int PRIMARY KEY, name text, large text, price numeric(10,2), precise numeric,
        made timestamptz DEFAULT now(), opens time, lasts interval, sizes int[], weird float8)""",
    "ALTER TABLE items ALTER large SET STORAGE EXTERNAL",
    """CREATE TABLE "We ird" ("K" text, "b.c" int, v jsonb, PRIMARY KEY ("K", "b.c"))""",
    "CREATE TABLE spans (during int4range, tags text[], large text, PRIMARY KEY (during, tags))",
    "ALTER TABLE spans ALTER large SET STORAGE EXTERNAL",
    """INSERT INTO spans
       SELECT int4range(i, i + 5), ARRAY['a', 'b ' || i % 3], repeat(md5(i::text), 70)
       FROM generate_series(1, 20) AS i""",
    "CREATE TABLE parted (id int, region text, PRIMARY KEY (id, region)) PARTITION BY LIST (region)",
    "CREATE TABLE parted_north PARTITION OF parted FOR VALUES IN ('n')",
    "CREATE TABLE parted_south PARTITION OF parted FOR VALUES IN ('s')",
    """INSERT INTO items
       SELECT i, 'n' || i, repeat(md5(i::text), 70), i, i / 3.0, now(), '12:00', '1 day', ARRAY[i], i / 7.0
       FROM generate_series(1, 300) AS i""",
    """INSERT INTO "We ird" VALUES ('a', 1, '{"x": 1}'), ('b', 2, NULL)""",
    "INSERT INTO parted SELECT i, CASE WHEN i % 2 = 0 THEN 'n' ELSE 's' END FROM generate_series(1, 50) i",
)
NAMES = ("items", "We ird", "parted", "spans")


@pytest.fixture(params=["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def kind(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


@pytest.fixture
def mirror(kind: Format, database: str, tmp_path: Path) -> Iterator[Mirrored]:
    slot = f"mirror_{database.rpartition('_')[2].partition('?')[0]}"
    mirrored = Mirrored(tmp_path, database, slot, kind=kind)
    mirrored.run(*TABLES)
    yield mirrored
    mirrored.close()
    drop_slots(database)


def test_tables_are_loaded_and_followed_through_changes_and_alterations(mirror: Mirrored) -> None:
    mirror.start()
    mirror.converges(*NAMES)

    mirror.run("UPDATE items SET name = 'x' WHERE id < 50", "DELETE FROM items WHERE id BETWEEN 40 AND 60")
    mirror.run("UPDATE items SET id = id + 10000 WHERE id BETWEEN 100 AND 110")
    mirror.run(
        "INSERT INTO items (id, name) VALUES (-2, 'q')",
        "UPDATE items SET name = 'z' WHERE id = -2",
        "UPDATE items SET id = -3 WHERE id = -2",
    )
    mirror.run("UPDATE parted SET region = 's' WHERE id < 10", "DELETE FROM parted WHERE id = 20")
    mirror.run(
        "UPDATE spans SET tags = tags || ARRAY['c'] WHERE during @> 7", "DELETE FROM spans WHERE during @> 15"
    )
    mirror.converges(*NAMES)

    mirror.run("ALTER TABLE items ADD COLUMN extra text DEFAULT 'of old'")
    mirror.run("UPDATE items SET name = 'y' WHERE id = 5", "INSERT INTO items (id) VALUES (-1)")
    mirror.converges("items")
    mirror.run("INSERT INTO items (id) VALUES (-7)", "UPDATE items SET name = 'before' WHERE id = 6")
    mirror.run("ALTER TABLE items ADD COLUMN later int[] DEFAULT '{1,2}'")
    mirror.run("ALTER TABLE items ADD COLUMN random float8 DEFAULT random()")
    mirror.converges("items")

    mirror.run("ALTER TABLE items RENAME COLUMN extra TO other")
    mirror.run("UPDATE items SET other = 'renamed' WHERE id < 10")
    mirror.run("ALTER TABLE items ALTER price TYPE text", "UPDATE items SET name = 'retyped' WHERE id < 5")
    mirror.run("ALTER TABLE items DROP COLUMN sizes")
    mirror.converges("items")
    mirror.run("ALTER TABLE items DROP COLUMN other", "ALTER TABLE items ADD COLUMN other text")
    mirror.converges("items")

    mirror.run("TRUNCATE parted_north", "INSERT INTO parted VALUES (1000, 'n')")
    mirror.run("TRUNCATE items", "INSERT INTO items (id, large) VALUES (1, repeat('abc', 5000))")
    mirror.run("UPDATE items SET name = 'u' WHERE id = 1", "UPDATE items SET id = 7")
    mirror.converges(*NAMES)

    mirror.run("CREATE TABLE young (id int PRIMARY KEY, at timestamp)", "INSERT INTO young VALUES (1, now())")
    mirror.converges("young")
    mirror.run("DROP TABLE young", "CREATE TABLE young (id int PRIMARY KEY, at timestamp)")
    mirror.run("INSERT INTO young VALUES (2, '2020-01-01')")
    mirror.converges("young")

    mirror.wait_until(lambda: kills_reader(mirror), "did not go on to follow", 60)
    mirror.run("UPDATE young SET at = '2021-01-01'", "INSERT INTO items (id) VALUES (8)")
    mirror.converges("young", "items")
    mirror.terminate()


def kills_reader(mirror: Mirrored) -> bool:
    """Kill the process that reads the log; whether there was one."""
    for pid in readers(mirror):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def readers(mirror: Mirrored) -> list[int]:
    """Spark's process that reads the log, while there is one."""
    return [pid for pid in mirror.members() if b"source_runner" in _command_of(pid)]


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it ended since it was listed
        return b""


def test_a_load_that_is_killed_at_each_commit_is_repeated(mirror: Mirrored) -> None:
    for failpoint in ("mirror_commit:2", "mirror_committed:2", "mirror_noted"):
        mirror.kill_at(failpoint)
        mirror.run("UPDATE items SET name = name || 'x'", "DELETE FROM parted WHERE id % 10 = 5")
    mirror.follow()
    for table in (TableName("public", name) for name in NAMES):
        assert mirror.actual(table) == mirror.expected(table)


@pytest.mark.long  # without Spark: integration/mirror/test_load_units
def test_a_load_that_is_killed_between_its_ranges_is_begun_again(
    database: str, mirror: Mirrored, tmp_path: Path
) -> None:
    small = Mirrored(tmp_path, database, "mirror_units", file_size="1MiB", kind=mirror.kind)
    small.run(
        "CREATE TABLE big (id int PRIMARY KEY, name text, large text)",
        "ALTER TABLE big ALTER large SET STORAGE EXTERNAL",
        "INSERT INTO big SELECT i, repeat(md5(i::text), 10), repeat('x', i % 2 * 2500) "
        "FROM generate_series(1, 50000) AS i",
    )
    between = (
        ("DELETE FROM big WHERE id = 19000", "UPDATE big SET name = 'moved' WHERE id IN (5, 19500)"),
        ("UPDATE big SET id = -id WHERE id > 19990", "INSERT INTO big VALUES (30000, 'new')"),
    )
    for failpoint, statements in zip(("mirror_unit:6", "mirror_unit:5"), between, strict=True):
        small.start(failpoint)
        small.wait_failpoint()
        small.kill()
        small.run(*statements)
    small.start()
    small.converges("big", *NAMES)
    small.terminate()


@pytest.mark.long
def test_a_batch_that_is_killed_at_each_commit_is_applied_once(mirror: Mirrored) -> None:
    mirror.follow()
    before = {name: count_changes(mirror, name) for name in NAMES}
    mirror.run(
        "UPDATE items SET name = 'x' WHERE id < 200",
        "UPDATE parted SET id = id + 100",
        'DELETE FROM "We ird"',
    )
    mirror.kill_at("mirror_commit", "mirror_committed", "mirror_committed:2")
    mirror.start("mirror_noted:2")  # the first note is that of the start
    mirror.wait_failpoint()
    mirror.kill()
    mirror.run("INSERT INTO parted VALUES (5000, 'n')")
    mirror.start()
    mirror.converges(*NAMES)
    mirror.terminate()
    commits = {name: count_changes(mirror, name) - before[name] for name in NAMES}
    assert commits == {"items": 1, "We ird": 1, "parted": 2, "spans": 0}


def count_changes(mirror: Mirrored, name: str) -> int:
    """How many commits of a table are of changes."""
    return count_merges(mirror.path(TableName("public", name)), mirror.kind)
