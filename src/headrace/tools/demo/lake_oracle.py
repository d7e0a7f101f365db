"""Compare the shop's tables in a lake with those of the database, in the simplest way.

Both are read whole, row by row. It shares no code with the mirror; a column's type is known by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal

from deltalake import DeltaTable

from headrace.postgres.connection import connect, execute
from headrace.tools.demo.oracle import Documents, as_json, read_rows

__all__ = ["actual_rows", "expected_rows"]

_JSON = {"users": ("attributes",), "products": ("labels", "attributes")}


def expected_rows(url: str, tables: Iterable[str]) -> dict[str, Documents]:
    """Read the rows of tables of the shop by id, all as of one moment.

    Raises:
        HeadraceError: CONNECTION or AUTHENTICATION.
    """
    with connect(url, application_name="headrace oracle", autocommit=False) as connection:
        execute(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        execute(connection, "SET LOCAL TimeZone = 'UTC'")
        return {
            table: {str(row["id"]): as_json(row) for row in read_rows(connection, table)} for table in tables
        }


def actual_rows(location: str, table: str, version: int | None = None) -> Documents:
    """Read the rows of one of the shop's tables from the lake by id; numbers as int or Decimal.

    Args:
        location: the lake's folder.
        table: the table's name.
        version: a version of the Delta table; None: the newest.
    """
    rows = DeltaTable(f"{location}/public/{table}", version=version).to_pyarrow_table().to_pylist()
    for row in rows:
        # A lake holds jsonb as text.
        for column in _JSON.get(table, ()):
            row[column] = None if row[column] is None else json.loads(row[column], parse_float=Decimal)
    return {str(row["id"]): as_json(row) for row in rows}
