"""How soon does a run that stands by take over? `python bench/takeover.py [--quick]`.

Two runs of one deployment: one works, one stands by. The first is killed (kill -9), or it vanishes: all of
its processes are suspended, so that its sessions stay open. Then a row is changed; the clock runs from the
fault to the document. One that vanished is woken up afterwards, and has to end itself.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from time import perf_counter

from harness import report
from harness.deployment import NAME, Deployment, shop
from harness.pace import PATIENCE_SECONDS, PAUSE_SECONDS, UPDATE, reader, some_users
from headrace.postgres.connection import connect, execute
from support.driven_run import DrivenRun

KILLED_SECONDS, VANISHED_SECONDS = 5.0, 20.0
IDLE_SECONDS = 5.0
"""How long the second one stands by before the first is gone."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (10,000)")
    parser.add_argument("--quick", action="store_true", help="500 users, each case twice instead of 4 times")
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds that the second one waits")
    given = parser.parse_args()
    count = 2 if given.quick else 4
    with shop(given.users or (500 if given.quick else 10_000), ready_within=900) as deployment:
        users = iter(some_users(deployment, 2 * count))
        runs = Pair(deployment)
        try:
            report.machine()
            killed = [runs.take_over(DrivenRun.kill, next(users), given.idle) for _ in range(count)]
            vanished = [runs.take_over(DrivenRun.suspend, next(users), given.idle) for _ in range(count)]
            report.machine()
        finally:
            runs.close()
    rows = [
        (what, f"{statistics.median(taken):.1f}", f"{max(taken):.1f}")
        for what, taken in (("kill -9 → document", killed), ("vanished → document", vanished))
    ]
    report.table(("seconds", "median", "slowest"), rows)
    held = report.result("takeover_killed", KILLED_SECONDS / statistics.median(killed), 1.0)
    held &= report.result("takeover_vanished", VANISHED_SECONDS / statistics.median(vanished), 1.0)
    sys.exit(not held)


class Pair:
    """Two runs of one deployment, of which one works."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._number = 0
        self._working = self._started()
        self._working.wait_ready()

    def take_over(self, fault: Callable[[DrivenRun], None], user: int, idle: float) -> float:
        """The seconds from a fault of the working run to the document that the other one writes."""
        standing_by, first = self._started(), self._working
        try:
            standing_by.wait_until(lambda: standing_by.status().get("phase") == "standby", "stood not by", 60)
            time.sleep(idle)
            token, read = f"named at {time.time_ns()}", reader(self._deployment.sink)
            begin = perf_counter()
            fault(first)
            with connect(self._deployment.database) as connection:
                execute(connection, UPDATE, (token, user))
            while read(user) != token:
                standing_by.assert_running()
                assert perf_counter() < begin + PATIENCE_SECONDS, standing_by.last_output()
                time.sleep(PAUSE_SECONDS)
            taken = perf_counter() - begin
            standing_by.wait_ready()
            if first.members():
                first.resume()
                assert first.wait_end(60) != 0, "it came back, and did not end itself"
        finally:
            first.close()
            self._working = standing_by
        return taken

    def close(self) -> None:
        """End what runs."""
        self._working.close()

    def _started(self) -> DrivenRun:
        self._number += 1
        config = self._deployment.config
        run = DrivenRun(config, NAME, config.parent.parent, output=f"{NAME}{self._number}", ready_within=900)
        run.arguments = ("--standby",)
        run.start()
        return run


if __name__ == "__main__":
    main()
