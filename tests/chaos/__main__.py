"""`make chaos`: faults in turn, for as long as asked, with two writers and a comparison after each.

Exit code 1 where one document was wrong once, or the deployment did not come up again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from chaos.faults import FAULTS
from chaos.fixtures import FaultyDeployment, open_deployment

_WRITES = {"insert": "inserted", "link": "inserted", "delete": "deleted", "unlink": "deleted"}
_ENDS = {"commit": "committed", "rollback": "rolled back", "race": "lost a race", "lost": "lost a connection"}


def main(words: Sequence[str]) -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: 30)")
    parser.add_argument("--users", type=int, default=200, help="the size of the shop (default: 200)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="decides every moment")
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="only this; may be repeated")
    asked = parser.parse_args(words)
    names = asked.fault or list(FAULTS)
    _say(f"seed {asked.seed}")
    began = time.monotonic()
    struck: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    with open_deployment(asked.users, asked.seed) as here:
        try:
            wrong = _rounds(here, names, (struck, missed), began + asked.minutes * 60)
        except AssertionError as error:
            wrong = [str(error)]
        here.writers.end()
        _summary(names, struck, missed, here.writers.done, time.monotonic() - began)
    _say(f"{len(wrong)} differences")
    for line in wrong:
        _say(line)
    return 1 if wrong else 0


def _rounds(
    here: FaultyDeployment, names: Sequence[str], counts: tuple[Counter[str], ...], end: float
) -> list[str]:
    """Strike until the time is over; what was wrong, which ends it."""
    struck, missed = counts
    for name in _in_turn(here.random, names):
        if time.monotonic() > end:
            break
        begin = time.monotonic()
        _say(f"          {name} …")
        in_time = FAULTS[name](here)
        (struck if in_time else missed)[name] += 1
        wrong = here.settle()
        _say(f"{time.monotonic() - begin:6.1f} s  right{'' if in_time else ' (its moment did not come)'}")
        if wrong:
            return [f"after {name!r}:", *wrong, here.run.last_output()]
    return []


def _in_turn(chance: random.Random, names: Sequence[str]) -> Iterator[str]:
    """All of them again and again, each time in another order."""
    while True:
        yield from chance.sample(names, len(names))


def _summary(
    names: Sequence[str], struck: Counter[str], missed: Counter[str], done: Counter[str], seconds: float
) -> None:
    ended = {said: done.pop(name, 0) for name, said in _ENDS.items()}
    writes: Counter[str] = Counter()
    for name, count in done.items():
        writes[_WRITES.get(name.split()[0], "updated")] += count
    for name in names:
        _say(f"{struck[name]:6}  {name}" + (f" (and {missed[name]} out of time)" if missed[name] else ""))
    _say(f"{sum(struck.values())} faults in {seconds / 60:.1f} min; transactions: {_counted(ended)}")
    _say(f"writes: {_counted(writes)}")


def _counted(counts: dict[str, int] | Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a program for people


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
