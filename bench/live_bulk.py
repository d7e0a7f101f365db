"""How fast does one transaction of 10,000 rows become documents? `python bench/live_bulk.py [--quick]`.

Two cases, on a shop with three running indexes: random order_items, and random users, of whom a column
changes that only their own documents read, under REPLICA IDENTITY FULL. Beside the peer, the limit: the same
documents by COPY of the same queries, and then their ready-made bytes by `_bulk`. The clock runs from the
statement's start.
"""

from __future__ import annotations

import argparse
import random
import sys
from time import perf_counter

from headrace.postgres.connection import connect, execute
from support import report
from support.bare import BarePath
from support.deployment import Deployment, shop
from support.live import FLUSSO, ids_of, until_applied, written

BARS = {"items": 4.0, "users": 2.0}
BARE_BAR = 0.7
CHANGES = {
    "items": "UPDATE public.order_items SET quantity = quantity % 9 + 1 WHERE id = ANY ('{{{}}}')",
    "users": "UPDATE public.users SET level = level + 1 WHERE id = ANY ('{{{}}}')",
}
ROWS = {
    "items": "SELECT id FROM public.order_items ORDER BY id",
    "users": "SELECT id FROM public.users WHERE deleted_at IS NULL ORDER BY id",
}
TOUCHED = {
    "items": {
        "orders": "SELECT DISTINCT order_id FROM public.order_items WHERE id = ANY ('{{{}}}')",
        "users": "SELECT DISTINCT o.user_id FROM public.order_items i "
        "JOIN public.orders o ON o.id = i.order_id WHERE i.id = ANY ('{{{}}}')",
    },
    "users": {"users": "SELECT id FROM public.users WHERE id = ANY ('{{{}}}')"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (50,000)")
    parser.add_argument("--quick", action="store_true", help="5,000 users, 2,000 rows")
    given = parser.parse_args()
    count = 2_000 if given.quick else 10_000
    held, rows = [], []
    with shop(given.users or (5_000 if given.quick else 50_000), ready_within=900) as deployment:
        _identify(deployment)
        bare = BarePath(deployment)
        deployment.run.start()
        deployment.run.wait_ready()
        for case in CHANGES:
            chosen = random.Random(1).sample(ids_of(deployment, ROWS[case]), 2 * count)
            change(deployment, case, chosen[count:])
            report.machine()
            took = change(deployment, case, chosen[:count])
            listed = ",".join(map(str, chosen[:count]))
            keys = {index: ids_of(deployment, sql.format(listed)) for index, sql in TOUCHED[case].items()}
            bare.write({index: some[:500] for index, some in keys.items()})
            limit = bare.write(keys)
            report.machine()
            rate, alone = count / took, limit.copy + limit.bulk
            rows += [
                (f"{case}: statement → last document", f"{took:.2f}", f"{rate:,.0f}"),
                (f"{case}: bare, {limit.documents:,} documents", f"{alone:.2f}", f"{count / alone:,.0f}"),
                (f"{case}: flusso 0.15.1 (not measured here)", "", f"{FLUSSO[case]:,}"),
            ]
            held.append((f"live_bulk.{case}", rate / FLUSSO[case], BARS[case]))
            held.append((f"live_bulk.{case}_bare", alone / took, BARE_BAR))
        deployment.run.terminate()
    report.table((f"{count:,} rows in a transaction", "seconds", "changes/s"), rows)
    results = [report.result(*one) for one in held]
    sys.exit(not all(results))


def _identify(deployment: Deployment) -> None:
    with connect(deployment.database) as connection:
        execute(connection, "ALTER TABLE public.users REPLICA IDENTITY FULL")


def change(deployment: Deployment, case: str, ids: list[int]) -> float:
    """The seconds from the transaction's start to its last document."""
    begin = perf_counter()
    with connect(deployment.database) as connection:
        execute(connection, CHANGES[case].format(",".join(map(str, ids))))
    return until_applied(deployment, written(deployment)) - begin


if __name__ == "__main__":
    main()
