"""Read whole tables at one moment: plain `SELECT *` in one snapshot, as Python values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.model.names import TableName
from headrace.postgres import quoting
from headrace.postgres.connection import Connection, connect
from support.oracle.values import Type

Row = Mapping[str, Any]
Ranks = tuple[Any, ...]

_PRIMARY_KEYS = b"""
SELECT n.nspname::text, c.relname::text, a.attname::text
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
WHERE i.indisprimary AND n.nspname NOT IN ('pg_catalog', 'pg_toast')
ORDER BY 1, 2, k.place
"""


@dataclass(frozen=True, slots=True)
class Table:
    """A table's rows, the types of its columns, and its primary key (empty where it has none)."""

    rows: Sequence[Row]
    types: Mapping[str, Type]
    primary_key: tuple[str, ...] = ()
    _groups: dict[tuple[str, ...], dict[Ranks, list[Row]]] = field(default_factory=dict)

    def ranks(self, row: Row, columns: Sequence[str]) -> Ranks:
        """The values of `columns` as they compare."""
        return tuple(self.types[name].rank(row[name]) for name in columns)

    def where(self, columns: Sequence[str], ranks: Ranks) -> Sequence[Row]:
        """The rows whose `columns` equal `ranks`; none where one of these is NULL."""
        if None in ranks:
            return ()
        names = tuple(columns)
        if names not in self._groups:
            groups: dict[Ranks, list[Row]] = {}
            for row in self.rows:
                groups.setdefault(self.ranks(row, names), []).append(row)
            self._groups[names] = groups
        return self._groups[names].get(ranks, ())

    def in_order(self, rows: Iterable[Row], key: Sequence[str]) -> list[Row]:
        """`rows` by their key."""
        return sorted(rows, key=lambda row: self.ranks(row, key))


Tables = Mapping[TableName, Table]


def read_tables(url: str, names: Iterable[Any]) -> Tables:
    """All rows of these tables, of one moment.

    Raises:
        HeadraceError: CONNECTION or AUTHENTICATION.
    """
    with connect(url, application_name="headrace oracle", autocommit=False) as connection:
        connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        connection.execute(b"SET LOCAL TimeZone = 'UTC'")
        types = _types(connection)
        keys: dict[TableName, tuple[str, ...]] = {}
        for schema, name, column in connection.execute(_PRIMARY_KEYS).fetchall():
            known = keys.get(TableName(schema, name), ())
            keys[TableName(schema, name)] = (*known, column)
        return {name: _table(connection, name, types, keys.get(name, ())) for name in sorted(names)}


def _types(connection: Connection) -> dict[int, Type]:
    labels: dict[int, list[str]] = {}
    sql = b"SELECT enumtypid::bigint, enumlabel::text FROM pg_enum ORDER BY enumtypid, enumsortorder"
    for oid, label in connection.execute(sql).fetchall():
        labels.setdefault(oid, []).append(label)
    named = connection.execute(b"SELECT oid::bigint, typname::text FROM pg_type").fetchall()
    return {oid: Type(name, tuple(labels.get(oid, ()))) for oid, name in named}


def _table(connection: Connection, name: TableName, types: Mapping[int, Type], key: tuple[str, ...]) -> Table:
    cursor = connection.execute(f"SELECT * FROM {quoting.table(name)}".encode())
    columns = cursor.description or ()
    names = [column.name for column in columns]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return Table(rows, {column.name: types[column.type_code] for column in columns}, key)
