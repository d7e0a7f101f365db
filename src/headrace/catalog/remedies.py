"""What is wrong with a table, a key or a lookup, and which SQL mends it? Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.catalog.table import Column, Table, UniqueKey, UnusableIndex
from headrace.model import TableName
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted

_PAGE_BYTES = 8192
_STEP = 1000
KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
"""What has no changes in the log, by pg_class.relkind."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One sentence on what is wrong, one on what helps, and statements that can be run as they are."""

    problem: str
    remedy: str
    sql: tuple[str, ...] = ()


def table_advice(table: Table) -> Advice | None:
    """Why the changes of a table cannot be followed, whatever is read of it."""
    if table.kind in KINDS:
        problem = f"{table.name} is {KINDS[table.kind]}: its changes are not in the log"
        if table.kind == "f":
            return Advice(problem, "Run Headrace on the server that holds its rows.")
        named = ", ".join(str(one) for one in table.reads)
        return Advice(problem, f"Name what it reads: {named}." if named else "Name the table itself.")
    if table.inherited:
        return Advice(
            f"{table.name} has children by INHERITS: a query reads their rows too, and the log reports these "
            "under the children's names",
            "Make it a partitioned table, or name a table that has no children.",
        )
    return None


def key_advice(table: Table, key: Sequence[str]) -> Advice | None:
    """Why `key` does not identify a row of `table`: that takes a unique index, every column NOT NULL."""
    same = [one for one in table.unique_keys if set(one.columns) == set(key)]
    if any(one.not_null and one.immediate for one in same):
        return None
    problem = f"({', '.join(key)}) is no key of {table.name}: "
    if same:
        return _almost(table, same[0], problem)
    for one in table.unusable:
        if one.unique and set(one.columns) == set(key):
            return _unusable(table, one, problem)
    real = next((one for one in table.unique_keys if one.primary and one.immediate), None)
    return Advice(
        problem + "no unique index of NOT NULL columns covers it",
        f"Write `primary_key: [{', '.join(real.columns)}]`." if real else "Add a primary key to the table.",
    )


def _almost(table: Table, index: UniqueKey, problem: str) -> Advice:
    if not index.immediate:
        listed = ", ".join(identifier(one) for one in index.columns)
        kind = "PRIMARY KEY" if index.primary else "UNIQUE"
        change = f"DROP CONSTRAINT {identifier(index.index)}, ADD {kind} ({listed})"
        sql = f"ALTER TABLE {quoted(table.name)} {change};"
        return Advice(
            f"{problem}the constraint {index.index} is deferrable, so that two rows may share it for a while",
            f"Run: {sql}",
            (sql,),
        )
    loose = [one for one in table.columns if one.name in index.columns and not one.not_null]
    changes = ", ".join(f"ALTER COLUMN {identifier(one.name)} SET NOT NULL" for one in loose)
    sql = f"ALTER TABLE {quoted(table.name)} {changes};"
    return Advice(
        f"{problem}{', '.join(one.name for one in loose)} may be NULL, and {index.index} tells NULLs apart",
        f"Write `primary_key: [{', '.join(table.primary_key)}]`, or run: {sql}"
        if table.primary_key
        else f"Run: {sql}",
        (sql,),
    )


def _unusable(table: Table, index: UnusableIndex, problem: str) -> Advice:
    if not index.valid:
        sql = _reindex(table.name, index.name)
        return Advice(
            f"{problem}the index {index.name} is not valid, it was never finished", f"Run: {sql}", (sql,)
        )
    why = "is partial, other rows may repeat it" if index.partial else "has an expression beside the columns"
    return Advice(f"{problem}the index {index.name} {why}", "Name the primary key, or add a unique index.")


def index_advice(table: Table, columns: Sequence[str], reader: str) -> Advice | None:
    """What it costs that no index of `table` begins with `columns`; None where one does.

    Args:
        reader: who looks rows up by them, as `each change of users`.
    """
    if table.serves(columns):
        return None
    cost = f"{reader} reads all of {table.name} ({_size(table)})"
    problem = f"no index of {table.name} begins with ({', '.join(columns)}): {cost}"
    for one in table.unusable:
        if not one.valid and not one.partial and set(one.columns[: len(columns)]) == set(columns):
            sql = _reindex(table.name, one.name)
            return Advice(f"{problem}; {one.name} is not valid, it was never finished", f"Run: {sql}", (sql,))
    listed = ", ".join(identifier(one) for one in columns)
    concurrently, cost = (
        ("", ", which keeps its writers waiting") if table.kind == "p" else (" CONCURRENTLY", "")
    )
    sql = f"CREATE INDEX{concurrently} ON {quoted(table.name)} ({listed});"
    return Advice(problem, f"Run{cost}: {sql}", (sql,))


def conversion_advice(table: Table, column: Column, other: Table, target: Column, reader: str) -> Advice:
    """What it costs that the index of `column` serves no comparison with `target`.

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


def _reindex(table: TableName, index: str) -> str:
    return f"REINDEX INDEX CONCURRENTLY {quoted(TableName(table.schema, index))};"


def _size(table: Table) -> str:
    """How large a table was when it was last analysed."""
    if not table.row_estimate and not table.page_estimate:
        return "of a size that no ANALYZE has told"
    size, units = table.page_estimate * _PAGE_BYTES / _STEP, ["kB", "MB", "GB", "TB"]
    while size >= _STEP and len(units) > 1:
        size, units = size / _STEP, units[1:]
    return f"about {table.row_estimate:,} rows, {size:.0f} {units[0]}"
