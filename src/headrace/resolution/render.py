"""Render a path as one statement that leads a batch of values to the root's keys. Pure."""

from __future__ import annotations

from headrace.catalog.comparison import cast_type, equal, plain, same_text
from headrace.catalog.table import Column
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as table_sql
from headrace.resolution.paths import Hop, Path


def path_statement(path: Path) -> str | None:
    """Render the path's statement, or return None where the changed row's own values are the root's key.

    Its parameters are one text array for each column of `path.lead`, its rows the texts of a root key.
    A hop whose table would only confirm the values is left out.
    """
    values = tuple(
        (f"v.v{number}::{cast_type(column)}", column) for number, column in enumerate(path.lead, 1)
    )
    joins: list[str] = []
    for number, hop in enumerate(path.hops, 1):
        if _adds_nothing(hop, tuple(column for _, column in values)):
            continue
        alias = f"h{number}"
        conditions = " AND ".join(
            equal(_column_sql(alias, column), column, sql, typed)
            for column, (sql, typed) in zip(hop.match, values, strict=True)
        )
        joins.append(f"JOIN {table_sql(hop.table)} AS {alias} ON {conditions}")
        values = tuple((_column_sql(alias, column), column) for column in hop.lead)
    if not joins:
        return None
    arrays = ", ".join(f"${number}::text[]" for number in range(1, len(path.lead) + 1))
    names = ", ".join(f"v{number}" for number in range(1, len(path.lead) + 1))
    selected = ", ".join(f"{sql}::text" for sql, _ in values)
    return "\n".join([f"SELECT DISTINCT {selected}", f"FROM unnest({arrays}) AS v ({names})", *joins])


def _adds_nothing(hop: Hop, values: tuple[Column, ...]) -> bool:
    return hop.match == hop.lead and all(map(same_text, values, hop.lead))


def _column_sql(alias: str, column: Column) -> str:
    return plain(f"{alias}.{identifier(column.name)}", column)
