"""Find the tables and columns that the options name."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace.catalog.partitions import read_inheritance_children
from headrace.catalog.read import list_tables
from headrace.datasources.options import DatabaseOptions
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.model.suggestion import meant
from headrace.model.table_pattern import match_tables
from headrace.postgres.session import ReadSession


def chosen_columns(options: DatabaseOptions, table: TableName, names: Sequence[str]) -> list[str]:
    """Return those of `names` that `columns` and `excludeColumns` select, in the table's order.

    Raises:
        HeadraceError: USAGE, with the column that the table does not have.
    """
    for option, by_table in (("columns", options.columns), ("excludeColumns", options.exclude_columns)):
        for named in by_table:
            if named not in (None, table):
                raise HeadraceError(Kind.USAGE, f"the option {option} names {named}, which is not read")
        for name in by_table.get(None, by_table.get(table, ())):
            if name not in names:
                raise HeadraceError(
                    Kind.USAGE, f"the option {option}: {table} has no column {name!r}", meant(name, names)
                )
    wanted = options.columns.get(None, options.columns.get(table))
    left_out = options.exclude_columns.get(None, options.exclude_columns.get(table, ()))
    return [name for name in names if (wanted is None or name in wanted) and name not in left_out]


def named_tables(options: DatabaseOptions) -> tuple[TableName, ...]:
    """Return the existing tables that the option `tables` names; empty where the option is absent.

    Raises:
        HeadraceError: BINDING, no table matches a pattern; CONNECTION, DATABASE.
    """
    named = [pattern.exact for pattern in options.tables]
    if None not in named:
        return tuple(filter(None, named))
    with ReadSession(options.connection) as session:
        found = match_tables(options.tables, list_tables(session))
    if not found:
        patterns = ", ".join(map(str, options.tables))
        raise HeadraceError(Kind.BINDING, f"no table is called like {patterns}", "Correct the option tables.")
    return found


def no_table(session: ReadSession, table: TableName) -> HeadraceError:
    """Return the error for a table that does not exist."""
    return HeadraceError(
        Kind.BINDING, f"there is no table {table}", meant(str(table), map(str, list_tables(session)))
    )


def check_inheritance_children(session: ReadSession, tables: Collection[TableName]) -> None:
    """Refuse a table some of whose rows are in inheritance children that are not followed.

    The log has the changes of a child under its own name only.

    Raises:
        HeadraceError: BINDING; CONNECTION, DATABASE.
    """
    for table, child in read_inheritance_children(session, tables):
        if child not in tables:
            raise HeadraceError(
                Kind.BINDING,
                f"{child} inherits from {table}, and the log has its rows under its own name",
                f"Follow both (tables={table}, {child}): each gives its own rows then.",
            )
