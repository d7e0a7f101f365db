"""A publication and a slot in a database, and streams that follow it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from headrace.capture import ChangeStream, Offset, StreamSettings
from headrace.capture.buffer import Limit
from headrace.model.changes import CHANGES_SCHEMA
from headrace.postgres.connection import connect, execute
from headrace.postgres.quoting import identifier
from headrace.postgres.slot import drop_slot
from support.changes import Change, decode_changes

EVERYTHING = Limit(1 << 30)
_T = TypeVar("_T")
_numbers = itertools.count(1)


class Source:
    """One database's publication of all tables and one slot of it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.slot = f"capture_{next(_numbers)}"
        self.publication = "headrace"
        self._streams: list[ChangeStream] = []

    def publish(self) -> Offset:
        """Create publication and slot; where the slot begins."""
        self.sql(f"CREATE PUBLICATION {identifier(self.publication)} FOR ALL TABLES")
        return self.create_slot()

    def create_slot(self) -> Offset:
        self.query("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", self.slot)
        return Offset(self.confirmed())

    def sql(self, *statements: str) -> None:
        """Each statement in a transaction of its own."""
        with connect(self.url) as connection:
            for statement in statements:
                execute(connection, statement)

    def transaction(self, *statements: str) -> None:
        with connect(self.url, autocommit=False) as connection:
            for statement in statements:
                execute(connection, statement)

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with connect(self.url) as connection:
            return execute(connection, sql, parameters)

    def number(self, sql: str, *parameters: object) -> int:
        [(number,)] = self.query(sql, *parameters)
        return int(number)

    def confirmed(self) -> int:
        return self.number(
            "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = $1",
            self.slot,
        )

    def walsender(self) -> int | None:
        pid: int | None
        [(pid,)] = self.query("SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1", self.slot)
        return pid

    def kill_walsender(self) -> None:
        self.query("SELECT pg_terminate_backend($1)", eventually(self.walsender))

    @contextmanager
    def commits_held_back(self) -> Iterator[None]:
        """Every commit within waits for a standby that is not there: it is in the log, and not visible."""
        self.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
        try:
            eventually(lambda: self.query("SHOW synchronous_standby_names") == [("nobody",)])
            self.sql("CHECKPOINT")  # commits wait only once the checkpointer has read the setting too
            yield
        finally:
            self.sql("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")

    def stream(self, start: Offset, url: str = "", /, **settings: Any) -> ChangeStream:
        """A stream after `start`, open, perhaps by another way; closed at the end of the test.

        After a pause it gives no position without changes, unless `idle_seconds` says so.
        """
        settings = {"idle_seconds": 600.0, **settings}
        stream = ChangeStream(StreamSettings(url or self.url, self.slot, self.publication, **settings), start)
        self._streams.append(stream)
        stream.open()
        return stream

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        with connect(self.url) as connection:
            drop_slot(connection, self.slot, timeout=60)


def eventually(look: Callable[[], _T | None], seconds: float = 30) -> _T:
    """What `look` returns once it is something true."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


def next_batch(stream: ChangeStream, start: Offset, limit: Limit = EVERYTHING, seconds: float = 60) -> Offset:
    """The next offset that is not `start`."""
    return eventually(
        lambda: None if (end := stream.next_offset(start, limit, 0.25)) == start else end, seconds
    )


def table(stream: ChangeStream, start: Offset, end: Offset) -> pa.Table:
    return pa.Table.from_batches(stream.changes(start, end, timeout=60), CHANGES_SCHEMA)


def take(
    stream: ChangeStream, start: Offset, rows: int, limit: Limit = EVERYTHING
) -> tuple[list[Change], Offset]:
    """Confirm and read until `rows` changes have come; nothing may come beyond them."""
    changes: list[Change] = []
    while len(changes) < rows:
        stream.confirm(start)
        end = next_batch(stream, start, limit)
        changes += decode_changes(table(stream, start, end))
        start = end
    assert len(changes) == rows
    return changes, start
