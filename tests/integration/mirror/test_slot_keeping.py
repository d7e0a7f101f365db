"""Is a slot that nobody reads used while tables are loaded, without a word confirmed?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.mirror.slot_keeping import keep_slot
from headrace.postgres.connection import connect, execute
from headrace.reporter import SilentReporter
from support.followed_mirror import Told, run
from support.servers import short_lived_server
from support.slots import prepared_database

SLOT = "mirror_kept"


@pytest.fixture
def url(database: str) -> Iterator[str]:
    made = f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')"
    with prepared_database(database, "CREATE TABLE t (id int)", made) as prepared:
        yield prepared


def facts(url: str) -> tuple[Any, ...]:
    sql = f"SELECT inactive_since, confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
    with connect(url) as connection:
        [found] = execute(connection, sql)
    return tuple(found)


def await_use(url: str) -> None:
    """Wait until the slot is used once more."""
    ends = set()
    for _ in range(600):
        ends |= {facts(url)[0]} - {None}  # while it is used there is none
        if len(ends) > 1:
            return
        threading.Event().wait(0.05)
    raise AssertionError("nobody uses the slot")


def test_a_slot_is_used_and_stays_where_it_is(url: str) -> None:
    _, confirmed = facts(url)
    run(url, "INSERT INTO t SELECT generate_series(1, 1000)")
    with keep_slot(url, SLOT, SilentReporter(), seconds=0.05):
        await_use(url)
    assert facts(url)[1] == confirmed


def test_a_slot_that_is_gone_ends_no_load(url: str) -> None:
    run(url, f"SELECT pg_drop_replication_slot('{SLOT}')")
    with keep_slot(url, SLOT, SilentReporter(), seconds=0.01):
        threading.Event().wait(0.5)
        assert [thread for thread in threading.enumerate() if thread.name == "headrace keep"]


def test_that_a_load_may_outlast_its_log_is_told_once_and_early() -> None:
    told = Told()
    with short_lived_server(settings={"wal_level": "logical", "max_slot_wal_keep_size": "64MB"}) as server:
        url = server.url
        run(url, f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
        with keep_slot(url, SLOT, told, seconds=0.05):
            for _ in range(2):  # what it found at the first use is noted before the second one
                await_use(url)
            assert told.texts == []
            for _ in range(60):
                run(url, "SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000))")
            for _ in range(3):
                await_use(url)
    assert len(told.texts) == 1
    assert "raise max_slot_wal_keep_size" in told.texts[0]
