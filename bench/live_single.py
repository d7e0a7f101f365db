"""How many single-row transactions a second become documents? `python bench/live_single.py [--quick]`.

Random order_items of a shop with three running indexes; each touches one order's and one user's document. The
clock runs from the first commit to the last durable document. Two sessions of the server write, without a
client between.
"""

from __future__ import annotations

import argparse
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from headrace.postgres.connection import connect, execute
from support import report
from support.deployment import Deployment, shop
from support.live import FLUSSO, each_alone, ids_of, until_applied, written

BAR = 4.0
WRITERS = 2
WARM_UP = 2_000
CHANGE = "UPDATE public.order_items SET quantity = quantity % 9 + 1 WHERE id = i"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (50,000)")
    parser.add_argument("--quick", action="store_true", help="5,000 users, 2,000 transactions")
    given = parser.parse_args()
    count = 2_000 if given.quick else 10_000
    with shop(given.users or (5_000 if given.quick else 50_000), ready_within=900) as deployment:
        deployment.run.start()
        deployment.run.wait_ready()
        items = ids_of(deployment, "SELECT id FROM public.order_items ORDER BY id")
        chosen = random.Random(1).sample(items, WARM_UP + count)
        single(deployment, chosen[count:])
        report.machine()
        wrote, took = single(deployment, chosen[:count])
        report.machine()
        touched = documents(deployment, chosen[:count])
        deployment.run.terminate()
    rate = count / took
    rows = [
        ("the writers alone", f"{wrote:.2f}", f"{count / wrote:,.0f}"),
        ("first commit → last document", f"{took:.2f}", f"{rate:,.0f}"),
        ("flusso 0.15.1 (not measured here)", "", f"{FLUSSO['single']:,}"),
    ]
    report.table((f"{count:,} transactions", "seconds", "changes/s"), rows)
    print(", ".join(f"{number:,} documents of {index}" for index, number in touched.items()))
    sys.exit(not report.result("live_single", rate / FLUSSO["single"], BAR))


def single(deployment: Deployment, ids: list[int]) -> tuple[float, float]:
    """The seconds until the last commit, and until the last document."""
    begin = perf_counter()
    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(lambda part: _write(deployment, part), (ids[n::WRITERS] for n in range(WRITERS))))
    wrote = perf_counter() - begin
    return wrote, until_applied(deployment, written(deployment)) - begin


def _write(deployment: Deployment, ids: list[int]) -> None:
    with connect(deployment.database) as connection:
        execute(connection, each_alone(ids, CHANGE))


def documents(deployment: Deployment, ids: list[int]) -> dict[str, int]:
    """How many documents of each index the items touch."""
    listed = ",".join(map(str, ids))
    sql = f"""
        SELECT count(DISTINCT o.id), count(DISTINCT o.user_id) FROM public.order_items i
        JOIN public.orders o ON o.id = i.order_id WHERE i.id = ANY ('{{{listed}}}')
    """
    with connect(deployment.database) as connection:
        [(orders, users)] = execute(connection, sql)
    return {"orders": int(orders), "users": int(users)}


if __name__ == "__main__":
    main()
