"""Read what helps to suggest a schema file: comments, labels of enums, fan-outs.

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


@dataclass(frozen=True, slots=True)
class Hints:
    """What the database says of its tables beside their structure.

    Attributes:
        comments: the comment on a table or column.
        labels: the labels of each enum type in their order, by `Column.base_type`.
        fanouts: how many rows refer to one row, by what refers; only where statistics exist.
    """

    comments: Mapping[ColumnName, str] = field(default_factory=dict)
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    fanouts: Mapping[Link, Fanout] = field(default_factory=dict)


def read_hints(session: ReadSession, catalog: Catalog) -> Hints:
    """Read the hints for the tables of a catalog, in three set-based queries.

    Raises:
        HeadraceError: CONNECTION or DATABASE.
    """
    names = {table.oid: name for name, table in catalog.tables.items()}
    oids = ([str(oid) for oid in names],)
    columns = (column for table in catalog.tables.values() for column in table.columns)
    enums = {column.base_type for column in columns if column.category == "E"}
    links = {(name, key.columns[0]) for name, table in catalog.tables.items() for key in table.foreign_keys}
    return Hints(
        comments={(names[oid], column): text for oid, column, text in session.query(_COMMENTS, oids)},
        labels=read_labels(session, enums),
        fanouts=read_fanouts(session, links),
    )
