"""One run on a server of its own, which loses the slot, is restored and is promoted: on_gap = reseed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from e2e.harness import Headrace, Shop
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import connect, execute
from headrace.tools.demo.shop import INDEXES
from support.servers import installation, short_lived_server
from support.shop_oracle import actual_documents, differences

_NAME = "reseeding"
_OTHER = f"{_NAME}_other_"
PATIENCE = 400.0
"""Seconds; each of two sinks is filled several times, perhaps on a busy machine."""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with short_lived_server(binaries=installation()) as server:
        yield server


@pytest.fixture(scope="module")
def pipeline(
    server: EmbeddedPostgres, opensearch: EmbeddedOpenSearch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Headrace]:
    """Seeded and stopped; it has a secondary sink, under another prefix."""
    shop = Shop(server.create_database(_NAME), users=30)
    pipeline = Headrace(tmp_path_factory.mktemp(_NAME), shop, opensearch.url, _NAME)
    text = pipeline.config.read_text().replace("[source]", '[source]\non_gap = "reseed"')
    other = f'\n[sinks.other]\ntype = "opensearch"\nurl = "{opensearch.url}"\nprefix = "{_OTHER}"\n'
    pipeline.config.write_text(f"{text}{other}number_of_replicas = 0\n")
    try:
        pipeline.start()
        converges(pipeline)
        pipeline.terminate()
        yield pipeline
    finally:
        pipeline.close()


def wrong(pipeline: Headrace) -> list[str]:
    """What differs in either sink."""
    expected = pipeline.shop.expected()
    try:
        other = {index: actual_documents(pipeline.sink_url, f"{_OTHER}{index}") for index in INDEXES}
    except LookupError as error:
        return [str(error)]
    return pipeline.differences() + [
        line for index in INDEXES for line in differences(expected[index], other[index])
    ]


def converges(pipeline: Headrace) -> None:
    pipeline.wait_until(pipeline.is_ready, "was not ready", PATIENCE)
    pipeline.wait_until(lambda: not wrong(pipeline), "has not what the database has", PATIENCE)


def served(pipeline: Headrace) -> set[str]:
    """The concrete indexes behind the aliases of users, in both sinks."""
    found = set()
    for prefix in (pipeline.prefix, _OTHER):
        found |= set(urllib3.request("GET", f"{pipeline.sink_url}/{prefix}users", timeout=30).json())
    return found


def is_replaced(pipeline: Headrace, before: set[str]) -> bool:
    return not served(pipeline) & before


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_slot_whose_log_the_server_has_removed(pipeline: Headrace, server: EmbeddedPostgres) -> None:
    before = served(pipeline)
    with connect(server.url) as connection:
        execute(connection, "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        execute(connection, "SELECT pg_reload_conf()")
        lost = "SELECT wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = $1"
        pipeline.shop.run("UPDATE users SET name = name || '!'")
        while execute(connection, lost, (_NAME,)) != [(True,)]:
            execute(
                connection, "SELECT pg_logical_emit_message(false, '', repeat('x', 9000000)), pg_switch_wal()"
            )
            execute(connection, "CHECKPOINT")
        execute(connection, "ALTER SYSTEM RESET max_slot_wal_keep_size")
        execute(connection, "SELECT pg_reload_conf()")
    pipeline.start()
    pipeline.wait_until(lambda: is_replaced(pipeline, before), "was not backfilled again", PATIENCE)
    converges(pipeline)
    pipeline.shop.run("UPDATE users SET name = name || '.'")
    converges(pipeline)
    pipeline.terminate()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_restored_database_and_a_promotion_under_a_run(
    pipeline: Headrace, server: EmbeddedPostgres
) -> None:
    """The new generation holds nothing of what never happened, though its positions are lower."""
    shop = pipeline.shop
    pipeline.start()
    converges(pipeline)
    server.stop()
    data, copy = server._site.data, server._site.folder / "copy"
    subprocess.run(["cp", "-a", data, copy], check=True)
    server.start()
    for _ in range(5):
        shop.run("UPDATE order_items SET quantity = quantity % 9 + 1", "UPDATE users SET name = name || '?'")
    shop.run(
        "INSERT INTO users (id, external_id, email, name) VALUES (777, gen_random_uuid(), 'x@y.z', 'never')"
    )
    converges(pipeline)
    before = served(pipeline)
    server.stop("immediate")
    put_back(data, copy)
    server.start()
    pipeline.wait_until(lambda: is_replaced(pipeline, before), "was not backfilled again", PATIENCE)
    converges(pipeline)
    shop.run("UPDATE users SET name = name || '-'")
    converges(pipeline)

    before = served(pipeline)
    server.stop()
    (data / "standby.signal").touch()
    server.start()
    with connect(server.url) as connection:
        assert execute(connection, "SELECT pg_promote()") == [(True,)]
    shop.run("UPDATE users SET name = name || '+'")
    pipeline.wait_until(lambda: is_replaced(pipeline, before), "was not backfilled again", PATIENCE)
    converges(pipeline)
    pipeline.terminate()


def put_back(data: Path, copy: Path) -> None:
    shutil.rmtree(data)
    copy.rename(data)
