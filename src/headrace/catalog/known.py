"""What is known of the tables whose changes are followed: which columns are the key, what the values are?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.catalog.comparison import is_foreign, operator
from headrace.catalog.read import read_catalog
from headrace.catalog.table import Table
from headrace.catalog.types import read_row_types
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.model.suggestion import meant
from headrace.model.type_text import from_json, to_json
from headrace.model.value_type import ValueType
from headrace.postgres.publication import read_column_lists
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

# Whatever alters the key, the columns or their declared types alters this text.
_STATE = """
SELECT n.nspname::text, c.relname::text, concat_ws(' ', c.oid, c.relreplident,
    (SELECT string_agg(concat_ws(':', a.attnum, a.atttypid, a.atttypmod, a.attname), ',' ORDER BY a.attnum)
     FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT string_agg(concat_ws(':', indexrelid, indisprimary, indisreplident), ',' ORDER BY indexrelid)
     FROM pg_index WHERE indrelid = c.oid),
    (SELECT string_agg(concat_ws(':', r.oid, r.xmin), ',' ORDER BY r.oid)
     FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
     WHERE p.pubname = $3 AND r.prrelid = c.oid))
FROM unnest($1::text[], $2::text[]) AS wanted (nspname, relname)
JOIN pg_namespace n ON n.nspname = wanted.nspname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.relname
"""

GivenKeys = Mapping[TableName | None, tuple[str, ...]]
"""The key's columns as a user names them; None: of the only table."""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table, as far as its changes need it; it goes to the executors.

    Attributes:
        key: the columns that tell rows apart, in order; empty where nothing does.
        key_types: their types in SQL.
        columns: what the values are of each column that the publication sends.
        left_out: the others.
        key_operators: what compares columns of the key, in SQL, where that is not `=`; not in the JSON.
    """

    key: tuple[str, ...]
    key_types: tuple[str, ...]
    columns: Mapping[str, ValueType]
    left_out: frozenset[str] = frozenset()
    key_operators: Mapping[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """As JSON."""
        columns = {name: to_json(kind) for name, kind in self.columns.items()}
        found = {
            "key": self.key,
            "key_types": self.key_types,
            "columns": columns,
            "left_out": sorted(self.left_out),
        }
        return json.dumps(found, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> KnownTable:
        """What `to_text` wrote."""
        found = json.loads(text)
        columns = {name: from_json(kind) for name, kind in found["columns"].items()}
        return cls(tuple(found["key"]), tuple(found["key_types"]), columns, frozenset(found["left_out"]))


class KnownTables:
    """What is known of each table, looked up again when it was altered.

    Args:
        given: keys that count instead of those of the catalog.
        publication: says which columns are sent.
    """

    def __init__(self, given: GivenKeys, publication: str) -> None:
        self._given = given
        self._publication = publication
        self._known: dict[TableName, tuple[str, KnownTable]] = {}

    def of(self, session: ReadSession, tables: Iterable[TableName]) -> dict[TableName, KnownTable]:
        """Of `tables`, those that the database has now.

        Raises:
            HeadraceError: USAGE or REPLICA_IDENTITY, a given key is none; CONNECTION, DATABASE.
        """
        names = sorted(set(tables))
        if not names:
            return {}
        parameters = ([one.schema for one in names], [one.name for one in names], self._publication)
        rows = session.query(_STATE, parameters)
        states = {TableName(schema, name): state for schema, name, state in rows}
        altered = [one for one, state in states.items() if self._known.get(one, ("",))[0] != state]
        if altered:
            for one, known in read_known(session, altered, self._given, self._publication).items():
                self._known[one] = (states[one], known)
        return {one: self._known[one][1] for one in states if one in self._known}


def read_known(
    session: ReadSession, tables: Iterable[TableName], given: GivenKeys, publication: str
) -> dict[TableName, KnownTable]:
    """What the catalog says of `tables`; one that the database does not have is absent.

    Without the publication, or before PostgreSQL 15, every column is sent that is not generated.

    Raises:
        HeadraceError: USAGE or REPLICA_IDENTITY, a given key is none; CONNECTION, DATABASE.
    """
    names = sorted(set(tables))
    catalog, types = read_catalog(session, names), read_row_types(session, names)
    lists = read_column_lists(session, publication)
    found: dict[TableName, KnownTable] = {}
    for name in names:
        if name in catalog and name in types:
            table = catalog[name]
            key = key_columns(table, given)
            sql = {column.name: column.type for column in table.columns}
            sent = lists.get(name, frozenset(one.name for one in table.columns if not one.generated))
            columns = {one: kind for one, kind in types[name].columns.items() if one in sent}
            key_types = tuple(sql[one] for one in key)
            left_out = frozenset(sql) - frozenset(columns)
            found[name] = KnownTable(key, key_types, columns, left_out, key_operators(table, key))
    return found


def key_operators(table: Table, key: Iterable[str]) -> dict[str, str]:
    """What compares those columns of the key whose types are an extension's."""
    columns = (column for column in map(table.column, key) if column is not None)
    return {column.name: operator(column, "=") for column in columns if is_foreign(column)}


def key_columns(table: Table, given: GivenKeys) -> tuple[str, ...]:
    """Which columns tell the rows of `table` apart: those that were given, its primary key, its identity's.

    Raises:
        HeadraceError: USAGE where a given column does not exist; REPLICA_IDENTITY where the log does not
            carry the key of a deleted row.
    """
    named = given.get(table.name, given.get(None))
    if named is None:
        key = table.primary_key
        uncarried = [name for name in key if name not in table.identity_columns]
        if uncarried and table.replica_identity == "index":
            raise uncarried_key(table.name, uncarried[0], table.identity_columns)
        return key or (table.identity_columns if table.replica_identity == "index" else ())
    columns = [column.name for column in table.columns]
    for name in named:
        if name not in columns:
            raise HeadraceError(
                Kind.USAGE, f"the option tableKeys: {table.name} has no column {name!r}", meant(name, columns)
            )
    missing = [name for name in named if name not in table.identity_columns]
    if missing:
        raise HeadraceError(
            Kind.REPLICA_IDENTITY,
            f"the log does not carry {missing[0]} of deleted rows of {table.name}, which tableKeys names",
            f"Run: {_remedy(table, named)}",
        )
    return named


def uncarried_key(table: TableName, column: str, carried: Sequence[str]) -> HeadraceError:
    """The error for a key that deleted rows would not have: `column` is of it, and the log has `carried`."""
    return HeadraceError(
        Kind.REPLICA_IDENTITY,
        f"the log does not carry {column} of deleted rows of {table}, and {column} is of the key",
        f"Run: ALTER TABLE {quoted(table)} REPLICA IDENTITY FULL, or DEFAULT for its primary key. Or name "
        f"what the log carries by the option tableKeys: {', '.join(carried)}.",
    )


def _remedy(table: Table, key: tuple[str, ...]) -> str:
    index = next((one for one in table.unique_keys if one.not_null and set(one.columns) >= set(key)), None)
    identity = "FULL" if index is None else f"USING INDEX {identifier(index.index)}"
    return f"ALTER TABLE {quoted(table.name)} REPLICA IDENTITY {identity}"
