"""How fast is worked off what was committed while nobody followed? `python bench/drain.py [--quick]`.

Random order_items of a shop with three running indexes, each changed in a transaction of its own; each
touches one order's and one user's document. The run's processes are stopped (SIGSTOP) until all is
committed, so that the writers' own rate does not matter. The clock runs from SIGCONT to the last durable
document. Beside the peer (flusso, where it is installed), the limit: the same documents by COPY of the same
queries, and then their ready-made bytes by `_bulk` into a copy of the live index, where each replaces its
older copy.
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
from harness.flusso import VERSION, flusso
from harness.live import change_items, documents_of, ids_of, until_applied, written

FLUSSO_BAR, BARE_BAR = 5.0, 0.8
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
        deployment.run.terminate()
        touched = [documents_of(deployment, "order_items", ids) for ids in parts]
        *_, limit = bare.rewrite(touched)
        report.machine()
        theirs = _peer(deployment, parts)
        report.machine()
    alone = limit.copy + limit.bulk
    rows = [("SIGCONT → last document", ours), (f"bare, {limit.documents:,} documents in place", alone)]
    held = [("drain.bare", alone / ours, BARE_BAR)]
    if theirs is not None:
        rows.append((f"flusso {VERSION}", theirs))
        held.append(("drain.flusso", theirs / ours, FLUSSO_BAR))
    report.table(
        (f"{count:,} transactions", "seconds", "changes/s"),
        [(what, f"{seconds:.2f}", f"{count / seconds:,.0f}") for what, seconds in rows],
    )
    results = [report.result(*one) for one in held]
    sys.exit(not all(results))


def drain(deployment: Deployment, ids: Sequence[int]) -> float:
    """The seconds from the run's awakening to the last document of changes that were made while it slept."""
    deployment.run.suspend()
    change_items(deployment, ids)
    end = written(deployment)
    begin = perf_counter()
    deployment.run.resume()
    return until_applied(deployment, end) - begin


def _peer(deployment: Deployment, parts: Sequence[Sequence[int]]) -> float | None:
    """The seconds that flusso takes for the same, warmed up alike; None where it is not here."""
    with flusso(deployment) as peer:
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
