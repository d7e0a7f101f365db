"""Who is told that the stream stands still, where, and why? Whoever asks; nobody where it only seems so."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from e2e.conftest import Deploy
from e2e.harness import Headrace
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.processes import until
from headrace.pipeline.pipeline import Pipeline
from headrace.postgres.connection import connect, execute
from support.tcp_proxy import TcpProxy

_WITHIN = 60.0
"""Seconds; the promise."""
_SOON = 20.0
"""Seconds; the shortest `stalled_after`."""
_RESOLVED = "UPDATE order_items SET quantity = quantity + 1 WHERE id = 1"
"""Which documents change is found by way of `orders`: where that is locked, the whole batch waits."""


def stalls(pipeline: Headrace) -> list[tuple[str, str]]:
    """Return stage and cause where the stream stands still, as `/metrics` tells it."""
    text = pipeline.ask("/metrics").data.decode()
    found = re.findall(r"^headrace_stalled\{([^}]*)\} 1\.0", text, re.MULTILINE)
    labels = [dict(re.findall(r'(\w+)="(\w+)"', each)) for each in found]
    return [(each["stage"], each["cause"]) for each in labels]


def set_stalled_after(pipeline: Headrace, seconds: float) -> None:
    pipeline.config.write_text(
        pipeline.config.read_text().replace("[source]", f"[source]\nstalled_after = {seconds}")
    )


def is_told(pipeline: Headrace, stages: set[str], cause: str, said: str) -> bool:
    """Whether `/metrics`, `/readyz` and `/status` all tell of the stall."""
    reason = pipeline.ask("/readyz").data.decode()
    errors = pipeline.status()["last_error"] or {}
    return (
        any(stage in stages and found == cause for stage, found in stalls(pipeline))
        and "HEADRACE_STALLED" in reason
        and said in reason
        and errors.get("code") == "HEADRACE_STALLED"
    )


def assert_told(pipeline: Headrace, stages: set[str], cause: str, said: str) -> None:
    """Wait for the promised time until the stall is told, with one of these stages."""
    told = until(lambda: is_told(pipeline, stages, cause, said), _WITHIN)
    assert told, (stalls(pipeline), pipeline.ask("/readyz").data.decode(), pipeline.last_output())


def assert_over(pipeline: Headrace) -> None:
    """Wait until the run has recovered by itself, and the documents are right."""
    pipeline.wait_ready()
    pipeline.converges()
    assert stalls(pipeline) == []


@contextlib.contextmanager
def locked(pipeline: Headrace, *tables: str) -> Iterator[int]:
    """Lock tables, as a migration does; yield the pid of the session."""
    with connect(pipeline.shop.url, application_name="migration", autocommit=False) as other:
        execute(other, f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
        yield other.info.backend_pid
        other.rollback()


@pytest.mark.long
def test_a_batch_that_does_not_get_on_is_told_of_within_a_minute(deploy: Deploy) -> None:
    """With the time that is configured by default."""
    with deploy() as pipeline:
        pipeline.start()
        pipeline.wait_ready()
        with locked(pipeline, "public.orders") as pid:
            pipeline.shop.run(_RESOLVED)
            assert_told(pipeline, {"resolve", "assemble"}, "lock", f"held by pid {pid}, migration of")
        assert_over(pipeline)
        pipeline.terminate()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_each_cause_is_told_by_its_name_and_passes_by_itself(
    deploy: Deploy, opensearch: EmbeddedOpenSearch
) -> None:
    with (
        deploy() as pipeline,
        TcpProxy.before(pipeline.shop.url) as database,
        TcpProxy.before(opensearch.url) as cluster,
    ):
        shop, text = pipeline.shop, pipeline.config.read_text()
        for url, proxy in ((shop.url, database), (opensearch.url, cluster)):
            assert url in text
            text = text.replace(url, proxy.url(url))
        pipeline.config.write_text(text)
        set_stalled_after(pipeline, _SOON)
        pipeline.start()
        pipeline.wait_ready()

        cluster.freeze()
        shop.run("UPDATE users SET name = name || '?' WHERE id = 1")
        # Before a worker writes, it asks the cluster for what is in quarantine.
        assert_told(pipeline, {"assemble", "write", "confirm", "resolve"}, "cluster", "")
        cluster.resume()
        assert_over(pipeline)

        database.refuse()
        assert_told(pipeline, {"capture"}, "server", "does not answer")
        database.resume()
        assert_over(pipeline)

        database.freeze()
        assert_told(pipeline, {"capture"}, "server", "does not answer")
        database.resume()
        assert_over(pipeline)

        with unacknowledged(pipeline, "UPDATE users SET name = name || '.' WHERE id = 2"):
            assert_told(pipeline, {"capture"}, "transaction", "synchronous standby")
        assert_over(pipeline)

        with stopped_workers(pipeline):
            shop.run("UPDATE users SET name = name || '-' WHERE id = 3")
            assert_told(pipeline, {"plan", "resolve", "assemble"}, "worker", "does nothing")
        assert_over(pipeline)
        pipeline.terminate()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_stall_is_told_beside_a_backfill_that_gets_on(deploy: Deploy) -> None:
    """The documents of products do not read the table that is locked."""
    with deploy() as pipeline:
        set_stalled_after(pipeline, _SOON)
        pipeline.start()
        pipeline.wait_ready()
        pipeline.terminate()
        slow = pipeline.config.read_text().replace("batch_size = 200", "batch_size = 5")
        pipeline.config.write_text(f"{slow}\n[backfill]\nrows_per_second = 2\n")
        pipeline.start()
        pipeline.wait_ready()
        assert pipeline.run_command("reindex", "products").returncode == 0

        def written() -> int:
            """Return the documents of the generation that is built; -1 where there is none."""
            [index] = [index for index in pipeline.status()["indexes"] if index["name"] == "products"]
            if index["building"] is None:
                return -1
            generation = f"{pipeline.sink_url}/{index['building']}"
            urllib3.request("POST", f"{generation}/_refresh")
            return int(urllib3.request("GET", f"{generation}/_count").json()["count"])

        assert until(lambda: written() > 0, 60), pipeline.last_output()
        with locked(pipeline, "public.orders") as pid:
            pipeline.shop.run(_RESOLVED)
            assert_told(pipeline, {"resolve", "assemble"}, "lock", f"held by pid {pid}, migration of")
            before = written()
            assert before > 0, "the backfill has ended before"
            assert until(lambda: written() > before, 30), "the backfill stands still too"
        assert_over(pipeline)
        pipeline.terminate()


@contextlib.contextmanager
def stopped_workers(pipeline: Headrace) -> Iterator[None]:
    """Stop Spark's Python processes, as a debugger or a machine without memory does."""
    workers = [
        pid
        for pid in pipeline.members()
        if b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"-m\0")[2]
    ]
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def unacknowledged(pipeline: Headrace, statement: str) -> Iterator[None]:
    """Run a statement whose commit waits for a standby that is not there, until the context is left."""
    url = pipeline.shop.url

    def write() -> None:
        with connect(url) as writer:
            execute(writer, "SET synchronous_commit = on")
            execute(writer, "SET search_path = public")
            execute(writer, statement)

    with connect(url) as admin:
        execute(admin, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        execute(admin, "SELECT pg_reload_conf()")
        thread = threading.Thread(target=write)
        try:
            assert until(lambda: execute(admin, "SHOW synchronous_standby_names") == [("nobody",)], 10)
            thread.start()
            yield
        finally:
            execute(admin, "ALTER SYSTEM RESET synchronous_standby_names")
            execute(admin, "SELECT pg_reload_conf()")
            thread.join()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_only_looks_like_a_stall_raises_no_alarm(deploy: Deploy) -> None:
    """An idle database, one that is busy elsewhere, one long transaction, an old one that holds the log."""
    with deploy() as pipeline:
        shop = pipeline.shop
        shop.run("CREATE TABLE elsewhere (text text)")
        set_stalled_after(pipeline, _SOON)
        pipeline.start()
        pipeline.wait_ready()

        def is_unready() -> bool:
            return not pipeline.is_ready() or bool(stalls(pipeline))

        assert not until(is_unready, 1.5 * _SOON), pipeline.ask("/readyz").data

        def wrote_elsewhere() -> bool:
            shop.run("INSERT INTO elsewhere SELECT repeat(md5(n::text), 20) FROM generate_series(1, 500) n")
            return is_unready()

        assert not until(wrote_elsewhere, 1.5 * _SOON), pipeline.ask("/readyz").data
        with connect(shop.url, autocommit=False) as old:
            execute(old, "UPDATE public.tags SET rank = rank")

            def changed() -> bool:
                shop.run("UPDATE users SET name = md5(random()::text) WHERE id = 3")
                return is_unready()

            assert not until(changed, 1.5 * _SOON), pipeline.ask("/readyz").data
            assert not until(wrote_elsewhere, 1.5 * _SOON), pipeline.ask("/readyz").data
            old.rollback()
        with connect(shop.url, autocommit=False) as writer:
            execute(writer, "SET LOCAL search_path = public")

            def wrote_and_unready() -> bool:
                execute(writer, "UPDATE reviews SET rating = rating, body = repeat(md5(id::text), 200)")
                return is_unready()

            assert not until(wrote_and_unready, 2 * _SOON), pipeline.ask("/readyz").data
            writer.commit()
        assert not until(is_unready, 1.5 * _SOON), pipeline.ask("/readyz").data
        pipeline.converges()
        pipeline.terminate()


_SHORT = 5.0
"""Seconds; no deployment file may name so few, and each test of idleness lasts twenty times as long."""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_idleness_of_twenty_times_the_window_raises_no_alarm(
    deploy: Deploy, postgres: EmbeddedPostgres
) -> None:
    """With nothing but keepalives, and with another database that writes log; a stall is told in between."""
    with deploy() as made:
        pipeline = Pipeline.from_file(made.config, slot=made.name, publication=made.name)
        deployment = pipeline.project.deployment
        source = deployment.source.model_copy(update={"stalled_after": _SHORT})
        deployment = deployment.model_copy(update={"source": source})
        pipeline.project = dataclasses.replace(pipeline.project, deployment=deployment)
        other = postgres.create_database(f"{made.name}_other")
        with connect(other) as elsewhere, pipeline.start() as running:
            running.wait_ready(180)

            def is_alarmed() -> bool:
                return not running.board.ready

            def wrote_elsewhere() -> bool:
                time.sleep(0.2)
                execute(elsewhere, "CREATE TABLE IF NOT EXISTS elsewhere (text text)")
                execute(elsewhere, "INSERT INTO elsewhere SELECT md5(n::text) FROM generate_series(1, 50) n")
                return is_alarmed()

            assert not until(is_alarmed, 20 * _SHORT), running.status()
            with locked(made, "public.orders"):
                made.shop.run(_RESOLVED)
                assert until(lambda: running.board.view().stalled is not None, 4 * _SHORT)
            assert until(lambda: running.board.ready, 60)
            assert not until(wrote_elsewhere, 20 * _SHORT), running.status()
            assert until(lambda: made.differences() == [], 60), made.differences()
