"""Run benchmarks and keep their ratios in `bench/history.jsonl`: `make bench-record ARGS="drain --quick"`."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import psutil

from harness import history, plot, report
from harness.history import Record

_FOLDER = Path(__file__).parents[1]
_RESULT = re.compile(r"RESULT (\S+) ratio=(\S+) bar=(\S+) ")
BENCHMARKS = (
    "drain",
    "seed",
    "live_bulk",
    "latency",
    "start",
    "seed_while_live",
    "source_stream",
    "source_backlog",
    "snapshot_rows",
    "run_memory",
    "cli_start",
)
"""Those whose ratios stand for the whole."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmarks", nargs="*", default=BENCHMARKS, help="names of files below bench/")
    parser.add_argument("--quick", action="store_true", help="each in short")
    parser.add_argument("--rounds", type=int, default=1, help="record medians of so many runs (1)")
    parser.add_argument("--reason", default="", help="why ratios fell, where they did")
    given = parser.parse_args()
    if unknown := [name for name in given.benchmarks if not (_FOLDER / f"{name}.py").is_file()]:
        parser.error(f"no benchmark is called {', '.join(unknown)}")
    arguments = ["--quick"] if given.quick else []
    for name in given.benchmarks:
        ratios = defaultdict(list)
        bars = {}
        slowness = report.machine()
        for _ in range(given.rounds):
            for result, ratio, bar in _run(name, arguments):
                ratios[result].append(ratio)
                bars[result] = bar
        history.append(
            Record(
                date=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
                commit=_commit(),
                machine=_machine(),
                slowness=round(slowness, 2),
                name=result,
                arguments=" ".join(arguments),
                ratio=round(statistics.median(found), 3),
                bar=bars[result],
                reason=given.reason,
            )
            for result, found in ratios.items()
        )
    plot.draw(history.load())
    sys.exit("\n".join(history.unexplained_falls(history.load())) or 0)


def _run(name: str, arguments: list[str]) -> Iterator[tuple[str, float, float]]:
    """Run a benchmark, show what it prints, and yield its ratios with their bars."""
    command = [sys.executable, str(_FOLDER / f"{name}.py"), *arguments]
    found = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if match := _RESULT.match(line):
                found += 1
                yield match[1], float(match[2]), float(match[3])
    if not found:
        sys.exit(f"{name} ended with {process.returncode} and without a result; nothing of it is recorded")


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.check_output(["git", *words], cwd=_FOLDER, text=True).strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!history.jsonl", "../src")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def _machine() -> str:
    return f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB"


if __name__ == "__main__":
    main()
