"""Is a lake right where REPLICA IDENTITY was another one for a while, and is what it was again?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from headrace.config.mirror import MirroredTables
from headrace.postgres.connection import connect, execute
from support.followed_mirror import FollowedMirror, run

SLOT = "mirror_identities"
SETUP = (
    "CREATE TABLE a (id int PRIMARY KEY, u int NOT NULL UNIQUE, v text)",
    "INSERT INTO a SELECT i, i, 'v' FROM generate_series(1, 20) AS i",
    "CREATE TABLE versions (LIKE a INCLUDING ALL)",
    "CREATE TABLE changed (LIKE a INCLUDING ALL)",
    "CREATE TABLE heap (LIKE a INCLUDING ALL)",
    "ALTER TABLE heap DROP CONSTRAINT heap_pkey, REPLICA IDENTITY FULL",
    "INSERT INTO versions SELECT * FROM a",
    "INSERT INTO changed SELECT * FROM a",
    "INSERT INTO heap SELECT * FROM a",
)
_OTHER = "ALTER TABLE {0} REPLICA IDENTITY USING INDEX {0}_u_key"
_FULL = "ALTER TABLE {0} REPLICA IDENTITY FULL"
_MOVED = (
    "UPDATE {0} SET id = id + 100 WHERE id = 1",
    "DELETE FROM {0} WHERE id = 2",
    "UPDATE {0} SET v = 'same key' WHERE id = 3",
)


@pytest.mark.long
@pytest.mark.parametrize("statement", _MOVED[:2])
def test_tables_are_read_anew_whose_keys_the_log_did_not_have(
    statement: str, url: str, tmp_path: Path
) -> None:
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    for table in ("a", "versions", "changed", "heap"):
        run(url, *(text.format(table) for text in (_OTHER, statement, _FULL)))
    run(url, *(f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT" for table in ("a", "versions")))
    for times in range(2):  # the slot is not confirmed, as after a kill: the log is read from its beginning
        told = mirror.follow()
        assert len([text for text in told if "REPLICA IDENTITY was altered" in text]) == (0 if times else 4)
        assert_right(mirror, url, tmp_path)


def test_a_table_whose_keys_the_log_has_is_not_read_anew(url: str, tmp_path: Path) -> None:
    mirror = mirror_of(url, tmp_path)
    mirror.prepare()
    run(
        url,
        _FULL.format("a"),
        _MOVED[0].format("a"),
        "ALTER TABLE a REPLICA IDENTITY USING INDEX a_pkey",
        _MOVED[1].format("a"),
        "ALTER TABLE a REPLICA IDENTITY NOTHING",
        "INSERT INTO a VALUES (300, 300, 'nothing')",
        _OTHER.format("a"),
        "INSERT INTO a VALUES (400, 400, 'other')",
        "ALTER TABLE a REPLICA IDENTITY DEFAULT",
        _MOVED[2].format("a"),
        "ALTER TABLE a RENAME id TO key",
        "UPDATE a SET key = 500 WHERE key = 400",
    )
    assert not [text for text in mirror.follow() if "loading" in text]
    assert_right(mirror, url, tmp_path)


def mirror_of(url: str, folder: Path) -> FollowedMirror:
    return FollowedMirror.of(
        url,
        folder,
        SLOT,
        MirroredTables(tables=("public.versions",), mode="history"),
        MirroredTables(tables=("public.changed",), mode="changes"),
        MirroredTables(tables=("public.*",)),
    )


def assert_right(mirror: FollowedMirror, url: str, folder: Path) -> None:
    assert mirror.wrong() == []
    with connect(url) as connection:
        expected = execute(connection, "SELECT id, u, v FROM changed")
    assert sorted(replayed(pl.read_delta(str(folder / "public" / "changed")))) == sorted(expected)


def replayed(frame: pl.DataFrame) -> Iterator[tuple[Any, ...]]:
    """The rows that the changes make, one after the other."""
    rows: dict[int, tuple[Any, ...]] = {}
    for row in frame.sort("_commit_lsn", "_commit_seq").iter_rows(named=True):
        match row["_change_type"]:
            case "truncate":
                rows.clear()
            case "delete":
                rows.pop(row["id"], None)
            case _:
                rows[row["id"]] = (row["id"], row["u"], row["v"])
    yield from rows.values()
