"""A primary dies, and its standby is promoted: with and without what the primary had committed last."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.harness import Headrace, Shop
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.processes import until
from headrace.postgres.connection import connect, execute
from support.servers import installation, short_lived_server
from support.tcp_proxy import TcpProxy

PATIENCE = 400.0
FAILOVER_SLOTS_SINCE = 170000
NOT_PROMOTED = "the server is a standby now"


@dataclass(frozen=True)
class Pair:
    """A primary and its standby, which streams from it, behind one address."""

    primary: EmbeddedPostgres
    standby: EmbeddedPostgres
    address: TcpProxy
    shop: Shop


def standby_of(primary: EmbeddedPostgres) -> EmbeddedPostgres:
    """A copy of a server that is stopped; not started yet."""
    copy = short_lived_server(binaries=installation())
    copy._password = primary._password
    shutil.rmtree(copy._site.data)
    subprocess.run(["cp", "-a", primary._site.data, copy._site.data], check=True)
    (copy._site.data / "standby.signal").touch()
    return copy


def ask(server: EmbeddedPostgres, sql: str) -> list[tuple[object, ...]]:
    with connect(server.url) as connection:
        return execute(connection, sql)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        primary = stack.enter_context(short_lived_server(binaries=installation()))
        shop = Shop(primary.create_database("shop"), 30)
        ask(primary, "SELECT pg_create_physical_replication_slot('copy', true)")
        [(version,)] = ask(primary, "SELECT current_setting('server_version_num')::int")
        primary.stop()
        standby = standby_of(primary)
        stack.callback(standby.close)
        primary.start()
        standby._settings.update(
            primary_conninfo=f"host=127.0.0.1 port={primary.port} user=postgres dbname=postgres "
            f"password={primary._password}",
            primary_slot_name="copy",
            hot_standby_feedback="on",
        )
        assert isinstance(version, int)
        if version >= FAILOVER_SLOTS_SINCE:
            standby._settings["sync_replication_slots"] = "on"
        standby.start()
        address = stack.enter_context(TcpProxy.before(primary.url))
        shop.url = address.url(shop.url)
        yield Pair(primary, standby, address, shop)


def deployment(folder: Path, pair: Pair, sink: str, *, failover: bool) -> Headrace:
    name = "failover" if failover else "promoted"
    pipeline = Headrace(folder, pair.shop, sink, name)
    words = '[source]\non_gap = "reseed"\nfailover = ' + str(failover).lower()
    pipeline.config.write_text(pipeline.config.read_text().replace("[source]", words))
    return pipeline


def waits_for_promotion(pipeline: Headrace) -> None:
    """It says that a standby answers, is not ready, and keeps what is served."""
    before = pipeline.served("users")
    pipeline.wait_until(
        lambda: NOT_PROMOTED in pipeline.ask("/readyz").data.decode(), "did not say who answers", 60
    )
    assert not until(lambda: pipeline.served("users") != before or not pipeline.runs(), 10)


def comes_back(pair: Pair, pipeline: Headrace) -> None:
    """The dead primary is started again, and the address leads to it: nothing is backfilled from there."""
    current = pipeline.served("users")
    pair.primary.start()
    ask(pair.primary, "SELECT pg_switch_wal()")
    pair.address.lead_to(pair.primary.url)
    assert pipeline.wait_end(120) == 1
    assert "the primary of before a promotion is back" in pipeline.last_output()
    pipeline.close()
    pair.primary.stop()
    pair.address.lead_to(pair.standby.url)
    pipeline.start()
    pipeline.wait_ready()
    pipeline.converges()
    assert pipeline.served("users") == current


def is_told_what_holds_changes_back(pair: Pair, pipeline: Headrace) -> None:
    """The server sends nothing that a standby which it waits for does not have."""
    ask(pair.primary, "ALTER SYSTEM SET synchronized_standby_slots = 'copy'")
    ask(pair.primary, "SELECT pg_reload_conf()")
    pair.standby.stop()

    def is_told() -> bool:
        # Again and again: the server may have sent the first ones before it had read its settings.
        pair.shop.run("UPDATE users SET name = name WHERE id = (SELECT min(id) FROM users)")
        return b"synchronized_standby_slots" in pipeline.ask("/readyz").data

    pipeline.wait_until(is_told, "did not say what it waits for", 60)
    pair.standby.start()
    pipeline.converges()
    pipeline.wait_ready()
    ask(pair.primary, "ALTER SYSTEM RESET synchronized_standby_slots")
    ask(pair.primary, "SELECT pg_reload_conf()")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("failover", [False, True])
def test_a_standby_is_waited_for_until_it_is_promoted_and_what_it_never_got_leaves_the_index(
    pair: Pair, opensearch: EmbeddedOpenSearch, tmp_path: Path, *, failover: bool
) -> None:
    """The address leads to the standby before it is promoted; with a failover slot and without one."""
    primary, standby, shop = pair.primary, pair.standby, pair.shop
    if failover and not ask(standby, "SELECT FROM pg_settings WHERE name = 'sync_replication_slots'"):
        pytest.skip("this server has no failover slots")
    pipeline = deployment(tmp_path, pair, opensearch.url, failover=failover)
    try:
        pipeline.start()
        pipeline.wait_ready()
        pipeline.converges()
        copied = f"SELECT FROM pg_replication_slots WHERE slot_name = '{pipeline.name}'"
        if failover:
            copied += " AND synced AND NOT temporary"
            pipeline.wait_until(lambda: bool(ask(standby, copied)), "has no copy of its slot", 60)
        first = pipeline.served("users")
        pair.address.lead_to(standby.url)
        waits_for_promotion(pipeline)
        pair.address.lead_to(primary.url)
        pipeline.wait_ready()
        assert pipeline.served("users") == first
        assert failover or not ask(standby, copied)

        if failover:
            is_told_what_holds_changes_back(pair, pipeline)
        standby.stop()
        shop.run("UPDATE order_items SET quantity = quantity % 9 + 1", "UPDATE users SET name = name || '?'")
        shop.run(
            "INSERT INTO users (id, external_id, email, name) "
            "VALUES (777, gen_random_uuid(), 'x@y.z', 'never')"
        )
        pipeline.converges()
        primary.kill()
        standby.start()
        pair.address.lead_to(standby.url)
        waits_for_promotion(pipeline)
        ask(standby, "SELECT pg_promote()")
        pipeline.wait_until(
            lambda: not pipeline.served("users") & first, "was not backfilled again", PATIENCE
        )
        assert "a standby was promoted" in pipeline.output.read_text()
        pipeline._ready_within = PATIENCE
        pipeline.wait_ready()
        pipeline.converges()
        shop.run("UPDATE users SET name = name || '+'")
        pipeline.converges()
        [(kept,)] = ask(standby, f"SELECT to_jsonb(s) ->> 'failover' FROM pg_replication_slots s "
                        f"WHERE slot_name = '{pipeline.name}'")  # fmt: skip
        assert kept in {str(failover).lower(), None}
        comes_back(pair, pipeline)
        pipeline.terminate()
    finally:
        pipeline.close()
