"""Are stored generated columns in a lake where the log has them, and there alone?"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from headrace.config.mirror import MirroredTables
from headrace.postgres.connection import connect, execute
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


def test_a_lock_on_a_table_with_a_generated_column_holds_up_no_table(url: str, tmp_path: Path) -> None:
    mirror = FollowedMirror.of(url, tmp_path, SLOT, MirroredTables(tables=("public.*",)))
    run(url, "CREATE TABLE b (id int PRIMARY KEY)")
    follower, *_ = mirror.prepare()
    run(url, "UPDATE a SET n = 100 WHERE id = 1", "INSERT INTO b VALUES (1)")
    with connect(url, autocommit=False) as holder:
        execute(holder, "LOCK TABLE a IN ACCESS EXCLUSIVE MODE")
        assert not follower.is_altered()
        assert [text for text in mirror.follow() if "waits" in text] == []
    assert mirror.wrong() == []


def test_an_expression_that_was_altered_is_known_without_its_text(url: str, tmp_path: Path) -> None:
    mirror = FollowedMirror.of(url, tmp_path, SLOT, MirroredTables(tables=("public.*",)))
    mirror.prepare()
    with connect(url) as connection:
        if connection.info.server_version < 180000:
            pytest.skip("expressions are altered from PostgreSQL 17 on, their columns in the log from 18 on")
        execute(connection, "ALTER TABLE a ALTER g SET EXPRESSION AS (n * 3)")
    told = mirror.follow()
    assert [text for text in told if "the column g of the table a" in text], told
    assert mirror.wrong() == []
