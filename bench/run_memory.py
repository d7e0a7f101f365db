"""How much memory does a local run need? `python bench/run_memory.py [--users N] [--quick]`.

A shop with three indexes is backfilled, its order_items change while it is live, and then it is idle for
longer than the minute after which Spark ends Python workers that nobody uses: what its Java and all of its
Python processes hold, pages that they share counted once (PSS).
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from harness import report
from harness.deployment import shop
from harness.live import drain, ids_of
from harness.memory import MemoryWatch

BAR_BYTES = 700 * 2**20
IDLE_SECONDS = 75.0
WATCHED_SECONDS = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=5_000, help="size of the shop (5,000)")
    parser.add_argument("--quick", action="store_true", help="500 changes instead of 5,000")
    given = parser.parse_args()
    report.machine()
    with shop(given.users, ready_within=900) as deployment:
        with MemoryWatch(deployment.run.members) as busy:
            deployment.run.start()
            deployment.run.wait_ready()
            items = ids_of(deployment, "SELECT id FROM public.order_items ORDER BY id")
            drain(deployment, random.Random(1).sample(items, 500 if given.quick else 5_000))
        time.sleep(IDLE_SECONDS)
        with MemoryWatch(deployment.run.members) as idle:
            time.sleep(WATCHED_SECONDS)
    rows = [
        (kind, f"{idle.peaks[kind] / 2**20:,.0f}", f"{busy.peaks[kind] / 2**20:,.0f}")
        for kind in sorted(busy.peaks)
    ]
    total = ("all at once", f"{idle.peak / 2**20:,.0f}", f"{busy.peak / 2**20:,.0f}")
    report.table(("MiB", "idle", "at most before"), [*rows, total])
    sys.exit(not report.result("run_memory", BAR_BYTES / idle.peak, 1.0))


if __name__ == "__main__":
    main()
