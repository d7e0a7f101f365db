"""Read which columns identify the rows of captured tables, and the types of their values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.catalog.comparison import is_foreign, operator
from headrace.catalog.read import read_catalog
from headrace.catalog.table import Table
from headrace.catalog.types import read_row_types
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName, name_arrays
from headrace.model.suggestion import meant
from headrace.model.value_type import ValueType, type_from_json, type_to_json
from headrace.postgres.publication import read_column_lists
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession
from headrace.postgres.sql_files import read_sql

_STATE = read_sql(__package__, "table_states")


class UncarriedKeyError(HeadraceError):
    """The log does not carry the key of a table's deleted rows.

    Attributes:
        table: the table.
    """

    def __init__(self, table: TableName, cause: str, remedy: str) -> None:
        super().__init__(Kind.REPLICA_IDENTITY, cause, remedy)
        self.table = table

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.table, self.cause, self.remedy)


GivenKeys = Mapping[TableName | None, tuple[str, ...]]
"""The key's columns as a user names them, by table; None: the only table."""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table, as far as its changes need it; it is sent to the executors.

    Attributes:
        key: the columns that identify rows, in order; empty where there is no key.
        key_types: their types in SQL.
        columns: the value types of the columns that the publication sends.
        left_out: the columns that it does not send.
        key_operators: the SQL operators that compare columns of the key, where that is not `=`; not in the
            JSON.
    """

    key: tuple[str, ...]
    key_types: tuple[str, ...]
    columns: Mapping[str, ValueType]
    left_out: frozenset[str] = frozenset()
    key_operators: Mapping[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """Render the table as JSON."""
        columns = {name: type_to_json(kind) for name, kind in self.columns.items()}
        content = {"key": self.key, "key_types": self.key_types, "columns": columns}
        return json.dumps({**content, "left_out": sorted(self.left_out)}, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> KnownTable:
        """Parse what `to_text` wrote."""
        content = json.loads(text)
        columns = {name: type_from_json(kind) for name, kind in content["columns"].items()}
        key, key_types = tuple(content["key"]), tuple(content["key_types"])
        return cls(key, key_types, columns, frozenset(content["left_out"]))


class KnownTables:
    """The facts of captured tables, read again when a table was altered.

    Args:
        given: keys in the place of those of the catalog.
        publication: the publication, which decides which columns are sent.
    """

    def __init__(self, given: GivenKeys, publication: str) -> None:
        self._given = given
        self._publication = publication
        self._known: dict[TableName, tuple[str, KnownTable]] = {}

    def of(self, session: ReadSession, tables: Iterable[TableName]) -> dict[TableName, KnownTable]:
        """Return those of `tables` that the database has now.

        Raises:
            HeadraceError: USAGE or REPLICA_IDENTITY, where a given key cannot be used; CONNECTION, DATABASE.
        """
        names = sorted(set(tables))
        if not names:
            return {}
        rows = session.query(_STATE, (*name_arrays(names), self._publication))
        states = {TableName(schema, name): state for schema, name, state in rows}
        altered = [table for table, state in states.items() if self._known.get(table, ("",))[0] != state]
        if altered:
            for table, known in read_known(session, altered, self._given, self._publication).items():
                # The state that was read before: an alteration in between is found at the next look.
                self._known[table] = (states[table], known)
        return {table: self._known[table][1] for table in states if table in self._known}


def read_known(
    session: ReadSession, tables: Iterable[TableName], given: GivenKeys, publication: str
) -> dict[TableName, KnownTable]:
    """Read the facts of `tables`; one that the database does not have is absent.

    Without the publication, or before PostgreSQL 15, every column is sent that is not generated.

    Raises:
        HeadraceError: USAGE or REPLICA_IDENTITY, where a given key cannot be used; CONNECTION, DATABASE.
    """
    names = sorted(set(tables))
    catalog, types = read_catalog(session, names), read_row_types(session, names)
    lists = read_column_lists(session, publication)
    known: dict[TableName, KnownTable] = {}
    for name in names:
        if name in catalog and name in types:
            table = catalog[name]
            key = key_columns(table, given)
            sql = {column.name: column.type for column in table.columns}
            sent = lists.get(name, frozenset(column.name for column in table.columns if not column.generated))
            columns = {column: kind for column, kind in types[name].columns.items() if column in sent}
            key_types = tuple(sql[column] for column in key)
            left_out = frozenset(sql) - frozenset(columns)
            known[name] = KnownTable(key, key_types, columns, left_out, key_operators(table, key))
    return known


def key_operators(table: Table, key: Iterable[str]) -> dict[str, str]:
    """Return the operators of those columns of the key whose types are an extension's."""
    columns = (column for column in map(table.column, key) if column is not None)
    return {column.name: operator(column, "=") for column in columns if is_foreign(column)}


def key_columns(table: Table, given: GivenKeys) -> tuple[str, ...]:
    """Return the columns that identify the rows of `table`: given ones, the primary key, or the identity's.

    Raises:
        HeadraceError: USAGE where a given column does not exist; REPLICA_IDENTITY where the log does not
            carry the key of a deleted row.
    """
    named = given.get(table.name, given.get(None))
    if named is not None:
        _check_given(table, named)
        return named
    key = table.primary_key
    # Under `default` and `full` the log carries the primary key.
    if table.replica_identity != "index":
        return key
    uncarried = [name for name in key if name not in table.identity_columns]
    if uncarried:
        raise uncarried_key(table.name, uncarried[0], table.identity_columns)
    return key or table.identity_columns


def _check_given(table: Table, named: tuple[str, ...]) -> None:
    columns = [column.name for column in table.columns]
    for name in named:
        if name not in columns:
            problem = f"the option tableKeys: {table.name} has no column {name!r}"
            raise HeadraceError(Kind.USAGE, problem, meant(name, columns))
    missing = [name for name in named if name not in table.identity_columns]
    if missing:
        problem = (
            f"the log does not carry {missing[0]} of deleted rows of {table.name}, which tableKeys names"
        )
        raise HeadraceError(Kind.REPLICA_IDENTITY, problem, f"Run: {_remedy(table, named)}")


def uncarried_key(table: TableName, column: str, carried: Sequence[str]) -> UncarriedKeyError:
    """Return the error for a key whose `column` the log does not carry for deleted rows."""
    return UncarriedKeyError(
        table,
        f"the log does not carry {column} of deleted rows of {table}, and {column} is of the key",
        f"Run: ALTER TABLE {quoted(table)} REPLICA IDENTITY FULL, or DEFAULT for its primary key. Or name "
        f"what the log carries by the option tableKeys: {', '.join(carried)}.",
    )


def _remedy(table: Table, key: tuple[str, ...]) -> str:
    uniques = (unique for unique in table.unique_keys if unique.not_null and set(unique.columns) >= set(key))
    index = next(uniques, None)
    identity = "FULL" if index is None else f"USING INDEX {identifier(index.index)}"
    return f"ALTER TABLE {quoted(table.name)} REPLICA IDENTITY {identity}"
