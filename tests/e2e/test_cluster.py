"""Does the same come out where Spark shares the work among machines? A cluster of two workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.testing.spark_cluster import SparkCluster

_BOTH = {0, 1}
"""The numbers of the workers."""

_TEN_THOUSAND = """
INSERT INTO users (id, external_id, email, name)
SELECT 5000000 + n, gen_random_uuid(), 'many' || n || '@example.org', 'Many ' || n
FROM generate_series(1, 10000) n
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster(workers=2, cores=2) as one:
        yield one


def on_cluster(pipeline: Headrace, cluster: SparkCluster, events: Path | None = None, **conf: str) -> None:
    settings = cluster.conf | conf
    if events is not None:
        events.mkdir()
        settings |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    pipeline.arguments = ["--master", cluster.url, *words]


def logged(events: Path) -> list[dict[str, Any]]:
    [file] = [one for one in events.rglob("*") if one.is_file() and not one.name.startswith(".")]
    return [json.loads(line) for line in file.read_text().splitlines()]


def executors_of(events: list[dict[str, Any]], pool: str, least_tasks: int) -> set[str]:
    """Where the tasks of the pool's jobs ran whose stages had so many."""
    stages = {
        one["Stage Info"]["Stage ID"]
        for one in events
        if one["Event"] == "SparkListenerStageSubmitted"
        and one["Properties"].get("spark.scheduler.pool") == pool
        and one["Stage Info"]["Number of Tasks"] >= least_tasks
    }
    return {
        one["Task Info"]["Executor ID"]
        for one in events
        if one["Event"] == "SparkListenerTaskEnd" and one["Stage ID"] in stages
    }


def reader_of_the_log(pipeline: Headrace) -> psutil.Process:
    """The process that holds the replication connection."""
    port = pipeline.shop.id(
        "SELECT a.client_port FROM pg_replication_slots s JOIN pg_stat_activity a ON a.pid = s.active_pid "
        f"WHERE s.slot_name = '{pipeline.name}'"
    )
    [pid] = {one.pid for one in psutil.net_connections("tcp") if one.laddr and one.laddr.port == port}
    return psutil.Process(pid)


def test_seeding_and_a_large_transaction_are_shared_by_both_workers(
    deploy: Deploy, cluster: SparkCluster, tmp_path: Path
) -> None:
    """And the log is read by the driver, whose log of events shows no password."""
    events = tmp_path / "events"
    with deploy(users=60) as pipeline:
        on_cluster(pipeline, cluster, events)
        pipeline.start()
        pipeline.wait_ready()
        pipeline.converges()
        assert reader_of_the_log(pipeline).pid in pipeline.members(), "an executor reads the log"
        pipeline.shop.run(_TEN_THOUSAND, "DELETE FROM orders WHERE id % 7 = 0")
        pipeline.converges()
        pipeline.terminate()
        found = logged(events)
    assert {cluster.worker_of(one) for one in executors_of(found, "beside", 2)} == _BOTH
    assert {cluster.worker_of(one) for one in executors_of(found, "stream", 4)} == _BOTH
