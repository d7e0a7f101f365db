"""Record which ranges of a table have been read. Pure.

Blocks are stored as intervals, and adjacent intervals are joined: ranges are read nearly in order, so there
are never many. They are valid for one file only: a rewrite of the table gives it another filenode, and all of
it must be read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

from headrace.model import CtidRange, TableName

_Interval = tuple[int, int | None]
"""First and last block; None as last: all blocks from the first one on."""


@dataclass(frozen=True, slots=True)
class _File:
    """The blocks of one file that have been read."""

    filenode: int
    blocks: tuple[_Interval, ...] = ()


@dataclass(frozen=True, slots=True)
class RangesDone:
    """The blocks of an index's root table that have been read, leaf by leaf."""

    files: Mapping[TableName, _File] = field(default_factory=lambda: MappingProxyType({}))

    def done(self, part: CtidRange) -> Self:
        """Return the progress after `part` was read."""
        if part.table is None or part.filenode is None:
            return self
        known = self.files.get(part.table)
        if known is None or known.filenode != part.filenode:
            known = _File(part.filenode)
        blocks = _merge((*known.blocks, (part.first_block, part.last_block)))
        return replace(self, files={**self.files, part.table: replace(known, blocks=blocks)})

    def left(self, planned: Iterable[CtidRange]) -> list[CtidRange]:
        """Return what of these ranges is still to be read."""
        return [unread for part in planned for unread in self._unread(part)]

    def _unread(self, part: CtidRange) -> Iterator[CtidRange]:
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
        """Return the progress in JSON's types, as it is stored."""
        return [
            [table.schema, table.name, file.filenode, [list(interval) for interval in file.blocks]]
            for table, file in self.files.items()
        ]

    @classmethod
    def from_json(cls, stored: Iterable[Any]) -> Self:
        """Read what `to_json` returned.

        Raises:
            ValueError, TypeError: `to_json` did not write it.
        """
        return cls(
            {
                TableName(schema, table): _File(filenode, tuple((begin, end) for begin, end in blocks))
                for schema, table, filenode, blocks in stored
            }
        )


def _merge(intervals: Iterable[_Interval]) -> tuple[_Interval, ...]:
    """Return the same blocks in order, with adjacent intervals joined."""
    merged: list[_Interval] = []
    for begin, end in sorted(intervals, key=lambda interval: interval[0]):
        if merged:
            before, last = merged[-1]
            if last is None:
                break
            if begin <= last + 1:
                merged[-1] = before, None if end is None else max(last, end)
                continue
        merged.append((begin, end))
    return tuple(merged)
