"""Does the same come out where Spark shares the work among machines? A cluster of two workers."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.processes import free_port, living, until
from headrace.errors import HeadraceError, Kind
from headrace.sinks.opensearch import Endpoint
from headrace.sinks.registry import open_sink
from headrace.spark.cluster_check import Grant, check_executors
from headrace.spark.session import local_spark, places_beside
from headrace.tools.demo.shop import INDEXES
from integration.datasources.traces import pages
from integration.sinks.documented_sink import package
from support.clients import process_of
from support.spark_cluster import SparkCluster

_BOTH = {0, 1}
"""The numbers of the workers."""

_NONE: Mapping[str, str] = {}
_FIX = "spark.archives=environment.tar.gz#environment --conf spark.pyspark.python=./environment/bin/python"

_EVERY_ITEM = "UPDATE order_items SET quantity = quantity % 9 + 1, unit_price = unit_price + 1"

_TEN_THOUSAND = """
INSERT INTO users (id, external_id, email, name)
SELECT 5000000 + n, gen_random_uuid(), 'many' || n || '@example.org', 'Many ' || n
FROM generate_series(1, 10000) n
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with started() as one:
        yield one


@contextlib.contextmanager
def started() -> Iterator[SparkCluster]:
    """A cluster; nothing of it may be left behind."""
    with SparkCluster(workers=2, cores=2) as one:
        yield one
        processes = one.processes()
    assert living(processes) == set()


def on_cluster(
    pipeline: Headrace, cluster: SparkCluster, events: Path | None = None, conf: Mapping[str, str] = _NONE
) -> None:
    """Let a deployment run there, and Spark log its events in a folder."""
    pipeline._ready_within = 240.0  # three JVMs more, and as many Python processes as places
    settings = {**conf}
    if events is not None:
        events.mkdir()
        settings |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
    pipeline.arguments = cluster.arguments(settings)


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
    """The process that holds the replication connection, once one does."""
    ports = (
        "SELECT a.client_port FROM pg_replication_slots s JOIN pg_stat_activity a ON a.pid = s.active_pid "
        f"WHERE s.slot_name = '{pipeline.name}'"
    )
    pipeline.wait_until(lambda: bool(pipeline.shop.ids(ports)), "does not read the log", 30)
    return psutil.Process(process_of(pipeline.shop.id(ports)))


@pytest.mark.long
def test_backfill_and_a_large_transaction_are_shared_by_both_workers(
    deploy: Deploy, cluster: SparkCluster, tmp_path: Path
) -> None:
    """And the log is read by the driver, whose log of events shows no password."""
    events = tmp_path / "events"
    with deploy(users=3000) as pipeline:
        on_cluster(pipeline, cluster, events)
        pipeline.start()
        pipeline.wait_ready()
        pipeline.converges()
        assert reader_of_the_log(pipeline).pid in pipeline.members(), "an executor reads the log"
        pipeline.shop.run(_TEN_THOUSAND, "DELETE FROM orders WHERE id % 7 = 0")
        pipeline.converges()
        pipeline.terminate()
        found = logged(events)
    [application] = [one["App ID"] for one in found if one["Event"] == "SparkListenerApplicationStart"]
    assert cluster.workers_of(application, executors_of(found, "beside", 2)) == _BOTH
    assert cluster.workers_of(application, executors_of(found, "stream", 4)) == _BOTH


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.long
def test_executors_without_the_package_are_told_before_anything_is_made(
    deploy: Deploy, cluster: SparkCluster, tmp_path: Path
) -> None:
    """Their Python has the standard library and what Spark brings."""
    bare = "PYTHONPATH=$(echo \"$PYTHONPATH\" | tr : '\\n' | grep 'zip$' | paste -sd :)"
    python = script(tmp_path / "bare", f'{bare} exec {sys.executable} -S "$@"')
    with deploy(users=5) as pipeline:
        on_cluster(pipeline, cluster, conf={"spark.pyspark.python": str(python)})
        pipeline.start()
        assert pipeline.wait_end(120) == 1
        said = pipeline.output.read_text()
        assert "[HEADRACE_DEPENDENCY] the executor on" in said
        assert "no headrace; no pyarrow" in said
        assert _FIX in said
        assert (
            pipeline.shop.ids("SELECT 1 FROM pg_replication_slots WHERE database = current_database()") == []
        )
        assert pipeline.shop.ids("SELECT 1 FROM pg_publication") == []
        indexes = urllib3.request("GET", f"{pipeline.sink_url}/_cat/indices/{pipeline.prefix}*")
        assert indexes.data == b""


@pytest.mark.long
def test_executors_that_have_an_archive_of_the_environment_do_the_work(
    deploy: Deploy, cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is named relatively, and nothing else is where the executors look for Python."""
    script(tmp_path / "environment/bin/python", f'exec {sys.executable} "$@"')
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "environment/bin", "bin")
    monkeypatch.chdir(tmp_path)
    conf = {
        "spark.archives": "environment.tar.gz#environment",
        "spark.pyspark.python": "./environment/bin/python",
    }
    with deploy(users=30) as pipeline:
        on_cluster(pipeline, cluster, conf=conf)
        pipeline.start()
        pipeline.wait_ready()
        pipeline.shop.run("UPDATE users SET name = name || '!'")
        pipeline.converges()
        pipeline.terminate()


@pytest.mark.long
def test_the_executors_are_asked_what_they_have_and_reach(
    cluster: SparkCluster,
    database: str,
    opensearch: EmbeddedOpenSearch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A secondary sink that they do not reach is told; one of a kind that they do not have is refused."""
    package(tmp_path, "ours = headrace.testing.memory_sink:made")
    monkeypatch.syspath_prepend(str(tmp_path))
    open_sink("ours", {}).close()
    there, nowhere = Endpoint((opensearch.url,)), Endpoint((f"http://127.0.0.1:{free_port()}",))
    with local_spark(master=cluster.url, given=cluster.conf) as spark:

        def refused(url: str, endpoint: Endpoint, *modules: str) -> HeadraceError:
            with pytest.raises(HeadraceError, match=f"on .*{os.uname().nodename}") as caught:
                check_executors(spark.session, url, [endpoint], modules)
            return caught.value

        assert check_executors(spark.session, database, [there], ["json"]) == Grant(2, 4)
        secondary = {"one": ("opensearch", there), "two": ("opensearch", nowhere)}
        grant = check_executors(spark.session, database, [there], secondary=secondary)
        assert (grant.executors, grant.places) == (2, 4)
        [told] = grant.away
        assert told.startswith("the sink 'two' is not reached from the executor's machine ")
        assert nowhere.urls[0].removeprefix("http://") in told
        with pytest.raises(
            HeadraceError, match="no installed package offers sinks of the kind 'ours'"
        ) as caught:
            check_executors(spark.session, database, [there], secondary={"own": ("ours", {})})
        assert (caught.value.kind, _FIX in caught.value.remedy) == (Kind.DEPENDENCY, True)
        assert refused(database, nowhere).kind is Kind.SINK_UNREACHABLE
        gone = f"postgresql://127.0.0.1:{free_port()}/x"
        assert refused(gone, there).kind is Kind.CONNECTION
        lacking = refused(database, there, "a_transform_of_ours")
        assert lacking.kind is Kind.DEPENDENCY
        assert "a_transform_of_ours" in lacking.cause


@pytest.mark.long
@pytest.mark.parametrize(
    ("conf", "grant", "beside"),
    [
        ({"spark.default.parallelism": "200"}, Grant(2, 4), 3),
        ({"spark.cores.max": "1"}, Grant(1, 1), 1),
        ({"spark.task.cpus": "2"}, Grant(2, 2), 1),
    ],
    ids=["a setting for something else", "one core", "tasks of two cores"],
)
def test_what_runs_beside_the_stream_leaves_it_a_place(
    cluster: SparkCluster, database: str, conf: Mapping[str, str], grant: Grant, beside: int
) -> None:
    with local_spark(master=cluster.url, given={**cluster.conf, **conf}) as spark:
        assert check_executors(spark.session, database, []) == grant
        assert places_beside(spark.session) == beside


def test_a_master_that_is_not_there_is_told_at_once() -> None:
    with (
        pytest.raises(HeadraceError, match="there is no Spark master at") as caught,
        local_spark(master=f"spark://127.0.0.1:{free_port()}"),
    ):
        pass
    assert caught.value.kind is Kind.SPARK


@pytest.mark.long
def test_a_cluster_whose_executors_do_not_start_is_told() -> None:
    """Its workers miss what they start them with; the master gives our application up."""
    with (
        SparkCluster(workers=1, environment={"SPARK_SCALA_VERSION": ""}) as broken,
        pytest.raises(HeadraceError, match=r"does not start|ended our application") as caught,
        local_spark(master=broken.url, given=broken.conf) as spark,
    ):
        check_executors(spark.session, "", [])
    assert caught.value.kind is Kind.SPARK
    assert "\n" not in str(caught.value)


@pytest.mark.long
def test_no_password_stands_anywhere(deploy: Deploy, cluster: SparkCluster, tmp_path: Path) -> None:
    """On Spark's pages, in its log of events, in what the executors print, in nobody's command line."""
    events, port, secret = tmp_path / "events", free_port(), "9d41c7-sink"
    with deploy(users=30) as pipeline:
        text = pipeline.config.read_text()
        login = f'[sinks.primary]\nusername = "reader"\npassword = "{secret}"'
        pipeline.config.write_text(text.replace("[sinks.primary]", login))
        hidden = [secret, pipeline.shop.url.partition("@")[0].rpartition(":")[2]]
        on_cluster(pipeline, cluster, events, {"spark.ui.enabled": "true", "spark.ui.port": str(port)})
        pipeline.start()
        pipeline.wait_ready()
        pipeline.shop.run(_EVERY_ITEM)
        pipeline.converges()
        found = pages(f"http://127.0.0.1:{port}")
        running = psutil.process_iter(["cmdline"])  # some end meanwhile, and have none
        found |= {f"command {one.pid}": " ".join(one.info["cmdline"] or ()) for one in running}
        pipeline.terminate()
        found |= {str(one): one.read_text(errors="replace") for one in events.rglob("*") if one.is_file()}
        found |= {f"worker {at}": one.last_output() for at, one in enumerate(cluster.members)}
    assert any("headrace" in text for name, text in found.items() if name.startswith("/StreamingQuery"))
    forms = [form for one in hidden for form in (one, *encoded(one))]
    assert [name for name, text in found.items() if any(form in text for form in forms)] == []


def encoded(text: str) -> list[str]:
    """What base64 makes of `text` inside of something longer, wherever it begins there."""
    found = []
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + text.encode()).decode()
        found.append(whole[4 if shift else 0 : len(whole) // 4 * 4 - 4])
    return found


@pytest.mark.long
@pytest.mark.timeout(900)
def test_executors_that_are_killed_while_they_seed_and_while_they_stream(
    deploy: Deploy, tmp_path: Path
) -> None:
    """One executor in the middle of a backfill; a whole worker among large transactions; then the driver."""
    events = tmp_path / "events"
    with started() as cluster, deploy(users=200) as pipeline:
        text = pipeline.config.read_text()
        pipeline.config.write_text(f"{text}\n[backfill]\nrows_per_second = 100\n")
        on_cluster(pipeline, cluster, events)
        pipeline.start()
        until(lambda: any(one.executor_processes() for one in cluster.members), 120)
        pipeline.wait_until(lambda: writes(pipeline) > 0, "wrote nothing", 240)
        os.kill(cluster.members[0].executor_processes()[0], 9)
        assert pipeline.status()["phase"] == "backfilling", "the kill comes too late to show anything"
        pipeline.wait_ready()
        pipeline.converges()

        for number in range(6):
            pipeline.shop.run(_EVERY_ITEM, f"DELETE FROM orders WHERE id % 20 = {number}")
            if number == 2:
                cluster.members[1].kill()
        pipeline.converges()
        pipeline.terminate()
        found = logged(events)

        on_cluster(pipeline, cluster)
        pipeline.start()
        pipeline.wait_ready()
        pipeline.shop.run(_EVERY_ITEM)
        pipeline.kill()
        pipeline.start()
        pipeline.converges(120)
        pipeline.terminate()
    removed = {one["Executor ID"] for one in found if one["Event"] == "SparkListenerExecutorRemoved"}
    lost = {
        one["Task Info"]["Executor ID"]
        for one in found
        if one["Event"] == "SparkListenerTaskEnd"
        and one["Task End Reason"]["Reason"] == "ExecutorLostFailure"
    }
    assert len(removed) == 2
    assert lost, "no task was lost"


def writes(pipeline: Headrace) -> int:
    """How many documents the generations have taken."""
    names = ",".join(f"{pipeline.prefix}{index}_*" for index in INDEXES)
    found = urllib3.request("GET", f"{pipeline.sink_url}/{names}/_stats/indexing").json()
    return int(found["_all"]["total"].get("indexing", {}).get("index_total", 0))
