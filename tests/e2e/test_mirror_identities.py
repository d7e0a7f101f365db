"""Is the lake right where REPLICA IDENTITY was another one for a while, and is what it was again?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.model.names import TableName
from support.lake import Mirrored, comparable
from support.slots import drop_slots

_TABLES = ("a", "versions", "changed", "heap")
_SETUP = (
    "CREATE TABLE a (id int PRIMARY KEY, u int NOT NULL UNIQUE, v text)",
    "INSERT INTO a SELECT i, i, 'v' FROM generate_series(1, 20) AS i",
    *(f"CREATE TABLE {table} (LIKE a INCLUDING ALL)" for table in _TABLES[1:]),
    "ALTER TABLE heap DROP CONSTRAINT heap_pkey",
    "ALTER TABLE heap REPLICA IDENTITY FULL",
    *(f"INSERT INTO {table} SELECT * FROM a" for table in _TABLES[1:]),
)
_PARTS = (
    'tables = ["public.versions"]\nmode = "history"',
    'tables = ["public.changed"]\nmode = "changes"',
    'tables = ["public.*"]',
)


@pytest.fixture
def mirror(database: str, tmp_path: Path) -> Iterator[Mirrored]:
    slot = f"identities_{database.rpartition('_')[2].partition('?')[0]}"
    mirrored = Mirrored(tmp_path, database, slot, parts=_PARTS)
    mirrored.run(*_SETUP)
    yield mirrored
    mirrored.close()
    drop_slots(database)


@pytest.mark.long
def test_rows_are_right_whose_keys_the_log_did_not_have_for_a_while(mirror: Mirrored) -> None:
    mirror.start()
    mirror.converges("a", "heap")
    for table in _TABLES:
        mirror.run(f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX {table}_u_key")
        mirror.run(*moved(table, 1))
    mirror.waits_until(
        lambda: all(f"the table {table} waits" in mirror.output.read_text() for table in ("a", "versions")),
        lambda: "the catalog says that the log does not have the key",
    )
    mirror.kill()
    for table in _TABLES:
        mirror.run(f"ALTER TABLE {table} REPLICA IDENTITY {'FULL' if table == 'heap' else 'DEFAULT'}")
    mirror.start("mirror_commit")
    mirror.wait_failpoint()
    mirror.kill()
    mirror.start()
    assert_right(mirror)
    mirror.run(  # each table in the same transaction, and its key is called otherwise
        *(
            statement
            for table in ("a", "versions", "changed")
            for statement in (
                f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX {table}_u_key",
                *moved(table, 5),
                f"ALTER TABLE {table} REPLICA IDENTITY FULL",
                f"ALTER TABLE {table} RENAME id TO key",
                f"INSERT INTO {table} VALUES (200, 200, 'last')",
            )
        )
    )
    assert_right(mirror)
    mirror.terminate()


def moved(table: str, key: int) -> tuple[str, ...]:
    """Statements that give one row another key, and delete the next one."""
    return (
        f"UPDATE {table} SET id = id + 100 WHERE id = {key}",
        f"DELETE FROM {table} WHERE id = {key + 1}",
        f"UPDATE {table} SET v = 'same key' WHERE id = {key + 2}",
    )


def assert_right(mirror: Mirrored) -> None:
    """Wait until all tables say what the database has."""
    mirror.converges("a", "heap")
    for name, rows_of in (("versions", newest), ("changed", replayed)):
        table = TableName("public", name)
        names, rows = mirror.expected(table)
        mirror.waits_until(
            lambda rows_of=rows_of, table=table, names=names, rows=rows: (  # type: ignore[misc]
                comparable(rows_of(mirror.frame(table), names)) == rows
            ),
            lambda table=table, rows=rows: f"{mirror.frame(table)} instead of {rows}",  # type: ignore[misc]
        )


def newest(frame: pl.DataFrame, names: list[str]) -> list[tuple[Any, ...]]:
    """The rows whose versions are current."""
    return [] if names[0] not in frame.columns else frame.filter("_is_current").select(names).rows()


def replayed(frame: pl.DataFrame, names: list[str]) -> list[tuple[Any, ...]]:
    """The rows that the changes make, one after the other."""
    rows: dict[Any, tuple[Any, ...]] = {}
    for row in frame.sort("_commit_lsn", "_commit_seq").iter_rows(named=True):
        if names[0] not in row:
            return []
        if row["_change_type"] == "truncate":
            rows.clear()
        elif row["_change_type"] == "delete":
            rows.pop(row[names[0]], None)
        else:
            rows[row[names[0]]] = tuple(row[name] for name in names)
    return list(rows.values())
