"""Do the rows of one table come typed, each change as what it was, and nothing as NULL that is not?"""

from __future__ import annotations

import datetime as dt
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import headrace
from headrace.config.java import spark_java_home
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot

_WITHIN = 40.0
_numbers = itertools.count(1)
_TABLE = """
    CREATE TABLE item (
        id int PRIMARY KEY, name text, price numeric(10,2), made timestamptz, tags text[], body text,
        doubled int GENERATED ALWAYS AS (id * 2) STORED
    )
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session that knows nothing of Headrace: nothing is registered."""
    kept = dict(os.environ)
    source = str(Path(headrace.__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([source, *filter(None, [kept.get("PYTHONPATH")])])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(spark_java_home())
    settings = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"}
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(kept)


class Source:
    """A table, and a query of its rows."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.url = url
        self.slot = f"rows_{next(_numbers)}"
        self.rows: list[Row] = []
        self._spark = spark
        self._folder = folder
        self._query: StreamingQuery | None = None
        self.run(_TABLE, "ALTER TABLE item ALTER body SET STORAGE EXTERNAL")

    def run(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with connect(self.url, autocommit=False) as connection:
            for statement in statements:
                execute(connection, statement)

    def load(self, *, tables: str = "public.item", **options: str) -> DataFrame:
        given = {"url": self.url, "slotName": self.slot, "publicationName": self.slot, **options}
        return self._spark.readStream.format("postgres_cdc").options(**given).load(tables)

    def follow(self, **options: str) -> None:
        def note(rows: DataFrame, _number: int) -> None:
            self.rows.extend(rows.collect())

        writer = self.load(**options).writeStream.foreachBatch(note)
        self._query = writer.option("checkpointLocation", self._folder.as_uri()).start()
        active = """
            SELECT active AND confirmed_flush_lsn IS NOT NULL FROM pg_replication_slots WHERE slot_name = $1
        """
        with connect(self.url) as connection:
            self.until(lambda: execute(connection, active, (self.slot,)) == [(True,)])

    def failure(self) -> str:
        assert self._query is not None
        self.until(lambda: self._query is not None and not self._query.isActive, alive=False)
        return str(self._query.exception())

    def until(self, condition: Callable[[], bool], *, alive: bool = True) -> None:
        end = time.monotonic() + _WITHIN
        while not condition():
            assert time.monotonic() < end, self.rows
            assert not alive or self._query is None or self._query.isActive, self._query.exception()
            time.sleep(0.05)

    def stop(self) -> None:
        if self._query is None:
            return
        self._query.stop()
        with connect(self.url) as connection:
            drop_slot(connection, self.slot)


@pytest.fixture
def source(spark: SparkSession, database: str, tmp_path: Path) -> Iterator[Source]:
    made = Source(spark, database, tmp_path / "checkpoint")
    yield made
    made.stop()


def shown(row: Row, *names: str) -> tuple[object, ...]:
    return tuple(row[name] for name in ("_change_type", *names))


def test_each_change_is_a_row_of_the_tables_own_columns(source: Source) -> None:
    """Drasi's hole 4: keys that change, TRUNCATE, large values that do not change."""
    source.follow()
    large = "x" * 9_000
    moment = "2024-02-29 12:00:00.123456+02"
    source.run(
        f"INSERT INTO item VALUES (1, 'a', 1.50, '{moment}', ARRAY['p','\"q'], '{large}')",
        "INSERT INTO item VALUES (2)",
        "UPDATE item SET name = 'b' WHERE id = 1",
        "UPDATE item SET id = 3 WHERE id = 2",
    )
    source.run("DELETE FROM item WHERE id = 3")
    source.until(lambda: len(source.rows) == 6)
    source.run("TRUNCATE item")
    source.until(lambda: len(source.rows) == 7)
    first, second, update, *moved, gone, emptied = source.rows
    made = dt.datetime(2024, 2, 29, 10, 0, 0, 123456)  # noqa: DTZ001 - Spark gives the session's time
    assert shown(first, "id", "name", "price", "made", "tags", "body") == (
        "insert", 1, "a", Decimal("1.50"), made, ["p", '"q'], large,
    )  # fmt: skip
    assert shown(second, "id", "name", "price", "tags") == ("insert", 2, None, None, None)
    assert shown(update, "id", "name", "body", "_unchanged") == ("update_postimage", 1, "b", large, None)
    assert {shown(row, "id") for row in moved} == {("delete", 2), ("insert", 3)}
    assert shown(gone, "id", "name") == ("delete", 3, None)
    assert shown(emptied, "id") == ("truncate", None)
    places = [(row["_commit_lsn"], row["_commit_seq"]) for row in source.rows]
    assert places == sorted(places)
    assert len(set(places)) == 6, "both halves of a moved key have one place"
    assert {row["_xid"] for row in source.rows[:5]} == {first["_xid"]} != {gone["_xid"]}
    assert not any(row["_snapshot"] for row in source.rows)


def test_a_large_value_that_did_not_change_is_looked_up_or_named(source: Source) -> None:
    """Drasi's hole 4. The row that is gone when it is looked up is the one that is named."""
    source.follow()
    source.run(f"INSERT INTO item VALUES (1, 'a', 1, now(), NULL, '{'y' * 9_000}')")
    source.run("UPDATE item SET name = 'b'", "DELETE FROM item")
    source.until(lambda: len(source.rows) == 3)
    update, delete = source.rows[1:]
    assert shown(update, "name", "body", "_unchanged") == ("update_postimage", "b", None, ["body"])
    assert shown(delete, "id", "_unchanged") == ("delete", 1, None)


def test_rows_as_they_were_before(source: Source) -> None:
    source.run("ALTER TABLE item DROP doubled", "ALTER TABLE item REPLICA IDENTITY FULL")
    source.follow(preImages="true", unchangedToast="old", metadataPrefix="cdc_", excludeColumns="made,tags")
    large = "z" * 9_000
    source.run(f"INSERT INTO item VALUES (1, 'a', 1, now(), NULL, '{large}')")
    source.run("UPDATE item SET name = 'b'", "DELETE FROM item")
    source.until(lambda: len(source.rows) == 4)
    found = [(row["cdc_change_type"], row["name"], row["body"], row["price"]) for row in source.rows]
    price = Decimal("1.00")
    assert found == [
        ("insert", "a", large, price),
        ("update_preimage", "a", large, price),
        ("update_postimage", "b", large, price),
        ("delete", "b", large, price),
    ]
    assert "made" not in source.rows[0].asDict()


def test_an_altered_table_ends_the_query_before_its_rows_are_wrong(source: Source) -> None:
    source.follow()
    source.run("INSERT INTO item VALUES (1, 'a')")
    source.until(lambda: len(source.rows) == 1)
    source.run("ALTER TABLE item ADD more text", "INSERT INTO item VALUES (2, 'b')")
    said = source.failure()
    assert "[HEADRACE_SCHEMA_CHANGED] the table item was altered: it has a new column more" in said
    source.follow()
    source.until(lambda: len(source.rows) == 2)
    assert shown(source.rows[1], "id", "more") == ("insert", 2, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"preImages": "true"}, "[HEADRACE_REPLICA_IDENTITY] preImages=true needs the old rows of item"),
        ({"columns": "id,nam"}, "the option columns: item has no column 'nam'. Did you mean 'name'?"),
        ({"excludeColumns": "id"}, "the key of item is id, and id is left out"),
        ({"tables": "itme"}, "there is no table itme. Did you mean 'item'?"),
        ({"metadataPrefix": "", "columns": "id,xid"}, "and a column of the change has the same name"),
        ({"envelope": "changes", "preImages": "true"}, "preImages is for envelope=rows"),
        ({"url": "", "slot_Name": "x"}, "is given twice"),
        ({"host": "localhost"}, "url and host both say where the database is"),
    ],
)
def test_what_cannot_be_is_said_when_it_is_loaded(source: Source, options: dict[str, str], said: str) -> None:
    source.run("ALTER TABLE item ADD xid text")
    with pytest.raises(PySparkException) as raised:
        source.load(**options)
    assert said in str(raised.value)
    assert source.url not in str(raised.value)
    with connect(source.url) as connection:
        assert (
            execute(connection, "SELECT FROM pg_replication_slots WHERE slot_name = $1", (source.slot,)) == []
        )
