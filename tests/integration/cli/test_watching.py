"""What a run sees of its server once a second, also when the server is away for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.project import open_project
from headrace.cli.watching import Watch
from headrace.errors import HeadraceError, Kind
from headrace.postgres.connection import connect, execute
from headrace.postgres.server import inspect_server
from headrace.postgres.slot import create_slot, drop_slot
from headrace.postgres.slot_lock import SlotLock, advisory_lock
from headrace.sinks.opensearch import Client, MetaIndex, PipelineState
from headrace.status.board import StatusBoard
from headrace.testing.opensearch import EmbeddedOpenSearch
from headrace.testing.postgres import EmbeddedPostgres
from integration.cli.command_line import Deployment
from integration.cli.conftest import fill


@pytest.fixture
def own(tmp_path: Path, opensearch: EmbeddedOpenSearch) -> Iterator[tuple[EmbeddedPostgres, Deployment]]:
    """A server of this test's own, to be stopped, and a deployment on it."""
    with EmbeddedPostgres(durable=False) as server:
        url = server.create_database("shop")
        fill(url)
        deployment = Deployment(tmp_path / "own", url, sink=opensearch.url, name="watched")
        deployment.write()
        yield server, deployment


def test_a_run_keeps_its_lag_and_gets_its_lock_back_when_the_server_was_away(
    own: tuple[EmbeddedPostgres, Deployment], tmp_path: Path
) -> None:
    server, deployment = own
    project = open_project(deployment.folder / "headrace.toml", {})
    here = project.resolve()
    board = StatusBoard()
    with create_slot(here.database, project.slot) as slot:
        point = slot.consistent_point
    with contextlib.ExitStack() as held:
        client = held.enter_context(contextlib.closing(Client(here.sink)))
        with connect(here.database) as connection:
            facts = inspect_server(connection, here.database)
            execute(connection, "INSERT INTO people SELECT generate_series(1, 1000), 'x'")
        state = PipelineState(
            system_identifier=str(facts.system_identifier),
            timeline=facts.timeline,
            database_oid=facts.database_oid,
            slot=project.slot,
            publication=project.publication,
            phase="following",
            consistent_point=point,
            applied=point,
            published={},
        )
        MetaIndex(client, project.slot, project.prefix).save(state)
        lock = held.enter_context(SlotLock(here.database, project.slot))
        watch = held.enter_context(Watch(here, project, board, lock, tmp_path / "trouble"))

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
        with connect(here.database) as other:
            with pytest.raises(HeadraceError) as caught, advisory_lock(other, project.slot):
                pass
            assert caught.value.kind is Kind.SLOT_IN_USE
            drop_slot(other, project.slot)
            look()
            gone = board.view()
            assert (gone.lag_bytes, gone.lag_seconds) == (None, None), "none without a slot"
            ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = $1"
            execute(other, ended, (f"headrace lock {project.slot}",))
            with advisory_lock(other, project.slot), pytest.raises(HeadraceError, match="another Headrace"):
                look()
