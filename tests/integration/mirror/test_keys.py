"""Is a lake right whose keys are written differently, but are the same to the database?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.config.mirror import Format, MirroredTables
from headrace.postgres.connection import connect, execute
from support.followed_mirror import FollowedMirror
from support.lake import FORMATS, comparable, read_table

SLOT = "mirror_keys"
SETUP = (
    "CREATE TABLE a (id float8, n int, v text, PRIMARY KEY (id, n))",
    "INSERT INTO a VALUES (0, 1, 'v'), ('-0', 2, 'v'), (7, 3, 'v')",
)
_CHANGES = (
    "UPDATE a SET id = '-0' WHERE n = 1",
    "UPDATE a SET v = 'changed' WHERE id = 0",
    "UPDATE a SET id = 0",
    "DELETE FROM a WHERE n = 2",
    "INSERT INTO a VALUES ('-0', 2, 'again')",
    "DELETE FROM a WHERE n = 1",
)


@pytest.mark.long
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("options", [{}, {"mode": "history"}, {"soft_delete": True}])
def test_minus_zero_and_zero_are_one_key(
    options: dict[str, Any], kind: Format, url: str, tmp_path: Path
) -> None:
    part = MirroredTables(tables=("public.*",), **options)
    mirror = FollowedMirror.of(url, tmp_path, SLOT, part, kind=kind)
    mirror.prepare()
    with connect(url) as connection:
        for statement in _CHANGES:
            execute(connection, statement)
            mirror.follow()
            found = read_table(tmp_path / "public" / "a", kind)
            assert comparable(living(found).rows()) == comparable(execute(connection, "SELECT * FROM a"))


def living(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that the database has."""
    if "_is_current" in rows.columns:
        rows = rows.filter("_is_current")
    if "_is_deleted" in rows.columns:
        rows = rows.filter(~pl.col("_is_deleted"))
    return rows.select("id", "n", "v")
