"""Group the ranges of a table into units, each of which makes about one file. Pure."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from headrace.mirror.files import DataFile
from headrace.mirror.load_units import CONNECTIONS, NotedUnit
from headrace.model.names import CtidRange
from headrace.snapshot import PlannedPart, RangesDone

_FILLED = 0.8
"""What a unit aims at; one that exceeds the size of a file makes a second, small one."""
_SHARES = 2 * CONNECTIONS
"""A unit has at most one of so many shares of what is left: connections end at about the same time."""

Ranges = tuple[CtidRange, ...]


class UnitPlan:
    """Yields the ranges of unit after unit; what it learns of those that are done makes the next ones' size.

    Args:
        parts: the parts of a table.
        noted: what of them need not be read.
        file_bytes: the size of data files, about.
    """

    def __init__(self, parts: Iterable[PlannedPart], noted: Iterable[NotedUnit], file_bytes: int) -> None:
        known = (range_ for unit in noted for range_ in unit.ranges)
        done = functools.reduce(RangesDone.done, known, RangesDone())
        self._parts = deque(_left(parts, done))
        self._file_bytes = file_bytes
        # Nothing tells at first how many blocks fill a file: the first units are single parts.
        self._wanted = 1.0
        self._blocks: dict[Ranges, int] = {}

    def __iter__(self) -> Iterator[Ranges]:
        """Yield units as long as there are any."""
        while self._parts:
            # Towards the end units become smaller, so that no connection works alone.
            share = sum(part.blocks or 0 for part in self._parts) / _SHARES
            ranges, blocks = self._take()
            # A part of which nobody knows the blocks is a unit of its own.
            while (
                self._parts
                and blocks
                and blocks + (self._parts[0].blocks or share) <= min(self._wanted, share)
            ):
                more, number = self._take()
                ranges, blocks = ranges + more, blocks + number
            self._blocks[ranges] = blocks
            yield ranges

    def learn(self, ranges: Ranges, files: Sequence[DataFile]) -> None:
        """Take note of the files that a unit made."""
        # A unit may make several files: the largest one says how full it makes a file.
        largest = max((file.size for file in files), default=0)
        if largest and ranges in self._blocks:
            self._wanted = self._blocks[ranges] * _FILLED * self._file_bytes / largest

    def _take(self) -> tuple[Ranges, int]:
        part = self._parts.popleft()
        return part.ranges, part.blocks or 0


def _left(parts: Iterable[PlannedPart], done: RangesDone) -> Iterator[PlannedPart]:
    for part in parts:
        ranges = tuple(done.left(part.ranges))
        if ranges == part.ranges:
            yield part
        elif ranges:
            known = [
                range_.last_block - range_.first_block + 1
                for range_ in ranges
                if range_.last_block is not None
            ]
            # 0 would say that nobody knows how many blocks there are.
            yield PlannedPart(ranges, max(1, sum(known)))
