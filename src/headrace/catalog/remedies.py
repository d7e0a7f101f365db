"""Describe what is wrong with a table, a key or a lookup, and the SQL that mends it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.catalog.table import Column, Table, UniqueKey
from headrace.model.units import quantity, size
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted

_PAGE_BYTES = 8192
KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
"""Relations without changes in the log, by pg_class.relkind."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One sentence on what is wrong, one on what helps, and statements that can be run as they are."""

    problem: str
    remedy: str
    sql: tuple[str, ...] = ()


def table_advice(table: Table) -> Advice | None:
    """Return why the changes of a table cannot be captured at all; None where they can."""
    if table.kind in KINDS:
        problem = f"{table.name} is {KINDS[table.kind]}: its changes are not in the log"
        if table.kind == "f":
            return Advice(problem, "Run Headrace on the server that holds its rows.")
        named = ", ".join(str(name) for name in table.reads)
        return Advice(problem, f"Name what it reads: {named}." if named else "Name the table itself.")
    if table.inherited:
        return Advice(
            f"{table.name} has children by INHERITS: a query reads their rows too, and the log reports these "
            "under the children's names",
            "Make it a partitioned table, or name a table that has no children.",
        )
    return None


def key_advice(table: Table, key: Sequence[str]) -> Advice | None:
    """Return why `key` does not identify a row: that takes a unique index of NOT NULL columns."""
    same = [unique for unique in table.unique_keys if set(unique.columns) == set(key)]
    if any(unique.not_null and unique.immediate for unique in same):
        return None
    problem = f"({', '.join(key)}) is no key of {table.name}: "
    if same:
        return _nearly_key(table, same[0], problem)
    cause = f"{problem}no valid unique index has exactly these columns, all NOT NULL"
    return Advice(cause, _another_key(table))


def _another_key(table: Table) -> str:
    if any(unique.primary and unique.immediate for unique in table.unique_keys):
        return f"Write `primary_key: [{', '.join(table.primary_key)}]`."
    return "Add a primary key to the table."


def _nearly_key(table: Table, index: UniqueKey, problem: str) -> Advice:
    if not index.immediate:
        listed = ", ".join(identifier(name) for name in index.columns)
        kind = "PRIMARY KEY" if index.primary else "UNIQUE"
        change = f"DROP CONSTRAINT {identifier(index.index)}, ADD {kind} ({listed})"
        sql = f"ALTER TABLE {quoted(table.name)} {change};"
        problem += f"the constraint {index.index} is deferrable, so that two rows may share it for a while"
        return Advice(problem, f"Run: {sql}", (sql,))
    loose = [column for column in table.columns if column.name in index.columns and not column.not_null]
    changes = ", ".join(f"ALTER COLUMN {identifier(column.name)} SET NOT NULL" for column in loose)
    sql = f"ALTER TABLE {quoted(table.name)} {changes};"
    nullable = ", ".join(column.name for column in loose)
    write = f"Write `primary_key: [{', '.join(table.primary_key)}]`, or run: {sql}"
    problem += f"{nullable} may be NULL, and {index.index} tells NULLs apart"
    return Advice(problem, write if table.primary_key else f"Run: {sql}", (sql,))


def index_advice(table: Table, columns: Sequence[str], reader: str) -> Advice | None:
    """Return what it costs that no index of `table` begins with `columns`; None where one does.

    Args:
        reader: what looks rows up by them, for messages: `each change of users`.
    """
    if table.serves(columns):
        return None
    cost = f"{reader} reads all of {table.name} ({_size(table)})"
    problem = f"no index of {table.name} begins with ({', '.join(columns)}): {cost}"
    listed = ", ".join(identifier(name) for name in columns)
    concurrently, cost = (
        ("", ", which keeps its writers waiting") if table.kind == "p" else (" CONCURRENTLY", "")
    )
    sql = f"CREATE INDEX{concurrently} ON {quoted(table.name)} ({listed});"
    return Advice(problem, f"Run{cost}: {sql}", (sql,))


def conversion_advice(table: Table, column: Column, other: Table, target: Column, reader: str) -> Advice:
    """Return what it costs that the index of `column` serves no comparison with `target`.

    Args:
        reader: as of `index_advice`.
    """
    same = column.base_type == target.base_type
    kinds = (target.collation, "collation") if same else (target.type, "type")
    return Advice(
        f"no index of {table.name} ({column.name}) serves a comparison with {other.name}.{target.name}, "
        f"whose {kinds[1]} is {kinds[0]}: {reader} reads all of {table.name} ({_size(table)})",
        f"Give {table.name}.{column.name} ({column.type}) and {other.name}.{target.name} one {kinds[1]}.",
    )


def _size(table: Table) -> str:
    """Describe how large a table was when it was last analysed."""
    if not table.row_estimate and not table.page_estimate:
        return "its size is not known: it was never analysed"
    return f"about {quantity(table.row_estimate, 'row')}, {size(table.page_estimate * _PAGE_BYTES)}"
