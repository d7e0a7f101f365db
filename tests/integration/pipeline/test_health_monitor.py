"""What a run sees of its server once a second, also when the server is away for a while."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from headrace.capture.signals import SignalFiles
from headrace.embedded.opensearch import EmbeddedOpenSearch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.processes import until
from headrace.errors import HeadraceError, Kind
from headrace.pipeline.health_monitor import HealthMonitor
from headrace.pipeline.project import Project, open_project
from headrace.pipeline.source_of_run import new_state
from headrace.pipeline.worker.plan import Endpoints
from headrace.postgres.connection import connect, execute
from headrace.postgres.locks import SlotLock, advisory_lock
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.server import inspect_server
from headrace.postgres.slot import create_slot, drop_slot
from headrace.sinks.opensearch import Client
from headrace.state import GenerationState, Quarantine, Quarantined, StateStore
from headrace.status.board import StatusBoard
from headrace.status.metrics import registry
from headrace.status.phases import Phase
from integration.cli.command_line import Deployment
from integration.cli.conftest import fill
from support.servers import short_lived_server
from support.tcp_proxy import TcpProxy

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
    store: StateStore
    signals: SignalFiles

    def watch(self) -> HealthMonitor:
        return HealthMonitor(self.endpoints, lambda: self.project, self.board, self.lock, self.store)


@pytest.fixture
def watched(own: tuple[EmbeddedPostgres, Deployment], tmp_path: Path) -> Iterator[Watched]:
    """Behind by 1000 rows that are not applied yet."""
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
        store = StateStore(client, project.key)
        store.save(state)
        yield Watched(project, endpoints, StatusBoard(), lock, store, SignalFiles(tmp_path))


def look(watch: HealthMonitor) -> None:
    """Look now, whenever the last look was."""
    watch.forget()
    watch.look()


@pytest.mark.long
def test_the_slot_is_shown_while_no_query_runs(watched: Watched) -> None:
    """The server keeps the log all the same, and an alarm for its disk reads these numbers."""
    board = watched.board
    with watched.watch() as watch:
        look(watch)
        before = board.view()
        with connect(watched.endpoints.database) as connection:
            execute(connection, "INSERT INTO people SELECT generate_series(5001, 9000), 'x'")
        look(watch)
        after = board.view()
    assert before.slot is not None
    assert after.slot is not None
    assert after.slot.retained > before.slot.retained
    assert (after.lag_bytes or 0) > (before.lag_bytes or 0)


def test_the_lag_grows_while_the_cluster_is_away(watched: Watched) -> None:
    """The look at the slot came after the one at the cluster, so the lag stood still, or was 0."""
    nowhere = replace(watched.endpoints, sink=replace(watched.endpoints.sink, urls=("http://127.0.0.1:9",)))
    watched.endpoints = nowhere
    with watched.watch() as watch:
        watch.look()
        before = watched.board.view()
        assert "HEADRACE_SINK_UNREACHABLE" in before.errors
        assert before.lag_bytes, "the slot is looked at all the same"
        with connect(watched.endpoints.database) as connection:
            execute(connection, "INSERT INTO people SELECT generate_series(5001, 6000), 'x'")
        look(watch)
        after = watched.board.view().lag_bytes
        assert after is not None
        assert after > before.lag_bytes


def test_a_run_keeps_its_lag_and_gets_its_lock_back_when_the_server_was_away(
    own: tuple[EmbeddedPostgres, Deployment], watched: Watched
) -> None:
    server, _ = own
    project, endpoints, board = watched.project, watched.endpoints, watched.board
    with watched.watch() as watch:
        look(watch)
        before = board.view()
        assert before.lag_bytes
        server.stop("immediate")
        look(watch)
        away = board.view()
        assert "HEADRACE_CONNECTION" in away.errors
        assert away.lag_bytes == before.lag_bytes, "the last known position"
        assert away.lag_seconds is not None
        assert before.lag_seconds is not None
        assert away.lag_seconds > before.lag_seconds
        server.start()
        look(watch)
        with connect(endpoints.database) as other:
            with pytest.raises(HeadraceError) as caught, advisory_lock(other, project.slot):
                pass
            assert caught.value.kind is Kind.SLOT_IN_USE
            drop_slot(other, project.slot)
            look(watch)
            gone = board.view()
            assert (gone.lag_bytes, gone.lag_seconds) == (None, None), "none without a slot"
            ended = """
                SELECT pg_terminate_backend(pid, 5000) FROM pg_locks
                WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
            """
            execute(other, ended)
            with advisory_lock(other, project.slot):
                look(watch)
                assert watch.lost is not None
                assert "another Headrace" in str(watch.lost)


def test_a_run_is_degraded_for_as_long_as_its_server_or_its_source_is_away(
    own: tuple[EmbeddedPostgres, Deployment], watched: Watched
) -> None:
    """What the source waits for is told by the source; the watch's own connection may be fine."""
    server, _ = own
    board = watched.board
    board.enter(Phase.LIVE)
    with watched.watch() as watch:
        watch.watch(watched.signals)
        look(watch)
        assert board.view().phase is Phase.LIVE
        assert until(lambda: bool(board.view().lag_bytes), 10), "the stall monitor shows it"
        server.stop("immediate")
        for _ in range(5):
            look(watch)
            board.enter(Phase.LIVE)  # as the run does in each of its rounds
            assert board.phase is Phase.DEGRADED
        assert board.view().lag_bytes
        server.start()
        look(watch)
        assert board.phase is Phase.LIVE
        watched.signals.report_error(HeadraceError(Kind.SLOT_IN_USE, "it is read by pid 7, of somebody"))
        look(watch)
        said = board.snapshot()
        assert said["last_error"]["code"] == "HEADRACE_SLOT_IN_USE"
        assert "pid 7, of somebody" in said["reason"]
        assert said["lag"]["bytes"] > 0
        watched.signals.clear_error()
        look(watch)
        assert board.phase is Phase.LIVE


def test_documents_in_quarantine_are_counted_in_each_sink_whatever_the_policy_is_now(
    watched: Watched,
) -> None:
    primary = watched.project.primary
    second = replace(primary, name="second", key=primary.key.of_sink("second"))
    watched.project = replace(watched.project, targets={primary.name: primary, "second": second})
    assert watched.store.current is not None
    generation = GenerationState("people", "people_1", "uuid", "hash")
    watched.store.save(
        replace(watched.store.current, generations=(generation, replace(generation, sink="second")))
    )
    stopping = watched.project.deployment.model_copy(update={"indexes": [], "on_error": "stop"})
    watched.project = replace(watched.project, deployment=stopping)
    assert not watched.project.quarantine()
    with contextlib.closing(Client(watched.endpoints.sink)) as client, watched.watch() as watch:
        for target, ids in ((primary, "1"), (second, "23")):
            entries = [Quarantined.now("people", id_, "no number", 16, "people_1") for id_ in ids]
            Quarantine(client, target.key).put(entries)
        client.call("POST", f"/{primary.prefix}headrace_quarantine/_refresh")
        look(watch)
    view = watched.board.view()
    assert [index.quarantined for index in view.indexes] == [1]
    assert view.secondary["second"].indexes["people"].quarantined == 2
    assert b'headrace_quarantined_documents{index="people",sink="second"} 2.0' in generate_latest(
        registry(watched.board)
    )


def test_a_stranger_who_reads_the_slot_is_known_by_his_name(
    own: tuple[EmbeddedPostgres, Deployment], watched: Watched
) -> None:
    _, deployment = own
    with watched.watch() as watch:
        for application in ("nightly export", f"headrace/{watched.project.slot}"):
            with ReplicationConnection(deployment.url, application) as reader:
                reader.start(watched.project.slot, 0, ("unused",))
                look(watch)
                stranger = f"pid {reader.pid}, nightly export of postgres, from 127.0.0.1"
                assert watch.read_by_another == (stranger if application == "nightly export" else "")
            assert until(lambda: _reader(deployment.url) is None, 60)


def test_what_a_run_without_a_query_waits_for_makes_it_degraded_until_it_is_gone(watched: Watched) -> None:
    """Also an error that does not pass by itself: before, nothing said for whom the run waited."""
    board = watched.board
    board.enter(Phase.LIVE)
    with watched.watch() as watch:
        watch.look(HeadraceError(Kind.PRIVILEGE, "somebody took a right away"))
        assert board.view().phase is Phase.DEGRADED
        assert "somebody took a right away" in (board.view().unready or "")
        look(watch)
        assert board.view().phase is Phase.LIVE


def test_a_slot_that_another_server_lacks_is_not_gone(
    own: tuple[EmbeddedPostgres, Deployment], watched: Watched, postgres: EmbeddedPostgres
) -> None:
    """The address led there for a moment: what was seen there says nothing of the server that answers now."""
    server, _ = own
    for each in (server, postgres):
        with connect(each.url) as connection:
            execute(connection, "DROP ROLE IF EXISTS twin")
            execute(connection, "CREATE ROLE twin LOGIN SUPERUSER PASSWORD 'twin'")
    with TcpProxy.before(postgres.url) as address:
        url = f"postgresql://twin:twin@127.0.0.1:{address.port}/postgres"
        endpoints, lock = replace(watched.endpoints, database=url), SlotLock(url, watched.project.slot)
        watch = HealthMonitor(endpoints, lambda: watched.project, watched.board, lock, watched.store)
        with lock, watch:
            look(watch)
            assert (watch.slot, watch.error) == (None, None)
            address.lead_to(server.url)
            for _ in range(3):
                with pytest.raises(HeadraceError):
                    watch.facts(fresh=True)
            look(watch)
            assert watch.slot is not None
            assert not watch.facts(fresh=True).in_recovery
            assert not watch.standby


def _reader(url: str) -> int | None:
    pid: int | None
    with connect(url) as connection:
        [(pid,)] = execute(connection, "SELECT active_pid FROM pg_replication_slots")
    return pid
