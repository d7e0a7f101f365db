"""Tell whether the names in a changed row of the log are those of the columns that they seem to be. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.changes import Op

BETWEEN = "\0"  # no name has it
_SIDES = ((Op.INSERT, "after"), (Op.UPDATE, "after"), (Op.UPDATE, "before"), (Op.DELETE, "before"))
_ROWS = 1 << 13
"""Whose names are joined at once: 1,600 columns with long names fit into one Arrow array."""


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The names that a table's columns had in some part of the log, by number.

    Attributes:
        numbers: the number of each name; a renamed column has two.
        always: the columns that every row has, but for large values that an update did not touch.
        added: the columns that were added meanwhile.
        uncertain: those whose values a row may have under another name than the columns of `numbers` have:
            what was added or altered may have been called otherwise in between. Where there is more than
            one, rows have their columns in the order of their numbers (`drift.py`).
    """

    numbers: Mapping[str, int]
    always: frozenset[int]
    added: tuple[int, ...] = ()
    uncertain: frozenset[int] = frozenset()

    @classmethod
    def between(
        cls, before: Mapping[str, int], now: Mapping[str, int], altered: frozenset[int] = frozenset()
    ) -> Self:
        """Return the names of the time between two looks at the catalog.

        Args:
            before: the numbers of the columns in the log at the first look.
            now: those at the second look; no name has another number than before.
            altered: the columns that were altered in between, by a RENAME too; one may have its name again.
        """
        old, new = frozenset(before.values()), frozenset(now.values())
        return cls({**before, **now}, old & new, tuple(sorted(new - old)), (new - old) | (altered & new))

    def tell(self, names: Sequence[str], *, is_inserted: bool) -> bool:
        """Tell whether a row with these names has the values of the columns that are called so.

        A row has the columns that its table has always, and of those that were added the first ones. Where it
        has all of them, they are known by their place; else by their names, where these are in no doubt.
        """
        found = [self.numbers.get(name, 0) for name in names]
        present = {*found}
        is_whole = self.always <= present
        added = [number for number in self.added if number in present]
        if 0 in present or len(present) < len(found) or (is_inserted and not is_whole):
            return False
        if (*added,) != self.added[: len(added)]:
            return False
        uncertain = present & self.uncertain
        # One column alone cannot have swapped its name with another one.
        if len(self.uncertain) <= 1 or not uncertain:
            return True
        return found == sorted(present) and (is_whole or uncertain == self.uncertain)


def rows_names(changes: pa.RecordBatch, chosen: pa.Array) -> Iterator[tuple[list[str], bool]]:
    """Yield the names that rows of changes have, each list of them once, and whether they were inserted.

    Args:
        changes: in `CHANGES_SCHEMA`.
        chosen: which of them count.
    """
    for op, side in _SIDES:
        is_chosen = pc.and_(chosen, pc.equal(changes.column("op"), op.value))
        rows = changes.column(side)
        names = pa.ListArray.from_arrays(rows.offsets, rows.keys)
        found: set[str] = set()
        for start in range(0, len(names) if is_chosen.true_count else 0, _ROWS):
            some = names.slice(start, _ROWS).filter(is_chosen.slice(start, _ROWS))
            found.update(pc.unique(pc.binary_join(some, BETWEEN)).to_pylist())
        for text in sorted(found - {""}):
            yield text.split(BETWEEN), op is Op.INSERT
