"""Does `postgres_snapshot`, in a plain session, read what a table holds, as it was promised?"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as spark_datasource
from pyspark.sql.types import IntegerType, StringType, StructType

from headrace.catalog.types import read_row_types
from headrace.datasources.options import read_options
from headrace.datasources.postgres_snapshot import NAME as FORMAT
from headrace.datasources.postgres_snapshot import SnapshotReader
from headrace.datasources.source_options import SnapshotOptions
from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.model.values import convert
from headrace.postgres.connection import connect, execute
from headrace.postgres.quoting import identifier, output_text
from headrace.postgres.session import ReadSession
from headrace.spark import exported_snapshot, register
from integration.facts.edge_values import EDGES, SETUP
from integration.facts.test_types import COLUMNS, NAME, ROWS, SQL, UNLIKE_OURS, creation, insertion

ITEM = StructType().add("id", IntegerType()).add("name", StringType())


class Shop:
    """A database, and DataFrames of its tables."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.url = url
        self.spark = spark
        self.run(
            "CREATE TABLE item (id int PRIMARY KEY, name text)",
            "INSERT INTO item SELECT i, 'name ' || i FROM generate_series(1, 5000) i",
        )

    def run(self, *statements: str) -> None:
        with connect(self.url) as connection:
            for statement in statements:
                execute(connection, statement)

    def load(self, table: str, spark: SparkSession | None = None, /, **options: str) -> DataFrame:
        reader = (spark or self.spark).read.format("postgres_snapshot")
        return reader.options(**{"url": self.url, "tables": table, **options}).load()

    def reader(self, schema: StructType = ITEM, **options: str) -> SnapshotReader:
        """What Spark makes of the options, without Spark."""
        given = {"url": self.url, "tables": "item", **options}
        return SnapshotReader(read_options(SnapshotOptions, given, FORMAT), schema)


@pytest.fixture
def shop(spark: SparkSession, database: str) -> Shop:
    return Shop(spark, database)


ITEMS = [(i, f"name {i}") for i in range(1, 5001)]


def test_a_table_is_found_by_its_name_and_read_in_parts(shop: Shop) -> None:
    reader = shop.spark.read.format("postgres_snapshot").option("url", shop.url).option("NUM_PARTITIONS", 3)
    frame = reader.load("public.item")
    assert frame.schema.simpleString() == "struct<id:int,name:string>"
    assert frame.rdd.getNumPartitions() == 3
    assert sorted(frame.collect()) == ITEMS


def test_sql_reads_a_table_and_shows_no_secret(shop: Shop) -> None:
    """In a plan, or in what Spark says of the view."""
    password = shop.url.partition("@")[0].rpartition(":")[2]
    sql = f"USING postgres_snapshot OPTIONS (url '{shop.url}', tables 'public.item')"
    shop.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW items {sql}")
    assert shop.spark.sql("SELECT count(*), max(name) FROM items").collect() == [(5000, "name 999")]
    [plan] = shop.spark.sql("EXPLAIN EXTENDED SELECT * FROM items").collect()
    assert password not in str(plan)
    assert password not in shop.spark.table("items")._jdf.queryExecution().toString()
    assert password not in repr(shop.reader()._options)


def test_registering_is_harmless_when_the_formats_are_known(shop: Shop) -> None:
    register(shop.spark)
    register(shop.spark)
    assert shop.load("item").count() == 5000


def expected(session: ReadSession) -> dict[str, tuple[pa.Array, list[int]]]:
    """What the text of each column of every type stands for, and which rows do not fit."""
    kinds = read_row_types(session, [NAME])[NAME].columns
    texts = ", ".join(output_text(identifier(name)) for name in COLUMNS.values())
    rows = session.query(f"SELECT {texts} FROM {SQL} ORDER BY id")
    found = {}
    for (kind, name), column in zip(COLUMNS.items(), zip(*rows, strict=True), strict=True):
        converted = convert(kinds[name], pa.array(column, pa.string()), kind)
        found[name] = (converted.values, converted.unfit.tolist())
    return found


def plain(values: pa.Array | pa.ChunkedArray) -> str:
    """The values as text; moments as numbers, for Python has no dates so far away."""
    return str(values.cast(with_numbers(values.type)).to_pylist())


def with_numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", with_numbers(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, with_numbers(field.type)) for field in kind])
    return kind


def test_every_value_is_what_its_text_stands_for(shop: Shop) -> None:
    """Whatever the database's own settings are; in parts of one block, so in many batches."""
    name = shop.url.rpartition("/")[2]
    shop.run(*(f"ALTER DATABASE {name} SET {one}" for one in UNLIKE_OURS))
    edges = EDGES | {"xml": ()}  # the wheel is built without libxml
    shop.run(*SETUP, creation(), *(insertion(row, edges) for row in range(ROWS)))
    with ReadSession(shop.url) as session:
        for name, (_, unfit) in expected(session).items():
            for row in unfit:
                shop.run(f"UPDATE {SQL} SET {identifier(name)} = NULL WHERE id = {row}")
    with ReadSession(shop.url) as session:
        wanted = expected(session)
    found = shop.load('"of every type"', partitionBytes="8k").toArrow().sort_by("id")
    for name, (values, unfit) in wanted.items():
        assert unfit == []
        assert found[name].type == values.type, name
        assert plain(found[name]) == plain(values), name


NOON = datetime.fromisoformat("2024-02-29 12:00:00")


def filters() -> dict[str, Any]:
    """Return what Spark pushes down for conditions."""
    spark = spark_datasource
    return {
        "n = 2": spark.EqualTo(("n",), 2),
        "n <=> NULL": spark.EqualNullSafe(("n",), None),
        "n IN (1, NULL, 3)": spark.In(("n",), (1, None, 3)),
        "n IS NOT NULL": spark.IsNotNull(("n",)),
        "n >= 2": spark.GreaterThanOrEqual(("n",), 2),
        "x = 'NaN'": spark.EqualTo(("x",), float("nan")),
        "x = 0": spark.EqualTo(("x",), 0.0),
        "x > 1e300D": spark.GreaterThan(("x",), 1e300),
        "f = cast(0.1 AS float)": spark.EqualTo(("f",), 0.10000000149011612),
        "p < 1.51": spark.LessThan(("p",), Decimal("1.51")),
        "t = 'a'": spark.EqualTo(("t",), "a"),
        "t < 'b'": spark.LessThan(("t",), "b"),
        "t LIKE 'A%'": spark.StringStartsWith(("t",), "A"),
        "c = 'a  '": spark.EqualTo(("c",), "a  "),
        "i = 'a'": spark.EqualTo(("i",), "a"),
        "b = X'00FF'": spark.EqualTo(("b",), b"\x00\xff"),
        "ok": spark.EqualTo(("ok",), value=True),
        "d > date'9999-12-31'": spark.GreaterThan(("d",), date(9999, 12, 31)),
        "d <= date'2024-02-29'": spark.LessThanOrEqual(("d",), date(2024, 2, 29)),
        "z >= timestamp'2024-02-29 12:00:00Z'": spark.GreaterThanOrEqual(("z",), NOON.replace(tzinfo=UTC)),
        "s < timestamp_ntz'2024-02-29 12:00:01'": spark.LessThan(("s",), NOON.replace(second=1)),
        "u = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'": spark.EqualTo(
            ("u",), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
        ),
        "l IS NULL": spark.IsNull(("l",)),
        "r IS NOT NULL": spark.IsNotNull(("r",)),
        "r.a = 1": spark.EqualTo(("r", "a"), 1),
    }


@pytest.mark.long
@pytest.mark.skipif(not hasattr(spark_datasource, "EqualTo"), reason="PySpark 4.0 pushes no filters")
def test_a_filter_that_the_server_looks_at_holds_no_row_back(shop: Shop) -> None:
    """Spark looks again. Where the session lets it ask, a value that does not fit is not even seen."""
    shop.run(
        "CREATE EXTENSION citext",
        "CREATE TYPE two AS (a int, b int)",
        """
        CREATE TABLE typed (
            id serial, n int, x float8, f float4, p numeric(5,2), t text, c char(3), i citext,
            b bytea, ok bool, d date, z timestamptz, s timestamp, u uuid, l int[], r two)
        """,
        """
        INSERT INTO typed (n, x, f, p, t, c, i, b, ok, d, z, s, u, l, r) VALUES
        (1, 'NaN', 0.1, 1.5, 'a', 'a', 'A', '\\x00ff', true, 'infinity', '2024-02-29 12:00+00',
         '2024-02-29 12:00', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '{}', '(,)'),
        (2, 'Infinity', 0.5, 2, 'B', 'B', 'a', '', false, '-infinity', '-infinity',
         'infinity', NULL, '{1}', NULL),
        (3, 1, 0, 1.51, 'Ab', 'ab', 'ab', NULL, NULL, '2024-02-29', 'infinity',
         '-infinity', 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', NULL, '(1,2)'),
        (NULL, -0.0, '-0', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
        """,
    )
    kept = [f"array_sort(collect_list(CASE WHEN {one} THEN id END))" for one in filters()]
    [wanted] = shop.load("typed").selectExpr(*kept).collect()
    schema = StructType().add("id", IntegerType())
    for (sql, given), ids in zip(filters().items(), wanted, strict=True):
        reader = shop.reader(schema, tables="typed")
        assert list(reader.pushFilters([given])) == [given]
        assert {row[0] for row in rows(reader)} >= set(ids) > set(), sql
    shop.run("UPDATE typed SET d = '5874897-12-31' WHERE n = 2")
    pushing = shop.spark.newSession()
    pushing.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    assert shop.load("typed", pushing).where("n IN (1, 3) AND t < 'B'").count() == 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamptz", "294247-01-01 00:00:00+00"),
        ("timestamp", "294276-12-31 23:59:59.999999"),
        ("date", "5874897-12-31"),
        ("numeric(10,2)", "NaN"),
        ("int[]", "{{1,2},{3,4}}"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_that_names_its_column(
    shop: Shop, kind: str, value: str
) -> None:
    shop.run(f"CREATE TABLE odd (it {kind})", f"INSERT INTO odd VALUES (NULL), ('{value}')")
    reader = shop.reader(shop.load("odd").schema, tables="odd")
    with pytest.raises(HeadraceError, match=r"1 of 2 values of odd\.it .* do not fit") as caught:
        rows(reader)
    assert caught.value.kind is Kind.VALUE


def rows(reader: SnapshotReader) -> list[tuple[object, ...]]:
    """What the tasks read, one after the other."""
    return [
        tuple(row.values())
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def test_the_rows_of_partitions_and_heirs_are_the_tables_own(shop: Shop) -> None:
    """Each once; a partition's columns may stand in another order. Views and materialised ones too."""
    shop.run(
        'CREATE SCHEMA "My Shop"',
        'CREATE TABLE "My Shop"."P""s" (id int, name text) PARTITION BY RANGE (id)',
        'CREATE TABLE low PARTITION OF "My Shop"."P""s" FOR VALUES FROM (1) TO (2000)',
        "CREATE TABLE high (gone int, name text, id int)",
        "ALTER TABLE high DROP COLUMN gone",
        'ALTER TABLE "My Shop"."P""s" ATTACH PARTITION high DEFAULT',
        'INSERT INTO "My Shop"."P""s" SELECT * FROM item',
        "CREATE TABLE heir (own int) INHERITS (item)",
        "INSERT INTO heir SELECT i, 'heir', i FROM generate_series(5001, 6000) i",
        "CREATE VIEW seen AS SELECT id, name FROM ONLY item",
        "CREATE MATERIALIZED VIEW kept AS SELECT id, name FROM ONLY item",
        "CREATE TABLE nothing (id int, name text)",
        "CREATE TABLE headless (id int, name text) PARTITION BY LIST (id)",
        "CREATE EXTENSION file_fdw",
        "CREATE SERVER far FOREIGN DATA WRAPPER file_fdw",
        "CREATE FOREIGN TABLE away (id int, name text) SERVER far OPTIONS (program 'echo 7,x', format 'csv')",
        "CREATE TABLE near () INHERITS (away)",
        "INSERT INTO near VALUES (8, 'near')",
    )
    inheritance_children = [(i, "heir") for i in range(5001, 6001)]
    for name, wanted in {
        '"My Shop"."P""s"': ITEMS,
        "item": ITEMS + inheritance_children,
        "heir": inheritance_children,
        "seen": ITEMS,
        "kept": ITEMS,
        "nothing": [],
        "headless": [],
        "away": [(7, "x"), (8, "near")],
    }.items():
        reader = shop.reader(tables=name, partitionBytes="64k")
        assert sorted(rows(reader)) == wanted, name
        assert (len(reader.partitions()) > 1) == (name in ('"My Shop"."P""s"', "item", "kept", "away")), name
    assert sorted(shop.load('"My Shop"."P""s"', numPartitions="2").collect()) == ITEMS
    # A condition may name the table; the rows lie in partitions of other names.
    chosen = shop.load('"My Shop"."P""s"', numPartitions="2", where='"P""s".id < 10')
    assert sorted(chosen.collect()) == [row for row in ITEMS if row[0] < 10]


def test_columns_and_rows_are_chosen(shop: Shop) -> None:
    shop.run(
        'CREATE TABLE wide (id int, "B" text, c text)', "INSERT INTO wide VALUES (1, 'b', 'c'), (2, 'x', 'y')"
    )
    assert shop.load("wide", columns='"B", id', where="id = 1 -- the first").collect() == [(1, "b")]
    assert shop.load("wide", excludeColumns="id", where="c = 'y' OR false").collect() == [("x", "y")]
    reader = shop.spark.read.format("postgres_snapshot").option("url", shop.url)
    assert reader.schema("c string, id int").load("wide").orderBy("id").collect() == [("c", 1), ("y", 2)]
    with pytest.raises(Exception, match=r"HEADRACE_SCHEMA_CHANGED\] the column wide.id is int \(int4\)"):
        reader.schema("id bigint").load("wide").collect()


def test_all_parts_belong_to_one_snapshot(shop: Shop) -> None:
    with exported_snapshot(shop.url) as snapshot:
        frame = shop.load("item", snapshotId=snapshot, numPartitions="3")
        shop.run("UPDATE item SET name = 'new'", "DELETE FROM item WHERE id < 1000")
        assert sorted(frame.collect()) == ITEMS
        assert shop.load("item").where("name = 'new'").count() == 4001
        shop.run("TRUNCATE item")  # to the snapshot, the new file is empty
        with pytest.raises(HeadraceError, match="the table item was rewritten since the snapshot was taken"):
            shop.reader(snapshotId=snapshot).partitions()

    def tells_that_it_is_gone() -> bool:  # once the server has ended the session that held it
        with pytest.raises(HeadraceError) as raised:
            shop.reader(snapshotId=snapshot).partitions()
        return f"the snapshot {snapshot} is not held any more" in str(raised.value)

    assert until(tells_that_it_is_gone, 30)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("VACUUM FULL item", "item was rewritten"),
        ("DROP TABLE item", "item was altered or dropped while"),
        ("ALTER TABLE item DROP COLUMN name", "item was altered or dropped while"),
    ],
)
def test_a_table_that_becomes_another_meanwhile_is_an_error(shop: Shop, command: str, said: str) -> None:
    reader = shop.reader()
    [part] = reader.partitions()
    shop.run(command)
    with pytest.raises(HeadraceError, match=said) as caught:
        list(reader.read(part))
    assert caught.value.kind is Kind.CONTINUITY


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"numPartition": "2"},
            "HEADRACE_USAGE] postgres_snapshot has no option 'numpartition'. Did you mean",
        ),
        ({"numPartitions": "0"}, "HEADRACE_USAGE] the option numPartitions of postgres_snapshot"),
        ({"snapshotId": "'; DROP"}, "HEADRACE_USAGE] the option snapshotId of postgres_snapshot"),
        ({"tables": "item, heir"}, "HEADRACE_USAGE] the options of postgres_snapshot: name one table"),
        ({"tables": "itme"}, "HEADRACE_BINDING] there is no table itme. Did you mean 'item'?"),
        ({"tables": "numbers"}, "HEADRACE_BINDING] numbers is a sequence"),
        ({"columns": "nmae"}, "HEADRACE_USAGE] the option columns: item has no column 'nmae'. Did you mean"),
        ({"excludeColumns": "id, name"}, "HEADRACE_USAGE] no column of item is left to read"),
        ({"where": "nmae = 1"}, 'column "nmae" does not exist (SQLSTATE 42703)'),
        ({"where": "true; DROP TABLE item"}, "SQLSTATE 42601"),
        (
            {"user": "guest", "password": "gu3st"},
            "HEADRACE_PRIVILEGE] the database refuses: permission denied",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line_when_it_is_loaded(
    shop: Shop, options: dict[str, str], said: str
) -> None:
    shop.run(
        "CREATE SEQUENCE numbers", "DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN PASSWORD 'gu3st'"
    )
    try:
        with pytest.raises(Exception, match="HEADRACE_") as caught:
            shop.load("item", **options)
        line = next(one for one in str(caught.value).splitlines() if "[HEADRACE_" in one)
        assert said in line
        assert "During handling" not in str(caught.value)
        for secret in (shop.url, shop.url.partition("@")[0].rpartition(":")[2], "gu3st"):
            assert secret not in str(caught.value)
    finally:
        shop.run("DROP ROLE guest")


@pytest.mark.long
def test_the_examples_of_the_documentation_run(shop: Shop, tmp_path: Path) -> None:
    shop.run(
        "CREATE TABLE orders (id bigint, customer int, total decimal(12,2), placed_at timestamptz)",
        "INSERT INTO orders SELECT i, i % 3, i, '2024-01-01' FROM generate_series(1, 9) i",
        "CREATE TABLE customers (id int, name text)",
        "INSERT INTO customers VALUES (1, 'Ann'), (2, 'Bob')",
    )
    page = (Path(__file__).parents[3] / "docs/guides/spark-tables.md").read_text()
    page = page.replace("postgresql://reader@db.example.org/shop", shop.url)
    python = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    [sql] = re.findall(r"^```sql\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    target = str(tmp_path / "joined")
    for block in python:
        exec(block, {"spark": shop.spark, "target": target})
    assert len(python) == 2
    assert shop.spark.read.parquet(target).count() == 6
    shop.spark.sql(sql)
    assert shop.spark.table("orders").count() == 9
