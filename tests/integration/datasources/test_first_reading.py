"""Do the first rows and the changes after them fit exactly, wherever the reading was killed under writers?

Whoever counts, appends, or has no key sees each difference: what a snapshot shows must not be told again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect, execute
from integration.datasources.killed import (
    BOTH,
    END,
    TABLES,
    Killed,
    Row,
    change_much,
    check,
    counted,
    in_table,
    is_end,
    writers,
)
from support.clients import process_of
from support.servers import short_lived_server

_POINTS = ["planned", "logged", "read", "committed"]
_STAGES = ["first", "middle", "over", "stream"]
_QUICK = {("first", "read"), ("middle", "committed"), ("over", "logged"), ("stream", "read")}
_SPARKS_TIME = 240.0


@pytest.fixture
def killed(database: str) -> Iterator[Killed]:
    """A query of two tables, one of them without a key."""
    one = Killed(database, **BOTH)
    one.sql(*TABLES)
    yield one
    one.close()


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
    assert "since" not in killed.offsets[-1], "what was to be left out lies after"


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
    assert {row["table"] for row in killed.rows if row["op"] == "t"} == {"part"}, "as it was read again"
    assert counted(killed.rows, "part") == in_table(killed.url, "part")
    killed.sql("TRUNCATE part_2")
    killed.until(lambda: any(row["table"] == "part_2" for row in killed.rows))


def test_a_slot_that_is_there_already_is_read_from_where_the_rows_fit(killed: Killed) -> None:
    """It is kept, and nothing is left beside it, also where its name is as long as can be."""
    name = "slot_".ljust(63, "x")
    killed.slot = name
    killed.restart(slot=name)
    killed.sql(
        f"CREATE PUBLICATION {killed.options['publication']} FOR TABLE item, heap",
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
def test_without_room_for_another_slot_the_reading_does_not_begin_again() -> None:
    with short_lived_server(settings={"max_replication_slots": "2"}) as server:
        one = Killed(server.url, **BOTH)
        one.sql(*TABLES)
        one.step()
        one.sql("SELECT pg_create_physical_replication_slot('other')")
        one.restart()
        with pytest.raises(HeadraceError, match="max_replication_slots is 2") as caught:
            one.step()
        assert caught.value.kind is Kind.NO_FREE_SLOT
        one.sql("SELECT pg_drop_replication_slot('other')")
        one.restart()
        change_much(one)
        one.until(one.is_through)
        check(one)
        one.close()


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
    killed.sql(END)
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
    return process_of(port)
