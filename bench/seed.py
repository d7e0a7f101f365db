"""How fast are empty indexes filled? `python bench/seed.py [--users N] [--quick]`.

In one run, against the same servers: the bare path (COPY of the same JSON queries, and beside it `_bulk` of
those ready-made bytes), then Headrace's backfill from its first range to its last published index, then
flusso's and PGSync's where they can be had, from their start.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from harness import report
from harness.bare import BarePath, Pass
from harness.deployment import shop
from harness.filling import fill
from harness.flusso import VERSION as FLUSSO
from harness.flusso import seeded as seeded_by_flusso
from harness.memory import MemoryWatch
from harness.pgsync import VERSION as PGSYNC
from harness.pgsync import seeded as seeded_by_pgsync

BAR, SMALL_BAR, FLUSSO_BAR, PGSYNC_BAR = 0.85, 0.6, 10.0, 2.0
SMALL = 5_000
"""Users of a shop that is so small that what a start costs counts."""

WARM_UP_RANGES = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (50,000)")
    parser.add_argument("--quick", action="store_true", help="5,000 users")
    given = parser.parse_args()
    report.machine()
    users = given.users or (SMALL if given.quick else 50_000)
    with shop(users) as deployment:
        path = BarePath(deployment)
        path.fill(WARM_UP_RANGES)
        bare = path.fill()
        report.machine()
        with MemoryWatch(deployment.run.members, 2.0) as memory:
            filling = fill(deployment)
        report.machine()
        deployment.run.terminate()
        documents, seconds = filling.documents, filling.seconds
        peers = {
            f"flusso {FLUSSO}": (seeded_by_flusso(deployment, documents), FLUSSO_BAR),
            f"PGSync {PGSYNC}, fewer fields": (seeded_by_pgsync(deployment, documents), PGSYNC_BAR),
        }
    assert documents == bare.documents, f"Headrace wrote {documents}, the bare path {bare.documents}"
    rate = documents / seconds
    filling.show()
    _print(bare, documents, seconds, {name: took for name, (took, _) in peers.items()})
    rows = [(kind, f"{size / 2**20:,.0f}") for kind, size in sorted(memory.peaks.items())]
    report.table(("peak memory", "MiB"), [*rows, ("all at once", f"{memory.peak / 2**20:,.0f}")])
    held = [report.result("seed.bare", rate / bare.rate, SMALL_BAR if users <= SMALL else BAR)]
    for name, (took, bar) in peers.items():
        if took is not None:
            held.append(report.result(f"seed.{name.split()[0].lower()}", took / seconds, bar))
    sys.exit(not all(held))


def _print(bare: Pass, documents: int, seconds: float, peers: Mapping[str, float | None]) -> None:
    rows = [("bare: COPY and _bulk", bare.copy + bare.bulk), ("headrace", seconds)]
    rows += [(name, took) for name, took in peers.items() if took is not None]
    print(f"{documents:,} documents, {bare.bytes / 1e6:,.0f} MB of bulk requests")
    shown = [(what, f"{took:.1f}", f"{documents / took:,.0f}") for what, took in rows]
    report.table(("", "seconds", "documents/s"), shown)


if __name__ == "__main__":
    main()
