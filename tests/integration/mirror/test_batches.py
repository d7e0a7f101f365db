"""Does what a mirror writes of one batch after another hold what the database holds, in both formats?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headrace.config.mirror import Format
from headrace.mirror import writing
from headrace.model.names import TableName
from support.lake import FORMATS, Mirrored, count_merges, read_table
from support.slots import prepared_database

ROOT = Path(__file__).parents[3]
SLOT = "mirror_batches"
ITEMS = TableName("public", "items")
TABLES = (
    "CREATE TABLE items (id int PRIMARY KEY, name text, large text)",
    "ALTER TABLE items ALTER large SET STORAGE EXTERNAL",
    "INSERT INTO items SELECT i, 'n' || i, repeat(md5(i::text), 70) FROM generate_series(1, 300) AS i",
    "CREATE TABLE orders (id int PRIMARY KEY, total numeric(10,2))",
    "CREATE TABLE quiet (id int PRIMARY KEY)",
    "INSERT INTO quiet VALUES (1)",
)


@pytest.fixture(params=FORMATS)
def mirror(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Iterator[Mirrored]:
    """A mirror that has loaded its tables."""
    kind: Format = request.param
    with prepared_database(database, *TABLES) as url:
        mirrored = Mirrored(tmp_path, url, SLOT, kind=kind)
        mirrored.follow()
        yield mirrored


@pytest.mark.long
def test_values_that_the_log_leaves_out_are_taken_from_the_row_before(mirror: Mirrored) -> None:
    mirror.run(
        "INSERT INTO items (id, large) VALUES (1000, repeat('new', 5000))",
        "UPDATE items SET name = 'kept', id = 1001 WHERE id = 1000",
        "UPDATE items SET name = 'kept again' WHERE id = 1001",
        "UPDATE items SET id = 2001 WHERE id = 1",
        "UPDATE items SET id = 2002 WHERE id = 2001",
        "UPDATE items SET name = 'a' WHERE id = 2",
        "UPDATE items SET large = repeat('other', 5000) WHERE id = 2",
        "UPDATE items SET name = 'b' WHERE id = 2",
        "DELETE FROM items WHERE id = 3",
        "INSERT INTO items (id) VALUES (3)",
        "UPDATE items SET name = 'c' WHERE id = 3",
    )
    mirror.follow()
    assert mirror.actual(ITEMS) == mirror.expected(ITEMS)


def test_large_values_that_the_log_leaves_out_are_read_for_some_rows_at_once(
    mirror: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of 64 MiB leaves out those of some 300,000 rows, which no memory may hold."""
    monkeypatch.setattr(writing, "_FIRST_LACKING", 10)
    monkeypatch.setattr(writing, "_READ_BYTES", 50 * 2240)
    mirror.run(
        "UPDATE items SET name = 'all'",
        "UPDATE items SET id = id + 1000 WHERE id > 250",  # no part may end between the two halves of one
        "UPDATE items SET name = 'again' WHERE id > 1000",
        "DELETE FROM items WHERE id < 10",
        "INSERT INTO items (id, name) VALUES (5, 'new')",
    )
    before = count_merges(mirror.path(ITEMS), mirror.kind)
    mirror.follow()
    assert mirror.actual(ITEMS) == mirror.expected(ITEMS)
    # 400 changes: 10, then 50 each.
    assert count_merges(mirror.path(ITEMS), mirror.kind) - before == 9


@pytest.mark.long
def test_a_table_without_a_key_has_each_row_as_often_as_the_database(mirror: Mirrored) -> None:
    heap = TableName("public", "heap")
    one = "ctid IN (SELECT ctid FROM heap WHERE n = {} LIMIT {})"
    for statements in (
        (
            "CREATE TABLE heap (n int, name text, large text, tags int[])",
            "ALTER TABLE heap REPLICA IDENTITY FULL, ALTER large SET STORAGE EXTERNAL",
            """INSERT INTO heap SELECT i % 4, 'same', repeat('x', 3000), ARRAY[i % 2]
               FROM generate_series(1, 40) AS i""",
        ),
        ("INSERT INTO heap SELECT * FROM heap WHERE n = 1",),
        (
            f"DELETE FROM heap WHERE {one.format(1, 3)}",
            "INSERT INTO heap VALUES (9, NULL, NULL, NULL)",
            f"UPDATE heap SET name = 'other' WHERE {one.format(2, 2)}",
            f"UPDATE heap SET name = name || '!' WHERE {one.format(2, 5)}",
            "DELETE FROM heap WHERE n = 9",
        ),
        ("ALTER TABLE heap ADD COLUMN more int DEFAULT 7", f"DELETE FROM heap WHERE {one.format(3, 2)}"),
        ("TRUNCATE heap", "INSERT INTO heap (n) VALUES (1), (1), (2)", "DELETE FROM heap WHERE n = 2"),
        ("ALTER TABLE heap ADD COLUMN id serial PRIMARY KEY", "UPDATE heap SET name = 'keyed'"),
    ):
        mirror.run(*statements)
        mirror.follow()
        assert mirror.actual(heap) == mirror.expected(heap)


@pytest.mark.long
def test_positions_name_versions_that_are_the_database_at_one_commit(
    mirror: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.run("UPDATE items SET name = 'x'", "INSERT INTO orders VALUES (1, 9.5)")
    mirror.follow()
    positions = read_table(mirror.lake / "headrace_positions", mirror.kind)
    assert positions["is_whole"].all()
    assert positions["complete_lsn"].n_unique() == 1
    versions = dict(positions.select("table_name", "version").iter_rows())
    for name in ("items", "orders", "quiet"):
        table = TableName("public", name)
        assert mirror.actual(table, versions[name]) == mirror.expected(table)

    monkeypatch.chdir(mirror.lake.parent)
    pages = ("docs/guides/mirror.md", "docs/guides/mirror-programs.md")
    text = "".join((ROOT / page).read_text() for page in pages)
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    reads = {"delta": "polars.read_delta", "iceberg": "polars.scan_iceberg"}[mirror.kind]
    waiting = [program for program in programs if "psycopg" in program]
    programs = [program for program in programs if reads in program and program not in waiting]
    assert len(programs) == {"delta": 2, "iceberg": 1}[mirror.kind]
    for program in programs:
        names: dict[str, Any] = {}
        exec(program, names)
        assert names["orders"].rows() == [(1, Decimal("9.50"))]
    if mirror.kind == "delta":
        mirror.run("INSERT INTO orders VALUES (2, 1)")
        [program] = waiting
        program = program.replace("postgresql://me@localhost/shop", mirror.url)
        exec(program.replace("time.sleep(1)", "follow()"), {"follow": mirror.follow})
        orders = read_table(mirror.lake / "public" / "orders", "delta")
        assert len(orders) == 2, "the commit that it has waited for"
