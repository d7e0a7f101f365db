"""Does each fault raise its alerts, and no other? The rules run over the metrics of real runs.

With HEADRACE_RECORD=1 the recordings replace those of `tests/data/metrics`, which run without any server.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace
from e2e.test_stalls import locked, set_stalled_after, stalls, unacknowledged
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import until
from support.means import PROMTOOL, needs
from support.metrics_recorder import STEP_SECONDS, MetricsRecorder
from support.promtool import RECORDINGS, fired, used_metrics
from support.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200), needs(PROMTOOL)]
_WITHIN = 120.0


@contextlib.contextmanager
def alerts(pipeline: Headrace, fault: str, *expected: str) -> Iterator[None]:
    """Record the metrics of what happens in the context, and run the rules over them."""

    def scrape() -> str:
        return pipeline.ask("/metrics").data.decode()

    with MetricsRecorder(scrape) as recorder:
        yield
        pause(2)  # so that the last state is recorded
    recording = recorder.recording(used_metrics())
    if os.environ.get("HEADRACE_RECORD"):
        recording.save(RECORDINGS / f"{fault}.json")
    assert fired(recording, Path(pipeline.config).parent) == set(expected), fault


def pause(steps: int = 1) -> None:
    """Let the recorder look once more, and a little longer."""
    time.sleep(1.2 * steps * STEP_SECONDS)


def test_stalls_raise_one_alert_and_a_quiet_run_none(deploy: Deploy, opensearch: EmbeddedOpenSearch) -> None:
    with (
        deploy() as pipeline,
        TcpProxy.before(pipeline.shop.url) as database,
        TcpProxy.before(opensearch.url) as cluster,
    ):
        text = pipeline.config.read_text()
        for url, proxy in ((pipeline.shop.url, database), (opensearch.url, cluster)):
            text = text.replace(url, proxy.url(url))
        pipeline.config.write_text(text)
        set_stalled_after(pipeline, 20)
        pipeline.start()
        pipeline.wait_ready()
        with alerts(pipeline, "quiet"):
            for _ in range(6):
                pipeline.shop.run("UPDATE users SET name = md5(random()::text)")
                pause()
        with alerts(pipeline, "lock", "HeadraceStalled"), locked(pipeline, "public.orders"):
            pipeline.shop.run("UPDATE order_items SET quantity = quantity + 1 WHERE id = 1")
            wait_stalled(pipeline, "lock")
        pipeline.wait_ready()
        with alerts(pipeline, "cluster", "HeadraceStalled"):
            cluster.freeze()
            pipeline.shop.run("UPDATE users SET name = name || '?' WHERE id = 1")
            wait_stalled(pipeline, "cluster")
        cluster.resume()
        pipeline.wait_ready()
        with alerts(pipeline, "server", "HeadraceStalled"):
            database.refuse()
            wait_stalled(pipeline, "server")
        database.resume()
        pipeline.wait_ready()
        change = "UPDATE users SET name = name || '.' WHERE id = 2"
        with alerts(pipeline, "transaction", "HeadraceStalled"), unacknowledged(pipeline, change):
            wait_stalled(pipeline, "transaction")
        pipeline.wait_ready()
        pipeline.terminate()


def wait_stalled(pipeline: Headrace, cause: str) -> None:
    """Wait until the cause is told; the recorder then sees it too."""
    told = until(lambda: any(found == cause for _, found in stalls(pipeline)), _WITHIN)
    assert told, pipeline.last_output()
    pause()


def test_other_faults_raise_theirs(deploy: Deploy, opensearch: EmbeddedOpenSearch) -> None:
    """A cluster that is away for a moment, a document that it refuses, a process that ends."""
    with deploy(users=30) as pipeline, TcpProxy.before(opensearch.url) as cluster:
        folder = Path(pipeline.config).parent
        (folder / "small.json").write_text('{"properties": {"level": {"type": "byte"}}}')
        text = pipeline.config.read_text().replace(opensearch.url, cluster.url(opensearch.url))
        text = text.replace('name = "users"\n', 'name = "users"\nmappings_file = "small.json"\n')
        pipeline.config.write_text(f'on_error = "quarantine"\n{text}')
        pipeline.start()
        pipeline.wait_ready()
        with alerts(pipeline, "degraded", "HeadraceDegraded"):
            cluster.freeze()
            pipeline.wait_until(lambda: pipeline.status()["phase"] == "degraded", "was not degraded", 30)
            assert stalls(pipeline) == []
        cluster.resume()
        pipeline.wait_ready()
        with alerts(pipeline, "refused", "HeadraceDocumentsRejected", "HeadraceQuarantine"):
            pipeline.shop.run("UPDATE users SET level = 1000 WHERE id = (SELECT min(id) FROM users)")
            pipeline.wait_until(lambda: _quarantined(pipeline) > 0, "quarantined nothing", 60)
        with alerts(pipeline, "restarts", "HeadraceRestarts", "HeadraceDown"):
            for _ in range(3):
                pause(2)
                pipeline.kill()
                pipeline.start()
                pipeline.wait_ready()
            pause(2)
            pipeline.kill()
            pause(2)


def test_faults_that_last_raise_theirs(deploy: Deploy, opensearch: EmbeddedOpenSearch) -> None:
    """A run that cannot start, a sink that is away, a backfill that stands, a lag, a gap."""
    with (
        deploy(users=30) as pipeline,
        TcpProxy.before(opensearch.url) as cluster,
        TcpProxy.before(opensearch.url) as other,
    ):
        text = pipeline.config.read_text().replace(opensearch.url, cluster.url(opensearch.url))
        text += (
            f'\n[sinks.other]\ntype = "opensearch"\nurl = "{other.url(opensearch.url)}"\n'
            f'prefix = "{pipeline.prefix}other_"\nnumber_of_replicas = 0\n'
        )
        pipeline.config.write_text(text.replace("[source]", '[source]\non_gap = "reseed"'))
        cluster.freeze()
        pipeline.start()
        pipeline.wait_until(lambda: bool(pipeline.status()), "did not answer", 30)
        with alerts(pipeline, "not_ready", "HeadraceNotReady"):
            pass
        pipeline.close()  # it has ended, or is about to
        cluster.resume()
        pipeline.start()
        pipeline.wait_ready()
        pipeline.wait_until(lambda: _phase_of_other(pipeline) == "live", "had not both sinks live", 120)
        with alerts(pipeline, "sink_away", "HeadraceSinkAway"):
            other.freeze()
            pipeline.shop.run("UPDATE users SET name = name || '!' WHERE id = 1")
            pipeline.wait_until(lambda: _phase_of_other(pipeline) == "away", "no sink was away", 60)
        other.resume()
        pipeline.wait_until(lambda: _phase_of_other(pipeline) == "live", "had not both sinks live", 120)
        with locked(pipeline, "public.profiles"):
            assert pipeline.run_command("reindex", "users").returncode == 0
            pipeline.wait_until(lambda: _is_built(pipeline, "users"), "builds nothing", 60)
            with alerts(pipeline, "backfill", "HeadraceBackfillStalled"):
                pass
        pipeline.wait_until(lambda: not _is_built(pipeline, "users"), "was not built", 120)
        assert pipeline.run_command("pause").returncode == 0
        pipeline.shop.run("UPDATE users SET name = name || '?' WHERE id = 1")
        pipeline.wait_until(lambda: pipeline.status()["lag"]["seconds"] > 300, "has no lag", 400)
        with alerts(pipeline, "behind", "HeadraceBehind"):
            pass
        pipeline.terminate()
        pipeline.shop.drop_slots()
        with alerts(pipeline, "gap", "HeadraceGap"):
            pipeline.start()
            pipeline.wait_ready()
        pipeline.converges()
        pipeline.terminate()


def _phase_of_other(pipeline: Headrace) -> str:
    return str(pipeline.status().get("sinks", {}).get("other", {}).get("phase"))


def _is_built(pipeline: Headrace, name: str) -> bool:
    [index] = [index for index in pipeline.status()["indexes"] if index["name"] == name]
    return index["building"] is not None and index["ranges_total"] > 0


def _quarantined(pipeline: Headrace) -> int:
    return sum(index["quarantined"] for index in pipeline.status().get("indexes", []))
