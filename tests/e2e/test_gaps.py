"""What do readers find when the log cannot be gone on from, and everything is rebuilt?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.cli import main
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot

_INDEX = "users"


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
    [name] = urllib3.request("GET", f"{pipeline.sink_url}/{pipeline.prefix}{index}", timeout=30).json()
    return str(name)


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


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_lost_slot_is_followed_by_a_new_backfill_whatever_is_killed_in_it(stopped: Headrace) -> None:
    """With on_gap = reseed: readers keep the old generation until the swap, and nothing is lost."""
    shop, old, documents = stopped.shop, served(stopped), stopped.documents(_INDEX)
    stopped.arguments = ("--on-gap", "reseed")
    shop.drop_slots()
    shop.run("UPDATE users SET name = name || '!'", "DELETE FROM reviews WHERE id % 5 = 0")
    for failpoint in ("forgotten", "slot", "range", "filled"):
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
    stopped.config.write_text(stopped.config.read_text().replace("[source]", '[source]\non_gap = "reseed"'))
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
