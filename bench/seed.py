"""How fast are empty indexes filled? `python bench/seed.py [--users N] [--quick]`.

In one run, against the same servers: the bare path (COPY of the same JSON queries, and beside it `_bulk` of
those ready-made bytes), then Headrace's backfill from its first range to its last published index, then
flusso's where it is installed; and what PGSync did on a machine of two cores.
"""

from __future__ import annotations

import argparse
import sys
import time
from time import perf_counter

from harness import report
from harness.bare import BarePath, Pass
from harness.deployment import Deployment, shop
from harness.flusso import MEASURED, VERSION, seeded
from harness.memory import MemoryWatch

BAR, FLUSSO_BAR, PGSYNC_BAR = 0.7, 10.0, 2.0
PGSYNC = 3_919.0
"""Documents a second of PGSync 7.3, with fewer fields."""

LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 3600.0
WARM_UP_RANGES = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (50,000)")
    parser.add_argument("--quick", action="store_true", help="5,000 users")
    given = parser.parse_args()
    report.machine()
    with shop(given.users or (5_000 if given.quick else 50_000)) as deployment:
        path = BarePath(deployment)
        path.fill(WARM_UP_RANGES)
        bare = path.fill()
        report.machine()
        with MemoryWatch(deployment.run.members) as memory:
            documents, seconds = seed(deployment)
        report.machine()
        deployment.run.terminate()
        peer = seeded(deployment, documents)
    assert documents == bare.documents, f"Headrace wrote {documents}, the bare path {bare.documents}"
    rate = documents / seconds
    theirs = MEASURED["seed"] if peer is None else documents / peer
    _print(bare, documents, seconds)
    said = "not measured here" if peer is None else f"{peer:.1f}"
    peers = [
        (f"flusso {VERSION}", said, f"{theirs:,.0f}"),
        ("PGSync 7.3.0", "not measured here", f"{PGSYNC:,.0f}"),
    ]
    report.table(("", "seconds", "documents/s"), peers)
    rows = [(kind, f"{size / 2**20:,.0f}") for kind, size in sorted(memory.peaks.items())]
    report.table(("peak memory", "MiB"), [*rows, ("all at once", f"{memory.peak / 2**20:,.0f}")])
    held = [
        report.result("seed.bare", rate / bare.rate, BAR),
        report.result("seed.flusso", rate / theirs, FLUSSO_BAR),
        report.result("seed.pgsync", rate / PGSYNC, PGSYNC_BAR),
    ]
    sys.exit(not all(held))


def seed(deployment: Deployment) -> tuple[int, float]:
    """Headrace's documents and seconds, Spark's start left out."""
    run = deployment.run
    run.start()
    run.wait_until(lambda: "backfilling" in _phases(deployment), "did not begin to seed", 300)
    begin = perf_counter()
    while _phases(deployment) != {"live"}:
        run.assert_running()
        assert perf_counter() - begin < PATIENCE_SECONDS, run.last_output()
        time.sleep(LOOK_SECONDS)
    end = perf_counter()
    return sum(one["documents"] for one in run.status()["indexes"]), end - begin


def _phases(deployment: Deployment) -> set[str]:
    return {one["phase"] for one in deployment.run.status().get("indexes", ())}


def _print(bare: Pass, documents: int, seconds: float) -> None:
    rows = [
        ("bare: COPY and _bulk", f"{bare.copy + bare.bulk:.1f}", f"{bare.rate:,.0f}"),
        ("headrace", f"{seconds:.1f}", f"{documents / seconds:,.0f}"),
    ]
    print(f"{documents:,} documents, {bare.bytes / 1e6:,.0f} MB of bulk requests")
    report.table(("", "seconds", "documents/s"), rows)


if __name__ == "__main__":
    main()
