"""How fast is a change worked off that touches 100,000 documents? `python bench/fanout.py [--quick]`.

One tag, carried by every product, is renamed. Beside it the limit: the same documents by COPY of the same
queries, and then their ready-made bytes by `_bulk` into a copy of the live index. Then it is renamed again,
and users meanwhile, one by one: each must be found soon.
"""

from __future__ import annotations

import argparse
import sys
import threading
from time import perf_counter
from typing import Self

from harness import report
from harness.bare import BarePath
from harness.deployment import Deployment, shop
from harness.live import ids_of, until_worked_off
from harness.memory import MemoryWatch
from harness.pace import Pace
from headrace.postgres.connection import connect, execute

BAR = 0.5
USERS = 500
MOST_SECONDS = 2.0
PACE_SECONDS = 0.5
PRODUCTS = """
INSERT INTO public.products (sku, name, price)
SELECT 'MANY-' || n, 'Product ' || n, n FROM generate_series(1, {0}) AS n
"""
TAGGED = """
INSERT INTO public.product_tags (product_id, tag_id)
SELECT id, (SELECT max(id) FROM public.tags) FROM public.products WHERE sku LIKE 'MANY-%'
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="60,000 products")
    count = 60_000 if parser.parse_args().quick else 100_000
    with shop(USERS, ready_within=600) as deployment:
        with connect(deployment.database) as connection:
            execute(connection, "INSERT INTO public.tags (name) VALUES ('many')")
            execute(connection, PRODUCTS.format(count))
            execute(connection, TAGGED)
            execute(connection, "ANALYZE")
        bare = BarePath(deployment)
        deployment.run.start()
        deployment.run.wait_ready()
        keys = ids_of(deployment, "SELECT id FROM public.products WHERE sku LIKE 'MANY-%' ORDER BY id")
        renamed(deployment, "warm-up")
        report.machine()
        with MemoryWatch(deployment.run.members) as memory:
            took = renamed(deployment, "alone")
            with Beside(deployment) as beside:
                renamed(deployment, "with others beside it")
        report.machine()
        deployment.run.terminate()
        _, limit = bare.rewrite([{"products": keys[:5_000]}, {"products": keys}])
    alone = limit.copy + limit.bulk
    rows = [
        ("bare: COPY, then _bulk", f"{alone:.1f}", f"{limit.documents / alone:,.0f}"),
        ("headrace", f"{took:.1f}", f"{count / took:,.0f}"),
    ]
    report.table((f"{count:,} documents", "seconds", "documents/s"), rows)
    report.times([("commit → document beside it", beside.seconds)])
    peaks = [(kind, f"{size / 2**20:,.0f}") for kind, size in sorted(memory.peaks.items())]
    report.table(("peak memory", "MiB"), peaks)
    held = [
        report.result("fanout", alone / took, BAR),
        report.result("fanout.beside_p99", MOST_SECONDS / report.quantile(beside.seconds, 99), 1.0),
    ]
    sys.exit(not all(held))


def renamed(deployment: Deployment, name: str) -> float:
    """The seconds from the statement's start until every document has the tag's new name."""
    begin = perf_counter()
    with connect(deployment.database) as connection:
        execute(
            connection,
            "UPDATE public.tags SET name = $1 WHERE id = (SELECT max(id) FROM public.tags)",
            (name,),
        )
    return until_worked_off(deployment) - begin


class Beside:
    """Small changes, for as long as this is entered; `seconds` until each was applied."""

    def __init__(self, deployment: Deployment) -> None:
        self.seconds: list[float] = []
        self._deployment = deployment
        self._users = ids_of(deployment, "SELECT id FROM public.users WHERE deleted_at IS NULL ORDER BY id")
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _write(self) -> None:
        number = 0
        while not self._done.wait(PACE_SECONDS):
            user = self._users[number % len(self._users)]
            self.seconds += Pace(self._deployment, [user]).measure()
            number += 1


if __name__ == "__main__":
    main()
