"""Plan the tables and columns of a query from the options and the catalog; nothing is created."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from headrace.capture.rows import RowShape
from headrace.capture.settings import PlannedTable
from headrace.capture.toast import Reread
from headrace.catalog.known import key_columns, key_operators
from headrace.catalog.partitions import read_inheritance_children
from headrace.catalog.read import list_tables, read_catalog
from headrace.catalog.table import Table
from headrace.catalog.types import RowType, read_row_types
from headrace.datasources.options import DatabaseOptions
from headrace.datasources.source_options import CdcOptions
from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.model.suggestion import meant
from headrace.model.table_pattern import match_tables
from headrace.postgres.publication import PARTS_SINCE
from headrace.postgres.publication_filters import WHOLE, PublicationFilter
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession
from headrace.snapshot.reading import RowSelection as Readable
from headrace.snapshot.reading import check_readable


@dataclass(frozen=True, slots=True)
class RowsPlan:
    """What a query of one table's rows needs to know about the table.

    Attributes:
        shape: the query's columns.
        expected: the columns that the log must have.
        reread: how values that are missing from the log are read; None: they are not.
        selection: which part of the table a publication created by Headrace sends.
    """

    shape: RowShape
    expected: PlannedTable
    reread: Reread | None
    selection: PublicationFilter = WHOLE


def plan_rows(options: CdcOptions, table: TableName) -> RowsPlan:
    """Plan a query with `envelope=rows`.

    Raises:
        HeadraceError: BINDING where there is no such table or column; USAGE where a column has the name of
            one of Headrace's; REPLICA_IDENTITY where old rows are wanted that the log does not hold;
            CONNECTION, AUTHENTICATION, DATABASE.
    """
    with ReadSession(options.connection) as session:
        found = read_catalog(session, [table])
        if table not in found:
            raise no_table(session, table)
        # The log has a child's rows under the child's name, and they would be missing.
        if options.on_unlogged_change != "ignore":
            check_inheritance_children(session, [table])
        types = read_row_types(session, [table])[table]
        plan = _plan(options, found[table], types)
        condition = options.conditions.get(table)
        if condition is not None:
            check_readable(session, Readable(types, tuple(plan.shape.columns), (condition,)))
        return replace(plan, selection=_selection(options, found[table], plan.shape, session))


def check_conditions(session: ReadSession, options: CdcOptions) -> None:
    """Let the server check the conditions of a query of many tables, without reading a row.

    Raises:
        HeadraceError: BINDING where there is no such table; DATABASE, where the server does not understand a
            condition; PRIVILEGE, CONNECTION, AUTHENTICATION.
    """
    types = read_row_types(session, options.conditions)
    for table, condition in options.conditions.items():
        if table not in types:
            raise no_table(session, table)
        check_readable(session, Readable(types[table], (), (condition,)))


def _selection(options: CdcOptions, table: Table, shape: RowShape, session: ReadSession) -> PublicationFilter:
    """Return a column list only where it does not block writers; else columns are left out on reading.

    There is none where columns are only excluded: a list would hide every new column.
    """
    identity = [table.column(name) for name in table.identity_columns]
    # A list without a column of the identity lets UPDATE and DELETE of the table fail, under FULL any list.
    listable = all(column is not None and not column.generated for column in identity)
    is_plain = table.kind == "r" and table.replica_identity != "full"
    # An older server's publications have no column lists at all.
    is_listed = options.columns and listable and is_plain and session.server_version >= PARTS_SINCE
    columns = frozenset({*shape.columns, *table.identity_columns}) if is_listed else None
    return PublicationFilter(columns, options.conditions.get(table.name))


def _plan(options: CdcOptions, table: Table, types: RowType) -> RowsPlan:
    """Plan the query from the catalog's facts. Pure."""
    sent = [column.name for column in table.columns if not column.generated]
    names = chosen_columns(options, table.name, sent)
    key = key_columns(table, options.table_keys)
    check_key_kept(table.name, key, names)
    _check_old_rows(options, table)
    declared = {attribute.name: (attribute.type, attribute.modifier) for attribute in types.attributes}
    shape = RowShape(
        table.name,
        {name: types.columns[name] for name in names},
        key,
        options.metadata_prefix,
        options.pre_images,
        rescues=options.on_schema_change == "rescue",
        # A column that is in neither is a new one.
        left_out=frozenset(declared) - frozenset(names),
    )
    check_names(shape)
    expected = PlannedTable(
        {name: declared[name] for name in names},
        old_rows=_wants_old_rows(options),
        key=frozenset(key),
        may_change=options.on_schema_change != "fail",
        chosen=bool(options.columns),
        order=tuple(declared),
    )
    sql = {column.name: column.type for column in table.columns}
    types_of_key = {name: sql[name] for name in key}
    reread = Reread(table.name, types_of_key, tuple(names), expected.may_change, key_operators(table, key))
    return RowsPlan(shape, expected, reread if options.unchanged_toast == "reread" and key else None)


def check_key_kept(table: TableName, key: Sequence[str], wanted: Collection[str]) -> None:
    """Refuse columns without those of the key, by which rows are known again.

    Raises:
        HeadraceError: USAGE.
    """
    for missing in key:
        if missing not in wanted:
            cause = f"the key of {table} is {', '.join(key)}, and {missing} is left out"
            raise HeadraceError(Kind.USAGE, cause, "Ask for the key's columns too.")


def check_names(shape: RowShape) -> None:
    """Refuse a table with a column that has the name of one of Headrace's, or of another one but for case.

    Raises:
        HeadraceError: USAGE.
    """
    check_distinct(shape.table, shape.columns)
    ours = {(shape.prefix + field.name).lower() for field in shape.metadata}
    for name in shape.columns:
        if name.lower() in ours:
            cause = f"{shape.table} has a column {name!r}, and a column of the change has the same name"
            raise HeadraceError(Kind.USAGE, cause, "Give the option metadataPrefix, as in metadataPrefix=__.")


def check_distinct(table: TableName, columns: Iterable[str]) -> None:
    """Refuse columns whose names differ in case alone: Spark does not tell them apart.

    Raises:
        HeadraceError: USAGE.
    """
    known: dict[str, str] = {}
    for name in columns:
        other = known.setdefault(name.lower(), name)
        # Spark resolves names without their case, unless it is told otherwise.
        if other != name:
            cause = f"{table} has the columns {other!r} and {name!r}, which Spark does not tell apart"
            remedy = "Leave one out by the option excludeColumns or columns, or rename it."
            raise HeadraceError(Kind.USAGE, cause, remedy)


def _check_old_rows(options: CdcOptions, table: Table) -> None:
    option = "preImages=true" if options.pre_images else "unchangedToast=old"
    if _wants_old_rows(options) and table.replica_identity != "full":
        raise HeadraceError(
            Kind.REPLICA_IDENTITY,
            f"{option} needs the old rows of {table.name}, and the log holds only their keys",
            f"Run: ALTER TABLE {quoted(table.name)} REPLICA IDENTITY FULL; each update and delete then "
            "writes the whole old row to the log.",
        )


def _wants_old_rows(options: CdcOptions) -> bool:
    return options.pre_images or options.unchanged_toast == "old"


def chosen_columns(options: DatabaseOptions, table: TableName, names: Sequence[str]) -> list[str]:
    """Return those of `names` that `columns` and `excludeColumns` select, in the table's order.

    Raises:
        HeadraceError: USAGE, with the column that the table does not have.
    """
    for option, by_table in (("columns", options.columns), ("excludeColumns", options.exclude_columns)):
        for named in by_table:
            if named not in (None, table):
                cause = f"the option {option} names {named}, which is not read"
                raise HeadraceError(Kind.USAGE, cause, "Name only tables that the option tables has.")
        for name in by_table.get(None, by_table.get(table, ())):
            if name not in names:
                cause = f"the option {option}: {table} has no column {name!r}"
                raise HeadraceError(Kind.USAGE, cause, meant(name, names))
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
        raise HeadraceError(Kind.BINDING, f"no table matches {patterns}", "Correct the option tables.")
    return found


def no_table(session: ReadSession, table: TableName) -> HeadraceError:
    """Return the error for a table that does not exist."""
    return HeadraceError(
        Kind.BINDING, f"there is no table {table}", meant(str(table), map(str, list_tables(session)))
    )


def check_inheritance_children(session: ReadSession, tables: Collection[TableName]) -> None:
    """Refuse a table some of whose rows are in inheritance children that are not followed.

    Raises:
        HeadraceError: BINDING; CONNECTION, DATABASE.
    """
    for problem in find_unfollowed_children(session, tables).values():
        raise problem


def find_unfollowed_children(
    session: ReadSession, tables: Collection[TableName]
) -> dict[TableName, HeadraceError]:
    """Return the error of each table that has an inheritance child which is not followed.

    The log has the changes of a child under its own name only.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    return {
        table: HeadraceError(
            Kind.BINDING,
            f"{child} inherits from {table}, and the log has its rows under its own name",
            f"Follow both (tables={table}, {child}): each gives its own rows then.",
        )
        for table, child in read_inheritance_children(session, tables)
        if child not in tables
    }
