"""Whose slot is it? A run makes its own anew, and leaves that of another user alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, Kind
from headrace.pipeline.definitions import Definitions
from headrace.pipeline.exported_snapshot import HeldSnapshot
from headrace.pipeline.project import open_project
from headrace.pipeline.source_of_run import RunSource
from headrace.pipeline.stopping import Stopping
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import read_slot
from headrace.reporter import SilentReporter
from headrace.status.board import StatusBoard
from integration.cli.stock import TABLES, Stock


class Ground:
    """A deployment that has not begun, and processes that start it."""

    def __init__(self, stock: Stock, held: contextlib.ExitStack) -> None:
        self._held = held
        self._project = open_project(stock.config, {})
        self.slot = self._project.slot
        self.url = self._project.resolve().database

    def process(self) -> RunSource:
        snapshot = HeldSnapshot(60.0)
        self._held.callback(snapshot.close)
        endpoints = self._project.resolve()
        definitions = Definitions(self._project, endpoints)
        board = StatusBoard(["stock"], reporter=SilentReporter())
        return RunSource(endpoints, definitions, board=board, snapshot=snapshot, stopping=Stopping())

    def confirmed(self) -> int:
        with connect(self.url) as connection:
            slot = read_slot(connection, self.slot)
        assert slot is not None
        return slot.confirmed_flush or 0

    def run(self, statement: str) -> None:
        with connect(self.url) as connection:
            execute(connection, statement)


@pytest.fixture
def ground(database: str, tmp_path: Path) -> Iterator[Ground]:
    stock = Stock(tmp_path, database, "http://127.0.0.1:9")
    with contextlib.ExitStack() as held:
        made = Ground(stock, held)
        for statement in TABLES:
            made.run(statement)
        yield made
        held.close()
        made.run(f"SELECT pg_drop_replication_slot('{made.slot}')")


@pytest.mark.parametrize("is_held", [True, False])
def test_a_slot_whose_place_could_not_be_stored_is_made_anew_by_who_made_it(
    ground: Ground, is_held: bool
) -> None:
    """A connection that breaks before the state is stored ends no first start."""
    source = ground.process()
    state = source.new_state()
    first = source.create_slot(state)
    if not is_held:
        source.snapshot.close()  # its time is over
    ground.run("INSERT INTO stock VALUES ('b', 99, 'new')")
    second = source.create_slot(state)
    assert second > first
    assert ground.confirmed() == second
    assert source.snapshot.slot is not None
    assert source.snapshot.slot.consistent_point == second


def test_a_slot_that_an_earlier_process_or_another_user_made_is_nobodys(ground: Ground) -> None:
    killed = ground.process()
    state = killed.new_state()
    place = killed.create_slot(state)
    with pytest.raises(HeadraceError, match="nobody can tell") as refused:
        ground.process().create_slot(state)
    assert refused.value.kind is Kind.SLOT_UNKNOWN
    assert ground.confirmed() == place


def test_a_slot_that_somebody_has_moved_meanwhile_is_not_the_one_that_was_made(ground: Ground) -> None:
    source = ground.process()
    state = source.new_state()
    place = source.create_slot(state)
    ground.run("INSERT INTO stock VALUES ('b', 99, 'new')")
    ground.run(f"SELECT pg_replication_slot_advance('{ground.slot}', pg_current_wal_flush_lsn())")
    assert ground.confirmed() > place
    with pytest.raises(HeadraceError, match="nobody can tell"):
        source.create_slot(state)
