"""How fast does a table come into Spark? `python bench/snapshot_rows.py [--quick]`.

`postgres_snapshot` into Spark's noop sink, in alternation with two peers that have as many connections:
psql's COPY (FORMAT binary) to /dev/null, and Spark's own JDBC source with PostgreSQL's driver.
Beside them stands what Spark needs by itself: a Python source that yields the same rows as ready batches.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import headrace
from harness import report
from harness.ready import ReadyPart, ready_source
from headrace.config.java import find_java, spark_java_home
from headrace.embedded.jars import Jar, fetch_into
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.postgres_files import wheel_binaries
from headrace.postgres.connection import connect, execute
from headrace.postgres.copying import RowSession

ROWS, QUICK, ROUNDS, CONNECTIONS = 2_000_000, 400_000, 5, 2
_BATCH_BYTES = 8 << 20
DRIVER = Jar(
    "org.postgresql",
    "postgresql",
    "42.7.8",
    "",
    "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
)
COLUMNS = "id, customer, amount, status, email, created, active, score"
CREATE = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer int, amount numeric(12,2), status text,
                     email varchar(80), created timestamptz, active bool, score float8)
"""
FILL = """
INSERT INTO orders
SELECT i, i % 1000, (i % 100000) / 100.0, 'status ' || i % 7, 'user' || i || '@example.com',
       timestamptz '2024-01-01' + i * interval '1 s', i % 2 = 0, i / 7.0
FROM generate_series(1, $1::int) i
"""


def copied(url: str, blocks: int) -> float:
    """Seconds of psql's COPY, each connection with its share of the table."""
    share = -(-blocks // CONNECTIONS)
    begin = perf_counter()
    running = []
    for number in range(CONNECTIONS):
        where = f"ctid >= '({number * share},0)' AND ctid < '({(number + 1) * share},0)'"
        sql = f"COPY (SELECT {COLUMNS} FROM orders WHERE {where}) TO STDOUT (FORMAT binary)"
        command = [str(wheel_binaries() / "psql"), "-X", "-q", url, "-c", sql]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    assert [one.wait() for one in running] == [0] * CONNECTIONS
    return perf_counter() - begin


def ours(spark: SparkSession, url: str) -> float:
    """Seconds of our source."""
    reader = spark.read.format("postgres_snapshot").option("url", url).option("numPartitions", CONNECTIONS)
    return taken(reader.load("public.orders"))


def jdbc(spark: SparkSession, url: str, rows: int) -> float:
    """Seconds of Spark's own source, with a fetch size: without one it keeps a whole partition in memory."""
    where, _, rest = url.removeprefix("postgresql://").rpartition("@")
    user, _, password = where.partition(":")
    options: dict[str, Any] = {
        "url": f"jdbc:postgresql://{rest}",
        "user": user,
        "password": password,
        "driver": "org.postgresql.Driver",
        "dbtable": "orders",
        "partitionColumn": "id",
        "lowerBound": 1,
        "upperBound": rows + 1,
        "numPartitions": CONNECTIONS,
        "fetchsize": 10_000,
    }
    return taken(spark.read.format("jdbc").options(**options).load())


def ready(spark: SparkSession, url: str, rows: int) -> float:
    """Seconds of a source that has its rows already, in batches of the size of ours."""
    with RowSession(url) as database:
        batch = next(iter(database.read(f"SELECT {COLUMNS} FROM public.orders", _BATCH_BYTES)))
    part = ReadyPart.of(batch, rows // CONNECTIONS)
    spark.dataSource.register(ready_source([part] * CONNECTIONS))
    return taken(spark.read.format("ready").load())


def taken(frame: DataFrame) -> float:
    """Seconds until all rows of `frame` are in the noop sink."""
    assert frame.rdd.getNumPartitions() == CONNECTIONS
    begin = perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return perf_counter() - begin


def session(folder: Path) -> SparkSession:
    """A plain session that has the JDBC driver."""
    fetch_into(folder, [DRIVER], find_java(17), os.environ)
    folders = [str(Path(headrace.__file__).parents[1]), str(Path(__file__).parent)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(spark_java_home())
    settings: dict[str, Any] = {"spark.ui.enabled": "false", "spark.jars": str(folder / "lib" / DRIVER.file)}
    return SparkSession.builder.master(f"local[{CONNECTIONS}]").config(map=settings).getOrCreate()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} rows instead of {ROWS:,}")
    rows = QUICK if parser.parse_args().quick else ROWS
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, EmbeddedPostgres() as postgres:
        url = postgres.create_database("snapshot_rows")
        with connect(url) as connection:
            execute(connection, CREATE)
            execute(connection, FILL, (rows,))
            execute(connection, "VACUUM (FREEZE, ANALYZE) orders")
            sql = "SELECT pg_relation_size('orders') / current_setting('block_size')::int"
            [(blocks,)] = execute(connection, sql)
        spark = session(Path(folder))
        times: dict[str, list[float]] = {"copy": [], "ours": [], "jdbc": [], "ready": []}
        for number in range(ROUNDS + 1):  # the first warms the JVM up and is not counted
            report.machine()
            found = {
                "copy": copied(url, blocks),
                "ours": ours(spark, url),
                "jdbc": jdbc(spark, url, rows),
                "ready": ready(spark, url, rows),
            }
            for name, seconds in found.items():
                times[name] += [seconds] if number else []
        spark.stop()
    middle = {name: statistics.median(found) for name, found in times.items()}
    names = {
        "copy": "psql's COPY → /dev/null",
        "ours": "postgres_snapshot → noop",
        "jdbc": "JDBC → noop",
        "ready": "ready-made batches → noop",
    }
    table = [(names[one], f"{middle[one]:.2f}", f"{rows / middle[one]:,.0f}") for one in names]
    report.table((f"{rows:,} rows, {CONNECTIONS} connections", "seconds", "rows/s"), table)
    # Both keep every processor busy, so a source that decodes for nothing takes the sum.
    least = middle["copy"] + middle["ready"]
    copy, driver = middle["copy"] / least, middle["jdbc"] / least
    print(f"a source that decodes for nothing would reach {copy:.2f} of COPY, {driver:.2f} of JDBC")
    held = report.result("snapshot_rows.copy", middle["copy"] / middle["ours"], 0.5)
    held &= report.result("snapshot_rows.jdbc", middle["jdbc"] / middle["ours"], 2)
    sys.exit(not held)


if __name__ == "__main__":
    main()
