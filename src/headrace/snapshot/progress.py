"""Which ranges of a table are read already, in few words? Pure.

Blocks are kept as intervals, neighbours as one: ranges are read nearly in order, so there are never many.
They count for one file only: a rewrite of the table gives it another, and all is to be read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

from headrace.model import CtidRange, TableName

_Interval = tuple[int, int | None]
"""First and last block; None is open: whatever is behind the first one."""


@dataclass(frozen=True, slots=True)
class _File:
    """What is read of one file."""

    filenode: int
    blocks: tuple[_Interval, ...] = ()


@dataclass(frozen=True, slots=True)
class RangesDone:
    """What is read of one index's root table, leaf by leaf."""

    files: Mapping[TableName, _File] = field(default_factory=lambda: MappingProxyType({}))

    def done(self, part: CtidRange) -> Self:
        """With `part`, too."""
        if part.table is None or part.filenode is None:
            return self
        known = self.files.get(part.table)
        if known is None or known.filenode != part.filenode:
            known = _File(part.filenode)
        blocks = _merged((*known.blocks, (part.first_block, part.last_block)))
        return replace(self, files={**self.files, part.table: replace(known, blocks=blocks)})

    def left(self, planned: Iterable[CtidRange]) -> list[CtidRange]:
        """What of these ranges is still to be read."""
        return [rest for part in planned for rest in self._rest(part)]

    def _rest(self, part: CtidRange) -> Iterator[CtidRange]:
        known = None if part.table is None else self.files.get(part.table)
        if known is None or known.filenode != part.filenode:
            yield part
            return
        first: int | None = part.first_block
        for begin, end in known.blocks:
            if first is None or (part.last_block is not None and begin > part.last_block):
                break
            if end is not None and end < first:
                continue
            if begin > first:
                yield replace(part, first_block=first, last_block=begin - 1)
            first = None if end is None else end + 1
        if first is not None and (part.last_block is None or first <= part.last_block):
            yield replace(part, first_block=first)

    def to_json(self) -> list[Any]:
        """As it is kept."""
        return [
            [table.schema, table.name, one.filenode, [list(interval) for interval in one.blocks]]
            for table, one in self.files.items()
        ]

    @classmethod
    def from_json(cls, found: Iterable[Any]) -> Self:
        """What `to_json` made.

        Raises:
            ValueError, TypeError: something else wrote it.
        """
        return cls(
            {
                TableName(schema, table): _File(filenode, tuple((begin, end) for begin, end in blocks))
                for schema, table, filenode, blocks in found
            }
        )


def _merged(intervals: Iterable[_Interval]) -> tuple[_Interval, ...]:
    """The same blocks in order, with neighbours as one."""
    found: list[_Interval] = []
    for begin, end in sorted(intervals, key=lambda one: one[0]):
        if found:
            before, last = found[-1]
            if last is None:
                break
            if begin <= last + 1:
                found[-1] = before, None if end is None else max(last, end)
                continue
        found.append((begin, end))
    return tuple(found)
