"""Are stored generated columns in a lake where the log has them, and there alone?"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from headrace.config.mirror import MirroredTables
from headrace.postgres.connection import connect
from support.followed_mirror import FollowedMirror, run

SLOT = "mirror_generated_columns"
SETUP = (
    "CREATE TABLE a (id int PRIMARY KEY, n int, g int GENERATED ALWAYS AS (n * 2) STORED)",
    "INSERT INTO a SELECT i, i FROM generate_series(1, 9) AS i",
)


def test_a_column_that_the_log_does_not_have_is_not_in_the_lake(url: str, tmp_path: Path) -> None:
    """Whatever `pg_publication_tables` says: that of PostgreSQL 15 names all columns."""
    mirror = FollowedMirror.of(url, tmp_path, SLOT, MirroredTables(tables=("public.*",)))
    mirror.prepare()
    run(url, "UPDATE a SET n = 100 WHERE id = 1", "INSERT INTO a VALUES (10, 10)")
    assert not [text for text in mirror.follow() if "loading" in text]
    assert mirror.wrong() == []
    rows = pl.read_delta(str(tmp_path / "public" / "a"))
    with connect(url) as connection:
        is_sent = connection.info.server_version >= 180000
    assert ("g" in rows.columns) == is_sent
