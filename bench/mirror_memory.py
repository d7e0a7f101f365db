"""How much memory does a large transaction take in a mirror? `python bench/mirror_memory.py [--quick]`.

`headrace mirror` follows a table; then one transaction inserts a million rows of 200 bytes, and another one
truncates the table and inserts them again. Counted is what all Python processes have (PSS) above what they
had when they were idle.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from harness import report
from harness.lake import MirrorRun
from harness.memory import MemoryWatch
from headrace.embedded.postgres import EmbeddedPostgres
from headrace.model.names import TableName
from headrace.postgres.connection import connect, execute

BAR_BYTES = 1_000_000_000
WIDE = TableName("public", "wide")
CREATE = "CREATE TABLE wide (id bigint PRIMARY KEY, data text)"
ROWS = "INSERT INTO wide SELECT g, repeat(md5(g::text), 6) FROM generate_series({0}, {1}) g"
LOOK_SECONDS, IDLE_SECONDS, PATIENCE_SECONDS = 0.2, 5.0, 600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the transaction (1,000,000)")
    parser.add_argument("--quick", action="store_true", help="100,000 rows")
    given = parser.parse_args()
    rows = 100_000 if given.quick else given.rows
    insert = ROWS.format(3, rows + 2)
    with (
        EmbeddedPostgres(durable=False, settings={"max_wal_size": "8GB"}) as server,
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
    ):
        url = server.create_database("bench_mirror")
        write(url, (CREATE, ROWS.format(1, 1)))
        run = MirrorRun(url, Path(folder), "200ms")
        run.start()
        try:
            settle(run, 1)
            write(url, (ROWS.format(2, 2),))
            settle(run, 2)
            time.sleep(IDLE_SECONDS)
            with MemoryWatch(run.members, LOOK_SECONDS) as idle:
                time.sleep(IDLE_SECONDS)
            found = {
                "insert": measured(run, url, (insert,), rows + 2),
                "truncate": measured(run, url, ("TRUNCATE wide", insert), rows),
            }
        finally:
            run.close()
    before = python(idle.peaks)
    shown = [
        (name, f"{took:.1f}", f"{used / 1e6:,.0f}", f"{(used - before) / 1e6:,.0f}")
        for name, (took, used) in found.items()
    ]
    report.table((f"MB, {rows:,} rows of 200 bytes", "seconds", "Python", "above idle"), shown)
    held = [
        report.result(f"mirror_memory.{name}", BAR_BYTES / max(1, used - before), 1.0)
        for name, (_, used) in found.items()
    ]
    sys.exit(not all(held))


def write(url: str, statements: Sequence[str]) -> None:
    """Run statements in one transaction."""
    with connect(url, autocommit=False) as connection:
        for statement in statements:
            execute(connection, statement)


def measured(run: MirrorRun, url: str, statements: Sequence[str], rows: int) -> tuple[float, int]:
    """Seconds from the commit to the lake, and the most memory (bytes) of all Python processes."""
    report.machine()
    with MemoryWatch(run.members, LOOK_SECONDS) as watch:
        write(url, statements)
        begin = time.perf_counter()
        settle(run, rows)
        seconds = time.perf_counter() - begin
        time.sleep(LOOK_SECONDS * 2)
    return seconds, python(watch.peaks)


def settle(run: MirrorRun, rows: int) -> None:
    """Return once the lake's table has as many rows."""
    run.wait_until(lambda: run.count(WIDE) == rows, f"had not {rows} rows", PATIENCE_SECONDS)


def python(peaks: Counter[str]) -> int:
    """Return what all kinds of Python processes have (bytes)."""
    return sum(size for kind, size in peaks.items() if kind.startswith("Python"))


if __name__ == "__main__":
    main()
