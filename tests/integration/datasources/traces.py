"""Look for traces of the passwords that queries were given: use both sources, then look everywhere.

Spark's web pages and their REST interface, plans, the event log, checkpoints, progress, errors, and the log
of driver and workers.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import urllib3
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.embedded.processes import until
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot

_MOST_PAGES = 200
_PAGES = "/jobs/ /stages/ /storage/ /environment/ /executors/ /SQL/ /StreamingQuery/ /connect/".split()
_REST = (
    "jobs stages?details=true&withSummaries=true allexecutors environment storage/rdd "
    "sql?details=true&planDescription=true&length=1000"
).split()
_LINK = re.compile(r"""href=["'](/(?!static)[^"'#]+)""")


@dataclass(frozen=True, slots=True)
class Secret:
    """The options by which a query is told its password, and what of them nobody may see."""

    role: str
    hidden: tuple[str, ...]
    options: dict[str, str]


@contextmanager
def secrets(database: str, folder: Path) -> Iterator[list[Secret]]:
    """Of one role, a password in the URL and one as an option; of another, one that a command prints."""
    address = "postgresql://{}@" + database.partition("@")[2]
    passwords = {"hidden_option": "9d41c7-option", "hidden_command": "9d41c7-command"}
    with connect(database) as connection:
        for role, password in passwords.items():
            execute(connection, f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD '{password}'")
        execute(connection, "CREATE TABLE item AS SELECT 1 AS id, 'one' AS name")
        execute(connection, "ALTER TABLE item ADD PRIMARY KEY (id)")
    script = folder / "password.py"
    script.write_text("print('9d41c7-command')")
    url = address.format("hidden_option:9d41c7-url")
    words = shlex.join([sys.executable, str(script)])
    yield [
        Secret("hidden_option", ("9d41c7-url", "9d41c7-option"), {"url": url, "password": "9d41c7-option"}),
        Secret(
            "hidden_command",
            ("9d41c7-command",),
            {"url": address.format("hidden_command"), "passwordCommand": words},
        ),
    ]
    with connect(database) as connection:
        unread = "SELECT FROM pg_replication_slots WHERE active AND database = current_database()"
        assert until(lambda: not execute(connection, unread), 10)
        for role in passwords:
            drop_slot(connection, role, timeout=60)
        for role in passwords:
            execute(connection, f"DROP OWNED BY {role} CASCADE")
            execute(connection, f"DROP ROLE {role}")


def use(spark: SparkSession, secret: Secret, checkpoint: Path) -> str:
    """Use both sources in every way that leaves a trace; what the program was told."""
    given, name = secret.options, secret.role
    batch = spark.read.format("postgres_snapshot").options(**given).load("item")
    assert batch.collect() == [(1, "one")]
    batch.explain(extended=True)
    words = ", ".join(f"{option} '{value}'" for option, value in {**given, "tables": "item"}.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING postgres_snapshot OPTIONS ({words})")
    assert spark.table(name).count() == 1
    told = [str(spark.sql(f"EXPLAIN EXTENDED SELECT * FROM {name}").collect())]
    with pytest.raises(PySparkException) as raised:
        spark.read.format("postgres_snapshot").options(**given, where="no SQL").load("item").collect()
    reader = spark.readStream.format("postgres_cdc")
    stream = reader.options(**given, slot=name, publication="secrets").load("item")
    stream.explain(extended=True)
    writer = stream.writeStream.format("memory").queryName(f"{name}_rows").trigger(availableNow=True)
    query = writer.option("checkpointLocation", checkpoint.as_uri()).start()
    assert query.awaitTermination(60)
    query.explain(extended=True)
    assert spark.table(f"{name}_rows").count() == 1
    return "\n".join([*told, str(raised.value), str(query.recentProgress), str(query.status)])


def pages(ui: str) -> dict[str, str]:
    """Every page of Spark's own web server that leads from one to the next, and its REST interface."""
    http = urllib3.PoolManager()

    def get(path: str) -> str:
        return http.request("GET", ui + path).data.decode(errors="replace")

    [application] = re.findall(r'"id" : "([^"]+)"', get("/api/v1/applications"))[:1]
    waiting = [*_PAGES, *(f"/api/v1/applications/{application}/{one}" for one in _REST)]
    found: dict[str, str] = {}
    while waiting and len(found) < _MOST_PAGES:
        path = waiting.pop(0)
        if path in found or "/kill" in path or ".sort=" in path:
            continue
        found[path] = get(path)
        waiting += [one.replace("&amp;", "&") for one in _LINK.findall(found[path])]
    return found


def files(*folders: Path) -> dict[str, str]:
    """Every file that Spark has written."""
    found = [one for folder in folders for one in folder.rglob("*") if one.is_file()]
    return {str(one): one.read_text(errors="replace") for one in found}


def leaks(found: dict[str, str], ways: list[Secret]) -> list[str]:
    """The names of what shows a password."""
    hidden = [one for way in ways for one in way.hidden]
    return [name for name, text in found.items() if any(one in text for one in hidden)]
