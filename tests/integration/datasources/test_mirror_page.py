"""The query of docs/guides/mirror.md keeps the lake as the database is, with and without its checkpoint."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from headrace import HeadraceError, PostgresSource
from headrace.config.mirror import Format
from headrace.mirror import into
from headrace.postgres.connection import connect, execute
from integration.datasources.driven import Query
from support.lake import read_table

PAGE = Path(__file__).parents[3] / "docs/guides/mirror-programs.md"
SETUP = ("CREATE TABLE orders (id int PRIMARY KEY, name text)", "INSERT INTO orders VALUES (1, 'a')")


def run(url: str, *statements: str) -> None:
    with connect(url) as connection:
        for statement in statements:
            execute(connection, statement)


def program_with(words: str) -> str:
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [program] = [program for program in programs if words in program]
    return str(program)


@pytest.mark.long
def test_a_mirror_as_an_object_writes_tables_and_compares_them(
    spark: SparkSession, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = program_with("headrace.Mirror(")
    for old, new in {
        "postgresql://me@localhost/shop": url,
        'location="lake"': f'location="{tmp_path}/lake"',
        "mirror.sync()": "mirror.sync(spark=spark)",
    }.items():
        assert old in program
        program = program.replace(old, new)
    names: dict[str, Any] = {"spark": spark}
    exec(program, names)
    assert capsys.readouterr().out.splitlines() == ["orders 1 True"]
    run(url, "UPDATE orders SET name = 'b'")
    follower = threading.Thread(target=lambda: names["mirror"].run(spark=spark))
    follower.start()
    Query.until_true(lambda: versions(tmp_path) == [(1, "a", False), (1, "b", True)])
    [comparison] = names["mirror"].verify("public.orders")
    assert comparison.is_right
    names["mirror"].stop()
    follower.join(30)
    assert not follower.is_alive()


def versions(folder: Path) -> list[tuple[Any, ...]]:
    frame = pl.read_delta(f"{folder}/lake/public/orders")
    return sorted(frame.select("id", "name", "_is_current").rows())


@pytest.mark.long
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_the_query_of_the_page_writes_tables(
    spark: SparkSession, url: str, tmp_path: Path, kind: Format
) -> None:
    program = program_with("into(")
    for old, new in {
        "postgresql://me@localhost/shop": url,
        '"lake", source, "checkpoint"': (
            f'"{tmp_path}/lake", source, "{tmp_path}/checkpoint", format="{kind}"'
        ),
        '"checkpointLocation", "checkpoint"': f'"checkpointLocation", "{tmp_path}/checkpoint"',
    }.items():
        assert old in program
        program = program.replace(old, new)

    def write(*statements: str) -> list[tuple[Any, ...]]:
        names: dict[str, Any] = {"spark": spark}
        exec(program, names)
        query = names["query"]
        run(url, *statements)
        query.processAllAvailable()
        query.stop()
        return sorted(read_table(f"{tmp_path}/lake/public/orders", kind).rows())

    assert write("INSERT INTO orders VALUES (2, 'b')") == [(1, "a"), (2, "b")]
    run(url, "UPDATE orders SET name = 'c' WHERE id = 1")
    assert write("ALTER TABLE orders ADD COLUMN x int DEFAULT 7", "DELETE FROM orders WHERE id = 2") == [
        (1, "c", 7)
    ]
    shutil.rmtree(tmp_path / "checkpoint")
    run(url, "UPDATE orders SET name = 'd'")
    assert write("INSERT INTO orders VALUES (3, 'e', 8)") == [(1, "d", 7), (3, "e", 8)]
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    write("INSERT INTO orders VALUES (4, 'f', 9)")
    shutil.rmtree(tmp_path / "lake")
    shutil.move(tmp_path / "copy", tmp_path / "lake")
    with pytest.raises(StreamingQueryException, match="Remove the lake's table headrace_positions"):
        write("INSERT INTO orders VALUES (5, 'g', 10)")
    shutil.rmtree(tmp_path / "lake/headrace_positions")
    assert write() == [(1, "d", 7), (3, "e", 8), (4, "f", 9), (5, "g", 10)]


@pytest.mark.long
def test_a_table_that_is_created_while_the_query_runs_is_whole_behind_its_next_start(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    program = program_with("into(").replace("postgresql://me@localhost/shop", url)
    program = program.replace('"lake", source, "checkpoint"', f'"{tmp_path}/lake", source, "{tmp_path}/log"')
    program = program.replace('"checkpointLocation", "checkpoint"', f'"checkpointLocation", "{tmp_path}/log"')

    def write(*steps: str) -> None:
        names: dict[str, Any] = {"spark": spark}
        exec(program, names)
        names["query"].processAllAvailable()
        for step in steps:
            run(url, step)
            names["query"].processAllAvailable()
        names["query"].stop()

    write(
        "CREATE TABLE late (id int PRIMARY KEY)",
        "INSERT INTO late VALUES (1)",
        "UPDATE orders SET name = 'b'",
        "INSERT INTO late VALUES (2)",
        "UPDATE orders SET name = 'c'",
    )
    assert not (tmp_path / "lake/public/late").exists()
    write("INSERT INTO late VALUES (3)")
    assert read_table(f"{tmp_path}/lake/public/late", "delta")["id"].sort().to_list() == [1, 2, 3]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("envelope", "rows"),
        ("unchanged_toast", "reread"),
        ("starting_offsets", "latest"),
        ("where", "public.orders: id > 1"),
    ],
)
def test_a_source_that_leaves_something_out_is_refused(option: str, value: str) -> None:
    options: dict[str, Any] = {
        "url": "postgresql://me@localhost/shop",
        "slot": "lake",
        "tables": "public.orders",
        "envelope": "changes",
        "unchanged_toast": "mark",
        "starting_offsets": "earliest",
        option: value,
    }
    with pytest.raises(HeadraceError, match=option):
        into("lake", PostgresSource(**options), "checkpoint")
