"""How fast is worked off what was committed while nobody followed? `python bench/drain.py [--quick]`.

Random order_items of a shop with three running indexes, each changed in a transaction of its own; each
touches one order's and one user's document. The run's processes are stopped (SIGSTOP) until all is
committed, so that the writers' own rate does not matter. The clock runs from SIGCONT to the last durable
document. Beside the peers (flusso and PGSync, where they can be had), the limit: the same documents by COPY
of the same queries, and then their ready-made bytes by `_bulk` into a copy of the live index, where each
replaces its older copy.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from time import perf_counter

from harness import report
from harness.bare import BarePath
from harness.deployment import Deployment, shop
from harness.flusso import VERSION as FLUSSO
from harness.flusso import flusso
from harness.live import change_items, documents_of, drain, ids_of
from harness.peer import Peer
from harness.pgsync import VERSION as PGSYNC
from harness.pgsync import pgsync

FLUSSO_BAR, PGSYNC_BAR, BARE_BAR = 5.0, 3.0, 0.8
WARM_UP = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (50,000)")
    parser.add_argument("--quick", action="store_true", help="5,000 users, 2,000 transactions")
    given = parser.parse_args()
    count = 2_000 if given.quick else 10_000
    with shop(given.users or (5_000 if given.quick else 50_000), ready_within=900) as deployment:
        bare = BarePath(deployment)
        deployment.run.start()
        deployment.run.wait_ready()
        items = ids_of(deployment, "SELECT id FROM public.order_items ORDER BY id")
        chosen = random.Random(1).sample(items, WARM_UP + count)
        parts = (chosen[count:], chosen[:count])
        report.machine()
        *_, ours = [drain(deployment, ids) for ids in parts]
        report.machine()
        documents = sum(index["documents"] for index in deployment.run.status()["indexes"])
        deployment.run.terminate()
        touched = [documents_of(deployment, "order_items", ids) for ids in parts]
        *_, limit = bare.rewrite(touched)
        report.machine()
        peers = [
            (f"flusso {FLUSSO}", _drained(deployment, flusso(deployment), parts), FLUSSO_BAR),
            (f"PGSync {PGSYNC}", _drained(deployment, pgsync(deployment, documents), parts), PGSYNC_BAR),
        ]
        report.machine()
    alone = limit.copy + limit.bulk
    rows = [("SIGCONT → last document", ours), (f"bare, {limit.documents:,} documents in place", alone)]
    held = [("drain.bare", alone / ours, BARE_BAR)]
    for name, took, bar in peers:
        if took is not None:
            rows.append((name, took))
            held.append((f"drain.{name.split()[0].lower()}", took / ours, bar))
    report.table(
        (f"{count:,} transactions", "seconds", "changes/s"),
        [(what, f"{seconds:.2f}", f"{count / seconds:,.0f}") for what, seconds in rows],
    )
    results = [report.result(*one) for one in held]
    sys.exit(not all(results))


def _drained(
    deployment: Deployment, running: AbstractContextManager[Peer | None], parts: Sequence[Sequence[int]]
) -> float | None:
    """The seconds that a peer takes for the same, warmed up alike; None where it is not here."""
    with running as peer:
        if peer is None:
            return None
        for ids in parts:
            with peer.suspended():
                change_items(deployment, ids)
                begin = perf_counter()
            took = peer.until_written(documents_of(deployment, "order_items", ids)) - begin
        return took


if __name__ == "__main__":
    main()
