"""Describe what the log must carry of each table, for the plan of a run to fit its changes.

The pipeline passes it to its source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.catalog.fingerprint import Fingerprint, TablePrint
from headrace.catalog.table import Catalog, Column
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
        readers = [(index.usage[table], index.as_of) for index in indexes if table in index.usage]
        old = carried.get(table, frozenset())
        columns: dict[str, ColumnNeed] = {}
        for name in sorted(print_.columns.keys() | old):
            known = catalog[table].column(name)
            positions = [as_of for read, as_of in readers if name in read or name in old]
            if known is not None and positions:
                # The earliest reader decides: it still needs changes that later ones do not.
                columns[name] = _column_need(print_, known, min(positions), carried=name in old)
        needs[table] = TableNeeds(print_.oid, columns)
    return needs


def _column_need(print_: TablePrint, known: Column, since: Lsn, *, carried: bool) -> ColumnNeed:
    column = print_.columns.get(known.name)
    if column is None:
        return ColumnNeed(None, -1, known.type, since, carried)
    is_sent = not known.generated and not _is_hidden(print_, known.name)
    return ColumnNeed(column.type_oid if is_sent else None, column.modifier, known.type, since, carried)


def _is_hidden(print_: TablePrint, name: str) -> bool:
    """Return whether every membership in the publication has a column list, and none of them this column."""
    # A table that is published twice, as with its schema, is sent with the union of the lists.
    lists = [columns for _, columns, _ in print_.members]
    return bool(lists) and all(listed is not None and name not in listed for listed in lists)
