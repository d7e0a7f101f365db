"""Find the table that the rows of a PGSync node are read from: the log has no changes of views."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.catalog.remedies import KINDS, key_advice
from headrace.catalog.table import Catalog, Table
from headrace.model.names import TableName
from headrace.model.suggestion import meant
from headrace.tools.convert.notes import Notes
from headrace.tools.convert.pgsync_file import Node


@dataclass(frozen=True, slots=True)
class Side:
    """A table of a document.

    Attributes:
        key: the columns that tell its rows apart.
        shown: the columns that stand in a document where the file names none.
    """

    table: Table
    key: tuple[str, ...]
    shown: tuple[str, ...]

    @property
    def name(self) -> TableName:
        """The table's name."""
        return self.table.name


def find_side(node: Node, catalog: Catalog, notes: Notes) -> Side | None:
    """Return a node's table, of a view the one table that it reads; None, with a note, without one."""
    table = find_table(node.name, catalog, notes)
    if table is None:
        return None
    shown = tuple(column.name for column in table.columns)
    if table.kind not in KINDS:
        return Side(table, key_of(table, tuple(node.primary_key)), shown)
    bases = [catalog[name] for name in table.reads if name in catalog and catalog[name].kind not in KINDS]
    if len(bases) != 1 or len(table.reads) != 1:
        named = ", ".join(map(str, table.reads)) or "nothing known"
        notes.left(
            f"{node.name} is {KINDS[table.kind]} of {named}: it is left out, as the log has no changes of it",
            "Name the tables themselves, as nodes below one another.",
        )
        return None
    [base] = bases
    notes.left(
        f"{node.name} is {KINDS[table.kind]}: its table {base.name} is read instead, so rows that the view "
        "leaves out are there",
        "Write its conditions as `filters:` into the schema file, its expressions as generated columns.",
    )
    declared = tuple(node.primary_key)
    key = declared if declared and key_advice(base, declared) is None else key_of(base, declared)
    return Side(base, key, tuple(name for name in shown if base.column(name) is not None))


def find_table(name: TableName, catalog: Catalog, notes: Notes) -> Table | None:
    """Return a table; None, with a note of which one may be meant, where the database has none."""
    table = catalog.tables.get(name)
    if table is None:
        known = [str(other) for other in (*catalog.existing, *catalog.tables)]
        notes.left(f"the database has no table {name}: it is left out", meant(str(name), known))
    return table


def key_of(table: Table, declared: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the primary key, else what is declared, else a unique key, else `id`."""
    unique = (key.columns for key in table.unique_keys if key.not_null and key.immediate)
    return table.primary_key or declared or next(unique, ("id",))
