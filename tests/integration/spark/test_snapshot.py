"""Does `postgres_snapshot`, in a plain session, read what a table holds, as it was promised?"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace
from headrace.config.java import spark_java_home
from headrace.postgres.connection import connect, execute


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session that knows nothing of Headrace: nothing is registered, nothing set."""
    kept = dict(os.environ)
    source = str(Path(headrace.__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([source, *filter(None, [kept.get("PYTHONPATH")])])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(spark_java_home())
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(kept)


class Shop:
    """A database, and DataFrames of its tables."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.url = url
        self._spark = spark

    def run(self, *statements: str) -> None:
        with connect(self.url) as connection:
            for statement in statements:
                execute(connection, statement)

    def load(self, table: str, **options: str) -> DataFrame:
        return self._spark.read.format("postgres_snapshot").options(url=self.url, **options).load(table)


@pytest.fixture
def shop(spark: SparkSession, database: str) -> Shop:
    return Shop(spark, database)


def test_a_table_is_found_by_its_name_and_read_in_parts(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE item (id int PRIMARY KEY, name text)",
        "INSERT INTO item SELECT i, 'name ' || i FROM generate_series(1, 5000) i",
    )
    frame = shop.load("public.item", partitionBytes="32k")
    assert frame.schema.simpleString() == "struct<id:int,name:string>"
    assert frame.rdd.getNumPartitions() > 3
    assert sorted(frame.collect()) == [(i, f"name {i}") for i in range(1, 5001)]
