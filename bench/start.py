"""How long is a start? `python bench/start.py [--users N] [--quick]`.

The first start backfills, the others have nothing to backfill. "ready": from the command to ready, after an
orderly stop. "killed": the whole tree is killed, a row is changed, the run is started again; from the kill to
the document.
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

READY_SECONDS = 8.0
KILLED_SECONDS = 9.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (10,000)")
    parser.add_argument("--quick", action="store_true", help="500 users, 2 starts of each kind instead of 5")
    given = parser.parse_args()
    with shop(given.users or (500 if given.quick else 10_000), ready_within=900) as deployment:
        first = ready(deployment)
        slowness = report.machine()
        users = some_users(deployment, 2 if given.quick else 5)
        again = [ready_again(deployment) for _ in users]
        taken = [killed(deployment, user) for user in users]
        slowness = (slowness + report.machine()) / 2
        deployment.run.terminate()
    rows = [
        ("command → ready, nothing to backfill (median)", f"{statistics.median(again):.1f}"),
        ("slowest", f"{max(again):.1f}"),
        (f"kill -9 → document (median of {len(taken)})", f"{statistics.median(taken):.1f}"),
        ("slowest", f"{max(taken):.1f}"),
        ("command → ready, everything to backfill", f"{first:.1f}"),
    ]
    report.table(("", "seconds"), rows)
    held = [
        report.result("start_ready", slowness * READY_SECONDS / statistics.median(again), 1.0),
        report.result("start_killed", slowness * KILLED_SECONDS / statistics.median(taken), 1.0),
    ]
    sys.exit(not all(held))


def ready_again(deployment: Deployment) -> float:
    """The seconds from the command to ready, after an orderly stop."""
    deployment.run.terminate()
    return ready(deployment)


def ready(deployment: Deployment) -> float:
    """The seconds from the command to ready."""
    begin = perf_counter()
    deployment.run.start()
    deployment.run.wait_ready()
    return perf_counter() - begin


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
