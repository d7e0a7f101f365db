"""A transaction that makes the server keep log for a slot whose stream moves is named."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from headrace.pipeline.held_log import HeldLog
from headrace.postgres.connection import Connection, connect, execute
from headrace.postgres.slot import SlotFacts, advance_slot, create_slot, read_slot
from headrace.status.board import StatusBoard
from support.servers import short_lived_server

_LEAST = 1 << 20
_SECRET = "s3cret-word"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of its own: a transaction in any database counts."""
    with short_lived_server(settings={"max_prepared_transactions": "2"}) as server:
        url = server.create_database("held")
        with connect(url) as connection:
            execute(connection, "CREATE TABLE stock (id int, text text)")
        with create_slot(url, "shop"):
            pass
        yield url


class Follower:
    """A stream that confirms everything, and what is said of its slot."""

    def __init__(self, url: str, connection: Connection) -> None:
        self.board = StatusBoard()
        self._connection = connection
        self._now = 0.0
        self._held = HeldLog(self.board, least_bytes=_LEAST, clock=lambda: self._now)

    def follow(self) -> list[str]:
        """Write log, confirm it, look twice at an interval of a minute; return the warnings."""
        sql = "INSERT INTO stock SELECT n, repeat(md5(n::text), 20) FROM generate_series(1, 4000) n"
        execute(self._connection, sql)
        for _ in range(3):
            execute(self._connection, "CHECKPOINT")  # writes which transactions are open
            advance_slot(self._connection, "shop", self.slot().current)
        for _ in range(2):
            self._held.look(self._connection, self.slot())
            self._now += 61.0
        return [str(warning) for warning in self.board.snapshot()["warnings"]]

    def slot(self) -> SlotFacts:
        slot = read_slot(self._connection, "shop")
        assert slot is not None
        return slot


@pytest.fixture
def follower(url: str) -> Iterator[Follower]:
    with connect(url) as connection:
        yield Follower(url, connection)


def test_nothing_is_said_while_no_old_transaction_is_open(follower: Follower) -> None:
    assert follower.follow() == follower.follow() == []


def test_a_session_is_named_without_its_statement_until_it_ends(url: str, follower: Follower) -> None:
    with connect(url, application_name="nightly", autocommit=False) as old:
        execute(old, f"INSERT INTO stock VALUES (0, '{_SECRET}')")
        [warning] = follower.follow()
        assert f"pid {old.info.backend_pid}, nightly of " in warning
        assert ", in held, idle in transaction, in a transaction since 20" in warning
        assert f"pg_terminate_backend({old.info.backend_pid})" in warning
        assert _SECRET not in warning
        assert follower.slot().retained > _LEAST
        old.rollback()
    assert follower.follow() == []


def test_a_prepared_transaction_is_named_by_its_name(url: str, follower: Follower) -> None:
    with connect(url, autocommit=False) as old:
        execute(old, f"INSERT INTO stock VALUES (0, '{_SECRET}')")
        execute(old, "PREPARE TRANSACTION 'transfer-7'")
    try:
        [warning] = follower.follow()
        assert "the prepared transaction 'transfer-7' in held, since 20" in warning
        assert "ROLLBACK PREPARED 'transfer-7'" in warning
        assert _SECRET not in warning
    finally:
        with contextlib.closing(connect(url)) as connection:
            execute(connection, "ROLLBACK PREPARED 'transfer-7'")
    assert follower.follow() == []
