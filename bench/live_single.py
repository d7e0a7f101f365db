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

from harness import report
from harness.deployment import Deployment, shop
from harness.flusso import MEASURED, VERSION, flusso
from harness.live import documents_of, each_alone, ids_of, until_applied, written
from headrace.postgres.connection import connect, execute

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
        touched = documents_of(deployment, "order_items", chosen[:count])
        deployment.run.terminate()
        peer = _peer(deployment, chosen, count)
        report.machine()
    rate, theirs = count / took, count / peer if peer else MEASURED["single"]
    rows = [
        ("the writers alone", f"{wrote:.2f}", f"{count / wrote:,.0f}"),
        ("first commit → last document", f"{took:.2f}", f"{rate:,.0f}"),
        (f"flusso {VERSION}", f"{peer:.2f}" if peer else "not measured here", f"{theirs:,.0f}"),
    ]
    report.table((f"{count:,} transactions", "seconds", "changes/s"), rows)
    print(", ".join(f"{len(ids):,} documents of {index}" for index, ids in touched.items()))
    sys.exit(not report.result("live_single", rate / theirs, BAR))


def single(deployment: Deployment, ids: list[int]) -> tuple[float, float]:
    """The seconds until the last commit, and until the last document."""
    begin = perf_counter()
    _write(deployment, ids)
    wrote = perf_counter() - begin
    return wrote, until_applied(deployment, written(deployment)) - begin


def _peer(deployment: Deployment, chosen: list[int], count: int) -> float | None:
    """The seconds that flusso takes for the same, warmed up alike; None where it is not here."""
    with flusso(deployment) as peer:
        if peer is None:
            return None
        for ids in (chosen[count:], chosen[:count]):
            begin = perf_counter()
            _write(deployment, ids)
            took = peer.until_written(documents_of(deployment, "order_items", ids)) - begin
        return took


def _write(deployment: Deployment, ids: list[int]) -> None:
    with ThreadPoolExecutor(WRITERS) as threads:
        list(
            threads.map(lambda part: _write_part(deployment, part), (ids[n::WRITERS] for n in range(WRITERS)))
        )


def _write_part(deployment: Deployment, ids: list[int]) -> None:
    with connect(deployment.database) as connection:
        execute(connection, each_alone(ids, CHANGE))


if __name__ == "__main__":
    main()
