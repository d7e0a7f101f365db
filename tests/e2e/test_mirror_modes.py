"""Does the lake hold every version of each row, and every change, as the database had them at each commit?"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.config.mirror import Format
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from support.lake import Mirrored, comparable, is_table
from support.slots import drop_slots

HISTORY, CHANGES, KEYLESS, PARTS = (TableName("public", name) for name in ("h", "c", "k", "p"))
_SETUP = (
    "CREATE TABLE h (id int, region text, name text, large text, PRIMARY KEY (id, region))",
    "ALTER TABLE h ALTER large SET STORAGE EXTERNAL",
    "CREATE TABLE c (LIKE h INCLUDING ALL)",
    "CREATE TABLE k (n int, name text)",
    "ALTER TABLE k REPLICA IDENTITY FULL",
    "CREATE TABLE p (id int PRIMARY KEY, name text, secret text)",
    "INSERT INTO h SELECT i, 'n', 'name ' || i, repeat(md5(i::text), 70) FROM generate_series(1, 40) AS i",
    "INSERT INTO c SELECT * FROM h",
    "INSERT INTO k SELECT i % 5, 'twice' FROM generate_series(1, 20) AS i",
    "INSERT INTO p SELECT i, 'name ' || i, 'secret' FROM generate_series(1, 40) AS i",
)
_PARTS = (
    'tables = ["public.h"]\nmode = "history"',
    'tables = ["public.c", "public.k"]\nmode = "changes"',
    'tables = ["public.p"]\nexclude_columns = ["secret"]\nwhere = "id > 10"',
)

Snapshot = tuple[int, list[tuple[Any, ...]]]


@pytest.fixture(params=["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def kind(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


@pytest.fixture
def mirror(kind: Format, database: str, tmp_path: Path) -> Iterator[Mirrored]:
    slot = f"modes_{database.rpartition('_')[2].partition('?')[0]}"
    mirrored = Mirrored(tmp_path, database, slot, parts=_PARTS, kind=kind)
    mirrored.run(*_SETUP)
    yield mirrored
    mirrored.close()
    drop_slots(database)


@pytest.mark.long
def test_versions_and_changes_are_the_rows_of_each_commit(mirror: Mirrored) -> None:
    generator = random.Random(24)
    mirror.start()
    wait_for(mirror, HISTORY, KEYLESS, CHANGES)
    snapshots = [snapshot(mirror)]
    for number in range(60):
        if number == 30:  # the rest is written while the mirror is away, so that one batch has many commits
            mirror.terminate()
        statements = [statement(generator) for _ in range(generator.randint(1, 4))]
        mirror.run(*(one.replace("TABLE", table) for one in statements for table in ("h", "c")))
        snapshots.append(snapshot(mirror))
    mirror.kill_at("mirror_commit", "mirror_committed", "mirror_noted:2")
    mirror.run("UPDATE h SET name = 'end'", "UPDATE c SET name = 'end'", "INSERT INTO k VALUES (7, 'end')")
    snapshots.append(snapshot(mirror))
    mirror.start()
    reaches(mirror, HISTORY, snapshots[-1][1])
    for position, rows in snapshots:
        assert comparable(versions_at(mirror, position)) == rows, position
        assert comparable(replayed(mirror, position)) == rows, position
    mirror.run("DELETE FROM p WHERE id > 30", "UPDATE p SET id = id + 2000 WHERE id < 5 OR id = 20")
    mirror.run("INSERT INTO p VALUES (5000, 'in', 'secret')", "INSERT INTO p VALUES (-1, 'out', 'secret')")
    expected = [(row[0], row[1]) for row in mirror.expected(PARTS)[1] if row[0] > 10]
    wanted = (["id", "name"], expected)
    mirror.waits_until(lambda: mirror.actual(PARTS) == wanted, lambda: f"{mirror.actual(PARTS)} {wanted}")
    mirror.terminate()


@pytest.mark.long
def test_versions_and_changes_survive_alterations(mirror: Mirrored) -> None:
    mirror.start()
    wait_for(mirror, HISTORY, KEYLESS, CHANGES)
    begin = snapshot(mirror)
    for table in ("h", "c"):
        mirror.run(f"UPDATE {table} SET name = 'a' WHERE id < 10")
    second = snapshot(mirror)
    for table in ("h", "c"):
        mirror.run(
            f"ALTER TABLE {table} ADD COLUMN extra text DEFAULT 'old'",
            f"UPDATE {table} SET name = 'b' WHERE id < 5",
            f"INSERT INTO {table} VALUES (100, 'n', 'new', NULL, 'given')",
        )
    current(mirror)
    for table in ("h", "c"):
        mirror.run(
            f"UPDATE {table} SET extra = 'before' WHERE id = 3",
            f"ALTER TABLE {table} RENAME COLUMN extra TO other",
            f"UPDATE {table} SET other = 'after' WHERE id = 4",
        )
    current(mirror)
    for table in ("h", "c"):
        mirror.run(f"ALTER TABLE {table} DROP COLUMN name")
        mirror.run(f"UPDATE {table} SET other = 'no name' WHERE id = 6")
    current(mirror)
    for position, rows in (begin, second):
        assert comparable(versions_at(mirror, position)) == rows
        assert comparable(replayed(mirror, position)) == rows
    for table in ("h", "c"):
        mirror.run(f"ALTER TABLE {table} ADD COLUMN name int", f"UPDATE {table} SET name = id")
    current(mirror)
    mirror.run(
        "ALTER TABLE h ALTER name TYPE text USING 'text ' || name", "UPDATE h SET name = 'x' WHERE id = 7"
    )
    mirror.run("TRUNCATE h", "INSERT INTO h (id, region, name) VALUES (1, 'n', 'last')")
    current(mirror)
    names = mirror.frame(HISTORY).columns
    assert {"name", "name_3"} <= set(names), "the dropped column stays, with a name of its own"
    mirror.terminate()


def statement(generator: random.Random) -> str:
    key = generator.randint(1, 60)
    return generator.choice(
        [
            f"INSERT INTO TABLE VALUES ({key}, 'n', 'in', repeat('x{key}', 3000)) ON CONFLICT DO NOTHING",
            f"UPDATE TABLE SET name = name || '!' WHERE id BETWEEN {key} AND {key + 3}",
            f"UPDATE TABLE SET large = repeat('{key}', 2000) WHERE id = {key}",
            f"DELETE FROM TABLE WHERE id BETWEEN {key} AND {key + 1}",
            f"UPDATE TABLE SET id = id + 100 WHERE id = {key}",
            f"UPDATE TABLE SET region = translate(region, 'ns', 'sn'), name = 'moved' WHERE id = {key}",
            *(["TRUNCATE TABLE"] if generator.random() < 0.1 else []),
        ]
    )


def snapshot(mirror: Mirrored) -> Snapshot:
    """The rows of h, and a position that all their commits lie before."""
    with connect(mirror.url) as connection:
        [(position,)] = execute(connection, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        return position, comparable(execute(connection, "SELECT id, region, name, large FROM h"))


def versions_at(mirror: Mirrored, position: int) -> Iterator[tuple[Any, ...]]:
    """The rows of h as the lake says that they were."""
    for row in mirror.frame(HISTORY).iter_rows(named=True):
        if row["_to_lsn"] is None:
            assert row["_is_current"]
            assert row["_valid_to"] is None
        else:
            assert row["_from_lsn"] < row["_to_lsn"]
            assert row["_valid_from"] <= row["_valid_to"]
        if row["_from_lsn"] < position and not (row["_to_lsn"] is not None and row["_to_lsn"] < position):
            yield row["id"], row["region"], row[dropped("name", row)], row["large"]


def replayed(mirror: Mirrored, position: int) -> list[tuple[Any, ...]]:
    """The rows of c that the lake's changes make."""
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    frame = mirror.frame(CHANGES)
    for row in sorted(frame.iter_rows(named=True), key=lambda row: (row["_commit_lsn"], row["_commit_seq"])):
        if row["_commit_lsn"] >= position:
            break
        key = row["id"], row["region"]
        match row["_change_type"]:
            case "truncate":
                rows.clear()
            case "delete":
                last = rows.pop(key)
            case kind:
                before = rows.get(key, last if kind == "insert" and row["_unchanged"] else ())
                values = [row["id"], row["region"], row[dropped("name", row)], row["large"]]
                unchanged = row["_unchanged"] or ()
                rows[key] = tuple(
                    before[at] if name in unchanged else values[at]
                    for at, name in enumerate(("id", "region", "name", "large"))
                )
    return list(rows.values())


def dropped(name: str, row: dict[str, Any]) -> str:
    """The name that a dropped column of the time before has."""
    return f"{name}_3" if f"{name}_3" in row else name


def wait_for(mirror: Mirrored, *tables: TableName) -> None:
    paths = [mirror.path(table) for table in tables]
    mirror.waits_until(lambda: all(is_table(path, mirror.kind) for path in paths), lambda: "no lake")


def reaches(mirror: Mirrored, table: TableName, rows: list[tuple[Any, ...]]) -> None:
    """Wait until the current versions, and the replayed changes, are `rows`."""
    late = 1 << 62
    mirror.waits_until(
        lambda: comparable(versions_at(mirror, late)) == rows == comparable(replayed(mirror, late)),
        lambda: f"{table}: {comparable(versions_at(mirror, late))} instead of {rows}",
    )


def current(mirror: Mirrored) -> None:
    """Wait until the current versions of h are its rows."""
    names, rows = mirror.expected(HISTORY)

    def found() -> list[tuple[Any, ...]]:
        frame = mirror.frame(HISTORY)
        if not set(names) <= set(frame.columns):
            return []
        return comparable(frame.filter(pl.col("_is_current")).select(names).iter_rows())

    mirror.waits_until(lambda: found() == rows, lambda: f"{found()} instead of {rows}")
    [last] = mirror.expected(TableName("public", "c"))[1][-1:]
    mirror.waits_until(
        lambda: any(row["id"] == last[0] for row in mirror.frame(CHANGES).iter_rows(named=True)),
        lambda: "no change",
    )
