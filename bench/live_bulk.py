"""How fast does one transaction of 10,000 rows become documents? `python bench/live_bulk.py [--quick]`.

Two cases, on a shop with three running indexes: random order_items, and random users, of whom a column
changes that only their own documents read, under REPLICA IDENTITY FULL. Beside the peer (flusso, where it is
installed), the limit: the same documents by COPY of the same queries, and then their ready-made bytes by
`_bulk` into a copy of the live index, where each replaces its older copy as a change does. The clock runs
from the statement's start. Headrace and the limit take turns, three times after a first time that does not
count, and the medians are told: a cluster merges when it likes to.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from time import perf_counter

from harness import report
from harness.bare import BarePath
from harness.deployment import Deployment, shop
from harness.flusso import VERSION, Flusso, flusso
from harness.live import documents_of, ids_of, until_applied, written
from headrace.postgres.connection import connect, execute

BARS = {"items": 4.0, "users": 2.0}
BARE_BAR = 0.85
TIMES = 3
TABLES = {"items": "order_items", "users": "users"}
CHANGES = {
    "items": "UPDATE public.order_items SET quantity = quantity % 9 + 1 WHERE id = ANY ('{{{}}}')",
    "users": "UPDATE public.users SET level = level + 1 WHERE id = ANY ('{{{}}}')",
}
ROWS = {
    "items": "SELECT id FROM public.order_items ORDER BY id",
    "users": "SELECT id FROM public.users WHERE deleted_at IS NULL ORDER BY id",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (50,000)")
    parser.add_argument("--quick", action="store_true", help="5,000 users, 1,000 rows")
    given = parser.parse_args()
    count = 1_000 if given.quick else 10_000
    held, rows = [], []
    with shop(given.users or (5_000 if given.quick else 50_000), ready_within=900) as deployment:
        _identify(deployment, "FULL")
        bare = BarePath(deployment)
        deployment.run.start()
        deployment.run.wait_ready()
        samples = {
            case: parted(random.Random(1).sample(ids_of(deployment, sql), (1 + TIMES) * count), count)
            for case, sql in ROWS.items()
        }
        taken = {}
        for case, parts in samples.items():
            wanted = [documents_of(deployment, TABLES[case], ids) for ids in parts]
            ours, limits = [], []
            for ids, documents in zip(parts, wanted, strict=True):  # in turn: a server that runs grows faster
                ours.append(change(deployment, case, ids))
                limits += bare.rewrite([documents])
                report.machine()
            taken[case] = took = report.quantile(ours[1:], 50)
            rows.append((f"{case}: statement → last document", f"{took:.2f}", f"{count / took:,.0f}"))
            alone = report.quantile([one.copy + one.bulk for one in limits[1:]], 50)
            said = f"{case}: bare, {limits[-1].documents:,} documents in place"
            rows.append((said, f"{alone:.2f}", f"{count / alone:,.0f}"))
            held.append((f"live_bulk.{case}_bare", alone / took, BARE_BAR))
        deployment.run.terminate()
        _identify(deployment, "DEFAULT")  # the peer ends at a null in an old row
        with flusso(deployment) as peer:
            if peer is not None:
                for case, parts in samples.items():
                    theirs = _peer(deployment, peer, case, parts)
                    rows.append((f"{case}: flusso {VERSION}", f"{theirs:.2f}", f"{count / theirs:,.0f}"))
                    held.append((f"live_bulk.{case}", theirs / taken[case], BARS[case]))
    report.table((f"{count:,} rows in a transaction", "seconds", "changes/s"), rows)
    results = [report.result(*one) for one in held]
    sys.exit(not all(results))


def _identify(deployment: Deployment, identity: str) -> None:
    with connect(deployment.database) as connection:
        execute(connection, f"ALTER TABLE public.users REPLICA IDENTITY {identity}")


def change(deployment: Deployment, case: str, ids: Sequence[int]) -> float:
    """The seconds from the transaction's start to its last document."""
    begin = perf_counter()
    _change(deployment, case, ids)
    return until_applied(deployment, written(deployment)) - begin


def parted(ids: Sequence[int], count: int) -> list[Sequence[int]]:
    """The ids, so many at a time."""
    return [ids[first : first + count] for first in range(0, len(ids), count)]


def _peer(deployment: Deployment, peer: Flusso, case: str, parts: Sequence[Sequence[int]]) -> float:
    """The seconds that flusso takes for the same, warmed up alike."""
    took = []
    for ids in parts:
        begin = perf_counter()
        _change(deployment, case, ids)
        took.append(peer.until_written(documents_of(deployment, TABLES[case], ids)) - begin)
    return report.quantile(took[1:], 50)


def _change(deployment: Deployment, case: str, ids: Sequence[int]) -> None:
    with connect(deployment.database) as connection:
        execute(connection, CHANGES[case].format(",".join(map(str, ids))))


if __name__ == "__main__":
    main()
