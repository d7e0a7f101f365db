"""Do the rows of one table come typed, each change as what it was, and nothing as NULL that is not?"""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from headrace.spark import latest_per_key
from support.clients import process_of

_WITHIN = 90.0
_numbers = itertools.count(1)
_TABLE = """
    CREATE TABLE item (
        id int PRIMARY KEY, name text, price numeric(10,2), made timestamptz, tags text[], body text,
        doubled int GENERATED ALWAYS AS (id * 2) STORED
    )
"""


class Source:
    """A table, and a query of its rows."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.url = url
        self.slot = f"rows_{next(_numbers)}"
        self.rows: list[Row] = []
        self.batches = 0
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
        given = {"url": self.url, "slot": self.slot, "publication": self.slot, **options}
        return self._spark.readStream.format("postgres_cdc").options(**given).load(tables)

    def follow(self, **options: str) -> None:
        def note(rows: DataFrame, _number: int) -> None:
            if found := rows.collect():
                self.batches += 1
                self.rows.extend(found)

        writer = self.load(**options).writeStream.foreachBatch(note)
        self._query = writer.option("checkpointLocation", self._folder.as_uri()).start()
        made = """
            SELECT confirmed_flush_lsn IS NOT NULL FROM pg_replication_slots WHERE slot_name = $1
        """
        with connect(self.url) as connection:
            self.until(lambda: execute(connection, made, (self.slot,)) == [(True,)])

    def is_read(self) -> bool:
        """Whether somebody streams the slot."""
        sql = "SELECT active FROM pg_replication_slots WHERE slot_name = $1"
        with connect(self.url) as connection:
            return execute(connection, sql, (self.slot,)) == [(True,)]

    def holder(self) -> int:
        """The process of this machine that holds the snapshot of the slot."""
        with connect(self.url) as connection:
            [(port,)] = execute(
                connection,
                "SELECT client_port FROM pg_stat_activity WHERE backend_type = 'walsender' AND datname = "
                "current_database()",
            )
        return process_of(port)

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

    def stop_reading(self) -> None:
        if self._query is not None:
            self._query.stop()

    def forget_checkpoint(self) -> None:
        shutil.rmtree(self._folder)

    def stop(self) -> None:
        if self._query is None:
            return
        self.stop_reading()
        with connect(self.url) as connection:
            drop_slot(connection, self.slot, timeout=60)


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


@pytest.mark.long
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


@pytest.mark.long  # without Spark: test_edges
def test_an_altered_table_ends_the_query_before_its_rows_are_wrong(source: Source) -> None:
    source.follow()
    source.run("INSERT INTO item VALUES (1, 'a')")
    source.until(lambda: len(source.rows) == 1)
    source.run("ALTER TABLE item ADD more text", "INSERT INTO item VALUES (2, 'b')")
    said = source.failure()
    assert "[HEADRACE_SCHEMA_CHANGED] the table item was altered: it has a column more that" in said
    source.follow()
    source.until(lambda: len(source.rows) == 2)
    assert shown(source.rows[1], "id", "more") == ("insert", 2, None)


@pytest.mark.long
def test_a_look_at_a_part_of_a_table_that_is_altered_meanwhile(source: Source) -> None:
    """The options that change what a query is, together, as Spark has them; more in test_going_on."""
    source.run("INSERT INTO item (id, name) VALUES (1, 'a'), (100, 'no')")
    source.follow(onSchemaChange="rescue", temporarySlot="true", where="id < 100")
    source.until(lambda: len(source.rows) == 1)
    source.run("ALTER TABLE item ADD more text, DROP tags")
    source.run(
        "INSERT INTO item (id, more) VALUES (2, 'm'), (101, 'no')",
        "UPDATE item SET id = id + 500 WHERE id < 100",
    )
    source.until(lambda: len(source.rows) == 4)
    assert [shown(row, "id", "tags", "_rescued_data") for row in source.rows] == [
        ("insert", 1, None, None),
        ("insert", 2, None, '{"more": "m"}'),
        ("delete", 1, None, None),
        ("delete", 2, None, None),
    ]
    source.stop_reading()
    source.until(lambda: not source.is_read(), alive=False)
    with connect(source.url) as connection:
        assert (
            execute(connection, "SELECT FROM pg_replication_slots WHERE slot_name = $1", (source.slot,)) == []
        )


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"where": "nam = 'a'"}, 'column "nam" does not exist'),
        ({"preImages": "true"}, "[HEADRACE_REPLICA_IDENTITY] preImages=true needs the old rows of item"),
        ({"columns": "id,nam"}, "the option columns: item has no column 'nam'. Did you mean 'name'?"),
        ({"excludeColumns": "id"}, "the key of item is id, and id is left out"),
        ({"tables": "itme"}, "there is no table itme. Did you mean 'item'?"),
        ({"metadataPrefix": "", "columns": "id,xid"}, "and a column of the change has the same name"),
        ({"envelope": "changes", "preImages": "true"}, "preImages is for envelope=rows"),
        ({"envelope": "changes", "where": "nam = 'a'"}, 'column "nam" does not exist'),
        ({"metadataPrefix": "a", "metadata_prefix": "b"}, "is given twice"),
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


@pytest.mark.long
def test_the_rows_that_are_there_come_first_then_what_changed_since(source: Source) -> None:
    """Drasi's holes 1 and 7: nothing between the two is lost, and what is read is never in memory whole."""
    source.run("INSERT INTO item (id, name, price) SELECT g, 'old', g / 4.0 FROM generate_series(1, 3000) g")
    source.follow(maxBytesPerTrigger="40k")
    source.run("UPDATE item SET name = 'new' WHERE id = 7", "DELETE FROM item WHERE id = 8")
    source.until(lambda: any(row["_change_type"] == "delete" for row in source.rows))
    read, followed = source.rows[:3000], source.rows[3000:]
    assert {row["id"]: row["price"] for row in read} == {g: Decimal(g) / 4 for g in range(1, 3001)}
    assert {(row["_change_type"], row["_snapshot"], row["_snapshot_attempt"]) for row in read} == {
        ("insert", True, 1)
    }
    assert [shown(row, "id", "name", "_snapshot") for row in followed] == [
        ("update_postimage", 7, "new", False),
        ("delete", 8, None, False),
    ]
    assert max(row["_commit_lsn"] for row in read) < followed[0]["_commit_lsn"]
    assert source.batches > 3


def test_many_tables_are_read_first_too(source: Source) -> None:
    source.run("CREATE TABLE tag (id int PRIMARY KEY, word citext)".replace("citext", "text"))
    source.run("INSERT INTO item (id, price) VALUES (1, 2)", "INSERT INTO tag VALUES (1, 'x')")
    source.follow(tables="public.*")
    source.until(lambda: len(source.rows) == 2)
    source.run("UPDATE tag SET word = 'y'")
    source.until(lambda: len(source.rows) == 3)
    item, tag = sorted(source.rows[:2], key=lambda row: row["table"])
    assert (item["op"], item["after"]["price"], item["after"]["name"]) == ("r", "2.00", None)
    assert (tag["op"], tag["before"], tag["after"]) == ("r", None, {"id": "1", "word": "x"})
    assert (source.rows[2]["op"], source.rows[2]["after"]) == ("u", {"id": "1", "word": "y"})


@pytest.mark.long
def test_killed_while_the_rows_are_read(source: Source) -> None:
    """Its snapshot died with it: the reading begins again, and the greatest position of each key wins.

    After a `truncate`: what was deleted meanwhile is in no later row.
    """
    source.run("INSERT INTO item (id, name) SELECT g, 'old' FROM generate_series(1, 4000) g")
    source.follow(maxBytesPerTrigger="20k")
    source.until(lambda: source.batches >= 2)
    psutil.Process(source.holder()).kill()
    source.failure()
    assert not any(row["_snapshot_attempt"] != 1 for row in source.rows)
    source.run(
        "UPDATE item SET name = 'new' WHERE id % 3 = 0",
        "DELETE FROM item WHERE id % 5 = 0",
        "UPDATE item SET id = -id WHERE id % 7 = 0",
        "INSERT INTO item (id, name) VALUES (5, 'again')",
    )
    source.follow(maxBytesPerTrigger="200k")
    source.until(lambda: any(row["_snapshot_attempt"] == 2 for row in source.rows))
    source.run("DELETE FROM item WHERE id % 11 = 0", "INSERT INTO item (id, name) VALUES (9999, 'end')")
    source.until(lambda: any(row["id"] == 9999 for row in source.rows))
    kept: dict[int, Row] = {}
    [emptied] = {row["_commit_lsn"] for row in source.rows if row["_change_type"] == "truncate"}
    for row in source.rows:
        if row["_commit_lsn"] < emptied or row["_change_type"] == "truncate":
            continue
        held = kept.get(row["id"])
        if held is None or (held["_commit_lsn"], held["_commit_seq"]) <= (
            row["_commit_lsn"],
            row["_commit_seq"],
        ):
            kept[row["id"]] = row
    found = {key: row["name"] for key, row in kept.items() if row["_change_type"] != "delete"}
    with connect(source.url) as connection:
        assert found == dict(execute(connection, "SELECT id, name FROM item"))


@pytest.mark.long
@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_where_a_new_checkpoint_begins_on_a_slot_that_was_used(source: Source, start: str) -> None:
    source.follow()
    source.until(source.is_read)
    source.stop_reading()
    source.until(lambda: not source.is_read(), alive=False)
    source.run("INSERT INTO item VALUES (1)")
    source.forget_checkpoint()
    source.follow(startingOffsets=start)
    source.until(source.is_read)
    source.run("INSERT INTO item VALUES (2)")
    source.until(lambda: any(row["id"] == 2 for row in source.rows))
    assert [row["id"] for row in source.rows] == ([2] if start == "latest" else [1, 2])


@pytest.mark.long
def test_the_last_change_of_each_key(spark: SparkSession) -> None:
    columns = "`the ``id.` int, name string, {0}change_type` string, {0}commit_lsn` long, {0}commit_seq` long"
    rows = [
        (1, "lost", "insert", 1, 1),
        (9, "lost", "insert", 1, 9),
        (None, None, "truncate", 2, 1),
        (1, "a", "insert", 2, 2),
        (1, "a", "update_preimage", 3, 1),
        (1, "b", "update_postimage", 3, 1),
        (2, "c", "insert", 3, 2),
        (2, None, "delete", 3, 3),
        (3, "d", "insert", 10, 1),
        (3, "e", "update_postimage", 9, 99),
        (4, None, "delete", 11, 1),
        (4, "f", "insert", 11, 1),
    ]
    columns = columns.format("`c.")
    found = latest_per_key(spark.createDataFrame(rows, columns), ["the `id."], prefix="c.")
    assert sorted(map(tuple, found.collect()), key=str) == sorted(
        [rows[2], rows[5], rows[7], rows[8], rows[11]], key=str
    )
    whole = latest_per_key(spark.createDataFrame(rows[3:5], columns), ["the `id."], prefix="c.")
    assert [tuple(row) for row in whole.collect()] == [rows[3]]
    assert found.columns == ["the `id.", "name", "c.change_type", "c.commit_lsn", "c.commit_seq"]
