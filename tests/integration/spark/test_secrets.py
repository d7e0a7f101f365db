"""Does a password that a query was given stand anywhere that others look at?

Spark's web pages and their REST interface, plans, the event log, checkpoints, progress, errors and the log of
driver and workers; whether it came in the URL, as an option, or from a command.
"""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import urllib3
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from integration.spark.connect_server import ConnectServer

_MOST_PAGES = 400
_PAGES = "/jobs/ /stages/ /storage/ /environment/ /executors/ /SQL/ /StreamingQuery/ /connect/".split()
_REST = (
    "jobs stages?details=true&withSummaries=true allexecutors environment storage/rdd "
    "sql?details=true&planDescription=true&length=1000"
).split()
SLOTS = ("secret_url", "secret_option", "secret_command")
_LINK = re.compile(r"""href=["'](/(?!static)[^"'#]+)""")


@dataclass(frozen=True, slots=True)
class Given:
    """How a query is told its password."""

    secret: str
    options: dict[str, str]


@pytest.fixture
def ways(database: str, tmp_path: Path) -> Iterator[list[Given]]:
    """A password in the URL, one as an option, one that a command prints."""
    address = "postgresql://{}@" + database.partition("@")[2]
    roles = {name: f"{name}-9d41c7" for name in ("inurl", "asoption", "bycommand")}
    with connect(database) as connection:
        for name, secret in roles.items():
            execute(connection, f"CREATE ROLE {name} SUPERUSER LOGIN PASSWORD '{secret}'")
        execute(connection, "CREATE TABLE item AS SELECT 1 AS id, 'one' AS name")
        execute(connection, "ALTER TABLE item ADD PRIMARY KEY (id)")
    script = tmp_path / "password.py"
    script.write_text(f"print({roles['bycommand']!r})")
    command = shlex.join([sys.executable, str(script)])
    yield [
        Given(roles["inurl"], {"url": address.format(f"inurl:{roles['inurl']}")}),
        Given(roles["asoption"], {"url": address.format("asoption"), "password": roles["asoption"]}),
        Given(roles["bycommand"], {"url": address.format("bycommand"), "passwordCommand": command}),
    ]
    with connect(database) as connection:
        for slot in SLOTS:
            drop_slot(connection, slot)
        for name in roles:
            execute(connection, f"DROP OWNED BY {name} CASCADE")
            execute(connection, f"DROP ROLE {name}")


def test_no_password_stands_anywhere(
    client: SparkSession,
    server: ConnectServer,
    ways: list[Given],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoints = tmp_path / "checkpoints"
    told = []
    for slot, given in zip(SLOTS, ways, strict=True):
        told += used(client, given.options, slot, checkpoints / slot)
    found = {"what the program is told": "\n".join([*told, capsys.readouterr().out])}
    found |= {str(one): one.read_text(errors="replace") for one in files(server, checkpoints)}
    found |= pages(server.ui)
    assert len(found) > 40, "the pages were not found"
    assert any("postgres_cdc" in text for name, text in found.items() if name.startswith("/"))
    leaks = {name for name, text in found.items() for given in ways if given.secret in text}
    assert leaks == set()


def used(client: SparkSession, options: dict[str, str], slot: str, checkpoint: Path) -> list[str]:
    """Use both sources in every way that leaves a trace; what was answered."""
    batch = client.read.format("postgres_snapshot").options(**options).load("item")
    assert batch.collect() == [(1, "one")]
    batch.explain(extended=True)
    words = ", ".join(f"{name} '{value}'" for name, value in {**options, "tables": "item"}.items())
    client.sql(f"CREATE OR REPLACE TEMPORARY VIEW {slot} USING postgres_snapshot OPTIONS ({words})")
    assert client.table(slot).count() == 1
    client.sql(f"EXPLAIN EXTENDED SELECT * FROM {slot}").show(truncate=False)
    with pytest.raises(PySparkException) as raised:
        client.read.format("postgres_snapshot").options(**options, where="no SQL").load("item").collect()
    stream = client.readStream.format("postgres_cdc")
    stream = stream.options(**options, slotName=slot, publicationName="secrets").load("item")
    stream.explain(extended=True)
    query = (
        stream.writeStream.format("memory")
        .queryName(f"{slot}_rows")
        .option("checkpointLocation", checkpoint.as_uri())
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    query.explain(extended=True)
    assert client.table(f"{slot}_rows").count() == 1
    time.sleep(0.5)  # until the source's process has given the slot back
    return [str(raised.value), str(query.lastProgress), str(query.recentProgress), str(query.status)]


def files(server: ConnectServer, checkpoints: Path) -> list[Path]:
    """What Spark has written."""
    folders = [server.log.parent, checkpoints]
    found = [one for folder in folders for one in folder.rglob("*") if one.is_file()]
    assert server.log in found
    assert any(server.events in one.parents for one in found)
    assert any(checkpoints in one.parents for one in found)
    return found


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
