"""What do readers find when the log cannot be gone on from, and everything is rebuilt?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import Headrace, Shop
from headrace.cli import main
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot
from support.refusing_server import RefusingServer
from support.servers import short_lived_server

_INDEX = "users"
_LIMITS = (
    "idle_session_timeout",
    "idle_in_transaction_session_timeout",
    "transaction_timeout",
    "lock_timeout",
)
"""What a database may set for people; Spark alone takes longer to start."""


@pytest.fixture
def stopped(deploy: Deploy) -> Iterator[Headrace]:
    """A deployment that was backfilled and is stopped."""
    with deploy(users=30) as pipeline:
        pipeline.start()
        pipeline.wait_ready()
        pipeline.terminate()
        yield pipeline


def typed(pipeline: Headrace, command: str, *words: str) -> int:
    """The exit code of a command."""
    names = ["--slot", pipeline.name, "--publication", pipeline.name]
    with pytest.raises(SystemExit) as ended:
        main([command, *words, "--config", str(pipeline.config), *names])
    return int(str(ended.value.code))


def generations(pipeline: Headrace, index: str = _INDEX) -> set[str]:
    """Every concrete index of an index, served or not."""
    target = f"{pipeline.sink_url}/{pipeline.prefix}{index}_*"
    return set(urllib3.request("GET", target, timeout=30).json())


def served(pipeline: Headrace, index: str = _INDEX) -> str:
    """The concrete index behind an alias."""
    [name] = pipeline.served(index)
    return name


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_teardown_leaves_readers_what_they_have_until_the_next_run_has_rebuilt_it(
    stopped: Headrace,
) -> None:
    """What the messages advise after a failover, a lost slot or a restore."""
    old, documents = served(stopped), stopped.documents(_INDEX)
    assert typed(stopped, "teardown", "--yes") == 0
    assert stopped.documents(_INDEX) == documents
    stopped.shop.run("UPDATE users SET name = name || '!'", "DELETE FROM reviews WHERE id % 5 = 0")
    stopped.start(failpoint="filled")
    stopped.wait_failpoint()
    assert (served(stopped), stopped.documents(_INDEX)) == (old, documents)
    stopped.kill()
    stopped.start()
    stopped.wait_ready()
    stopped.converges()
    new = served(stopped)
    stopped.terminate()
    assert new != old
    assert generations(stopped) == {new}


@pytest.fixture
def on_own_server(deploy: Deploy) -> Iterator[tuple[Headrace, RefusingServer]]:
    """A deployment that was backfilled and is stopped, on a server whose files may be removed.

    The database ends sessions that are idle, and transactions that take long.
    """
    with short_lived_server() as server:
        shop = Shop(server.create_database("shop"), 30)
        with connect(shop.url) as connection:
            for limit in _LIMITS:
                execute(connection, f"ALTER DATABASE shop SET {limit} = '3s'")
        with RefusingServer(shop.url) as refusing:
            shop.url = refusing.url
            with deploy(shop=shop) as pipeline:
                pipeline.start()
                pipeline.wait_ready()
                pipeline.terminate()
                yield pipeline, refusing


def remove_log(pipeline: Headrace) -> str:
    """Change a user, and remove the file of the log that holds the change; its name."""
    with connect(pipeline.shop.url) as connection:
        execute(connection, "SELECT pg_switch_wal()")
        execute(connection, "UPDATE public.users SET name = name || '!'")
        [(name, folder)] = execute(
            connection, "SELECT pg_walfile_name(pg_current_wal_lsn()), current_setting('data_directory')"
        )
        for statement in ("SELECT pg_switch_wal()", "CHECKPOINT"):
            execute(connection, statement)
    (Path(folder) / "pg_wal" / name).unlink()
    return str(name)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_log_that_was_removed_behind_the_servers_back_is_a_gap(
    on_own_server: tuple[Headrace, RefusingServer],
) -> None:
    """The server shows the slot as sound, and takes START_REPLICATION; only reading tells."""
    pipeline, _ = on_own_server
    old = served(pipeline)
    name = remove_log(pipeline)
    pipeline.arguments = ("--on-gap", "stop")
    pipeline.start()
    assert pipeline.wait_end(120) == 1
    output = pipeline.output.read_text()
    assert "[HEADRACE_SLOT_LOST]" in output
    assert name in output
    assert "no COPY in progress" not in output
    pipeline.close()
    pipeline.arguments = ()
    pipeline.start()
    pipeline.wait_until(lambda: served(pipeline) != old, "did not backfill again", 240)
    pipeline.wait_ready()
    pipeline.converges()
    pipeline.terminate()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_stream_that_cannot_start_is_waited_for_and_its_slot_is_shown(
    on_own_server: tuple[Headrace, RefusingServer],
) -> None:
    """An alarm for the server's disk must be able to fire just then."""
    pipeline, refusing = on_own_server
    message = 'could not rename file "pg_replslot/s/state.tmp" to "pg_replslot/s/state": Success'
    refusing.refuse("START_REPLICATION", "XX000", message, times=None)
    pipeline.shop.run("UPDATE users SET name = name || '!'")
    pipeline.start()

    def retained() -> float:
        found = re.search(
            r"^headrace_slot_retained_bytes (\S+)", pipeline.ask("/metrics").data.decode(), re.MULTILINE
        )
        return float(found[1]) if found else 0.0

    pipeline.wait_until(lambda: pipeline.status() != {}, "did not answer", 60)
    pipeline.wait_until(lambda: retained() > 0, "did not show its slot", 60)
    pipeline.wait_until(lambda: message in str(pipeline.status()), "did not say why", 60)
    refusing.refusals.clear()
    pipeline.wait_ready()
    pipeline.converges()
    pipeline.terminate()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_lost_slot_is_followed_by_a_new_backfill_whatever_is_killed_in_it(stopped: Headrace) -> None:
    """Readers keep the old generation until the swap, and nothing is lost."""
    shop, old, documents = stopped.shop, served(stopped), stopped.documents(_INDEX)
    shop.drop_slots()
    shop.run("UPDATE users SET name = name || '!'", "DELETE FROM reviews WHERE id % 5 = 0")
    for failpoint in ("forgotten", "created", "range", "filled"):
        stopped.start(failpoint=failpoint)
        stopped.wait_failpoint()
        assert (served(stopped), stopped.documents(_INDEX)) == (old, documents)
        stopped.kill()
        shop.run("UPDATE orders SET status = 'paid' WHERE id % 3 = 0", "UPDATE users SET name = name || '?'")
    stopped.start()
    stopped.wait_ready()
    stopped.converges()
    shop.run("UPDATE users SET name = name || '.'", "DELETE FROM orders WHERE id % 11 = 0")
    stopped.converges()
    new = served(stopped)
    stopped.terminate()
    assert new != old
    assert generations(stopped) == {new}
    assert "on_gap = reseed" in stopped.output.read_text()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_slot_that_is_recreated_beside_a_run_is_told_and_reseeded_in_its_process(
    stopped: Headrace, postgres: EmbeddedPostgres
) -> None:
    """A slot that is somebody else's is not dropped: the run goes on from it."""
    stopped.start()
    stopped.wait_ready()
    old = served(stopped)
    with connect(stopped.shop.url) as connection, connect(postgres.url) as outside:
        execute(outside, f"ALTER DATABASE {connection.info.dbname} ALLOW_CONNECTIONS false")
        try:
            execute(connection, "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots")
            drop_slot(connection, stopped.name)
            execute(connection, "UPDATE users SET name = name || '?'")
            execute(connection, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", (stopped.name,))
        finally:
            execute(outside, f"ALTER DATABASE {connection.info.dbname} ALLOW_CONNECTIONS true")
    stopped.wait_until(lambda: served(stopped) != old, "was not backfilled again", 300)
    stopped.wait_ready()
    stopped.converges()
    stopped.shop.run("UPDATE users SET name = name || '.'")
    stopped.converges()
    assert b"headrace_gaps_total 1.0" in stopped.ask("/metrics").data
    assert stopped.status()["warnings"] == []
    stopped.terminate()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_first_backfill_lets_go_of_its_snapshot_and_goes_on(deploy: Deploy) -> None:
    """While it is held, no row that has died since is removed anywhere in the database."""
    with deploy(users=60) as pipeline:
        text = pipeline.config.read_text()
        pipeline.config.write_text(f"{text}\n[backfill]\nrows_per_second = 20\nsnapshot_minutes = 0.01\n")
        pipeline.start()
        pipeline.wait_until(lambda: holds_snapshot(pipeline), "held no snapshot", 60)
        pipeline.wait_until(lambda: not holds_snapshot(pipeline), "kept its snapshot", 60)
        assert not pipeline.is_ready()
        pipeline.shop.run("UPDATE users SET name = name || '!'", "DELETE FROM orders WHERE id % 5 = 0")
        pipeline.wait_ready()
        pipeline.converges()
        pipeline.terminate()


def holds_snapshot(pipeline: Headrace) -> bool:
    """Whether the connection that made the slot is open; it is not the one that reads it."""
    return bool(
        pipeline.shop.ids(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walsender' AND backend_xmin IS NOT NULL "
            f"AND application_name = 'headrace/{pipeline.name}'"
        )
    )
