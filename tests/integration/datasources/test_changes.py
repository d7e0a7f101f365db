"""Does one slot give many tables: as changes, as rows of each, and as nodes of a graph?"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import HeadraceError
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from headrace.spark import for_each_table, table

_WITHIN = 90.0
_numbers = itertools.count(1)
_TABLES = """
    CREATE TABLE item (id int PRIMARY KEY, name text, price numeric(10,2));
    CREATE SCHEMA sales;
    CREATE TABLE sales."Part" (a int, b text, body text, PRIMARY KEY (a, b));
    ALTER TABLE sales."Part" ALTER body SET STORAGE EXTERNAL;
    CREATE TABLE event (at int, what text);
    ALTER TABLE event REPLICA IDENTITY FULL;
    CREATE TABLE measure (day int, v int) PARTITION BY RANGE (day);
    CREATE TABLE measure_1 PARTITION OF measure FOR VALUES FROM (0) TO (10);
    CREATE TABLE measure_2 PARTITION OF measure DEFAULT;
    ALTER TABLE measure_1 REPLICA IDENTITY FULL;
    ALTER TABLE measure_2 REPLICA IDENTITY FULL;
    INSERT INTO item VALUES (1, 'there', 1.50)
"""


class Source:
    """A database with several tables, and a query that follows them."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.url = url
        self.slot = f"many_{next(_numbers)}"
        self._spark = spark
        self._checkpoint = folder / "checkpoint"
        self._query: StreamingQuery | None = None
        self.run(*_TABLES.split(";"))

    def run(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with connect(self.url, autocommit=False) as connection:
            for statement in statements:
                execute(connection, statement)

    def load(self, tables: str = "*.*", **options: str) -> DataFrame:
        given = {"url": self.url, "slot": self.slot, "publication": self.slot, **options}
        return self._spark.readStream.format("postgres_cdc").options(**given).load(tables)

    def follow(self, changes: DataFrame, do: Callable[[DataFrame, int], None]) -> None:
        writer = changes.writeStream.foreachBatch(do)
        self._query = writer.option("checkpointLocation", self._checkpoint.as_uri()).start()
        made = "SELECT confirmed_flush_lsn IS NOT NULL FROM pg_replication_slots WHERE slot_name = $1"
        with connect(self.url) as connection:
            self.until(lambda: execute(connection, made, (self.slot,)) == [(True,)])

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + _WITHIN
        while not condition():
            assert time.monotonic() < end
            assert self._query is not None
            assert self._query.isActive, self._query.exception()
            time.sleep(0.05)

    def failure(self) -> str:
        assert self._query is not None
        with pytest.raises(StreamingQueryException) as caught:
            self._query.awaitTermination(int(_WITHIN))
        return str(caught.value)

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
            with connect(self.url) as connection:
                drop_slot(connection, self.slot, timeout=60)


@pytest.fixture
def source(spark: SparkSession, database: str, tmp_path: Path) -> Iterator[Source]:
    made = Source(spark, database, tmp_path)
    yield made
    made.stop()


@pytest.mark.long
def test_many_tables_through_one_slot(source: Source) -> None:
    """As changes, and each table's rows typed; the first rows, keys, large values, an emptied partition."""
    noted: list[Row] = []
    changes: list[Row] = []
    rows: dict[str, list[Row]] = {}
    split = for_each_table(lambda name, found, _: rows.setdefault(name, []).extend(found.collect()))

    def note(batch: DataFrame, number: int) -> None:
        noted[:] = batch.persist().collect()
        split(batch, number)
        changes.extend(noted)

    loaded = source.load()
    source.follow(loaded, note)
    source.until(lambda: len(changes) == 1)
    large = "x" * 9_000
    source.run(
        "INSERT INTO item VALUES (2, 'a', 2.25)",
        f"INSERT INTO sales.\"Part\" VALUES (1, 'b', '{large}')",
        "UPDATE sales.\"Part\" SET b = 'c'",
        "UPDATE item SET id = 3 WHERE id = 2",
        "INSERT INTO event VALUES (1, NULL)",
        "INSERT INTO measure VALUES (5, 6)",
    )
    source.run("DELETE FROM item WHERE id = 3", "TRUNCATE item")
    source.until(lambda: len(changes) == 9)
    assert [(row.table, row.op, row.key) for row in changes] == [
        ("item", "r", {"id": "1"}),
        ("item", "c", {"id": "2"}),
        ('sales."Part"', "c", {"a": "1", "b": "b"}),
        ('sales."Part"', "u", {"a": "1", "b": "c"}),
        ("item", "u", {"id": "3"}),
        ("event", "c", None),
        ("measure", "c", None),
        ("item", "d", {"id": "3"}),
        ("item", "t", None),
    ]
    assert changes[3].before == {"a": "1", "b": "b"}
    assert changes[3].after == {"a": "1", "b": "c", "body": large}, "drasi's hole 4: a large value is NULL"
    places = [(row.source.commit_lsn, row.source.commit_seq) for row in changes]
    assert places == sorted(set(places))
    assert [row.source.snapshot for row in changes] == [True] + 8 * [False]
    assert {(row.source.database, row.source.schema) for row in changes[:3]} == {
        (changes[0].source.database, "public"),
        (changes[0].source.database, "sales"),
    }
    names = ("_change_type", "id", "name", "price")
    found = [tuple(str(row[name]) for name in names) for row in rows["item"]]
    assert found == [
        ("insert", "1", "there", "1.50"),
        ("insert", "2", "a", "2.25"),
        ("delete", "2", "None", "None"),
        ("insert", "3", "a", "2.25"),
        ("delete", "3", "None", "None"),
        ("truncate", "None", "None", "None"),
    ]
    assert [(row._snapshot, row._snapshot_attempt) for row in rows["item"][:2]] == [(True, 1), (False, None)]
    parts = rows['sales."Part"']
    assert [(row._change_type, row.b, row.body) for row in parts][-1] == ("insert", "c", large)
    assert rows["measure"][0].v == 6
    source.run("TRUNCATE measure_1")
    said = source.failure()
    assert [(row.table, row.source.partition_of) for row in noted] == [("measure_1", "measure")]
    assert "HEADRACE_SCHEMA_CHANGED] the partition measure_1" in said, "rows cannot say which are gone"


@pytest.mark.long
def test_a_table_as_nodes_of_a_graph(source: Source) -> None:
    rows: list[Row] = []
    loaded = source.load('public.item, sales."Part", event', envelope="elements", sourceId="shop")
    source.follow(loaded, lambda batch, _: rows.extend(batch.collect()))
    source.until(lambda: len(rows) == 1)
    source.run(
        "INSERT INTO sales.\"Part\" VALUES (1, 'b_1', 'n')",
        'UPDATE sales."Part" SET a = 2',
        "INSERT INTO event VALUES (1, NULL), (2, 'x')",
        "DELETE FROM event WHERE at = 1",
        "TRUNCATE item",
    )
    source.until(lambda: len(rows) == 8)
    first = rows[0]
    assert (first.op, first.reference.source_id, first.reference.element_id) == ("insert", "shop", "item:1")
    assert (first.labels, first.effective_from) == (["item"], 0)
    assert json.loads(first.properties) == {"id": 1, "name": "there", "price": 1.50}
    assert '"price":1.50' in first.properties, "drasi's hole 5: numbers lose digits"
    assert [(row.op, row.reference.element_id) for row in rows[1:4]] == [
        ("insert", "sales.Part:1_b%5F1"),
        ("delete", "sales.Part:1_b%5F1"),
        ("insert", "sales.Part:2_b%5F1"),
    ]
    assert abs(rows[1].effective_from / 1e9 - time.time()) < _WITHIN
    assert [row.op for row in rows[4:]] == ["insert", "insert", "delete", "truncate"]
    assert rows[6].reference.element_id == rows[4].reference.element_id != rows[5].reference.element_id
    assert (rows[7].labels, rows[7].reference.element_id) == (["item"], None)


def test_one_table_of_changes_has_its_columns_before_anything_runs(source: Source) -> None:
    loaded = source.load()
    typed = table(loaded, "public.item", prefix="m_")
    kinds = dict(typed.dtypes)
    assert (kinds["id"], kinds["price"], kinds["m_commit_lsn"]) == ("int", "decimal(10,2)", "bigint")
    with pytest.raises(HeadraceError, match=r"the table itme was not followed .* mean 'item'"):
        table(loaded, "itme")
    with pytest.raises(HeadraceError, match="pass all columns unchanged"):
        table(loaded.select("table", "op"), "item")


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tableKeys": '{"item": ["nmae"]}'}, "tableKeys: item has no column 'nmae'"),
        ({"tableKeys": '{"item": ["name"]}'}, "REPLICA IDENTITY FULL"),
        ({"tableKeys": '{"other": ["name"]}', "tables": "item, event"}, "tableKeys names other"),
        ({"tableKeys": "name"}, "tableKeys names no table"),
        ({"tables": "item, nothing"}, "there is no table nothing"),
        ({"unchangedToast": "old"}, "unchangedToast=old is for envelope=rows"),
        ({"sourceId": "x"}, "sourceId is for envelope=elements"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_loaded(
    source: Source, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        source.load(options.pop("tables", "*.*"), **options)


def test_a_key_of_ones_own(source: Source) -> None:
    """The log carries it, as the table's identity is FULL."""
    typed = table(source.load(tableKeys='{"event": ["at"]}'), "event")
    assert typed.columns[:2] == ["at", "what"]
