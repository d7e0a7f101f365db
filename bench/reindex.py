"""Do readers notice that an index is built anew? `python bench/reindex.py [--users N] [--quick]`.

Two readers never stop to count an alias and to fetch documents through it, beside 200 commits a second, while
its index is built anew and swapped. Every answer must come, and be whole.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import urllib3

from harness import report
from harness.deployment import PREFIX, Deployment, shop
from harness.generations import built_anew
from harness.pace import loaded, some_users

RATE = 200
READERS = 2
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (10,000)")
    parser.add_argument("--quick", action="store_true", help="1,000 users")
    given = parser.parse_args()
    users = given.users or (1_000 if given.quick else 10_000)
    report.machine()
    ended = threading.Event()
    with shop(users, ready_within=900) as deployment:
        deployment.run.start()
        deployment.run.wait_ready()
        with loaded(deployment, users, RATE), ThreadPoolExecutor(READERS) as threads:
            reading = [threads.submit(read, deployment, seed, ended) for seed in range(READERS)]
            try:
                seconds = [built_anew(deployment, ("users",)) for _ in range(ROUNDS)]
            finally:
                ended.set()
            found = sum((one.result() for one in reading), Counter())
        deployment.run.terminate()
    wrong = found["failed"] + found["missing"]
    rows = [(what, f"{found[what]:,}") for what in ("counts", "documents", "failed", "missing")]
    report.table((f"{ROUNDS} swaps, {sum(seconds):.1f} s", "answers"), rows)
    sys.exit(not report.result("reindex", 1.0 if found["documents"] and not wrong else 0.0, 1.0))


def read(deployment: Deployment, seed: int, ended: threading.Event) -> Counter[str]:
    """Counts and documents of the users' alias until the event; what was failed or missing."""
    chance = random.Random(seed)
    expected = some_users(deployment, 200)
    pool = urllib3.PoolManager(retries=False)
    alias = f"{deployment.sink}/{PREFIX}users"
    known = pool.request("GET", f"{alias}/_count").json()["count"]
    found: Counter[str] = Counter()
    while not ended.is_set():
        answer = pool.request("GET", f"{alias}/_count")
        found["counts"] += 1
        found["failed"] += answer.status != 200
        found["missing"] += answer.status == 200 and answer.json()["count"] != known
        answer = pool.request("GET", f"{alias}/_doc/{chance.choice(expected)}?_source=false")
        found["documents"] += 1
        found["failed"] += answer.status not in {200, 404}
        found["missing"] += answer.status == 404
    return found


if __name__ == "__main__":
    main()
