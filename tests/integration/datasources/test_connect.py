"""Do the sources work where the program has no Spark of its own, only the address of a server?"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from headrace.spark import exported_snapshot, latest_per_key, register
from headrace.spark.environment import passes_position
from integration.datasources.connect_server import ConnectServer
from integration.datasources.traces import files, leaks, pages, secrets, use

pytestmark = pytest.mark.long

_WITHIN = 60.0
_numbers = itertools.count(1)


class Shop:
    """A database with a table, and queries that follow it into a table in the server's memory."""

    def __init__(self, client: SparkSession, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.slot = f"connect_{next(_numbers)}"
        self._client = client
        self.run("CREATE TABLE item (id int PRIMARY KEY, name text)", "INSERT INTO item VALUES (1, 'one')")

    def run(self, *statements: str) -> None:
        with connect(self.url, autocommit=False) as connection:
            for statement in statements:
                execute(connection, statement)

    def changes(self, **options: str) -> DataFrame:
        reader = self._client.readStream.format("postgres_cdc").option("url", self.url)
        return reader.options(slot=self.slot, publication=self.slot, **options).load("item")

    def follow(self) -> StreamingQuery:
        writer = self.changes().writeStream.format("memory").queryName(self.slot)
        return writer.option("checkpointLocation", self.folder.as_uri()).start()

    def rows(self) -> list[Row]:
        return self._client.table(self.slot).orderBy("_commit_lsn", "_commit_seq", "_change_type").collect()

    def is_read(self) -> bool:
        sql = "SELECT active FROM pg_replication_slots WHERE slot_name = $1"
        with connect(self.url) as connection:
            return execute(connection, sql, (self.slot,)) == [(True,)]

    def drop_slot(self) -> None:
        until(lambda: not self.is_read())
        with connect(self.url) as connection:
            drop_slot(connection, self.slot, timeout=60)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _WITHIN
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.25)


@pytest.fixture
def shop(client: SparkSession, database: str, tmp_path: Path) -> Shop:
    return Shop(client, database, tmp_path)


def test_a_table_is_followed_and_the_query_ends_when_it_is_told(client: SparkSession, shop: Shop) -> None:
    """Also after `register`, which may be called again and again."""
    register(client)
    register(client)
    query = shop.follow()
    until(lambda: len(shop.rows()) == 1)
    shop.run("INSERT INTO item VALUES (2, 'two')", "UPDATE item SET id = 3 WHERE id = 2")
    until(lambda: len(shop.rows()) == 4)
    query.stop()
    assert not query.isActive
    found = [(row["_change_type"], row["_snapshot"], row["id"], row["name"]) for row in shop.rows()]
    assert found == [
        ("insert", True, 1, "one"),
        ("insert", False, 2, "two"),
        ("delete", False, 2, None),
        ("insert", False, 3, "two"),
    ]
    shop.drop_slot()


@pytest.mark.skipif(not passes_position(pyspark.__version__), reason="one batch a run before PySpark 4.2")
def test_batches_are_handed_to_a_function_on_the_server_and_each_comes_once(shop: Shop) -> None:
    """Its own process there; twice, with one checkpoint."""
    target = str(shop.folder / "newest")

    def write(batch: DataFrame, _number: int) -> None:
        latest_per_key(batch, ["id"]).write.mode("append").parquet(target)

    def run() -> None:
        writer = shop.changes().writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", (shop.folder / "checkpoint").as_uri()).start()
        assert query.awaitTermination(int(_WITHIN))
        until(lambda: not shop.is_read())

    run()
    shop.run(
        "UPDATE item SET name = 'eins'", "UPDATE item SET name = 'uno'", "INSERT INTO item VALUES (2, 'two')"
    )
    shop.run("DELETE FROM item WHERE id = 2")
    run()
    rows = shop._client.read.parquet(target).orderBy("_commit_lsn", "_commit_seq").collect()
    assert [(row["_change_type"], row["id"], row["name"]) for row in rows] == [
        ("insert", 1, "one"),
        ("update_postimage", 1, "uno"),
        ("delete", 2, None),
    ]
    shop.drop_slot()


def test_a_table_is_read_as_of_a_moment_that_the_program_holds(client: SparkSession, shop: Shop) -> None:
    with exported_snapshot(shop.url) as snapshot:
        shop.run("UPDATE item SET name = 'later'")
        reader = client.read.format("postgres_snapshot").option("url", shop.url)
        then = reader.option("snapshotId", snapshot).load("public.item").collect()
    now = client.read.format("postgres_snapshot").option("url", shop.url).load("public.item").collect()
    assert (then, now) == ([(1, "one")], [(1, "later")])


def test_what_is_wrong_is_said_in_one_line_when_it_is_loaded(shop: Shop) -> None:
    with pytest.raises(PySparkException) as raised:
        shop.changes(startingoffset="latest").schema  # noqa: B018 - the server is asked here
    assert "[HEADRACE_USAGE] postgres_cdc has no option 'startingoffset'. Did you mean" in str(raised.value)
    assert shop.url not in str(raised.value)


PAGE = Path(__file__).parents[3] / "docs/guides/spark-queries.md"


def test_a_server_that_shows_requests_shows_no_password(
    client: SparkSession,
    server: ConnectServer,
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A server notes each request as text: options too, unless the session says what is to be hidden."""
    [program] = re.findall(
        r"^```python\n(spark\.conf\.set\(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    exec(program, {"spark": client})
    with secrets(database, tmp_path) as ways:
        checkpoints = tmp_path / "checkpoints"
        told = [use(client, one, checkpoints / one.role) for one in ways]
        shown = pages(server.ui)
        assert any("postgres_cdc" in text for text in shown.values())
        found = {
            "told": "\n".join([*told, capsys.readouterr().out]),
            **files(server.log.parent, checkpoints),
            **shown,
        }
        assert leaks(found, ways) == []
