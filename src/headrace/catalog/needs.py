"""What must a table be like in the log, so that the plan of a run fits its changes?

Plain data, handed from the planning side to the source as an option.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.table import Catalog
from headrace.catalog.usage import Usage
from headrace.model import Lsn, TableName


@dataclass(frozen=True, slots=True)
class ColumnNeed:
    """A column that documents read.

    Attributes:
        type_oid, modifier: as the log describes it; None where the log does not hold the column.
        type: for people.
        since: changes whose commit record begins before this place may be of another shape, which the table
            had before: whatever reads them has read them already (bytes).
        carried: whether old rows must carry it.
    """

    type_oid: int | None
    modifier: int
    type: str
    since: Lsn
    carried: bool = False


@dataclass(frozen=True, slots=True)
class IndexNeeds:
    """What one index asks for; `as_of` is `since` for all that only it reads."""

    usage: Usage
    as_of: Lsn


@dataclass(frozen=True, slots=True)
class TableNeeds:
    """A table that documents read; `columns` by name."""

    oid: int
    columns: Mapping[str, ColumnNeed]


Needs = Mapping[TableName, TableNeeds]
"""By table, as documents name it."""


def stream_needs(
    indexes: Sequence[IndexNeeds],
    carried: Mapping[TableName, frozenset[str]],
    found: Fingerprint,
    catalog: Catalog,
) -> Needs:
    """What the log must hold for these indexes, of the tables as they were `found`.

    Args:
        carried: the columns that old rows must carry, by table.
    """
    needs: dict[TableName, TableNeeds] = {}
    for table, print_ in found.tables.items():
        readers = [one for one in indexes if table in one.usage]
        listed = [columns for _, columns, _ in print_.members]
        old = carried.get(table, frozenset())
        columns: dict[str, ColumnNeed] = {}
        for name in sorted(print_.columns.keys() | old):
            column, known = print_.columns.get(name), catalog[table].column(name)
            asked = [one.as_of for one in readers if name in one.usage[table] or name in old]
            if known is None or not asked:
                continue
            hidden = known.generated or (
                listed and all(part is not None and name not in part for part in listed)
            )
            columns[name] = ColumnNeed(
                None if column is None or hidden else column.type_oid,
                -1 if column is None else column.modifier,
                known.type,
                min(asked),
                name in old,
            )
        needs[table] = TableNeeds(print_.oid, columns)
    return needs


def to_text(needs: Needs) -> str:
    """As an option's value."""
    return json.dumps(
        [
            [
                *(table.schema, table.name, one.oid),
                [
                    [name, need.type_oid, need.modifier, need.type, need.since, need.carried]
                    for name, need in one.columns.items()
                ],
            ]
            for table, one in needs.items()
        ]
    )


def from_text(text: str) -> Needs:
    """What `to_text` wrote.

    Raises:
        ValueError, TypeError: something else wrote it.
    """
    return {
        TableName(schema, table): TableNeeds(oid, {name: ColumnNeed(*need) for name, *need in columns})
        for schema, table, oid, columns in json.loads(text)
    }
