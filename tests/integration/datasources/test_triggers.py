"""Does a query end where its trigger says, and lose nothing from one run to the next?"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.postgres.connection import connect, execute
from headrace.spark.environment import passes_position

pytestmark = pytest.mark.long

_WITHIN = 60.0
_RUNS = 20
_MEGABYTE = 1_000_000
_numbers = itertools.count(1)


class Job:
    """A query of one table's rows that is started again and again with the same checkpoint."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.url = url
        self.slot = f"trigger_{next(_numbers)}"
        self.batches: dict[int, list[Row]] = {}
        self._spark = spark
        self._folder = folder
        self.write("CREATE TABLE item (id int PRIMARY KEY, name text)", "INSERT INTO item VALUES (1, 'one')")

    def write(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with connect(self.url, autocommit=False) as connection:
            for statement in statements:
                execute(connection, statement)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        with connect(self.url) as connection:
            return execute(connection, sql)

    def load(self, **options: str) -> DataFrame:
        reader = self._spark.readStream.format("postgres_cdc").option("url", self.url)
        given = {"slot": self.slot, "publication": self.slot, **options}
        return reader.options(**given).load("item")

    def start(self, trigger: dict[str, Any], **options: str) -> StreamingQuery:
        def note(batch: DataFrame, number: int) -> None:
            self.batches[number] = batch.collect()

        writer = self.load(**options).writeStream.foreachBatch(note).trigger(**trigger)
        return writer.option("checkpointLocation", self._folder.as_uri()).start()

    def run(self, trigger: dict[str, Any], **options: str) -> None:
        """Start it and wait until it has ended by itself."""
        assert self.start(trigger, **options).awaitTermination(int(_WITHIN))
        self.until(lambda: not self.is_read())

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + _WITHIN
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.02)

    def rows(self) -> list[Row]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows()]

    def is_read(self) -> bool:
        return self.ask(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{self.slot}'") == [
            (True,)
        ]

    def replayed(self) -> dict[int, str | None]:
        """What the rows make of the table, in the order of their positions."""
        table: dict[int, str | None] = {}
        order = {"delete": 0}
        for row in sorted(
            self.rows(),
            key=lambda row: (row["_commit_lsn"], row["_commit_seq"], order.get(row["_change_type"], 1)),
        ):
            if row["_change_type"] == "truncate":
                table.clear()
            elif row["_change_type"] == "delete":
                del table[row["id"]]
            else:
                table[row["id"]] = row["name"]
        return table

    def close(self) -> None:
        self.until(lambda: not self.is_read())
        with connect(self.url) as connection:
            sql = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1"
            execute(connection, sql, (self.slot,))


@pytest.fixture
def job(spark: SparkSession, database: str, tmp_path: Path) -> Iterator[Job]:
    made = Job(spark, database, tmp_path / "checkpoint")
    yield made
    made.close()


def writes(chance: Random, number: int) -> list[str]:
    """Some changes of every kind, in one transaction."""
    low = 1000 * (number + 1)
    found = [
        f"INSERT INTO item SELECT g, 'new {number}' FROM generate_series({low}, {low + 20}) g",
        f"UPDATE item SET name = 'run {number}' WHERE id % 7 = {chance.randrange(7)}",
        f"UPDATE item SET id = id + 100000 WHERE id % 11 = {chance.randrange(11)}",
        f"DELETE FROM item WHERE id % 5 = {chance.randrange(5)}",
    ]
    if number % 8 == 5:
        found.insert(chance.randrange(4), "TRUNCATE item")
    return found


@pytest.mark.skipif(not passes_position(pyspark.__version__), reason="one batch a run before PySpark 4.2")
@pytest.mark.timeout(900)
def test_twenty_runs_with_writes_between_give_the_table_and_hold_little_log(job: Job) -> None:
    """What a run has read, the next one confirms: the server keeps the log of two of them."""
    chance = Random(20)
    held = []
    sql = f"""
        SELECT confirmed_flush_lsn - '0/0', pg_current_wal_lsn() - restart_lsn
        FROM pg_replication_slots WHERE slot_name = '{job.slot}'
    """
    ended = 0
    for number in range(_RUNS):
        job.run({"availableNow": True}, maxRowsPerTrigger="60")
        assert job.replayed() == dict(job.ask("SELECT id, name FROM item"))
        [(confirmed, retained)] = job.ask(sql)
        assert confirmed >= ended, f"run {number + 1} has not confirmed what run {number} had read"
        held.append(int(retained))
        ended = max(row["_commit_lsn"] for row in job.rows())
        job.write(*writes(chance, number))
        job.write(f"SELECT pg_logical_emit_message(false, '', repeat('x', {_MEGABYTE}))")
        job.ask("CHECKPOINT")
    assert max(held) < 3 * _MEGABYTE, held
    places = [(row["_commit_lsn"], row["_commit_seq"], row["id"]) for row in job.rows()]
    assert len(places) == len(set(places)), "a change came twice"


def test_once_reads_one_batch_and_the_next_run_goes_on(job: Job) -> None:
    job.write(f"CREATE PUBLICATION {job.slot} FOR TABLE item")
    job.write(f"SELECT pg_create_logical_replication_slot('{job.slot}', 'pgoutput')")
    job.write("INSERT INTO item VALUES (2, 'two')")
    job.run({"once": True}, startingOffsets="earliest")
    assert job.ids() == [2]
    job.write("INSERT INTO item VALUES (3, 'three')")
    job.run({"once": True}, startingOffsets="earliest")
    assert job.ids() == [2, 3]


def test_a_pace_that_is_given_is_kept(job: Job) -> None:
    query = job.start({"processingTime": "2 seconds"})
    job.until(lambda: job.ids() == [1])
    for number in range(2, 6):
        job.write(f"INSERT INTO item VALUES ({number}, 'more')")
    job.until(lambda: len(job.ids()) == 5)
    filled = [number for number, rows in job.batches.items() if rows]
    assert len(filled) <= 3, "each row came in a batch of its own"
    query.stop()


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ({"continuous": "1 second"}, "does not support continuous processing"),
        pytest.param(
            {"realTime": "5 seconds"},
            "INPUT_STREAM_NOT_SUPPORTED",
            marks=pytest.mark.skipif(
                not passes_position(pyspark.__version__), reason="PySpark has this trigger since 4.2"
            ),
        ),
    ],
)
def test_what_a_source_in_python_cannot_do_is_refused(job: Job, trigger: dict[str, str], said: str) -> None:
    writer = job.load().writeStream.format("console").outputMode("update").trigger(**trigger)
    with pytest.raises(PySparkException, match=said):
        writer.start().awaitTermination(int(_WITHIN))
    assert job.ask("SELECT FROM pg_replication_slots WHERE database = current_database()") == []
