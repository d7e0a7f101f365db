"""`python -m support.soak`: random cases for as long as asked.

Exit code 1 where one failed; its number stands in the file of failures, with what was wrong and with its
shrunk form.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty

from support.soak.case_run import Outcome
from support.soak.cases import make_case
from support.soak.fixtures import CaseRunner, case_runner

_SAID_EVERY = 15.0


@dataclass(frozen=True, slots=True)
class _Asked:
    seeds: tuple[int, ...]
    first: int
    minutes: float
    processes: int
    failures: Path
    shrink_case: float
    binaries: Path | None


def _asked(words: Sequence[str]) -> _Asked:
    parser = argparse.ArgumentParser(prog="python -m support.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument(
        "--seed", type=int, action="append", default=[], help="only this case; may be repeated"
    )
    parser.add_argument(
        "--first", type=int, default=None, help="count from this number (default: a random one)"
    )
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--failures", type=Path, default=Path("soak-failures.txt"), help="where failures go")
    parser.add_argument(
        "--shrink_case", type=float, default=120.0, help="seconds for each failure (0: not at all)"
    )
    parser.add_argument("--postgres", type=Path, default=None, help="bin folder of another PostgreSQL")
    found = parser.parse_args(words)
    first = random.randrange(1 << 40) if found.first is None else found.first
    return _Asked(
        tuple(found.seed),
        first,
        found.minutes,
        found.processes,
        found.failures,
        found.shrink_case,
        found.postgres,
    )


def main(words: Sequence[str]) -> int:
    """Run; the exit code."""
    asked = _asked(words)
    told: Queue[tuple[int, Outcome, str]] = multiprocessing.Queue()
    count = 1 if asked.seeds else asked.processes
    workers = [multiprocessing.Process(target=_work, args=(asked, number, told)) for number in range(count)]
    for worker in workers:
        worker.start()
    try:
        return _watch(asked, workers, told)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def _work(asked: _Asked, number: int, told: Queue[tuple[int, Outcome, str]]) -> None:
    logging.disable(logging.ERROR)  # connections that a case cuts are no news
    end = time.monotonic() + asked.minutes * 60
    with case_runner(asked.binaries) as here:
        if asked.seeds:
            for seed in asked.seeds:
                _one(here, seed, asked, told)
            return
        seed = asked.first + number
        while time.monotonic() < end:
            _one(here, seed, asked, told)
            seed += asked.processes


def _one(here: CaseRunner, seed: int, asked: _Asked, told: Queue[tuple[int, Outcome, str]]) -> None:
    case = make_case(seed)
    outcome, short = here.run(case), ""
    if outcome.wrong and asked.shrink_case:
        short = here.shrink(case, outcome.wrong, asked.shrink_case).text()
    told.put((seed, outcome, short or (case.text() if outcome.wrong else "")))


def _watch(
    asked: _Asked, workers: Sequence[multiprocessing.Process], told: Queue[tuple[int, Outcome, str]]
) -> int:
    """Count what is told, until nobody works any more."""
    counts: Counter[str] = Counter()
    began = said = time.monotonic()
    while True:
        try:
            seed, outcome, text = told.get(timeout=1.0)
        except Empty:
            if not any(worker.is_alive() for worker in workers):
                break
            continue
        _count(counts, outcome)
        if outcome.cut_off:
            print(f"  took too long: --seed {seed}", flush=True)  # noqa: T201
        if outcome.wrong:
            _note(asked.failures, seed, outcome, text)
        if time.monotonic() - said > _SAID_EVERY:
            said = time.monotonic()
            print(_line(counts, said - began), flush=True)  # noqa: T201 - a program for people
    print(_line(counts, time.monotonic() - began))  # noqa: T201
    crashed = any(worker.exitcode for worker in workers)
    return 1 if counts["failures"] or crashed or not counts["workloads"] else 0


def _count(counts: Counter[str], outcome: Outcome) -> None:
    counts["workloads"] += 1
    counts["failures"] += bool(outcome.wrong)
    counts["cut off"] += outcome.cut_off
    for name in (
        "compared",
        "statements",
        "refused",
        "batches",
        "restarts",
        "deferred",
        "rejected",
        "rebuilt",
    ):
        counts[name] += getattr(outcome, name)


def _line(counts: Counter[str], seconds: float) -> str:
    return (
        f"{seconds / 60:6.1f} min  {counts['workloads']} workloads, {counts['failures']} failures, "
        f"{counts['cut off']} cut off; "
        f"{counts['statements']} statements ({counts['refused']} refused), {counts['batches']} batches, "
        f"{counts['restarts']} restarts, {counts['deferred']} deferred chunks, "
        f"{counts['rejected']} batches refused, {counts['rebuilt']} times built anew, "
        f"{counts['compared']} documents compared"
    )


def _note(path: Path, seed: int, outcome: Outcome, text: str) -> None:
    lines = [f"seed {seed}", *(f"  {line.rstrip()}" for line in outcome.wrong), text, ""]
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(lines))
    print("\n".join(lines[: len(outcome.wrong) + 1]), flush=True)  # noqa: T201
    print(f"  (shrunk in {path}; again: --seed {seed})", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
