"""What benchmarks found, commit by commit: `bench/history.jsonl`.

A ratio is measured against a limit or a peer in the same run, or against a bar that is scaled by the
machine's speed; so ratios of one kind of machine can be compared.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PATH = Path(__file__).parents[1] / "history.jsonl"
FALL = 0.1
"""The share of a ratio whose loss has to be explained."""


@dataclass(frozen=True, slots=True)
class Record:
    """One ratio of one benchmark; higher is better.

    Attributes:
        date: ISO, UTC.
        commit: abbreviated; with a `+` where files were changed and not committed.
        machine: its kind, by cores and memory.
        slowness: how many times slower than a healthy machine it was.
        arguments: of the benchmark.
        reason: why it fell, where it did.
    """

    date: str
    commit: str
    machine: str
    slowness: float
    name: str
    arguments: str
    ratio: float
    bar: float
    reason: str = ""


def load(path: Path = PATH) -> list[Record]:
    """Read all records, oldest first."""
    return [Record(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def append(records: Iterable[Record], path: Path = PATH) -> None:
    """Add records at the end of the file."""
    with path.open("a") as file:
        file.writelines(json.dumps(asdict(record)) + "\n" for record in records)


def series(records: Iterable[Record]) -> dict[tuple[str, str, str], list[Record]]:
    """Group records that can be compared: of one name, with the same arguments, on one kind of machine."""
    groups = defaultdict(list)
    for record in records:
        groups[record.name, record.arguments, record.machine].append(record)
    return dict(groups)


def unexplained_falls(records: Iterable[Record]) -> Iterator[str]:
    """Describe each last ratio that is lower than the one before by more than `FALL`, and says no reason."""
    for group in series(records).values():
        if len(group) > 1 and group[-1].ratio < (1 - FALL) * group[-2].ratio and not group[-1].reason:
            before, last = group[-2:]
            yield (
                f"{last.name} fell from {before.ratio:.3f} ({before.commit}) to {last.ratio:.3f} "
                f"({last.commit}) on {last.machine}: mend it, or record it with --reason"
            )
