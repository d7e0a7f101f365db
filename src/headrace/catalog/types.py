"""Read the types of tables' columns, and what these types consist of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.model.names import TableName, name_arrays
from headrace.model.value_type import Attribute, DatabaseType, ValueType, resolve
from headrace.postgres.session import ReadSession
from headrace.postgres.sql_files import read_sql

_TYPES = read_sql(__package__, "types")


@dataclass(frozen=True, slots=True)
class RowType:
    """A table's columns in their order.

    Attributes:
        attributes: the columns as the catalog declares them, to compare with what the log declares.
        columns: the value type of each column.
    """

    table: TableName
    attributes: tuple[Attribute, ...]
    columns: dict[str, ValueType]


def read_row_types(session: ReadSession, tables: Iterable[TableName]) -> dict[TableName, RowType]:
    """Read the column types of `tables` in one query; tables that the database does not have are absent.

    Raises:
        HeadraceError: CONNECTION or DATABASE.
    """
    rows = session.query(_TYPES, name_arrays(sorted(set(tables))))
    types = {row[0]: _type(row) for row in rows if row[0]}
    return {TableName(*row[1:3]): _row_type(row, types) for row in rows if not row[0]}


def _row_type(row: tuple[Any, ...], types: Mapping[int, DatabaseType]) -> RowType:
    _, schema, name, _, _, money_scale, _, _, _, fields = row
    attributes = _attributes(fields)
    resolved = {attribute.name: resolve(attribute, types, money_scale) for attribute in attributes}
    return RowType(TableName(schema, name), attributes, resolved)


def _type(row: tuple[Any, ...]) -> DatabaseType:
    *facts, fields = row
    return replace(DatabaseType(*facts), fields=_attributes(fields))


def _attributes(fields: list[tuple[str, int, int, int]] | None) -> tuple[Attribute, ...]:
    return tuple(Attribute(*field) for field in fields or ())
