"""Follow a filling from outside: when it reached what, and whose processor time that took."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from time import perf_counter

from harness import report
from harness.deployment import Deployment
from harness.processor import ProcessorWatch

_LOOK_SECONDS = 0.1
_BEGINS_WITHIN, _ENDS_WITHIN = 300.0, 3600.0
STAGES = ("first ranges written", "last range written", "published")


@dataclass(frozen=True, slots=True)
class Filling:
    """One filling.

    Attributes:
        documents: of all indexes.
        reached: for each of `STAGES`, seconds since the filling began.
        spent: for each of `STAGES`, the processor seconds since the stage before, by kind of process.
    """

    documents: int
    reached: tuple[float, ...]
    spent: tuple[Counter[str], ...]

    @property
    def seconds(self) -> float:
        """Until the last index was published."""
        return self.reached[-1]

    def show(self) -> None:
        """Print where the time went."""
        kinds = sorted(set().union(*self.spent))
        rows = [("seconds since it began", *(f"{seconds:.1f}" for seconds in self.reached))]
        rows += [
            (f"processor seconds of {kind}", *(f"{spent[kind]:.1f}" for spent in self.spent))
            for kind in kinds
            if sum(spent[kind] for spent in self.spent) >= 0.05
        ]
        report.table(("until", *STAGES), rows)


def fill(deployment: Deployment) -> Filling:
    """Start the run and follow its filling, from its beginning: Spark's start is left out."""
    run = deployment.run
    with ProcessorWatch() as processor:
        run.start()
        run.wait_until(lambda: "backfilling" in _phases(deployment), "did not begin to seed", _BEGINS_WITHIN)
        begin, counted = perf_counter(), processor.seconds()
        reached: list[float] = []
        spent: list[Counter[str]] = []
        while len(reached) < len(STAGES):
            run.assert_running()
            assert perf_counter() < begin + _ENDS_WITHIN, run.last_output()
            for _ in range(len(reached), _stages_reached(deployment)):
                reached.append(perf_counter() - begin)
                now = processor.seconds()
                spent.append(now - counted)
                counted = now
            time.sleep(_LOOK_SECONDS)
    documents = sum(index["documents"] for index in run.status()["indexes"])
    return Filling(documents, tuple(reached), tuple(spent))


def _phases(deployment: Deployment) -> set[str]:
    return {index["phase"] for index in deployment.run.status().get("indexes", ())}


def _stages_reached(deployment: Deployment) -> int:
    """How many of `STAGES` are reached."""
    indexes = deployment.run.status()["indexes"]
    if {index["phase"] for index in indexes} == {"live"}:
        return 3
    if all(0 < index["ranges_total"] <= index["ranges_done"] for index in indexes):
        return 2
    return int(any(index["ranges_done"] for index in indexes))
