"""Does memory grow with a table? `python bench/seed_memory.py [--users N] [--quick]`.

An index is built anew, again with ten times the rows of its root table, and once more with one root that has
200,000 children, by processes that begin with it: those that applied the transactions that made the rows keep
what these needed. The highest share of memory (PSS) of each Python process may grow by a tenth; the document
of that one root is in one process as a whole, as it is in OpenSearch.
"""

from __future__ import annotations

import argparse
import json
import re
import sys

from harness import report
from harness.deployment import Deployment, shop
from harness.generations import built_anew
from harness.live import until_applied, written
from harness.memory import MemoryWatch
from headrace.postgres.connection import connect, execute

INDEX = "orders"
GROWTH = 1.1
TIMES = 10
CHILDREN = 200_000
MORE_ROOTS = """
INSERT INTO public.orders (reference, user_id, status, total, note)
SELECT gen_random_uuid(), user_id, status, total, note FROM public.orders, generate_series(2, $1)
"""
MORE_CHILDREN = """
INSERT INTO public.order_items (order_id, product_id, position, quantity, unit_price)
SELECT (SELECT min(id) FROM public.orders), 1 + i % 100, 100 + i % 30000, 1, 9.99
FROM generate_series(1, $1) AS i
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (4,000)")
    parser.add_argument("--quick", action="store_true", help="500 users, 20,000 children")
    given = parser.parse_args()
    report.machine()
    with shop(given.users or (500 if given.quick else 4_000), ready_within=900) as deployment:
        allow_many_children(deployment)
        deployment.run.start()
        deployment.run.wait_ready()
        cases = [("once", built(deployment))]
        change(deployment, MORE_ROOTS, TIMES)
        cases.append((f"{TIMES} times the rows", built(deployment)))
        change(deployment, MORE_CHILDREN, CHILDREN // (10 if given.quick else 1))
        cases.append(("one root with many children", built(deployment)))
        deployment.run.terminate()
    kinds = sorted(cases[0][1])
    rows = [(case, *(f"{found[kind] / 2**20:,.0f}" for kind in kinds)) for case, found in cases]
    report.table(("largest process, MiB", *kinds), rows)
    once, more = cases[0][1], cases[1][1]
    grown = max(more[kind] / once[kind] for kind in kinds if kind != "Java")
    sys.exit(not report.result("seed_memory", GROWTH / grown, 1.0))


def allow_many_children(deployment: Deployment) -> None:
    """OpenSearch takes 10,000 nested documents of one document unless it is told otherwise."""
    settings = {"index": {"mapping": {"nested_objects": {"limit": 10 * CHILDREN}}}}
    (deployment.config.parent / "settings.json").write_text(json.dumps(settings))
    text = re.sub(
        r"^(schema = .*)$",
        r'\1\nsettings_file = "settings.json"',
        deployment.config.read_text(),
        flags=re.MULTILINE,
    )
    deployment.config.write_text(text)


def built(deployment: Deployment) -> dict[str, int]:
    """The highest share of one process of each kind (bytes), while the index is built anew."""
    deployment.run.terminate()
    deployment.run.start()
    deployment.run.wait_ready()
    with MemoryWatch(deployment.run.members, seconds=0.1) as memory:
        built_anew(deployment, (INDEX,))
    return dict(memory.largest)


def change(deployment: Deployment, statement: str, number: int) -> None:
    """Run it, and wait until its documents are there."""
    with connect(deployment.database) as connection:
        execute(connection, statement, (number,))
    until_applied(deployment, written(deployment))


if __name__ == "__main__":
    main()
