"""How much memory does reading take at the worst? `python bench/capture_memory.py [--quick]`.

Three cases, each in a process of its own, measured (PSS) above the same process before it reads anything:
one transaction of a million rows of 200 bytes that waits in the log; the same while it is written, so that
its pieces wait for its end; and a reader whose consumer stands still for a minute while 10,000 rows a second
are written. What the server keeps meanwhile is printed too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection as Pipe
from typing import Self

import psutil

from harness import report
from harness.log import PATIENCE_SECONDS, PUBLICATION, Log, log_server
from headrace.capture import ChangeStream, Offset, StreamSettings
from headrace.capture.buffer import Limit
from headrace.postgres.connection import connect, execute

BAR_BYTES = 300_000_000
ROW = "INSERT INTO wide SELECT g, repeat(md5(g::text), 6) FROM generate_series({0}, {1}) g"
LOOK_SECONDS = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="200,000 rows, ten seconds")
    given = parser.parse_args()
    rows, seconds = (200_000, 10) if given.quick else (1_000_000, 60)
    report.machine()
    with log_server() as log:
        with connect(log.url) as connection:
            execute(connection, "CREATE TABLE wide (id bigint PRIMARY KEY, data text)")
            execute(connection, f"ALTER PUBLICATION {PUBLICATION} ADD TABLE wide")
        results = [
            ("large_transaction", *large_transaction(log, rows)),
            ("large_running", *large_running(log, rows)),
            ("stalled", *stalled(log, 2 * rows, seconds)),
        ]
    report.machine()
    table = [(name, f"{peak / 1e6:,.0f}", f"{kept / 1e6:,.0f}") for name, peak, kept in results]
    report.table(("MB", "above idle", "log retained"), table)
    held = [report.result(f"capture_memory.{name}", BAR_BYTES / peak, 1.0) for name, peak, _ in results]
    sys.exit(not all(held))


def large_transaction(log: Log, rows: int) -> tuple[int, int]:
    """The peak above idle while one transaction is read, and the log that its slot retains (bytes)."""
    [slot] = log.slots(1)
    with connect(log.url) as connection:
        execute(connection, ROW.format(1, rows))
    with Reader(log, slot, rows) as reader:
        reader.watch()
        return reader.peak, retained(log, slot)


def large_running(log: Log, rows: int) -> tuple[int, int]:
    """The same while the transaction is written."""
    [slot] = log.slots(1)
    with Reader(log, slot, rows) as reader, ThreadPoolExecutor(1) as pool, connect(log.url) as connection:
        writing = pool.submit(execute, connection, ROW.format(rows + 1, 2 * rows))
        reader.watch()
        writing.result()
        return reader.peak, retained(log, slot)


def stalled(log: Log, first: int, seconds: int) -> tuple[int, int]:
    """The same while nobody takes what is read, and rows are written."""
    [slot] = log.slots(1)
    with Reader(log, slot, None) as reader, connect(log.url) as connection:
        end, number = time.monotonic() + seconds, first + 1
        while time.monotonic() < end:
            began = time.monotonic()
            execute(connection, ROW.format(number, number + 999))
            number += 1000
            reader.look()
            time.sleep(max(0.0, began + 0.1 - time.monotonic()))
        return reader.peak, retained(log, slot)


def retained(log: Log, slot: str) -> int:
    """How much log the server keeps for a slot (bytes)."""
    with connect(log.url) as connection:
        kept = "(pg_current_wal_lsn() - restart_lsn)::bigint"
        sql = f"SELECT {kept} FROM pg_replication_slots WHERE slot_name = $1"
        [(size,)] = execute(connection, sql, (slot,))
    return int(size)


class Reader:
    """A process that reads a slot; with `rows` it takes them all, without it takes nothing."""

    def __init__(self, log: Log, slot: str, rows: int | None) -> None:
        ours, theirs = multiprocessing.Pipe()
        self._pipe = ours
        context = multiprocessing.get_context("spawn")
        start = log.start(slot)
        self._process = context.Process(target=read, args=(log.url, slot, start, rows, theirs), daemon=True)
        self.peak = 0
        self._idle = 0

    def __enter__(self) -> Self:
        self._process.start()
        assert self._pipe.recv() == "ready"
        self._idle = self._size()
        self._pipe.send("go")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()

    def _size(self) -> int:
        return int(psutil.Process(self._process.pid).memory_full_info().pss)

    def look(self) -> None:
        """Note how much it has now."""
        self.peak = max(self.peak, self._size() - self._idle)

    def watch(self) -> None:
        """Note how much it has until it has read everything."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._pipe.poll(LOOK_SECONDS):
            self.look()
            assert time.monotonic() < deadline
        self.look()


def read(url: str, slot: str, start: Offset, rows: int | None, pipe: Pipe) -> None:
    """The reader's process, which stays to be measured until it is ended."""
    pipe.send("ready")
    pipe.recv()
    stream = ChangeStream(StreamSettings(url, slot, PUBLICATION), start)
    stream.open()
    if rows is not None:
        take(stream, start, rows)
        pipe.send("done")
    pipe.poll(None)
    os._exit(0)


def take(stream: ChangeStream, position: Offset, rows: int) -> None:
    """Read and confirm so many rows."""
    seen, limit = 0, Limit(32 << 20)
    while seen < rows:
        stream.confirm(position)
        behind = stream.next_offset(position, limit, 1.0)
        if behind != position:
            seen += sum(batch.num_rows for batch in stream.changes(position, behind))
            position = behind


if __name__ == "__main__":
    main()
