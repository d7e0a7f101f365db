"""What a run sees of its server once a second, also when the server is away for a while."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from headrace.capture.signals import SignalFiles
from headrace.catalog.fingerprint import Fingerprint
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.continuity import new_state
from headrace.pipeline.health_monitor import HealthMonitor
from headrace.pipeline.project import Project, open_project
from headrace.pipeline.run import PipelineRun, RunOptions
from headrace.pipeline.schema_drift import Dependence, SchemaDriftMonitor
from headrace.pipeline.slot_watch import SlotWatch
from headrace.pipeline.stopping import Stopping
from headrace.pipeline.supervisor import RunningQuery
from headrace.pipeline.wal_budget import WalBudget
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import connect, execute
from headrace.postgres.locks import SlotLock, advisory_lock
from headrace.postgres.replication import replication_connection
from headrace.postgres.server import inspect_server
from headrace.postgres.slot import create_slot, drop_slot
from headrace.sinks.opensearch import Client
from headrace.spark.jobs import JobGate
from headrace.state import StateStore
from headrace.status.board import StatusBoard
from headrace.status.phases import Event, Phase
from headrace.status.stages import NO_STAGES
from integration.cli.command_line import Deployment
from integration.cli.conftest import fill
from support.servers import short_lived_server

_numbers = itertools.count(1)


@pytest.fixture
def own(tmp_path: Path, opensearch: EmbeddedOpenSearch) -> Iterator[tuple[EmbeddedPostgres, Deployment]]:
    """A server of this test's own, to be stopped, and a deployment on it."""
    with short_lived_server() as server:
        url = server.create_database("shop")
        fill(url)
        deployment = Deployment(tmp_path / "own", url, sink=opensearch.url, name=f"watched_{next(_numbers)}")
        deployment.write()
        yield server, deployment


@dataclass
class Watched:
    """What a run looks at: a deployment that follows, and its board."""

    project: Project
    endpoints: Endpoints
    board: StatusBoard
    lock: SlotLock
    catalog: SchemaDriftMonitor
    signals: SignalFiles

    def watch(self) -> HealthMonitor:
        return HealthMonitor(
            self.endpoints,
            self.project,
            self.board,
            self.lock,
            catalog=self.catalog,
            budget=WalBudget(self.project.deployment.source, self.board, releases=False),
            signals=self.signals,
        )


@pytest.fixture
def watched(own: tuple[EmbeddedPostgres, Deployment], tmp_path: Path) -> Iterator[Watched]:
    """Behind 1000 rows that are not applied yet."""
    _, deployment = own
    project = open_project(deployment.folder / "headrace.toml", {})
    endpoints = project.resolve()
    with create_slot(endpoints.database, project.slot) as slot:
        point = slot.consistent_point
    with connect(endpoints.database) as connection:
        facts = inspect_server(connection, endpoints.database)
        execute(connection, "INSERT INTO people SELECT generate_series(1, 1000), 'x'")
    state = replace(
        new_state(facts, project.slot, project.publication),
        phase="following",
        consistent_point=point,
        applied=point,
    )
    with (
        contextlib.closing(Client(endpoints.sink)) as client,
        SlotLock(endpoints.database, project.slot) as lock,
    ):
        StateStore(client, project.key).save(state)
        catalog = SchemaDriftMonitor(
            endpoints.database, Dependence({}, project.publication, {}), Fingerprint()
        )
        yield Watched(project, endpoints, StatusBoard(), lock, catalog, SignalFiles(tmp_path))


def test_the_slot_is_shown_while_no_query_runs(watched: Watched) -> None:
    """The server keeps the log all the same, and an alarm for its disk reads these numbers."""
    board, url = watched.board, watched.endpoints.database
    with SlotWatch(url, watched.project.slot, board, seconds=0.1):
        assert until(lambda: board.view().slot is not None, 10)
        before = board.view()
        assert before.slot is not None
        with connect(url) as connection:
            execute(connection, "INSERT INTO people SELECT generate_series(5001, 9000), 'x'")
        until(lambda: (board.view().lag_bytes or 0) > (before.lag_bytes or 0), 10)
    after = board.view()
    assert after.slot is not None
    assert after.slot.retained > before.slot.retained
    assert (after.lag_bytes or 0) > (before.lag_bytes or 0)


def test_the_lag_grows_while_the_cluster_is_away(watched: Watched) -> None:
    """The look at the slot came behind the one at the cluster, so the lag stood still, or was 0."""
    nowhere = replace(watched.endpoints, sink=replace(watched.endpoints.sink, urls=("http://127.0.0.1:9",)))
    watched.endpoints = nowhere
    with watched.watch() as watch:
        watch.look()
        before = watched.board.view()
        assert "HEADRACE_SINK_UNREACHABLE" in before.errors
        assert before.lag_bytes, "the slot is looked at all the same"
        with connect(watched.endpoints.database) as connection:
            execute(connection, "INSERT INTO people SELECT generate_series(5001, 6000), 'x'")
        watch._next = 0.0
        watch.look()
        after = watched.board.view().lag_bytes
        assert after is not None
        assert after > before.lag_bytes


def test_a_run_keeps_its_lag_and_gets_its_lock_back_when_the_server_was_away(
    own: tuple[EmbeddedPostgres, Deployment], watched: Watched
) -> None:
    server, _ = own
    project, endpoints, board = watched.project, watched.endpoints, watched.board
    with watched.watch() as watch:

        def look() -> None:
            watch._next = 0.0
            watch.look()

        look()
        before = board.view()
        assert before.lag_bytes
        server.stop("immediate")
        look()
        away = board.view()
        assert "HEADRACE_CONNECTION" in away.errors
        assert away.lag_bytes == before.lag_bytes, "the last known position"
        assert away.lag_seconds is not None
        assert before.lag_seconds is not None
        assert away.lag_seconds > before.lag_seconds
        server.start()
        look()
        with connect(endpoints.database) as other:
            with pytest.raises(HeadraceError) as caught, advisory_lock(other, project.slot):
                pass
            assert caught.value.kind is Kind.SLOT_IN_USE
            drop_slot(other, project.slot)
            look()
            gone = board.view()
            assert (gone.lag_bytes, gone.lag_seconds) == (None, None), "none without a slot"
            ended = """
                SELECT pg_terminate_backend(pid, 5000) FROM pg_locks
                WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
            """
            execute(other, ended)
            with advisory_lock(other, project.slot), pytest.raises(HeadraceError, match="another Headrace"):
                look()


class EndlessQuery:
    """Stands for a query that runs until the end of the test."""

    active = True
    stages = NO_STAGES

    def __init__(self, signals: SignalFiles) -> None:
        self.signals = signals

    def begun(self) -> bool:
        return True


class NothingParked:
    """Stands for jobs beside the stream that have nothing to do."""

    def failure(self) -> None:
        return None


@dataclass
class PlannedCatalog:
    """Stands for the catalog of a plan that needs nothing of the log."""

    drift: SchemaDriftMonitor

    def watch(self) -> SchemaDriftMonitor:
        return self.drift

    def needs(self, _generations: object) -> dict[str, object]:
        return {}


class NothingBuilt:
    """Stands for generations that are all complete, and for the thread that would fill them."""

    building = written = ()
    must_drop = False
    state = None  # for secondary sinks, of which there are none

    def completed(self) -> tuple[()]:
        return ()

    def prepare(self, _complete: object) -> None:
        pass

    serves_all = True

    def read_requests(self) -> tuple[()]:
        return ()

    def freeze_replaced(self) -> tuple[()]:
        return ()

    def make_refused(self) -> bool:
        return False

    def failure(self) -> None:
        return None


def test_a_run_is_degraded_for_as_long_as_its_server_or_its_slot_is_away(
    own: tuple[EmbeddedPostgres, Deployment], watched: Watched
) -> None:
    """What the source waits for is told by the source; the watch's own connection may be fine."""
    server, _ = own
    board, stopping = watched.board, Stopping()
    run = PipelineRun(watched.project, watched.endpoints, board, stopping, options=RunOptions())
    query: Any = EndlessQuery(watched.signals)
    catalog: Any = PlannedCatalog(watched.catalog)
    with ThreadPoolExecutor(1) as pool:
        nothing: Any = NothingBuilt()
        beside: Any = NothingParked()
        run._catalog = catalog
        run._generation_log = nothing
        run._lock = watched.lock
        running = RunningQuery(query, beside, nothing, JobGate())
        ended = pool.submit(run._supervisor().supervise, running)
        try:
            assert until(lambda: board.view().lag_bytes is not None, 60)
            assert board.view().phase is Phase.LIVE
            server.stop("immediate")
            assert until(lambda: board.phase is Phase.DEGRADED, 60)
            for _ in range(25):
                time.sleep(0.1)
                assert board.phase is Phase.DEGRADED
            assert board.view().lag_bytes
            server.start()
            assert until(lambda: board.phase is Phase.LIVE, 60)
            watched.signals.report_error(HeadraceError(Kind.SLOT_IN_USE, "it is read by pid 7, of somebody"))
            assert until(lambda: board.phase is Phase.DEGRADED, 60)
            said = board.snapshot()
            assert said["last_error"]["code"] == "HEADRACE_SLOT_IN_USE"
            assert "pid 7, of somebody" in said["reason"]
            assert said["lag"]["bytes"] > 0
            watched.signals.clear_error()
            assert until(lambda: board.phase is Phase.LIVE, 60)
        finally:
            stopping.set()
        assert ended.result(10).failure is None


def test_a_stranger_who_reads_the_slot_is_shown_with_his_name(
    own: tuple[EmbeddedPostgres, Deployment], watched: Watched
) -> None:
    """Also before the source has begun, which waits for him."""
    _, deployment = own
    board = watched.board
    board.apply_event(Event.FOLLOWING)
    with watched.watch() as watch:
        for application, phase in {
            "nightly export": Phase.DEGRADED,
            f"headrace/{watched.project.slot}": Phase.LIVE,
        }.items():
            with replication_connection(deployment.url, application) as reader:
                reader.start(watched.project.slot, 0, ("unused",))
                watch._next = 0.0
                watch.look()
                assert board.phase is phase
                if phase is Phase.DEGRADED:
                    said = board.snapshot()["last_error"]
                    assert said["code"] == "HEADRACE_SLOT_IN_USE"
                    assert f"(pid {reader.pid}, nightly export of postgres, from 127.0.0.1)" in said["text"]
            assert until(lambda: _reader(deployment.url) is None, 60)


def _reader(url: str) -> int | None:
    pid: int | None
    with connect(url) as connection:
        [(pid,)] = execute(connection, "SELECT active_pid FROM pg_replication_slots")
    return pid
