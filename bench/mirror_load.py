"""How fast does a table come into a lake? `python bench/mirror_load.py [--rows N] [--quick]`.

A mirror's first load of a table of eight columns into a Delta table, and an Iceberg table, in alternation
with two peers that have as many connections: ADBC's COPY (FORMAT binary) to Arrow batches, which are thrown
away, and dlt's `sql_database` to a Delta table, with connectorx. ADBC is measured where it is installed:
`pip install adbc-driver-postgresql adbc-driver-manager`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from harness import dlt, report
from harness.lake import ORDERS, MirroredOrders
from headrace.config.mirror import Format

ROWS, QUICK, ROUNDS, CONNECTIONS = 5_000_000, 500_000, 3, 2
COLUMNS = "id, customer, amount, status, email, created, active, score"


def copied(orders: MirroredOrders) -> Iterator[float]:
    """Seconds of ADBC, each connection with its share of the table; nothing where it is not installed."""
    try:
        from adbc_driver_postgresql import dbapi  # noqa: PLC0415 - a peer, and no dependency
    except ImportError:
        return
    share = -(-orders.blocks() // CONNECTIONS)

    def read(number: int) -> int:
        where = f"ctid >= '({number * share},0)' AND ctid < '({(number + 1) * share},0)'"
        with dbapi.connect(orders.url) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {COLUMNS} FROM orders WHERE {where}")
            return sum(batch.num_rows for batch in cursor.fetch_record_batch())

    begin = perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        assert sum(threads.map(read, range(CONNECTIONS))) == orders.rows
    yield perf_counter() - begin


def ours(orders: MirroredOrders, number: int, kind: Format = "delta") -> float:
    """Seconds of the mirror's own load."""
    folder = f"load-{kind}-{number}"
    begin = perf_counter()
    dict(orders.writer(folder, kind).loader.load([ORDERS], {}))
    seconds = perf_counter() - begin
    table = orders.lake(folder, kind).open(ORDERS)
    assert table is not None
    assert sum(len(batch) for batch in table.rows()) == orders.rows
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS, help=f"rows of the table ({ROWS:,})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} rows")
    given = parser.parse_args()
    rows = QUICK if given.quick else given.rows
    times: dict[str, list[float]] = {"copy": [], "ours": [], "iceberg": [], "dlt": []}
    with MirroredOrders.serve(rows) as orders:
        for number in range(ROUNDS):
            report.machine()
            times["copy"] += copied(orders)
            times["ours"].append(ours(orders, number))
            times["iceberg"].append(ours(orders, number, "iceberg"))
            peer = dlt.load(orders.url, CONNECTIONS) if len(times["dlt"]) == number else None
            times["dlt"] += [] if peer is None else [peer]
    middle = {name: statistics.median(found) for name, found in times.items() if found}
    names = {
        "copy": "ADBC's COPY → Arrow",
        "ours": "headrace mirror → Delta",
        "iceberg": "headrace mirror → Iceberg",
        "dlt": f"dlt {dlt.VERSION} → Delta",
    }
    table = [(names[one], f"{seconds:.2f}", f"{rows / seconds:,.0f}") for one, seconds in middle.items()]
    report.table((f"{rows:,} rows, {CONNECTIONS} connections", "seconds", "rows/s"), table)
    held = True
    if "copy" in middle:
        held = report.result("mirror_load.copy", middle["copy"] / middle["ours"], 0.5)
        held &= report.result("mirror_load.iceberg", middle["copy"] / middle["iceberg"], 0.5)
    if "dlt" in middle:
        held &= report.result("mirror_load.dlt", middle["dlt"] / middle["ours"], 2)
    sys.exit(not held)


if __name__ == "__main__":
    main()
