"""Do the programs of docs/guides/recipes.md do what the page says, exactly as they stand there?"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from headrace.spark.environment import passes_position
from integration.datasources.lake import lake

pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[3] / "docs/guides/recipes.md"
_WITHIN = 60.0
FIRST = (
    "INSERT INTO customers VALUES (1, 'north'), (2, 'south')",
    "INSERT INTO orders SELECT g, 1 + g % 2, g / 4.0 FROM generate_series(1, 40) g",
)
LATER = (
    "UPDATE orders SET total = total + 1 WHERE id % 3 = 0",
    "UPDATE orders SET id = -id WHERE id % 5 = 0",
    "DELETE FROM orders WHERE id % 7 = 0",
    "INSERT INTO orders VALUES (100, 1, 10)",
)
EMPTIED = (
    "INSERT INTO orders VALUES (101, 1, 11)",
    "TRUNCATE orders",
    "INSERT INTO orders VALUES (1, 2, 12), (102, 2, 13)",
    "UPDATE orders SET total = 14 WHERE id = 102",
)


def recipe(title: str) -> list[str]:
    """The programs below a heading that begins with `title`."""
    [text] = [one for one in PAGE.read_text().split("\n## ") if one.startswith(title)]
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


class Shop:
    """A database with orders and customers, and the names that the programs use."""

    def __init__(self, client: SparkSession, url: str, folder: Path) -> None:
        self.url = url
        self.names: dict[str, Any] = {"spark": client, "url": url, "folder": folder.as_uri()}
        self.write(
            "CREATE TABLE orders (id int PRIMARY KEY, customer int, total numeric(10,2))",
            "CREATE TABLE customers (id int PRIMARY KEY, region text)",
        )

    def write(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with connect(self.url, autocommit=False) as connection:
            for statement in statements:
                execute(connection, statement)

    def orders(self) -> list[tuple[Any, ...]]:
        with connect(self.url) as connection:
            return execute(connection, "SELECT id, customer, total FROM orders ORDER BY id")

    def is_followed(self, slot: str) -> bool:
        """Whether a query reads a slot."""
        with connect(self.url) as connection:
            return bool(
                execute(
                    connection, "SELECT FROM pg_replication_slots WHERE slot_name = $1 AND active", (slot,)
                )
            )

    def run(self, program: str) -> None:
        """Run a program of the page; wait until it has left its slot, if it ends."""
        exec(compile(program, str(PAGE), "exec"), self.names)
        query = self.names.get("query")
        if query is not None and not query.isActive:
            until(lambda: not self.read_slots())

    def read_slots(self) -> list[tuple[Any, ...]]:
        with connect(self.url) as connection:
            sql = "SELECT FROM pg_replication_slots WHERE active AND database = current_database()"
            return execute(connection, sql)

    def close(self) -> None:
        until(lambda: not self.read_slots())
        with connect(self.url) as connection:
            sql = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
            for (slot,) in execute(connection, sql):
                drop_slot(connection, str(slot), timeout=60)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _WITHIN
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture
def shop(client: SparkSession, database: str, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(client, database, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("title", ["Every change of a table", "Changes of several tables"])
def test_changes_as_parquet_give_the_table_after_every_run(shop: Shop, title: str) -> None:
    write, read = recipe(title)
    for statements in (FIRST, (*LATER, *EMPTIED)):
        shop.write(*statements)
        shop.run(write)
        shop.run(read)
        found = shop.names["orders_now"].select("id", "customer", "total").orderBy("id").collect()
        assert found == shop.orders()


def test_revenue_follows_the_stream_and_the_customers(shop: Shop, client: SparkSession) -> None:
    def revenue() -> dict[str, str]:
        return {row[0]: str(row[1]) for row in client.table("revenue").collect()}

    [program] = recipe("Revenue as it comes in")
    shop.write(FIRST[0])
    shop.run(program)
    until(lambda: shop.is_followed("orders_to_revenue"))
    shop.write(*FIRST[1:])
    until(lambda: revenue() == {"north": "105.00", "south": "100.00"})
    shop.write("UPDATE customers SET region = 'west' WHERE id = 1")
    shop.write("INSERT INTO orders VALUES (50, 1, 7.5), (51, 2, 1)")
    until(lambda: revenue() == {"north": "105.00", "south": "101.00", "west": "7.50"})
    shop.names["query"].stop()


@pytest.mark.skipif(not passes_position(pyspark.__version__), reason="one batch a run before PySpark 4.2")
def test_a_copy_by_merge_is_the_table(shop: Shop, client: SparkSession) -> None:
    """Delta up to PySpark 4.2; on 4.3 the tables of Spark's own tests."""
    [program] = recipe("A copy of a table")
    client.sql(f"CREATE TABLE orders_copy (id int, customer int, total decimal(10,2)) {lake().using}")
    for statements in (FIRST, LATER, EMPTIED):
        shop.write(*statements)
        shop.run(program)
        assert client.table("orders_copy").orderBy("id").collect() == shop.orders()
    client.sql("DROP TABLE orders_copy")


@pytest.mark.newest
@pytest.mark.timeout(900)
def test_a_pipeline_keeps_the_newest_rows_and_their_history(
    shop: Shop, client: SparkSession, tmp_path: Path
) -> None:
    """The changed key, the TRUNCATE and the row that comes again behind it included."""
    [program] = recipe("Newest rows")
    (tmp_path / "orders.py").write_text(program)
    client.conf.set("shop.url", shop.url)
    shop.write(*FIRST)
    run_pipeline(client, tmp_path)
    shop.write(*LATER)
    shop.write(*EMPTIED)
    run_pipeline(client, tmp_path)
    found = client.table("spark_catalog.default.orders").orderBy("id").collect()
    assert found == shop.orders()
    versions: dict[int, list[tuple[str, bool]]] = {}
    for row in client.table("spark_catalog.default.orders_history").orderBy("__START_AT").collect():
        versions.setdefault(row["id"], []).append((str(row["total"]), row["__END_AT"] is None))
        assert row["__END_AT"] is None or row["__START_AT"] < row["__END_AT"]
    assert {key for key, rows in versions.items() if rows[-1][1]} == {row[0] for row in found}
    assert {key: versions[key] for key in (1, 3, -5, 5, 7, 101, 102)} == {
        1: [("0.25", False), ("12.00", True)],  # emptied away, and there again
        3: [("0.75", False), ("1.75", False)],
        -5: [("1.25", False)],
        5: [("1.25", False)],
        7: [("1.75", False)],
        101: [("11.00", False)],
        102: [("13.00", False), ("14.00", True)],
    }


def run_pipeline(client: SparkSession, folder: Path) -> None:
    """What `spark-pipelines run` does, in a session that there is already."""
    from pyspark.pipelines import cli, spark_connect_pipeline  # noqa: PLC0415
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry  # noqa: PLC0415

    spec = cli.PipelineSpec(
        name="orders",
        storage=(folder / "storage").as_uri(),
        catalog="spark_catalog",
        database="default",
        configuration={},
        libraries=[cli.LibrariesGlob("orders.py")],
    )
    graph = spark_connect_pipeline.create_dataflow_graph(client, spec.catalog, spec.database, {})
    registry = SparkConnectGraphElementRegistry(client, graph)
    cli.register_definitions(folder / "spec.yml", registry, spec, client, graph)
    run = spark_connect_pipeline.start_run(
        client, graph, None, full_refresh_all=False, refresh=None, dry=False, storage=spec.storage
    )
    spark_connect_pipeline.handle_pipeline_events(run)
