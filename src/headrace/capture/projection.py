"""Which columns of a changed row travel on? Of changes that only lead to documents: few.

The values of the others are skipped where the log is decoded: nothing copies them, whatever their size.
"""

from __future__ import annotations

import json
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
    """The columns of one table whose values travel.

    Attributes:
        leading: whose values lead to documents.
        compared: of which it is only asked whether they changed.
    """

    leading: frozenset[str]
    compared: frozenset[str] = frozenset()

    def __or__(self, other: KeptColumns) -> KeptColumns:
        return KeptColumns(self.leading | other.leading, self.compared | other.compared)

    def __le__(self, other: KeptColumns) -> bool:
        return self.leading <= other.leading and self.compared <= other.leading | other.compared

    def widest(self, column: str) -> int:
        """The bytes of the longest value of `column` that is kept; less than 0: none is."""
        if column in self.leading:
            return _ANY
        return WIDEST_COMPARED if column in self.compared else _NONE


Projection = Mapping[TableName, KeptColumns]
"""By the name under which a table's changes go on; of a table that is not here no value is kept."""

_NOTHING = KeptColumns(frozenset())


def widest_values(projection: Projection | None, relations: Iterable[Relation]) -> Numbers | None:
    """`KeptColumns.widest` of every column of `relations`, one table behind the other; None: all are kept."""
    if projection is None:
        return None
    kept = ((projection.get(relation.table, _NOTHING), relation) for relation in relations)
    return np.array([one.widest(name) for one, relation in kept for name in relation.names], np.int64)


def covers(projection: Projection, other: Projection) -> bool:
    """Whether `projection` keeps all that `other` does."""
    return all(columns <= projection.get(table, _NOTHING) for table, columns in other.items())


def to_text(projection: Projection) -> str:
    """As an option's value."""
    return json.dumps(
        [
            [table.schema, table.name, sorted(columns.leading), sorted(columns.compared)]
            for table, columns in projection.items()
        ]
    )


def from_text(text: str) -> Projection:
    """What `to_text` wrote.

    Raises:
        ValueError, TypeError: something else wrote it.
    """
    return {
        TableName(schema, table): KeptColumns(frozenset(leading), frozenset(compared))
        for schema, table, leading, compared in json.loads(text)
    }
