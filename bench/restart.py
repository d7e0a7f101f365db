"""How soon after a kill -9 is a new document there? `python bench/restart.py [--users N] [--quick]`.

The whole tree is killed, a row is changed, the run is started again; there is no backfill. The clock runs
from the kill to the document.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from time import perf_counter

from harness import report
from harness.deployment import Deployment, shop
from harness.pace import PATIENCE_SECONDS, PAUSE_SECONDS, UPDATE, reader, some_users
from headrace.postgres.connection import connect, execute

BAR_SECONDS = 15.0
PGSYNC_SECONDS = 248.0
"""Not measured here."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (10,000)")
    parser.add_argument("--quick", action="store_true", help="500 users, 2 kills instead of 5")
    given = parser.parse_args()
    with shop(given.users or (500 if given.quick else 10_000), ready_within=900) as deployment:
        deployment.run.start()
        deployment.run.wait_ready()
        report.machine()
        users = some_users(deployment, 2 if given.quick else 5)
        taken = [killed(deployment, user) for user in users]
        report.machine()
        deployment.run.terminate()
    middle = statistics.median(taken)
    rows = [
        (f"kill -9 → document (median of {len(taken)})", f"{middle:.1f}"),
        ("slowest", f"{max(taken):.1f}"),
    ]
    report.table(("", "seconds"), [*rows, ("PGSync (not measured here)", f"{PGSYNC_SECONDS:.0f}")])
    sys.exit(not report.result("restart", BAR_SECONDS / middle, 1.0))


def killed(deployment: Deployment, user: int) -> float:
    """The seconds from a kill to the document of a change that is made while nothing runs."""
    token, read = f"named at {time.time_ns()}", reader(deployment.sink)
    begin = perf_counter()
    deployment.run.kill()
    with connect(deployment.database) as connection:
        execute(connection, UPDATE, (token, user))
    deployment.run.start()
    while read(user) != token:
        deployment.run.assert_running()
        assert perf_counter() < begin + PATIENCE_SECONDS, deployment.run.last_output()
        time.sleep(PAUSE_SECONDS)
    return perf_counter() - begin


if __name__ == "__main__":
    main()
