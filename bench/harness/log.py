"""Logs to read: a server whose slots wait before many changes, and PostgreSQL's own reader of one."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter, sleep

import psycopg

from headrace.capture import ChangeStream, Offset, StreamSettings
from headrace.capture.buffer import Limit
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.embedded.postgres_files import wheel_binaries
from headrace.model.lsn import Lsn, format_lsn
from headrace.postgres.connection import connect, execute
from headrace.postgres.slot import drop_slot

PUBLICATION = "bench"
SETTINGS = {
    "max_wal_size": "8GB",
    "shared_buffers": "512MB",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "logical_decoding_work_mem": "64MB",
}
_TABLE = """
CREATE TABLE change (
    id bigint PRIMARY KEY, customer integer NOT NULL, name text, price numeric(12,2), active boolean,
    created timestamptz, note text, rating double precision
)
"""
_WRITE = """
CREATE PROCEDURE write_changes(first bigint, transactions bigint, per_transaction bigint)
LANGUAGE plpgsql AS $$
BEGIN
    FOR t IN 0 .. transactions - 1 LOOP
        INSERT INTO change
        SELECT i, (i % 1000)::int, 'customer ' || i, (i % 100000) / 100.0, i % 2 = 0,
               '2026-01-01'::timestamptz + i * interval '1 second', 'a note of some length on change ' || i,
               i / 7.0
        FROM generate_series(first + t * per_transaction, first + (t + 1) * per_transaction - 1) AS i;
        COMMIT;
    END LOOP;
END $$
"""
PATIENCE_SECONDS = 600.0
_SNAPSHOT_EVERY = 100_000
_NUMBERS = itertools.count(1)


class Log:
    """A database with a table of eight columns, its publication, and slots."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.url = server.create_database("bench")
        self._written = 0
        with connect(self.url) as connection:
            execute(connection, _TABLE)
            execute(connection, _WRITE)
            execute(connection, f"CREATE PUBLICATION {PUBLICATION} FOR TABLE change")

    def slots(self, count: int) -> list[str]:
        """New slots that begin here."""
        names = [f"bench_{next(_NUMBERS)}" for _ in range(count)]
        with connect(self.url) as connection:
            for name in names:
                execute(connection, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", (name,))
        return names

    def drop(self, slot: str) -> None:
        """Drop a slot, whose reader may just be going."""
        with connect(self.url) as connection:
            drop_slot(connection, slot)

    def write(self, changes: int, per_transaction: int) -> Lsn:
        """Insert rows; the end of the log after them.

        As often as a server of 7,000 changes a second does it by itself (every 15 s), the running
        transactions are logged: after each such place decoding can begin again.
        """
        with connect(self.url) as connection:
            for first in range(self._written, self._written + changes, _SNAPSHOT_EVERY):
                count = min(_SNAPSHOT_EVERY, self._written + changes - first)
                sql = "CALL write_changes($1, $2, $3)"
                execute(connection, sql, (first, count // per_transaction, per_transaction))
                execute(connection, "SELECT pg_log_standby_snapshot()")
            self._written += changes
            execute(connection, "CHECKPOINT")
            [(end,)] = execute(connection, "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint")
        return int(end)

    def write_one(self) -> None:
        """Insert one row."""
        with connect(self.url) as connection:
            execute(connection, "INSERT INTO change (id, customer) VALUES ($1, 1)", (self._written,))
        self._written += 1

    def start(self, slot: str) -> Offset:
        """Where a slot begins."""
        with connect(self.url) as connection:
            sql = (
                "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = $1"
            )
            [(begin,)] = execute(connection, sql, (slot,))
        return Offset(int(begin))

    def wait_confirmed(self, slot: str, end: Lsn, assert_alive: Callable[[], None] = lambda: None) -> None:
        """Return once a slot stands at `end` (bytes) or after it.

        Raises:
            AssertionError: it does not in ten minutes; or what `assert_alive` raises of its reader.
        """
        deadline = monotonic() + PATIENCE_SECONDS
        sql = """
            SELECT (confirmed_flush_lsn - '0/0')::bigint >= $1 FROM pg_replication_slots WHERE slot_name = $2
        """
        with connect(self.url) as connection:
            while execute(connection, sql, (end, slot)) != [(True,)]:
                assert_alive()
                assert monotonic() < deadline, f"{slot} does not reach {format_lsn(end)}"
                sleep(0.2)


@contextmanager
def log_server(**settings: str) -> Iterator[Log]:
    """A server of our own, and its log."""
    with EmbeddedPostgres(durable=False, settings={**SETTINGS, **settings}) as server:
        yield Log(server)


def recvlogical(url: str, slot: str, end: Lsn) -> float:
    """Seconds that pg_recvlogical takes to write a slot's stream up to `end` to /dev/null."""
    known = psycopg.conninfo.conninfo_to_dict(url)
    command = [
        *(str(wheel_binaries() / "pg_recvlogical"), "--dbname", url, "--slot", slot, "--start"),
        *("--endpos", format_lsn(end), "--file", "/dev/null", "--no-loop"),
        *("--option", "proto_version=1", "--option", f"publication_names={PUBLICATION}"),
    ]
    begin = perf_counter()
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path("/"))
    seconds = perf_counter() - begin
    assert done.returncode == 0, done.stderr.replace(str(known.get("password", "\0")), "…")
    return seconds


def follow(log: Log, slot: str, end: Lsn, changes: int, *, backlog_bytes: int | None = None) -> float:
    """Seconds that a `ChangeStream` takes to hand out all changes up to `end` as Arrow."""
    start = log.start(slot)
    stream = ChangeStream(StreamSettings(log.url, slot, PUBLICATION, backlog_bytes=backlog_bytes), start)
    begin = perf_counter()
    stream.open()
    rows, position, limit = 0, start, Limit(16 << 20)
    try:
        while rows < changes:
            stream.confirm(position)
            behind = stream.next_offset(position, limit, 1.0)
            if behind != position:
                rows += sum(batch.num_rows for batch in stream.changes(position, behind))
                position = behind
        seconds = perf_counter() - begin
    finally:
        stream.close()
    assert rows == changes, f"{rows} of {changes} changes"
    assert position.lsn <= end
    return seconds
