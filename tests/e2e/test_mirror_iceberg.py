"""Does a mirror of Iceberg tables hold what the database holds, in each mode, through kills and alterations?

The tests of both formats are `test_mirror.py` and `test_mirror_modes.py`; those of Iceberg are long there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.model.names import TableName
from support.lake import Mirrored, comparable, is_table, read_table
from support.slots import drop_slots

_SETUP = (
    """CREATE TABLE items (
        id int PRIMARY KEY, name text, large text, price numeric(10,2), sizes int[], small smallint)""",
    "ALTER TABLE items ALTER large SET STORAGE EXTERNAL",
    """INSERT INTO items
       SELECT i, 'n' || i, repeat(md5(i::text), 70), i, ARRAY[i], i FROM generate_series(1, 200) AS i""",
    "CREATE TABLE versions (LIKE items INCLUDING ALL)",
    "INSERT INTO versions SELECT * FROM items",
    "CREATE TABLE events (LIKE items INCLUDING ALL)",
    "CREATE TABLE heap (n int, name text)",
    "ALTER TABLE heap REPLICA IDENTITY FULL",
    "INSERT INTO heap SELECT i % 4, 'same' FROM generate_series(1, 40) AS i",
)
_PARTS = (
    'tables = ["public.versions"]\nmode = "history"',
    'tables = ["public.events"]\nmode = "changes"',
    'tables = ["public.*"]',
)
_NAMES = ("items", "versions", "events", "heap")


@pytest.fixture
def mirror(database: str, tmp_path: Path) -> Iterator[Mirrored]:
    slot = f"iceberg_{database.rpartition('_')[2].partition('?')[0]}"
    mirrored = Mirrored(tmp_path, database, slot, parts=_PARTS, kind="iceberg")
    mirrored.run(*_SETUP)
    yield mirrored
    mirrored.close()
    drop_slots(database)


@pytest.mark.long  # without kills: integration/datasources/test_mirror_page
def test_every_mode_follows_changes_kills_and_alterations(mirror: Mirrored) -> None:
    mirror.start("mirror_committed:2")
    mirror.wait_failpoint()
    mirror.kill()
    mirror.start()
    is_right(mirror)

    for table in ("items", "versions", "events"):
        mirror.run(f"INSERT INTO {table} (id, large) VALUES (900, repeat('new', 2000))")
        mirror.run(f"UPDATE {table} SET name = 'x', id = id + 1000 WHERE id % 7 = 0 OR id = 900")
        mirror.run(f"UPDATE {table} SET name = 'kept' WHERE id > 1500", f"DELETE FROM {table} WHERE id < 20")
    mirror.run("DELETE FROM heap WHERE ctid IN (SELECT ctid FROM heap WHERE n = 1 LIMIT 3)")
    is_right(mirror)
    mirror.kill()
    mirror.run("UPDATE items SET name = 'y'", "UPDATE versions SET name = 'y'", "INSERT INTO heap VALUES (9)")
    mirror.kill_at("mirror_commit", "mirror_committed:2", "mirror_noted:2")
    mirror.start()
    is_right(mirror)

    for table in ("items", "versions"):
        mirror.run(f"ALTER TABLE {table} ADD COLUMN extra text DEFAULT 'of old'")
        mirror.run(f"DELETE FROM {table} WHERE id < 50")
    is_right(mirror)
    for table in ("items", "versions"):
        mirror.run(
            f"ALTER TABLE {table} RENAME extra TO other", f"UPDATE {table} SET other = 'r' WHERE id < 60"
        )
        mirror.run(f"ALTER TABLE {table} DROP COLUMN sizes", f"ALTER TABLE {table} ALTER price TYPE text")
    is_right(mirror)
    for table in _NAMES:
        mirror.run(f"TRUNCATE {table}")
    mirror.run(
        "INSERT INTO items (id, large) VALUES (1, repeat('abc', 5000))", "INSERT INTO heap VALUES (1, 'a')"
    )
    mirror.run("UPDATE items SET name = 'u'")
    is_right(mirror)
    mirror.terminate()
    positions = read_table(mirror.lake / "headrace_positions", "iceberg")
    assert positions["is_whole"].all()
    versions = dict(positions.select("table_name", "version").iter_rows())
    assert mirror.actual(TableName("public", "items"), versions["items"])[1][0][1] == "u"


def is_right(mirror: Mirrored) -> None:
    """Wait until all tables are the database's."""
    mirror.converges("items", "heap")
    holds(mirror, TableName("public", "versions"), current)
    holds(mirror, TableName("public", "events"), replayed)


def holds(
    mirror: Mirrored, table: TableName, read: Callable[[pl.DataFrame, list[str]], list[tuple[Any, ...]]]
) -> None:
    """Wait until what `read` makes of a table are the database's rows."""
    names, rows = mirror.expected(table)
    mirror.waits_until(
        lambda: is_table(mirror.path(table), "iceberg") and read(mirror.frame(table), names) == rows,
        lambda: f"{table}: {mirror.frame(table)}",
    )


def current(frame: pl.DataFrame, names: list[str]) -> list[tuple[Any, ...]]:
    """The rows that a table of versions says that are."""
    if not set(names) <= set(frame.columns):
        return []
    return comparable(frame.filter(pl.col("_is_current")).select(names).iter_rows())


def replayed(frame: pl.DataFrame, names: list[str]) -> list[tuple[Any, ...]]:
    """The rows that a table's changes make."""
    found: dict[Any, dict[str, Any]] = {}
    moved: dict[str, Any] = {}
    for row in frame.sort("_commit_lsn", "_commit_seq", maintain_order=True).iter_rows(named=True):
        match row["_change_type"]:
            case "truncate":
                found.clear()
            case "delete":
                moved = found.pop(row["id"], {})
            case kind:
                before = found.get(row["id"], moved if kind == "insert" else {})
                found[row["id"]] = row | {name: before.get(name) for name in row["_unchanged"] or ()}
    return comparable(tuple(row[name] for name in names) for row in found.values())
