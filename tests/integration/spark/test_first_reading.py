"""Do the first rows and the changes behind them fit exactly, wherever the reading was killed under writers?

Whoever counts, appends, or has no key sees each difference: what a snapshot shows must not be told again.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.query import StreamingQuery

from headrace.postgres.connection import connect, execute
from integration.spark.driven import Query, as_stored

_HEAP = "CREATE TABLE heap (id int, name text)"
_FILLED = "SELECT g, repeat('x', 100) FROM generate_series(1, 400) g"
_BOTH = {"tables": "item, heap", "envelope": "changes", "maxBytesPerTrigger": "32k"}
_POINTS = ["planned", "logged", "read", "committed"]
_STAGES = ["first", "middle", "over", "stream"]
_QUICK = {("first", "read"), ("middle", "committed"), ("over", "logged"), ("stream", "read")}
_SPARKS_TIME = 240.0
_END = "INSERT INTO item VALUES (-1, 'end')"
Row = dict[str, Any]


class Killed(Query):
    """A query with a sink that keeps what came with the last try of each batch, and that is killed once.

    Attributes:
        batches: what the sink holds, in order.
        kill: at which stage, and point of its batch, the process ends; None: not any more.
        meanwhile: what happens between the end of a process and the next one.
    """

    def __init__(self, url: str, **options: str) -> None:
        super().__init__(url, **options)
        self.batches: list[list[Row]] = []
        self.kill: tuple[str, str] | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    def step(self) -> list[Row]:
        """One batch, through all the points at which a process can end."""
        if not self.offsets:
            self.offsets.append(as_stored(self.reader.initialOffset()))
            if self._dies("first", "begun"):
                self.offsets.clear()
                return []
        start = self.offsets[-1]
        end = as_stored(self.reader.latestOffset(start, ReadAllAvailable()))
        if end == start:
            return []
        stage = stage_of(start, end)
        if self._dies(stage, "planned"):
            if len(self.offsets) == 1:
                self.offsets.clear()
            return []
        self.offsets.append(end)
        if self._dies(stage, "logged"):
            start = self._asked_again()
        found = self.batch(start, end)
        if self._dies(stage, "read"):
            again = self.batch(self._asked_again(), end)
            assert stage != "stream" or again == found
            found = again
        self.batches.append(found)
        self.rows = [row for batch in self.batches for row in batch]
        self._dies(stage, "committed")
        return found

    def is_through(self) -> bool:
        """Whether it was killed, and follows the stream of all its tables."""
        if self.kill is not None or not self.offsets or "snapshot" in self.offsets[-1]:
            return False
        return len(self.offsets[-1]["tables"]) == len(self.options["tables"].split(","))

    def _dies(self, stage: str, point: str) -> bool:
        if self.kill != (stage, point):
            return False
        self.kill = None
        self.restart()
        self.meanwhile()
        return True

    def _asked_again(self) -> dict[str, Any]:
        """Where the last batch began; Spark keeps no offset before the first one's end."""
        if len(self.offsets) == 2 and not self.batches:
            self.offsets[0] = as_stored(self.reader.initialOffset())
        return self.offsets[-2]


def stage_of(start: dict[str, Any], end: dict[str, Any]) -> str:
    """Which part of the reading a batch is."""
    if "snapshot" not in end:
        return "over" if "snapshot" in start else "stream"
    return "middle" if start.get("snapshot", {}).get("attempt") else "first"


@pytest.fixture
def killed(database: str) -> Iterator[Killed]:
    """A query of two tables, one of them without a key."""
    one = Killed(database, **_BOTH)
    one.sql(
        "CREATE TABLE item (id int PRIMARY KEY, name text)",
        _HEAP,
        "ALTER TABLE heap REPLICA IDENTITY FULL",
        f"INSERT INTO item {_FILLED}",
        f"INSERT INTO heap {_FILLED}",
    )
    yield one
    one.close()


@contextlib.contextmanager
def writers(url: str) -> Iterator[None]:
    """Two sessions that insert, update and delete, until the block ends."""
    ending = threading.Event()
    threads = [threading.Thread(target=_write, args=(url, ending, seed)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join()


def _write(url: str, ending: threading.Event, seed: int) -> None:
    chosen = random.Random(seed)
    with connect(url) as connection:
        while not ending.wait(0.002):
            ids = sorted(chosen.sample(range(1, 500), 3))
            ending_words = chosen.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"])
            for statement in (
                "BEGIN",
                f"SET LOCAL synchronous_commit = {chosen.choice(['on', 'off'])}",
                *(word for key in ids for word in _statements(key, chosen)),
                ending_words,
            ):
                execute(connection, statement)


def _statements(key: int, chosen: random.Random) -> list[str]:
    """What is written of one id; a part of it in a subtransaction, which may be rolled back."""
    name = f"{chosen.random()}"
    return [
        f"INSERT INTO item VALUES ({key}, '{name}') ON CONFLICT (id) DO UPDATE SET name = excluded.name",
        "SAVEPOINT inside",
        chosen.choice([f"DELETE FROM item WHERE id = {key}", f"INSERT INTO heap VALUES ({key}, '{name}')"]),
        chosen.choice(["RELEASE inside", "RELEASE inside", "ROLLBACK TO inside"]),
        chosen.choice(
            [
                f"UPDATE heap SET name = '{name}' WHERE id = {key}",
                f"DELETE FROM heap WHERE ctid = (SELECT min(ctid) FROM heap WHERE id = {key})",
            ]
        ),
    ]


def change_much(one: Query) -> None:
    """What a second reading shows and a first one does not; writers are locked out meanwhile."""
    one.sql(
        "DO $$ BEGIN LOCK TABLE item, heap IN SHARE ROW EXCLUSIVE MODE; "
        "DELETE FROM item WHERE id % 7 = 0; DELETE FROM heap WHERE id % 7 = 0; "
        "UPDATE item SET name = 'other' WHERE id % 5 = 0; UPDATE heap SET name = 'other' WHERE id % 5 = 0; "
        "INSERT INTO item SELECT g, 'more' FROM generate_series(1001, 1020) g ON CONFLICT DO NOTHING; "
        "INSERT INTO heap SELECT g, 'more' FROM generate_series(1001, 1020) g; END $$"
    )


def counted(rows: list[Row], table: str) -> Counter[tuple[str, str]]:
    """What a table holds: the rows and all changes in their order, each taken at its word."""
    held: Counter[tuple[str, str]] = Counter()
    names: dict[str, str] = {}  # by key
    for row in sorted((row for row in rows if row["table"] == table), key=_place):
        if row["op"] == "t":
            held.clear()
            names.clear()
        if row["op"] in "du":
            old = dict(row["before"] or row["after"])
            assert table == "heap" or old["id"] in names, f"there is none for {row}"
            gone = old["id"], old["name"] if table == "heap" else names.pop(old["id"])
            assert held[gone] > 0, f"there is no {gone} for {row}"
            held[gone] -= 1
        if row["op"] in "rcu":
            new = dict(row["after"])
            assert table == "heap" or new["id"] not in names, f"there is one already for {row}"
            names[new["id"]] = new["name"]
            held[new["id"], new["name"]] += 1
    return +held


def _place(row: Row) -> tuple[int, int]:
    return row["source"]["commit_lsn"], row["source"]["commit_seq"]


def in_table(url: str, table: str) -> Counter[tuple[str, str]]:
    with connect(url) as connection:
        return Counter(map(tuple, execute(connection, f"SELECT id::text, name FROM {table}")))


def check(one: Killed) -> None:
    """Everything has come, and is what the tables hold."""
    one.sql(_END)
    one.until(lambda: any(map(is_end, one.rows)))
    for table in ("item", "heap"):
        assert counted(one.rows, table) == in_table(one.url, table)


def is_end(row: Row) -> bool:
    """Whether it is what `_END` writes."""
    return bool(row["op"] == "c" and dict(row["after"])["id"] == "-1")


@pytest.mark.parametrize(
    ("stage", "point"),
    [("first", "begun")]
    + [
        pytest.param(stage, point, marks=() if (stage, point) in _QUICK else pytest.mark.long)
        for stage in _STAGES
        for point in _POINTS
    ],
)
def test_killed_at_any_point_the_rows_and_the_changes_are_what_the_tables_hold(
    killed: Killed, stage: str, point: str
) -> None:
    killed.kill = (stage, point)
    killed.meanwhile = lambda: change_much(killed)
    with writers(killed.url):
        killed.until(killed.is_through)
    check(killed)


@pytest.mark.parametrize(
    ("stage", "point"),
    [
        pytest.param(stage, point, marks=() if (stage, point) in _QUICK else pytest.mark.long)
        for stage in _STAGES
        for point in _POINTS
    ],
)
def test_killed_while_the_rows_of_a_new_table_are_read_both_tables_are_whole(
    killed: Killed, stage: str, point: str
) -> None:
    """The other table is told of all along, from before the reading on."""
    killed.restart(tables="item")
    killed.until(killed.is_through)
    killed.restart(tables="item, heap", newTables="snapshot")
    with writers(killed.url):
        if stage == "stream":
            killed.until(killed.is_through)
        killed.kill = (stage, point)
        killed.meanwhile = lambda: change_much(killed)
        killed.until(killed.is_through)
    check(killed)
    assert "since" not in killed.offsets[-1], "what was to be left out lies behind"


def test_what_a_partition_lost_before_its_rows_were_read_is_not_told(killed: Killed) -> None:
    """A TRUNCATE of a partition has the partition's name."""
    killed.restart(tables="item")
    killed.sql(
        "CREATE TABLE part (id int PRIMARY KEY, name text) PARTITION BY LIST (id)",
        "CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1)",
        "CREATE TABLE part_2 PARTITION OF part FOR VALUES IN (2)",
        "INSERT INTO part VALUES (1, 'a'), (2, 'b')",
    )
    killed.until(killed.is_through)
    killed.restart(tables="item, part", newTables="snapshot")
    killed.step()
    killed.sql("TRUNCATE part_1", "INSERT INTO part VALUES (1, 'c')")
    killed.restart()
    killed.until(killed.is_through)
    killed.sql("UPDATE part SET name = 'd' WHERE id = 1")
    killed.until(lambda: any(row["op"] == "u" for row in killed.rows))
    assert {row["table"] for row in killed.rows if row["op"] == "t"} == {"part"}, "as it was read anew"
    assert counted(killed.rows, "part") == in_table(killed.url, "part")
    killed.sql("TRUNCATE part_2")
    killed.until(lambda: any(row["table"] == "part_2" for row in killed.rows))


def test_a_slot_that_is_there_already_is_read_from_where_the_rows_fit(killed: Killed) -> None:
    """It is kept, and nothing is left beside it, also where its name is as long as can be."""
    name = "slot_".ljust(63, "x")
    killed.slot = name
    killed.restart(slotName=name)
    killed.sql(
        f"CREATE PUBLICATION {killed.options['publicationName']} FOR TABLE item, heap",
        f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')",
    )
    change_much(killed)
    killed.step()
    with connect(killed.url) as connection:
        assert execute(connection, "SELECT slot_name::text FROM pg_replication_slots") == [(name,)]
    killed.until(killed.is_through)
    read = len(killed.rows)
    check(killed)
    assert len(killed.rows) == read + 1
    assert {row["source"]["snapshot_attempt"] for row in killed.rows} == {1, None}


@pytest.mark.long
def test_spark_itself_begins_again_after_kills_and_nothing_is_told_twice(
    spark: SparkSession, killed: Killed, tmp_path: Path
) -> None:
    """The source's process is killed in its first attempt and in its second."""
    batches: dict[int, list[Row]] = {}

    def note(rows: DataFrame, number: int) -> None:
        batches[number] = [row.asDict(recursive=True) for row in rows.collect()]

    def all_rows() -> list[Row]:
        return [row for number in sorted(batches) for row in batches[number]]

    def begun(**options: str) -> StreamingQuery:
        loaded = spark.readStream.format("postgres_cdc").options(**killed.options | options).load()
        writer = loaded.writeStream.foreachBatch(note)
        return writer.option("checkpointLocation", (tmp_path / "checkpoint").as_uri()).start()

    with writers(killed.url):
        for attempt in (1, 2):
            query = begun(maxBytesPerTrigger="16k")
            killed.until_true(lambda: _attempts(all_rows(), query) == attempt, _SPARKS_TIME)  # noqa: B023
            psutil.Process(_planner(killed.url)).kill()
            killed.until_true(lambda: not query.isActive, _SPARKS_TIME)  # noqa: B023
            change_much(killed)
        query = begun(maxBytesPerTrigger="1m")
        killed.until_true(lambda: _attempts(all_rows(), query) == 3, _SPARKS_TIME)
    killed.sql(_END)
    killed.until_true(lambda: any(map(is_end, all_rows())) or not query.isActive, _SPARKS_TIME)
    query.stop()
    assert query.exception() is None
    for table in ("item", "heap"):
        assert counted(all_rows(), table) == in_table(killed.url, table)


def _attempts(rows: list[Row], query: StreamingQuery) -> int:
    assert query.isActive or query.exception() is None, query.exception()
    return max((row["source"]["snapshot_attempt"] or 0 for row in rows), default=0)


def _planner(url: str) -> int:
    """The process of this machine that holds the snapshot: by the new slot, or by a session."""
    holding = """
        SELECT client_port FROM pg_stat_activity WHERE datname = current_database()
        AND (backend_type = 'walsender' OR query = 'SELECT pg_export_snapshot()')
    """
    with connect(url) as connection:
        [(port,)] = execute(connection, holding)
    found = psutil.net_connections("tcp")
    [pid] = {one.pid for one in found if one.laddr and one.laddr.port == port and one.pid is not None}
    return pid
