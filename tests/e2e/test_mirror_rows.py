"""Are rows right in the lake whose values or keys the log tells in part, or Python does not have?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.config.mirror import Format
from headrace.mirror.mirror import Mirror
from headrace.model.names import TableName
from support.lake import FORMATS, Mirrored
from support.slots import drop_slots

_SETUP = (
    "CREATE TABLE chosen (id int PRIMARY KEY, large text)",
    "ALTER TABLE chosen ALTER large SET STORAGE EXTERNAL",
    "CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, name text)",
    "ALTER TABLE deferred REPLICA IDENTITY FULL",
    "CREATE TABLE days (day date, number float8, large text, days date[], PRIMARY KEY (day, number))",
    "ALTER TABLE days ALTER large SET STORAGE EXTERNAL",
    "CREATE TABLE gone (LIKE days INCLUDING ALL)",
    "CREATE TABLE versions (LIKE days INCLUDING ALL)",
    "CREATE TABLE moments (at timestamptz, day date)",
    "ALTER TABLE moments REPLICA IDENTITY FULL",
    "INSERT INTO chosen SELECT i, repeat(md5(i::text), 100) FROM generate_series(1, 20) AS i",
    "INSERT INTO deferred SELECT i, 'name ' || i FROM generate_series(1, 6) AS i",
    """
    INSERT INTO days SELECT day::date, number::float8, repeat('x', 3000), ARRAY[day::date]
    FROM unnest(ARRAY['infinity', '0044-03-15 BC', '2026-11-25']) AS day, unnest(ARRAY['1', 'NaN']) AS number
    """,
    "INSERT INTO gone SELECT * FROM days",
    "INSERT INTO versions SELECT * FROM days",
    "INSERT INTO moments VALUES ('infinity', '-infinity'), ('2026-11-25', 'infinity'), ('2026-11-25', NULL)",
)
_PARTS = (
    'tables = ["public.chosen"]\nwhere = "id > 10"',
    'tables = ["public.gone"]\nsoft_delete = true',
    'tables = ["public.versions"]\nmode = "history"',
    'tables = ["public.*"]',
)


@pytest.fixture(params=FORMATS)
def mirror(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Iterator[Mirrored]:
    kind: Format = request.param
    slot = f"rows_{database.rpartition('_')[2].partition('?')[0]}"
    mirrored = Mirrored(tmp_path, database, slot, parts=_PARTS, kind=kind)
    mirrored.run(*_SETUP)
    yield mirrored
    mirrored.close()
    drop_slots(database)


@pytest.mark.long
def test_rows_are_right_whatever_their_keys_and_the_log_are(mirror: Mirrored) -> None:
    mirror.start()
    mirror.converges("deferred")
    mirror.run("UPDATE chosen SET id = id + 100 WHERE id < 5", "UPDATE deferred SET id = 7 - id")
    for table in ("days", "gone", "versions"):
        mirror.run(f"UPDATE {table} SET days = days || days", f"UPDATE {table} SET number = number - 1")
    mirror.run("DELETE FROM moments WHERE day = '-infinity'", "UPDATE moments SET day = 'infinity'")
    mirror.converges("deferred")
    mirror.waits_until(lambda: len(chosen(mirror)) == 14, lambda: str(chosen(mirror)))
    assert None not in chosen(mirror)
    assert_equal(mirror)
    for table in ("days", "gone", "versions"):
        mirror.run(f"TRUNCATE {table}", f"INSERT INTO {table} VALUES ('infinity', 'NaN', '', NULL)")
    assert_equal(mirror)


def chosen(mirror: Mirrored) -> list[str | None]:
    return mirror.frame(TableName("public", "chosen"))["large"].to_list()


def assert_equal(mirror: Mirrored) -> None:
    """The lake is as the database, of which neither Python nor polars has all days."""
    found = {one.table.name: one for one in Mirror.from_file(mirror.config).verify()}
    assert [name for name, one in found.items() if not one.is_right or one.undecided] == []
    assert len(found) == 6
