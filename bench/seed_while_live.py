"""What do building and following cost each other? `python bench/seed_while_live.py [--users N] [--quick]`.

All indexes are built anew beside the stream: first alone, then with 200 commits a second, while single-row
updates at a fixed pace are waited for as readers see them. It also says what the commits leave of both
processors while nothing is built.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil

from harness import report
from harness.deployment import shop
from harness.generations import built_anew
from harness.pace import Pace, loaded, some_users

SPEED_BAR = 0.6
P99_SECONDS = 2.0
RATE = 200
AT_ONCE = 20
LOOKS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=None, help="size of the shop (50,000)")
    parser.add_argument("--quick", action="store_true", help="2,000 users")
    given = parser.parse_args()
    users = given.users or (2_000 if given.quick else 50_000)
    slowness = report.machine()
    with shop(users, ready_within=1800) as deployment:
        deployment.run.start()
        deployment.run.wait_ready()
        warm = some_users(deployment, 100)
        Pace(deployment, warm).measure()
        alone = built_anew(deployment)
        report.machine()
        latencies: list[float] = []
        with loaded(deployment, users, RATE), ThreadPoolExecutor(1) as threads:
            psutil.cpu_percent()
            for _ in range(LOOKS):
                Pace(deployment, some_users(deployment, AT_ONCE)).measure()
            left = 1 - psutil.cpu_percent() / 100
            building = threads.submit(built_anew, deployment)
            while not building.done():
                latencies += Pace(deployment, some_users(deployment, AT_ONCE)).measure()
        beside = building.result()
        slowness = (slowness + report.machine()) / 2
        deployment.run.terminate()
    rows = [("alone", f"{alone:.1f}"), (f"beside {RATE} commits/s", f"{beside:.1f}")]
    report.table(("all indexes built anew", "seconds"), rows)
    speed = alone / beside
    print(f"the commits alone leave {left:.2f} of both processors; building has {speed:.2f} of its speed")
    report.times([(f"commit → document meanwhile ({len(latencies)})", latencies)])
    held = [
        report.result("seed_while_live.speed", speed, SPEED_BAR),
        report.result("seed_while_live.p99", slowness * P99_SECONDS / report.quantile(latencies, 99), 1.0),
    ]
    sys.exit(not all(held))


if __name__ == "__main__":
    main()
