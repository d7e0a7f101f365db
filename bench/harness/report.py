"""Print what a benchmark found: tables for people, RESULT lines for scripts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

from rich.console import Console
from rich.table import Table

QUANTILES = (50, 90, 99)
_ADDITIONS, _HEALTHY_SECONDS = 3_000_000, 0.15


def quantile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(percent) // 100) - 1)]


def times(times_of: Sequence[tuple[str, Sequence[float]]]) -> None:
    """Print quantiles in milliseconds of several samples in seconds."""
    rows = [
        (what, *(f"{1000 * quantile(sample, q):.1f}" for q in QUANTILES), f"{1000 * max(sample):.1f}")
        for what, sample in times_of
    ]
    table(("milliseconds", *(f"p{q}" for q in QUANTILES), "max"), rows)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; all columns but the first hold numbers."""
    made = Table(box=None, pad_edge=False)
    for place, heading in enumerate(headings):
        made.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    Console(width=110).print(made)


def result(name: str, ratio: float, bar: float) -> bool:
    """Print the line for one bar; whether it is held. A ratio is always better when higher."""
    held = ratio >= bar
    print(f"RESULT {name} ratio={ratio:.3f} bar={bar} {'pass' if held else 'fail'}", flush=True)
    return held


def paired(with_it: Sequence[float], without: Sequence[float]) -> float:
    """The median ratio of measurements that were made in pairs."""
    return median(one / other for one, other in zip(with_it, without, strict=True))


def machine() -> float:
    """Print what the numbers depend on; return how many times slower than a healthy machine this one is now.

    A healthy one adds three million numbers in Python in 0.15 s. One that is faster counts as healthy.
    """
    begin = perf_counter()
    total = 0
    for number in range(_ADDITIONS):
        total += number
    slowness = max(1.0, (perf_counter() - begin) / _HEALTHY_SECONDS)
    load = ", ".join(f"{minutes:.1f}" for minutes in os.getloadavg())
    print(
        f"{os.cpu_count()} cores at 1/{slowness:.1f} of a healthy machine's speed, load average {load}, "
        f"Python {sys.version.split()[0]}",
        flush=True,
    )
    return slowness


def timed(action: Callable[[], object], count: int) -> list[float]:
    """The seconds that each of `count` calls took, behind three that nobody counts."""
    taken = []
    for number in range(count + 3):
        begin = perf_counter()
        action()
        if number >= 3:
            taken.append(perf_counter() - begin)
    return taken
