"""Does a mirror as a process go on beside a table that it cannot write, and end when it is told to?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute
from support.lake import Mirrored
from support.slots import drop_slots

PARTED = TableName("public", "parted")
_SETUP = (
    "CREATE TABLE items (id int PRIMARY KEY, price numeric(10, 2))",
    "CREATE TABLE parted (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (100)",
    "INSERT INTO items VALUES (1, 1)",
    "INSERT INTO parted VALUES (1, 1)",
)


@pytest.fixture
def mirror(database: str, tmp_path: Path) -> Iterator[Mirrored]:
    slot = f"waiting_{database.rpartition('_')[2].partition('?')[0]}"
    mirrored = Mirrored(tmp_path, database, slot)
    mirrored.run(*_SETUP)
    yield mirrored
    mirrored.close()
    drop_slots(database)


@pytest.mark.long
def test_a_table_waits_alone_and_a_lock_stops_neither_the_others_nor_the_end(mirror: Mirrored) -> None:
    mirror.run("CREATE TABLE staging AS SELECT 1 AS n")
    mirror.start()
    mirror.converges("items", "parted")
    with connect(mirror.url, autocommit=False) as holder:
        execute(holder, "LOCK TABLE low IN ACCESS EXCLUSIVE MODE")
        mirror.run("INSERT INTO items VALUES (2, 2)", "ALTER TABLE items ADD COLUMN more int DEFAULT 7")
        mirror.converges("items")
        mirror.terminate()
        assert "cut off" not in mirror.output.read_text()

        mirror.start()  # the lock is no obstacle to a start either
        mirror.run("INSERT INTO items VALUES (3, 3, 3)")
        mirror.converges("items")
    mirror.run("INSERT INTO items VALUES (4, 'NaN')", "INSERT INTO parted VALUES (2, 2)")
    mirror.converges("parted")
    mirror.waits_until(
        lambda: "the table items waits" in mirror.output.read_text(), lambda: "nothing was said"
    )
    mirror.run("DELETE FROM items WHERE id = 4", "INSERT INTO parted VALUES (3, 3)")
    mirror.converges("items", "parted")
    mirror.terminate()
    assert "left out: staging" in mirror.output.read_text()
