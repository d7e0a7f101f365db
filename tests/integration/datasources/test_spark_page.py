"""The programs of the pages on Spark that follow tables do what they say, in a classic session.

The pages: docs/guides/spark.md, docs/guides/spark-queries.md and docs/tutorials/spark.md.

The others: of `postgres_snapshot` in test_snapshot.py, of Spark Connect in test_connect.py.
"""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from headrace.spark import spark_java_home
from integration.datasources.driven import Query

DOCS = Path(__file__).parents[3] / "docs"
GUIDES = ("guides/spark.md", "guides/spark-queries.md")
URL = "postgresql://me@localhost/shop"
SETUP = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(10,2))",
    "INSERT INTO orders VALUES (1, 9.90), (2, 5)",
    "CREATE TABLE users (id bigint PRIMARY KEY, name text, note text)",
    "INSERT INTO users VALUES (7, 'Ann', 'x'), (1007, 'Bob', 'y')",
    "CREATE TABLE books (id int PRIMARY KEY, title text)",
    "INSERT INTO books VALUES (1, 'Frankenstein'), (2, 'The Last Man')",
)

SLOTS = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"


class Programs:
    """The programs of some pages, run in one namespace against a database and a folder of the test."""

    def __init__(self, pages: tuple[str, ...], spark: SparkSession, url: str, folder: Path) -> None:
        text = "\n".join((DOCS / page).read_text() for page in pages).replace(URL, url)
        text = text.replace('"checkpoint"', f'"{folder}/checkpoint"').replace('f"lake/', f'f"{folder}/lake/')
        self._programs: list[str] = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self.names: dict[str, Any] = {"spark": spark}

    def run(self, part: str) -> None:
        """Run the one program that has `part` in it."""
        [program] = [text for text in self._programs if part in text]
        exec(program, self.names)

    def program(self, part: str) -> str:
        [program] = [text for text in self._programs if part in text]
        return program


def ended(spark: SparkSession) -> None:
    """Wait until the query of a program has taken everything, and stop it."""
    [query] = spark.streams.active
    query.processAllAvailable()
    query.stop()


@pytest.mark.long
def test_the_first_program_follows_a_table(
    spark: SparkSession, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("JAVA_HOME", str(spark_java_home()))
    programs = Programs(("tutorials/spark.md",), spark, url, tmp_path)
    program = threading.Thread(target=programs.run, args=("postgres_cdc",))
    program.start()
    Query.until_true(lambda: bool(spark.streams.active))
    ended(spark)
    program.join()
    assert {"id", "title", "_change_type", "_commit_lsn"} <= set(programs.names["books"].columns)


@pytest.mark.long
def test_the_programs_of_the_page_load_and_write_what_they_say(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    programs = Programs(GUIDES, spark, url, tmp_path)

    def reader(slot: str) -> DataStreamReader:
        return spark.readStream.format("postgres_cdc").option("url", url).option("slot", slot)

    programs.names["reader"] = reader("adults")
    programs.run("adults = reader")
    assert {"id", "name"} == {name for name in programs.names["adults"].columns if name[0] != "_"}
    programs.run("for_each_table(write)")
    ended(spark)
    written = [spark.read.parquet(f"{tmp_path}/lake/{name}") for name in ("orders", "users")]
    assert [rows.count() for rows in written] == [2, 2]
    programs.run("PostgresSource(")
    assert programs.names["now"].count() == 2


def test_the_archive_of_the_page_gives_rows(spark: SparkSession, tmp_path: Path) -> None:
    programs = Programs(GUIDES, spark, URL, tmp_path)
    programs.run("class Archive")
    archive = programs.names["Archive"]()
    [(name, row)] = archive.read(archive.parts(["public.orders"])[0])
    assert (name, row) == ("public.orders", {"id": 1, "total": "9.90"})


@pytest.mark.parametrize("part", ["def merge", "checkpointFileManagerClass", "StreamingQueryException"])
def test_the_other_programs_are_python(part: str, tmp_path: Path, spark: SparkSession) -> None:
    compile(Programs(GUIDES, spark, URL, tmp_path).program(part), "docs/guides/spark.md", "exec")
