"""Are a mirror's tables partitioned, masked and free of lost rows, whatever is written, altered or killed?"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace import Mirror
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from support.lake import Mirrored, comparable
from support.slots import drop_slots

SALT = "pepper"
ORDERS, KEYED, VISITS, EVENTS, HEAP, PEOPLE = (
    TableName("public", name) for name in ("orders", "keyed", "visits", "events", "heap", "people")
)
_SETUP = (
    "CREATE TABLE orders (id int PRIMARY KEY, country text, placed_at timestamptz, large text)",
    "ALTER TABLE orders ALTER large SET STORAGE EXTERNAL",
    """INSERT INTO orders SELECT i, (ARRAY['DE', 'São a/b', NULL])[1 + i % 3], CASE WHEN i > 7
       THEN timestamptz '2026-01-01' + i * interval '7 h' END, repeat(md5(i::text), 70)
       FROM generate_series(1, 60) AS i""",
    "CREATE TABLE keyed (day date, id int, v text, PRIMARY KEY (day, id))",
    "INSERT INTO keyed SELECT date '2025-12-20' + i % 30, i, 'v' FROM generate_series(1, 90) AS i",
    "CREATE TABLE visits (LIKE orders INCLUDING ALL)",
    "INSERT INTO visits SELECT * FROM orders",
    "CREATE TABLE events (LIKE orders INCLUDING ALL)",
    "CREATE TABLE heap (n int, name text)",
    "ALTER TABLE heap REPLICA IDENTITY FULL",
    "INSERT INTO heap SELECT i % 4, 'same' FROM generate_series(1, 40) AS i",
    """CREATE TABLE people (email text PRIMARY KEY, born date, phone varchar(40), code char(12), score float8,
                            note text, large text)""",
    "ALTER TABLE people ALTER large SET STORAGE EXTERNAL",
    """INSERT INTO people SELECT 'secret' || i || '@x', date '1990-01-01' + i, 'secret phone', 'secret',
       i / 7.0, 'secret', repeat('secret' || i, 500) FROM generate_series(1, 40) AS i""",
)
_PARTITIONED = (
    'tables = ["public.keyed"]\npartition_by = ["month(day)"]',
    'tables = ["public.visits"]\nmode = "history"\npartition_by = ["day(placed_at)"]',
    'tables = ["public.events"]\nmode = "changes"\npartition_by = ["day(_commit_timestamp)"]',
    'tables = ["public.heap"]\npartition_by = ["n"]',
)
_PEOPLE = 'tables = ["public.people"]\nsoft_delete = true\nwhere = "email <> \'secret7@x\'"\n'
_MASKS = (
    'masks = { email = "sha256", born = "sha256", phone = "redact", code = "sha256", note = "null", large = '
)
_PARTS = (
    'tables = ["public.orders"]\npartition_by = ["country", "day(placed_at)"]',
    *_PARTITIONED,
    f'{_PEOPLE}{_MASKS}"sha256" }}',
)
_HASHED = "encode(sha256(convert_to($1 || {}, 'UTF8')), 'hex')"
_MASKED = f"""
SELECT {_HASHED.format("email")}, {_HASHED.format("born::text")},
       CASE WHEN phone IS NOT NULL THEN '***' END,
       CASE WHEN code IS NOT NULL THEN {_HASHED.format("format('%s', code)")} END,
       score, NULL, CASE WHEN large IS NOT NULL THEN {{}} END
FROM people WHERE email <> 'secret7@x'
"""
_HASHED_LARGE, _REDACTED_LARGE = _HASHED.format("large"), "'***'"


@pytest.fixture
def mirror(database: str, tmp_path: Path) -> Iterator[Mirrored]:
    name = f"options_{database.rpartition('_')[2].partition('?')[0]}"
    mirrored = Mirrored(tmp_path, database, name, parts=_PARTS, more='mask_salt = { env = "SALT" }')
    mirrored.variables = {"SALT": SALT}
    mirrored.run(*_SETUP)
    yield mirrored
    mirrored.close()
    drop_slots(database)


class People:
    """What commits showed of the table people: of each key the last row, masked by PostgreSQL.

    Attributes:
        rows: each row that there was.
        gone: the keys of those that are there no more.
        large: SQL for the mask of the column `large`.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.rows: dict[str, tuple[Any, ...]] = {}
        self.gone: set[str] = set()
        self.large = _HASHED_LARGE

    def look(self) -> None:
        """Note what there is now."""
        with connect(self._url) as connection:
            now = {row[0]: tuple(row) for row in execute(connection, _MASKED.format(self.large), (SALT,))}
        self.rows |= now
        self.gone = self.rows.keys() - now.keys()

    def expected(self) -> list[tuple[Any, ...]]:
        """What the lake must have: the rows, and whether they are deleted."""
        return comparable([*row, key in self.gone] for key, row in self.rows.items())


@pytest.mark.long
def test_options_hold_through_loads_changes_kills_and_other_options(mirror: Mirrored) -> None:
    draw = random.Random(24)
    people = People(mirror.url)
    people.look()
    mirror.start()
    mirror.waits_until((mirror.path(VISITS) / "_delta_log").exists, lambda: "no lake")
    for number in range(40):
        if number == 15:  # the rest is written while the mirror is away
            mirror.terminate()
        mirror.run(*(statement(draw) for _ in range(draw.randint(1, 4))))
        people.look()
    mirror.kill_at("mirror_commit", "mirror_committed:3", "mirror_noted:2")
    mirror.run(
        "INSERT INTO people (email, note) VALUES ('secret end', 'secret')", "DELETE FROM orders WHERE id = 9"
    )
    people.look()
    mirror.start()
    converges(mirror, people)
    assert_partitions(mirror, ORDERS, "day")
    assert len(pl.read_delta(str(mirror.path(EVENTS)))["__commit_timestamp_day"].unique()) == 1
    mirror.terminate()
    assert_no_secrets(mirror)
    lake = Mirror.from_file(next(mirror.lake.parent.glob("*.toml")), environ=mirror.variables)
    found = list(lake.verify())
    assert len(found) == 6
    assert [one for one in found if not one.is_right] == []

    mirror.run("DELETE FROM people WHERE score > 4", "UPDATE orders SET country = 'X' WHERE id < 30")
    people.look()
    mirror.configure(
        (
            'tables = ["public.orders"]\npartition_by = ["month(placed_at)"]',
            *_PARTITIONED,
            f'{_PEOPLE}{_MASKS}"redact" }}',
        ),
        more=f'mask_salt = "{SALT}"',
    )
    people.large = _REDACTED_LARGE
    people.rows |= {key: (*people.rows[key][:-1], None) for key in people.gone}  # it had another mask
    people.look()
    mirror.start()
    converges(mirror, people)
    assert_partitions(mirror, ORDERS, "month")

    mirror.run("ALTER TABLE people RENAME note TO remark", "UPDATE people SET remark = 'secret remark'")
    told = 'waits: masks of [[mirror.tables]]: the table people has no mirrored column "note"'
    mirror.waits_until(lambda: told in mirror.output.read_text(), lambda: "it said nothing")
    mirror.run("INSERT INTO orders (id) VALUES (999999)")
    others_converge(mirror)
    assert_no_secrets(mirror)


def statement(draw: random.Random) -> str:
    key = draw.randint(1, 70)
    moment = f"timestamptz '2026-01-01' + {draw.randint(-40, 400)} * interval '1 h'"
    table = draw.choice(["orders", "visits", "events"])
    return draw.choice(
        [
            f"INSERT INTO {table} VALUES ({key}, 'N', {moment}, repeat('y', 3000)) ON CONFLICT DO NOTHING",
            f"UPDATE {table} SET placed_at = {moment} WHERE id BETWEEN {key} AND {key + 3}",
            f"UPDATE {table} SET country = 'it''s %' WHERE id = {key}",
            f"DELETE FROM {table} WHERE id = {key}",
            f"UPDATE {table} SET id = id + {draw.randint(1, 10**6)}, placed_at = NULL WHERE id = {key}",
            f"UPDATE keyed SET v = v || '!' WHERE id BETWEEN {key} AND {key + 2}",
            f"UPDATE keyed SET day = day + 40 WHERE id = {key}",
            f"DELETE FROM keyed WHERE id = {key}",
            f"INSERT INTO heap VALUES ({draw.randint(0, 9)}, 'new')",
            f"DELETE FROM heap WHERE ctid = (SELECT min(ctid) FROM heap WHERE n = {key % 4})",
            f"DELETE FROM people WHERE email = 'secret{key}@x'",
            f"INSERT INTO people (email, note) VALUES ('secret{key}@x', 'secret') ON CONFLICT DO NOTHING",
            f"UPDATE people SET phone = 'secret', score = {key} WHERE email < 'secret{key % 10}'",
            f"UPDATE people SET email = email || 'y' WHERE email = 'secret{key}@x'",
            *(["TRUNCATE people", f"TRUNCATE {table}"] if draw.random() < 0.1 else []),
        ]
    )


def converges(mirror: Mirrored, people: People) -> None:
    """Wait until each table is as the database's, and people are as commits showed them."""
    others_converge(mirror)

    def found() -> list[tuple[Any, ...]]:
        frame = pl.read_delta(str(mirror.path(PEOPLE)))
        assert (frame["_is_deleted"] == frame["_deleted_at"].is_not_null()).all()
        return comparable(frame.drop("_deleted_at").iter_rows())

    expected = people.expected()
    mirror.waits_until(
        lambda: found() == expected,
        lambda: f"{set(found()) - set(expected)}, not {set(expected) - set(found())}",
    )


def others_converge(mirror: Mirrored) -> None:
    """Wait until each other table is as the database's."""
    for table in (ORDERS, KEYED, HEAP, VISITS, EVENTS):
        names, expected = mirror.expected(table)
        mirror.waits_until(
            lambda: read(mirror, table, names) == expected,  # noqa: B023 - it is called here alone
            lambda: f"{table}: {read(mirror, table, names)} instead of {expected}",  # noqa: B023
        )


def read(mirror: Mirrored, table: TableName, names: list[str]) -> list[tuple[Any, ...]]:
    """The present rows that the lake has of a table; those of changes by replaying them."""
    frame = pl.read_delta(str(mirror.path(table)))
    if table == VISITS:
        frame = frame.filter(pl.col("_is_current"))
    if table != EVENTS:
        return comparable(frame.select(names).iter_rows())
    rows: dict[int, dict[str, Any]] = {}
    moved: dict[str, Any] = {}
    for row in frame.sort("_commit_lsn", "_commit_seq").iter_rows(named=True):
        match row["_change_type"]:
            case "truncate":
                rows.clear()
            case "delete":
                moved = rows.pop(row["id"])
            case kind:
                before = moved if kind == "insert" else rows[row["id"]]
                rows[row["id"]] = row | {name: before[name] for name in row["_unchanged"] or ()}
    return comparable(tuple(row[name] for name in names) for row in rows.values())


def assert_partitions(mirror: Mirrored, table: TableName, unit: str) -> None:
    """Each partition has the rows that the database has of it; polars reads that partition's files alone."""
    lake = pl.scan_delta(str(mirror.path(table)))
    column = f"_placed_at_{unit}"
    with connect(mirror.url) as connection:
        days = execute(
            connection,
            "SELECT date_trunc($1, placed_at AT TIME ZONE 'UTC')::date, array_agg(id ORDER BY id) "
            "FROM orders GROUP BY 1",
            (unit,),
        )
    assert len(days) >= 2
    for day, ids in days:
        chosen = pl.col(column).is_null() if day is None else pl.col(column) == day
        assert sorted(lake.filter(chosen).collect()["id"]) == ids
    assert set(lake.select(column).collect()[column]) == {day for day, _ in days}


def assert_no_secrets(mirror: Mirrored) -> None:
    """No file that the lake ever had of people has a masked value, nor has a log, nor headrace_positions."""
    files = [file for file in mirror.lake.rglob("*") if file.is_file() and "people" in str(file)]
    assert len(files) > 2
    for file in files:
        text = pl.read_parquet(file).write_json() if file.suffix == ".parquet" else file.read_text("latin1")
        assert "secret" not in text.replace("secret7@x", ""), file
