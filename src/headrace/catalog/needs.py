"""Describe what the log must carry of each table, for the plan of a run to fit its changes.

The pipeline passes it to its source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.table import Catalog
from headrace.catalog.usage import Usage
from headrace.model.lsn import Lsn
from headrace.model.names import TableName


@dataclass(frozen=True, slots=True)
class ColumnNeed:
    """A column that documents read.

    Attributes:
        type_oid, modifier: the type, as the log describes it; None where the log does not carry the column.
        type: the type's name for people.
        since: changes whose commit record begins before this position (bytes) may have an older definition of
            the table: every index that needs them has read them already.
        carried: whether old rows must carry it.
    """

    type_oid: int | None
    modifier: int
    type: str
    since: Lsn
    carried: bool = False


@dataclass(frozen=True, slots=True)
class IndexNeeds:
    """The columns that one index reads; `as_of` becomes `since` of those that only it reads."""

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
    """Return what the log must carry for these indexes, given the tables of the fingerprint `found`.

    Args:
        carried: the columns that old rows must carry, by table.
    """
    needs: dict[TableName, TableNeeds] = {}
    for table, print_ in found.tables.items():
        readers = [index for index in indexes if table in index.usage]
        listed = [columns for _, columns, _ in print_.members]
        old = carried.get(table, frozenset())
        columns: dict[str, ColumnNeed] = {}
        for name in sorted(print_.columns.keys() | old):
            column, known = print_.columns.get(name), catalog[table].column(name)
            positions = [reader.as_of for reader in readers if name in reader.usage[table] or name in old]
            if known is None or not positions:
                continue
            hidden = known.generated or (
                listed and all(part is not None and name not in part for part in listed)
            )
            columns[name] = ColumnNeed(
                None if column is None or hidden else column.type_oid,
                -1 if column is None else column.modifier,
                known.type,
                min(positions),
                name in old,
            )
        needs[table] = TableNeeds(print_.oid, columns)
    return needs
