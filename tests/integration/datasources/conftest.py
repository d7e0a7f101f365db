"""One plain Spark session, which the tests of the sources share: its first query takes long."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.config.java import spark_java_home
from headrace.embedded.processes import free_port
from headrace.postgres.connection import connect, execute
from headrace.spark.settings import JAVA_OPTIONS
from integration.datasources.connect_server import ConnectServer, connect_server, connected
from integration.datasources.driven import ITEM, Query
from integration.datasources.lake import lake


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that knows nothing of Headrace: nothing is registered, nothing of it is set.

    Only its Java compiles as that of our own sessions. Its pages and its event log are there to be looked at.
    """
    kept = dict(os.environ)
    source = str(Path(headrace.__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([source, *filter(None, [kept.get("PYTHONPATH")])])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(spark_java_home())
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.port": str(free_port()),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": tmp_path_factory.mktemp("events").as_uri(),
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    }
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    os.environ.clear()
    os.environ.update(kept)  # the session's processes have what they need
    yield session
    session.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A Spark Connect server, which knows as little; it has tables that can MERGE."""
    tables = lake()
    with connect_server(tmp_path_factory.mktemp("connect"), tables.settings, tables.jars()) as one:
        yield one


@pytest.fixture(scope="module")
def client(server: ConnectServer) -> Iterator[SparkSession]:
    """A client's session; no test of the module may use Spark's classic one."""
    with connected(server) as session:
        yield session


@pytest.fixture
def query(database: str) -> Iterator[Callable[..., Query]]:
    """Makes queries of a database with a table `item`."""
    with connect(database) as connection:
        execute(connection, ITEM)
    made: list[Query] = []

    def make(**options: str) -> Query:
        made.append(Query(database, **{"tables": "item", **options}))
        return made[-1]

    yield make
    for one in made:
        one.close()
