"""What does a command cost before it does anything? `python bench/cli_start.py [--quick]`.

The processor time of `headrace --help`, which loads no library of a server, and of `headrace lag`, which asks
PostgreSQL and OpenSearch.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys

from harness import report
from harness.deployment import NAME, shop

BARS_SECONDS = {"help": 0.25, "lag": 0.6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 calls of each instead of 20")
    given = parser.parse_args()
    count = 5 if given.quick else 20
    with shop(100) as deployment:
        deployment.run.start()
        deployment.run.wait_ready()
        deployment.run.terminate()
        slowness = report.machine()
        words = {"help": ["--help"], "lag": ["lag", "--config", str(deployment.config), "--slot", NAME]}
        used = {
            what: [processor_time(given_words) for _ in range(count)] for what, given_words in words.items()
        }
        slowness = (slowness + report.machine()) / 2
    medians = {what: statistics.median(each) for what, each in used.items()}
    rows = [(f"headrace {what}", f"{medians[what]:.2f}", f"{max(each):.2f}") for what, each in used.items()]
    report.table(("processor seconds", "median", "most"), rows)
    held = [
        report.result(f"cli_start.{what}", slowness * bar / medians[what], 1.0)
        for what, bar in BARS_SECONDS.items()
    ]
    sys.exit(not all(held))


def processor_time(words: list[str]) -> float:
    """The seconds of processor time that a command takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "headrace", *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
