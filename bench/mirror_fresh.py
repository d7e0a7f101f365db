"""How fresh is a mirror? `python bench/mirror_fresh.py [--rows N] [--seconds N] [--quick]`.

`headrace mirror` with an interval of 5 s follows a table while 500 changes a second are committed to rows
everywhere in it, ten in a transaction. Four times a second a row is inserted: its clock runs from its commit
until a reader of the Delta table, which looks ten times a second, reads it.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from typing import Self

import pyarrow.dataset as ds

from harness import report
from harness.lake import ORDERS, MirroredOrders, MirrorRun
from headrace.postgres.connection import connect, execute

ROWS, QUICK, SECONDS, QUICK_SECONDS, WARM_UP_SECONDS = 1_000_000, 100_000, 120, 20, 12.0
EACH_SECOND, TOGETHER, PROBE_SECONDS, LOOK_SECONDS, PATIENCE_SECONDS = 500, 10, 0.25, 0.1, 60.0
BARS_SECONDS = {50: 5.0, 99: 12.0}
UPDATE = "UPDATE orders SET score = score + 1 WHERE id = ANY ($1)"
PROBE = "INSERT INTO orders (id) VALUES ($1)"


class Writers:
    """Writes changes and probes until the context ends.

    Attributes:
        committed: when each probe was committed (s); probes are rows with negative ids.
    """

    def __init__(self, orders: MirroredOrders) -> None:
        self._orders = orders
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._change, self._probe)]
        self.committed: dict[int, float] = {}

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _change(self) -> None:
        begin, number = time.perf_counter(), 0
        with connect(self._orders.url) as connection:
            while not self._ended.wait(max(0.0, begin + number / EACH_SECOND - time.perf_counter())):
                ids = [1 + (number + at) * 7919 % self._orders.rows for at in range(TOGETHER)]
                execute(connection, UPDATE, (ids,))
                number += TOGETHER

    def _probe(self) -> None:
        with connect(self._orders.url) as connection:
            while not self._ended.wait(PROBE_SECONDS):
                probe = -1 - len(self.committed)
                execute(connection, PROBE, (probe,))
                self.committed[probe] = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS, help=f"rows of the table ({ROWS:,})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"how long ({SECONDS})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} rows, {QUICK_SECONDS} s")
    given = parser.parse_args()
    rows, seconds = (QUICK, QUICK_SECONDS) if given.quick else (given.rows, given.seconds)
    report.machine()
    with MirroredOrders.serve(rows) as orders:
        run = MirrorRun(orders.url, orders.folder, "5s")
        run.start()
        try:
            run.wait_until(lambda: run.count(ORDERS) == rows, "was not loaded", PATIENCE_SECONDS)
            latencies, files = measured(orders, run, seconds)
        finally:
            run.close()
    report.machine()
    report.times([(f"commit → readable row, {rows:,} rows", latencies)])
    print(f"{len(latencies)} rows; {files * 3600 / seconds:,.0f} files an hour")
    held = [
        report.result(f"mirror_fresh.p{percent}", bar / report.quantile(latencies, percent), 1.0)
        for percent, bar in BARS_SECONDS.items()
    ]
    sys.exit(not all(held))


def measured(orders: MirroredOrders, run: MirrorRun, seconds: float) -> tuple[list[float], int]:
    """Seconds of each probe, behind a warm-up, and the number of files that the lake got meanwhile."""
    seen: dict[int, float] = {}
    version = -1
    with Writers(orders) as writers:
        begin = time.perf_counter() + WARM_UP_SECONDS
        files_before = 0
        while time.perf_counter() < begin + seconds:
            run.assert_running()
            time.sleep(LOOK_SECONDS)
            if time.perf_counter() < begin:
                files_before = files_of(orders)
            table = run.lake.open(ORDERS)
            if table is not None and table.version != version:
                version = table.version
                found = table.delta.to_pyarrow_dataset().to_table(["id"], filter=ds.field("id") < 0)
                now = time.perf_counter()
                for probe in found.column("id").to_pylist():
                    seen.setdefault(probe, now)
        files = files_of(orders) - files_before
    latencies = {probe: now - writers.committed[probe] for probe, now in seen.items()}
    counted = [taken for probe, taken in latencies.items() if writers.committed[probe] > begin]
    missing = [at for probe, at in writers.committed.items() if probe not in seen and at > begin]
    assert all(at > begin + seconds - 2 * BARS_SECONDS[99] for at in missing), "rows are missing"
    return counted, files


def files_of(orders: MirroredOrders) -> int:
    """How many Parquet files the lake has."""
    return sum(1 for _ in (orders.folder / "lake").rglob("*.parquet"))


if __name__ == "__main__":
    main()
