"""What a stream waits for is found in the server, with who is to blame."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from headrace.embedded.processes import free_port, until
from headrace.postgres.address import application_name, for_slot
from headrace.postgres.connection import connect, execute
from headrace.postgres.reachability import is_reachable
from headrace.postgres.replication import ReplicationConnection
from headrace.postgres.slot import create_slot, read_slot
from headrace.postgres.stream_waits import StreamWaits, read_stream_waits
from support.servers import short_lived_server

NAME = application_name("shop")


@pytest.fixture(scope="module")
def own() -> Iterator[str]:
    """A server whose settings the tests may change."""
    with short_lived_server(settings={"max_prepared_transactions": "2"}) as server:
        url = server.create_database("waits")
        with connect(url) as connection:
            execute(connection, "CREATE TABLE stock (id int PRIMARY KEY)")
        yield url


def waits_of(url: str) -> StreamWaits:
    with connect(url) as connection:
        return read_stream_waits(connection, "shop", NAME)


def blocked(url: str, unblock: Callable[[], object]) -> StreamWaits:
    """Read the table as the stream `shop` does; return what it waits for, then unblock it."""
    with connect(for_slot(url, "shop")) as reader:
        thread = threading.Thread(target=execute, args=(reader, "SELECT count(*) FROM stock"))
        thread.start()
        try:
            assert until(lambda: bool(waits_of(url).locks), 20)
            waits = waits_of(url)
            assert waits.locks[0].pid == reader.info.backend_pid
        finally:
            unblock()
            thread.join()
    assert waits_of(url).locks == ()
    return waits


def test_a_lock_is_named_with_the_session_that_holds_it(own: str) -> None:
    with connect(own, application_name="migration", autocommit=False) as other:
        execute(other, "LOCK TABLE stock")
        [wait] = blocked(own, other.rollback).locks
        assert wait.relation == "stock"
        [blocker] = wait.blockers
        assert blocker.startswith(f"pid {other.info.backend_pid}, migration of ")
        assert ", idle in transaction, in a transaction since 20" in blocker


def test_a_prepared_transaction_that_holds_the_lock_is_named(own: str) -> None:
    with connect(own) as other:
        execute(other, "BEGIN")
        execute(other, "LOCK TABLE stock")
        execute(other, "PREPARE TRANSACTION 'left behind'")
        [wait] = blocked(own, lambda: execute(other, "ROLLBACK PREPARED 'left behind'")).locks
    [blocker] = wait.blockers
    assert blocker.startswith("the prepared transaction 'left behind' since 20")


def test_a_commit_that_waits_for_a_standby_is_found(own: str) -> None:
    with connect(own) as admin, connect(own, application_name="shop writer") as writer:
        execute(admin, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        execute(admin, "SELECT pg_reload_conf()")
        assert until(lambda: execute(admin, "SHOW synchronous_standby_names") == [("nobody",)], 10)
        execute(writer, "SET synchronous_commit = on")
        found = threading.Event()

        def write() -> None:
            while not found.is_set():  # commits wait only once the checkpointer has read the setting too
                execute(writer, "DELETE FROM stock")
                execute(writer, "INSERT INTO stock VALUES (1)")

        thread = threading.Thread(target=write)
        thread.start()
        try:
            assert until(lambda: bool(waits_of(own).unacknowledged), 20)
            [commit] = waits_of(own).unacknowledged
            assert commit.startswith(f"pid {writer.info.backend_pid}, shop writer of ")
        finally:
            found.set()
            execute(admin, "ALTER SYSTEM RESET synchronous_standby_names")
            execute(admin, "SELECT pg_reload_conf()")
            thread.join()
    assert waits_of(own).unacknowledged == ()


def test_a_reader_that_says_nothing_is_seen_and_so_is_what_was_sent_to_it(own: str) -> None:
    create_slot(own, "shop").close()
    assert waits_of(own) == StreamWaits()
    with connect(own) as connection, ReplicationConnection(own, "reader") as reader:
        execute(connection, "CREATE PUBLICATION shop FOR TABLE stock")
        reader.start("shop", 0, ("shop",))

        def is_up_to_date() -> bool:
            slot = read_slot(connection, "shop")
            return slot is not None and slot.sent is not None and slot.sent >= slot.current

        assert until(is_up_to_date, 20)
        assert until(lambda: waits_of(own).walsender_waits_for is not None, 20)

        def is_at_rest() -> bool:
            slot = read_slot(connection, "shop")
            return slot is not None and not slot.decodes

        assert until(is_at_rest, 20)
        slot = read_slot(connection, "shop")
        assert slot is not None
        before = slot.sent
        execute(connection, "CREATE TABLE elsewhere AS SELECT generate_series(1, 10000)")
        assert until(is_up_to_date, 20)
        slot = read_slot(connection, "shop")
        assert slot is not None
        assert slot.sent is not None
        assert before is not None
        assert slot.sent > before, "also what is not published is progress"


def test_an_address_that_refuses_is_reachable_and_a_socket_too(own: str) -> None:
    assert is_reachable(own)
    assert is_reachable(f"postgresql://127.0.0.1:{free_port()}/shop")
    assert is_reachable("host=/run/postgresql dbname=shop")
    assert not is_reachable("postgresql://name.invalid/shop")
