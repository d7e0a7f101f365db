"""Does it end as it should: in order where told to, without a trace where killed, whatever the servers do?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.slot import drop_slot
from support.clients import process_of

_ENDED_WITHIN = 30.0


@pytest.fixture
def pipeline(deploy: Deploy) -> Iterator[Headrace]:
    with deploy(users=30) as one:
        yield one


@pytest.mark.long
def test_told_to_stop_after_the_database_was_restarted(
    pipeline: Headrace, postgres: EmbeddedPostgres
) -> None:
    """The restart took the session away that keeps a second run out; its end must not become an error."""
    pipeline.start()
    pipeline.wait_ready()
    postgres.stop()
    postgres.start()
    pipeline.shop.run("UPDATE users SET name = name || '!'")
    pipeline.converges()
    pipeline.terminate()


@pytest.mark.long
def test_a_first_start_waits_for_transactions_that_are_older(pipeline: Headrace) -> None:
    """It ended after a minute, though the documentation says that it waits."""
    with connect(pipeline.shop.url, autocommit=False) as other:
        execute(other, "UPDATE users SET name = name WHERE id = 1")
        pipeline.start()
        pipeline.wait_until(
            lambda: "HEADRACE_SLOT_WAIT" in str(pipeline.status().get("reason")), "did not say so", 120
        )
        pipeline.wait_until(
            lambda: "waits for open transactions" in pipeline.last_output(), "did not print it", 30
        )
        other.rollback()
    pipeline.wait_ready()
    pipeline.converges()
    pipeline.terminate()


@pytest.mark.long
def test_told_to_stop_while_the_cluster_hangs(pipeline: Headrace, opensearch: EmbeddedOpenSearch) -> None:
    """In the middle of a batch: nothing of it is confirmed, and the next start repeats it."""
    pipeline.start()
    pipeline.wait_ready()
    port = int(opensearch.url.rpartition(":")[2])
    [server] = {
        one.pid
        for one in psutil.net_connections("tcp")
        if one.laddr and one.laddr.port == port and one.status == "LISTEN"
    }
    psutil.Process(server).suspend()
    try:
        pipeline.shop.run("UPDATE users SET name = name || '?'")
        pipeline.shop.ids("SELECT pg_sleep(2)::text")
        pipeline.terminate()
    finally:
        psutil.Process(server).resume()
    pipeline.start()
    pipeline.wait_ready()
    pipeline.converges()
    pipeline.terminate()


@pytest.mark.long
def test_faults_of_the_stream_are_survived_and_a_new_slot_is_refused(
    pipeline: Headrace, postgres: EmbeddedPostgres
) -> None:
    """Flusso's holes 19 and 20; in the end a slot of its name that is no longer its own."""
    name, shop = pipeline.prefix.rstrip("_"), pipeline.shop
    pipeline.arguments = ("--on-gap", "stop")
    pipeline.start()
    pipeline.wait_ready()
    with connect(shop.url) as connection:
        psutil.Process(_source_process(connection, name)).kill()
        shop.run("UPDATE users SET name = name || '!'")
        pipeline.wait_until(lambda: _walsender(connection, name) is not None, "did not read again", 60)
        for _ in range(3):
            execute(connection, "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots")
            shop.run("UPDATE orders SET status = 'paid' WHERE id % 3 = 0")
        pipeline.converges()
        execute(connection, "SELECT pg_logical_emit_message(false, '', repeat('x', 20000000))")
        [(end,)] = execute(connection, "SELECT pg_current_wal_flush_lsn()::text")
        moved = "SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2"
        pipeline.wait_until(
            lambda: execute(connection, moved, (end, name)) == [(True,)], "pinned the log (hole 20)", 30
        )
        with connect(postgres.url) as outside:
            execute(outside, f"ALTER DATABASE {connection.info.dbname} ALLOW_CONNECTIONS false")
            try:
                execute(connection, "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots")
                drop_slot(connection, name)
                execute(connection, "UPDATE users SET name = name || '?'")
                execute(connection, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", (name,))
            finally:
                execute(outside, f"ALTER DATABASE {connection.info.dbname} ALLOW_CONNECTIONS true")
    assert pipeline.wait_end() == 1
    assert "[HEADRACE_CONTINUITY]" in pipeline.last_output()
    assert "it was recreated, or read by someone else" in pipeline.last_output()
    assert "`headrace teardown`, then `headrace run`" in pipeline.last_output(), (
        "not a new checkpoint, which it has none of"
    )


@pytest.mark.long
def test_told_to_stop_while_it_waits_to_read_again(pipeline: Headrace) -> None:
    """What is durable is confirmed, though the query that wrote it has failed."""
    name, shop = pipeline.prefix.rstrip("_"), pipeline.shop
    pipeline.start()
    pipeline.wait_ready()
    pipeline.converges()
    with connect(shop.url) as connection:
        source = psutil.Process(_source_process(connection, name))
        with connect(shop.url, autocommit=False) as other:
            execute(other, "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
            execute(connection, "UPDATE users SET name = name || '!'")
            [(end,)] = execute(connection, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
            pipeline.wait_until(lambda: _waits_for_lock(connection), "did not read", 60)
            source.suspend()  # it plans nothing more, and confirms nothing
        pipeline.converges()
        assert pipeline.confirmed() < end
        source.kill()
    pipeline.wait_until(
        lambda: "starting the stream again" in pipeline.last_output(), "did not try again", 60
    )
    pipeline.wait_until(lambda: _applied(pipeline) >= end, "did not note what it wrote", 60)
    applied = _applied(pipeline)
    pipeline.terminate()
    assert pipeline.confirmed() == applied
    shop.run("UPDATE users SET name = name || '?'")
    pipeline.start()
    pipeline.wait_ready()
    pipeline.converges()
    pipeline.terminate()


def _waits_for_lock(connection: Connection) -> bool:
    """Whether a task waits too, and not only what tries to write the batch before it is planned."""
    return execute(connection, "SELECT count(*) > 1 FROM pg_locks WHERE NOT granted") == [(True,)]


def _applied(pipeline: Headrace) -> int:
    """The applied position that the status shows (bytes)."""
    position: dict[str, int] | None = pipeline.status()["positions"]["applied"]
    return 0 if position is None else position["bytes"]


def _walsender(connection: Connection, slot: str) -> int | None:
    sql = """
        SELECT client_port FROM pg_replication_slots JOIN pg_stat_replication ON pid = active_pid
        WHERE slot_name = $1
    """
    return next((port for (port,) in execute(connection, sql, (slot,))), None)


def _source_process(connection: Connection, slot: str) -> int:
    return process_of(_walsender(connection, slot))


@pytest.mark.long
def test_told_to_stop_while_backfilling(pipeline: Headrace) -> None:
    """It ends in order, readers see nothing yet, and the next start goes on with what is left."""
    pipeline.start(failpoint="range")
    pipeline.wait_failpoint()
    pipeline.terminate()
    made = _indexes(pipeline)
    assert urllib3.request("GET", f"{pipeline.sink_url}/{pipeline.prefix}users").status == 404
    pipeline.shop.run("UPDATE users SET name = name || '!'", "DELETE FROM order_items WHERE id % 7 = 0")
    pipeline.start()
    pipeline.wait_ready()
    pipeline.converges()
    assert _indexes(pipeline) == made, "what was built is gone on with"
    pipeline.terminate()


def _indexes(pipeline: Headrace) -> set[bytes]:
    target = f"{pipeline.sink_url}/_cat/indices/{pipeline.prefix}*?h=index&expand_wildcards=all"
    return {one for one in urllib3.request("GET", target).data.split() if b"_headrace_" not in one}


@pytest.mark.long
def test_a_killed_driver_takes_its_tree_along_and_the_next_start_its_folders(pipeline: Headrace) -> None:
    pipeline.start()
    pipeline.wait_ready()
    members = [psutil.Process(one) for one in pipeline.members()]
    folders = {folder for one in members for folder in _open_folders(one)}
    assert folders
    pipeline.kill_first()
    assert psutil.wait_procs(members, timeout=_ENDED_WITHIN)[1] == []
    pipeline.close()
    pipeline.start()
    pipeline.wait_ready()
    assert [folder for folder in folders if folder.exists()] == []
    pipeline.terminate()


def _open_folders(process: psutil.Process) -> set[Path]:
    """The folders for Spark that a process has files open in."""
    files = [Path(one.path) for one in process.open_files()]
    return {parent for file in files for parent in file.parents if parent.name.startswith("headrace-spark-")}


@pytest.mark.long
def test_a_killed_java_ends_the_run_with_one_line(pipeline: Headrace) -> None:
    """As the system does it for want of memory."""
    pipeline.start()
    pipeline.wait_ready()
    [java] = [
        one for one in map(psutil.Process, pipeline.members()) if "SparkSubmit" in " ".join(one.cmdline())
    ]
    java.kill()
    assert pipeline.wait_end() == 1
    assert "[HEADRACE_SPARK] Spark's Java process was killed by signal 9" in pipeline.last_output()
    pipeline.close()
    pipeline.shop.run("UPDATE users SET name = name || '!'")
    pipeline.start()
    pipeline.wait_ready()
    pipeline.converges()
    pipeline.terminate()
