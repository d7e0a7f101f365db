"""The search cluster is put back to a snapshot, all of it or a part: documents end right, or it is told."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.cli import main
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.tools.demo.shop import INDEXES
from support.snapshots import Snapshot

_SINCE = ("UPDATE users SET name = name || '!'", "DELETE FROM orders WHERE id % 5 = 0")
_STOP = ("--on-gap", "stop")
_CONFIRMED_SECONDS = 30.0

Restore = Callable[[Snapshot], None]


def delete_and_restore(snapshot: Snapshot) -> None:
    snapshot.delete()
    snapshot.restore()


def restore_in_place(snapshot: Snapshot) -> None:
    snapshot.restore_in_place()


def go_on(pipeline: Headrace) -> None:
    """Change what the documents have, and let the slot pass it."""
    pipeline.shop.run(*_SINCE)
    pipeline.converges()
    behind = pipeline.shop.id("SELECT (pg_current_wal_lsn() - '0/0')::bigint")
    pipeline.wait_until(lambda: pipeline.confirmed() >= behind, "did not confirm", _CONFIRMED_SECONDS)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_cluster_that_is_restored_in_place_under_a_run_is_rebuilt_by_it(
    deploy: Deploy, opensearch: EmbeddedOpenSearch
) -> None:
    with deploy(users=30) as pipeline:
        pipeline.arguments = ()
        pipeline.start()
        pipeline.wait_ready()
        snapshot = Snapshot(opensearch, f"{pipeline.prefix}*")
        assert f"{pipeline.prefix}headrace_meta" in snapshot.indexes
        go_on(pipeline)
        snapshot.close()
        pipeline.shop.run("UPDATE products SET name = name || '?'")
        pipeline.wait_until(lambda: "index_closed_exception" in pipeline.last_output(), "did not say so", 30)
        pipeline.wait_until(lambda: not pipeline.is_ready(), "was ready without its state", 60)
        snapshot.restore()
        pipeline.wait_until(
            lambda: "restored from a snapshot" in pipeline.last_output(), "did not notice", 60
        )
        pipeline.converges(120)
        pipeline.wait_ready()
        pipeline.shop.run(*_SINCE)
        pipeline.converges()
        pipeline.terminate()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("part", "restore"),
    [("*", restore_in_place), ("*", delete_and_restore), ("headrace_*", restore_in_place)],
    ids=["all in place", "all deleted", "the state"],
)
def test_a_cluster_that_is_restored_while_nothing_runs_is_told_and_rebuilt(
    deploy: Deploy, opensearch: EmbeddedOpenSearch, restore: Restore, part: str
) -> None:
    with deploy(users=30) as pipeline:
        pipeline.start()
        pipeline.wait_ready()
        snapshot = Snapshot(opensearch, f"{pipeline.prefix}{part}")
        go_on(pipeline)
        pipeline.terminate()
        restore(snapshot)
        pipeline.arguments = _STOP
        pipeline.start()
        assert pipeline.wait_end() == 1
        pipeline.close()
        assert "HEADRACE_CONTINUITY" in pipeline.last_output()
        assert "or the search cluster was restored" in pipeline.last_output()

        pipeline.arguments = ()
        pipeline.start()
        pipeline.wait_ready()
        pipeline.converges()
        pipeline.terminate()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_state_that_is_older_than_the_generation_that_readers_see_leaves_it_to_them(
    deploy: Deploy, opensearch: EmbeddedOpenSearch
) -> None:
    """What the restored state knows of is gone, and what is there it does not know."""
    with deploy(users=30) as pipeline:
        pipeline.start()
        pipeline.wait_ready()
        snapshot = Snapshot(opensearch, f"{pipeline.prefix}headrace_*")
        before = served(pipeline)
        for index in INDEXES:
            with pytest.raises(SystemExit):
                main(["reindex", index, "--config", str(pipeline.config), "--slot", pipeline.name])
        pipeline.wait_until(lambda: not before.items() & served(pipeline).items(), "built nothing", 120)
        go_on(pipeline)
        pipeline.terminate()
        snapshot.restore_in_place()

        pipeline.arguments = ()
        pipeline.start()
        seen = served(pipeline)
        while not pipeline.is_ready():
            pipeline.assert_running()
            assert served(pipeline).keys() == seen.keys(), "readers find each index at any time"
            time.sleep(0.2)
        assert not seen.items() & served(pipeline).items()
        pipeline.converges()
        pipeline.terminate()


def served(pipeline: Headrace) -> dict[str, str]:
    """The concrete index behind each alias."""
    found = {}
    for name in INDEXES:
        answer = urllib3.request("GET", f"{pipeline.sink_url}/_alias/{pipeline.prefix}{name}")
        [found[name]] = answer.json()
    return found
