"""Can the changes of a table without a key be replayed?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl

from headrace.config.mirror import MirroredTables
from headrace.postgres.connection import connect, execute
from support.followed_mirror import FollowedMirror, run

SLOT = "mirror_changes_without_a_key"
SETUP = (
    "CREATE TABLE a (n int, v text)",
    "ALTER TABLE a REPLICA IDENTITY FULL",
    "INSERT INTO a SELECT i % 3, 'v' FROM generate_series(1, 9) AS i",
)


def test_an_update_says_which_row_it_was(url: str, tmp_path: Path) -> None:
    part = MirroredTables(tables=("public.*",), mode="changes")
    mirror = FollowedMirror.of(url, tmp_path, SLOT, part)
    mirror.prepare()
    run(
        url,
        "UPDATE a SET n = 7, v = 'seven' WHERE ctid = '(0,1)'",
        "DELETE FROM a WHERE ctid = '(0,2)'",
        "INSERT INTO a VALUES (0, 'v')",
        "UPDATE a SET v = 'eight' WHERE n = 7",
    )
    mirror.follow()
    rows: Counter[tuple[int, str]] = Counter()
    for kind, number, text in changes(tmp_path):
        rows[number, text] += -1 if kind in {"delete", "update_preimage"} else 1
    with connect(url) as connection:
        assert +rows == Counter(execute(connection, "SELECT n, v FROM a"))
    assert rows.total() == 9


def test_the_key_may_be_left_out(url: str, tmp_path: Path) -> None:
    run(url, "ALTER TABLE a REPLICA IDENTITY DEFAULT", "ALTER TABLE a ADD id serial PRIMARY KEY")
    part = MirroredTables(tables=("public.*",), mode="changes", exclude_columns=("id",))
    mirror = FollowedMirror.of(url, tmp_path, SLOT, part)
    mirror.prepare()
    run(
        url,
        "UPDATE a SET v = 'new' WHERE id = 1",
        "UPDATE a SET id = 20 WHERE id = 2",
        "DELETE FROM a WHERE id = 3",
    )
    assert not [text for text in mirror.follow() if "waits" in text]
    assert [kind for kind, *_ in changes(tmp_path)][9:] == ["update_postimage", "delete", "insert", "delete"]


def changes(folder: Path) -> list[tuple[str, int, str]]:
    frame = pl.read_delta(str(folder / "public" / "a")).sort("_commit_lsn", "_commit_seq")
    return frame.select("_change_type", "n", "v").rows()
