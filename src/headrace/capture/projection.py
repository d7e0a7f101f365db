"""Select the columns whose values are decoded from the log.

Changes that only lead to documents need few columns. The values of the others are skipped while the log is
decoded and never copied, whatever their size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from headrace.model import TableName
from headrace.pgoutput import Relation
from headrace.pgoutput.batch import Numbers

WIDEST_COMPARED = 1 << 20
"""Bytes of a value that is only compared; a longer one is left out, and then counts as changed."""

_NONE, _ANY = -1, 1 << 40


@dataclass(frozen=True, slots=True)
class KeptColumns:
    """The columns of one table whose values are kept.

    Attributes:
        leading: columns whose values lead to documents.
        compared: columns that are only compared, to see whether they changed.
    """

    leading: frozenset[str]
    compared: frozenset[str] = frozenset()

    def __or__(self, other: KeptColumns) -> KeptColumns:
        return KeptColumns(self.leading | other.leading, self.compared | other.compared)

    def __le__(self, other: KeptColumns) -> bool:
        return self.leading <= other.leading and self.compared <= other.leading | other.compared

    def widest(self, column: str) -> int:
        """Return the size of the longest value of `column` that is kept (bytes); negative: none is."""
        if column in self.leading:
            return _ANY
        return WIDEST_COMPARED if column in self.compared else _NONE


Projection = Mapping[TableName, KeptColumns]
"""The kept columns by the table's name in the changes; of a table that is absent no value is kept."""

_NOTHING = KeptColumns(frozenset())


def widest_values(projection: Projection | None, relations: Iterable[Relation]) -> Numbers | None:
    """Return `KeptColumns.widest` of every column of `relations`, in order; None: all values are kept."""
    if projection is None:
        return None
    kept = ((projection.get(relation.table, _NOTHING), relation) for relation in relations)
    return np.array([columns.widest(name) for columns, relation in kept for name in relation.names], np.int64)


def covers(projection: Projection, other: Projection) -> bool:
    """Return whether `projection` keeps everything that `other` keeps."""
    return all(columns <= projection.get(table, _NOTHING) for table, columns in other.items())
