"""Which tables and columns do the options name, of those that the database has?"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace.catalog.partitions import read_inheritance_children
from headrace.catalog.read import list_tables
from headrace.datasources.options import DatabaseOptions
from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.model.suggestion import meant
from headrace.model.table_pattern import matching
from headrace.postgres.session import ReadSession


def chosen_columns(options: DatabaseOptions, table: TableName, names: Sequence[str]) -> list[str]:
    """Those of `names` that `columns` and `excludeColumns` leave, in the table's order.

    Raises:
        HeadraceError: USAGE, with the column that the table does not have.
    """
    for option, given in (("columns", options.columns), ("excludeColumns", options.exclude_columns)):
        for named in given:
            if named not in (None, table):
                raise HeadraceError(Kind.USAGE, f"the option {option} names {named}, which is not read")
        for name in given.get(None, given.get(table, ())):
            if name not in names:
                raise HeadraceError(
                    Kind.USAGE, f"the option {option}: {table} has no column {name!r}", meant(name, names)
                )
    wanted = options.columns.get(None, options.columns.get(table))
    left_out = options.exclude_columns.get(None, options.exclude_columns.get(table, ()))
    return [name for name in names if (wanted is None or name in wanted) and name not in left_out]


def named_tables(options: DatabaseOptions) -> tuple[TableName, ...]:
    """The tables that the option `tables` means, as the database has them now; none where it is absent.

    Raises:
        HeadraceError: BINDING, a pattern means none; CONNECTION, DATABASE.
    """
    named = [pattern.exact for pattern in options.tables]
    if None not in named:
        return tuple(filter(None, named))
    with ReadSession(options.connection) as session:
        found = matching(options.tables, list_tables(session))
    if not found:
        asked = ", ".join(map(str, options.tables))
        raise HeadraceError(Kind.BINDING, f"no table is called like {asked}", "Correct the option tables.")
    return found


def no_table(session: ReadSession, table: TableName) -> HeadraceError:
    """The error for a table that the database does not have."""
    return HeadraceError(
        Kind.BINDING, f"there is no table {table}", meant(str(table), map(str, list_tables(session)))
    )


def check_inheritance_children(session: ReadSession, tables: Collection[TableName]) -> None:
    """Refuse a table whose rows are partly those of inheritance children that are not followed.

    The log has the changes of an heir under its own name only.

    Raises:
        HeadraceError: BINDING; CONNECTION, DATABASE.
    """
    for table, heir in read_inheritance_children(session, tables):
        if heir not in tables:
            raise HeadraceError(
                Kind.BINDING,
                f"{heir} inherits from {table}, and the log has its rows under its own name",
                f"Follow both (tables={table}, {heir}): each gives its own rows then.",
            )
