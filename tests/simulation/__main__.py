"""`make simulate`: schedules by the thousand, in two processes; one that fails is shrunk to a short story."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import time
from collections.abc import Sequence

from simulation.schedule import EVENTS, run, shrink

_AT_ONCE = 200


def main(words: Sequence[str]) -> int:
    """Run; the exit code is 1 where a property was violated."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--schedules", type=int, default=20_000, help="how many (default: 20000)")
    parser.add_argument("--seed", type=int, help="only this schedule")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--processes", type=int, default=2, help="at once (default: 2)")
    asked = parser.parse_args(words)
    if asked.seed is not None:
        return _tell(asked.seed)
    began = time.monotonic()
    starts = range(asked.first, asked.first + asked.schedules, _AT_ONCE)
    with multiprocessing.Pool(asked.processes) as pool:
        for failed in pool.imap_unordered(_first_failure, starts):
            if failed is not None:
                pool.terminate()
                return _tell(failed)
    minutes = (time.monotonic() - began) / 60
    _say(f"{asked.schedules:,} schedules, {asked.schedules / minutes:,.0f} a minute: 0 violations")
    return 0


def _first_failure(start: int) -> int | None:
    # Worlds are small and many: collected once for some hundred, they cost a fifth less.
    gc.disable()
    gc.collect()
    return next((seed for seed in range(start, start + _AT_ONCE) if run(seed) is not None), None)


def _tell(seed: int) -> int:
    violation = run(seed)
    if violation is None:
        _say(f"seed {seed}: nothing is wrong")
        return 0
    left_out = shrink(seed)
    _say(str(run(seed, EVENTS, left_out) or violation))
    _say(f"{EVENTS - len(left_out)} of {EVENTS} events are left")
    return 1


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a program for people


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
