"""Read what helps to suggest a schema file: comments, labels of enums, what the role may read, fan-outs.

The catalog decides whether a schema file fits; nothing of this does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.catalog.checks import Fanout, Link, read_fanouts, read_labels
from headrace.catalog.table import Catalog
from headrace.model.names import TableName
from headrace.postgres.session import ReadSession

ColumnName = tuple[TableName, str]
"""A table and its column; the empty column stands for the table itself."""

_COMMENTS = """
SELECT d.objoid::bigint, coalesce(a.attname::text, ''), d.description
FROM pg_description d
LEFT JOIN pg_attribute a ON a.attrelid = d.objoid AND a.attnum = d.objsubid AND d.objsubid <> 0
WHERE d.classoid = 'pg_class'::regclass AND d.objoid = ANY ($1::text[]::oid[])
"""

# Statements that read no row would tell it too, one for each column of each table.
_HIDDEN = """
SELECT c.oid::bigint, a.attname::text
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.oid = ANY ($1::text[]::oid[])
  AND NOT (has_schema_privilege(c.relnamespace, 'USAGE') AND has_column_privilege(c.oid, a.attnum, 'SELECT'))
"""


@dataclass(frozen=True, slots=True)
class Hints:
    """What the database says of its tables beside their structure.

    Attributes:
        comments: the comment on a table or column.
        labels: the labels of each enum type in their order, by `Column.base_type`.
        hidden: the columns that this role may not read, by table.
        fanouts: how many rows refer to one row, by what refers; only where statistics exist.
    """

    comments: Mapping[ColumnName, str] = field(default_factory=dict)
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    hidden: Mapping[TableName, frozenset[str]] = field(default_factory=dict)
    fanouts: Mapping[Link, Fanout] = field(default_factory=dict)

    def may_read(self, table: TableName, column: str) -> bool:
        """Return whether the role may read a column."""
        return column not in self.hidden.get(table, ())


def read_hints(session: ReadSession, catalog: Catalog) -> Hints:
    """Read the hints for the tables of a catalog, in four set-based queries.

    Raises:
        HeadraceError: CONNECTION or DATABASE.
    """
    names = {table.oid: name for name, table in catalog.tables.items()}
    oids = ([str(oid) for oid in names],)
    hidden: dict[TableName, set[str]] = {}
    for oid, column in session.query(_HIDDEN, oids):
        hidden.setdefault(names[oid], set()).add(column)
    columns = (column for table in catalog.tables.values() for column in table.columns)
    enums = {column.base_type for column in columns if column.category == "E"}
    links = {(name, key.columns[0]) for name, table in catalog.tables.items() for key in table.foreign_keys}
    return Hints(
        comments={(names[oid], column): text for oid, column, text in session.query(_COMMENTS, oids)},
        labels=read_labels(session, enums),
        hidden={name: frozenset(columns) for name, columns in hidden.items()},
        fanouts=read_fanouts(session, links),
    )
