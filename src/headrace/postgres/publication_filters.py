"""Publish a part of a table: some of its columns, some of its rows.

A narrow publication saves decoding and sending. It also affects the application: a column list or a row
filter that does not fit the replica identity makes every UPDATE and DELETE of the table fail. So it is
refused before.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.postgres.connection import Connection, execute
from headrace.postgres.identity import IdentityFacts
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from headrace.postgres.server_errors import database_error

PARTS_SINCE = 150000
"""PostgreSQL 15, as `server_version_num` counts: the first whose publications can send a part of a table."""


@dataclass(frozen=True, slots=True)
class PublicationFilter:
    """A row filter and a column list of a table.

    Attributes:
        columns: the columns that are sent; None: all, future ones too.
        rows: an SQL condition over the table's columns; None: every row. The operator writes it; it never
            comes from data.
        row_columns: the columns that `rows` reads, as `row_columns` finds them.
    """

    columns: frozenset[str] | None = None
    rows: str | None = None
    row_columns: frozenset[str] = frozenset()


_LOCK_MILLISECONDS = 5000

Selections = Mapping[TableName, PublicationFilter]

WHOLE = PublicationFilter()


def table_clause(table: TableName, selection: PublicationFilter = WHOLE) -> str:
    """Return the SQL that names the table as a member of a publication."""
    listed = ", ".join(identifier(column) for column in sorted(selection.columns or ()))
    columns = f" ({listed})" if selection.columns is not None else ""
    rows = f" WHERE ({selection.rows})" if selection.rows is not None else ""
    return f"{quoted(table)}{columns}{rows}"


def selection_problem(facts: IdentityFacts, selection: PublicationFilter) -> HeadraceError | None:
    """Return why writers of the table would fail, or needed columns be missing; None if neither."""
    problem = _column_problem(facts, selection.columns or frozenset())
    if problem is not None:
        return problem
    if facts.root != facts.table or facts.kind == "p":
        return HeadraceError(
            Kind.CONFIG,
            f"{facts.root} is partitioned, and a part of such a table cannot be published by its leaves",
            "Ask for all of it.",
        )
    if selection.columns is not None and facts.current.kind == "full":
        return _refused(
            facts,
            "has replica identity FULL, and with a list of columns its writers would fail",
            "all columns",
        )
    hidden = frozenset() if selection.columns is None else facts.identity_columns - selection.columns
    if hidden:
        named = ", ".join(sorted(hidden))
        return _refused(
            facts,
            f"is identified by {named}: without them its writers would fail",
            f"the columns {named} too",
        )
    unknown = selection.row_columns - facts.identity_columns
    if unknown:
        named = ", ".join(sorted(unknown))
        return _refused(
            facts,
            f"is to be filtered by {named}, which its replica identity does not hold: its writers would fail",
            f"other rows, or give it an identity with {named}",
        )
    return None


def _column_problem(facts: IdentityFacts, columns: frozenset[str]) -> HeadraceError | None:
    """Return why no publication could list these columns; None where one could."""
    absent = ", ".join(sorted(columns - frozenset(facts.columns)))
    if absent:
        return HeadraceError(Kind.CONFIG, f"{facts.table} has no column {absent}", "Correct the columns.")
    computed = ", ".join(sorted(columns & (facts.generated - facts.stored)))
    if computed:
        return HeadraceError(
            Kind.CONFIG,
            f"{facts.table} computes {computed}, which this server sends of no table",
            "Leave it out of the columns: from PostgreSQL 18 on a stored generated column can be sent.",
        )
    return None


def with_row_columns(connection: Connection, selections: Selections) -> Selections:
    """Return the selections with the columns that their conditions read.

    Raises:
        HeadraceError: SERVER_VERSION before 15; as `row_columns`.
    """
    result = {}
    for table, selection in selections.items():
        _check_version(connection, table)
        read = frozenset() if selection.rows is None else row_columns(connection, table, selection.rows)
        result[table] = replace(selection, row_columns=read)
    return result


def _check_version(connection: Connection, table: TableName) -> None:
    if connection.info.server_version < PARTS_SINCE:
        raise HeadraceError(
            Kind.SERVER_VERSION,
            f"{table} is to be published in part, which PostgreSQL can from version 15 on",
            "Ask for the whole table.",
        )


def row_columns(connection: Connection, table: TableName, rows: str) -> frozenset[str]:
    """Return the columns that a condition reads, as PostgreSQL understands it; nothing stays in the database.

    Raises:
        HeadraceError: CONFIG, with the server's message, for a condition that no publication may have;
            PRIVILEGE, CONNECTION, DATABASE.
    """
    sql = """
        SELECT a.attname::text
        FROM pg_publication_rel r
        JOIN pg_publication p ON p.oid = r.prpubid AND p.pubname = $1
        JOIN pg_depend d ON d.classid = 'pg_publication_rel'::regclass AND d.objid = r.oid
             AND d.refclassid = 'pg_class'::regclass AND d.refobjid = r.prrelid AND d.refobjsubid > 0
        JOIN pg_attribute a ON a.attrelid = r.prrelid AND a.attnum = d.refobjsubid
    """
    return frozenset(column for (column,) in _query_trial_publication(connection, table, rows, sql))


def stored_condition(connection: Connection, table: TableName, rows: str) -> str:
    """Return a condition as PostgreSQL stores it; nothing stays in the database.

    Raises:
        HeadraceError: as `row_columns`.
    """
    sql = "SELECT rowfilter FROM pg_publication_tables WHERE pubname = $1"
    [(stored,)] = _query_trial_publication(connection, table, rows, sql)
    return str(stored)


def _query_trial_publication(
    connection: Connection, table: TableName, rows: str, sql: str
) -> list[tuple[Any, ...]]:
    """Create a publication with the condition, run `sql` with its name ($1), and roll both back."""
    name = f"headrace_look_{secrets.token_hex(8)}"
    try:
        with connection.transaction(force_rollback=True):
            execute(connection, f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}")
            clause = table_clause(table, PublicationFilter(rows=rows))
            execute(connection, f"CREATE PUBLICATION {identifier(name)} FOR TABLE {clause}")
            return execute(connection, sql, (name,))
    except psycopg.Error as error:
        if (error.sqlstate or "").startswith(("42501", "55P03", "08", "57")):
            raise database_error(error, connection.info.dsn) from error
        message = ": ".join(filter(None, (error.diag.message_primary, error.diag.message_detail))) or str(
            error
        )
        raise HeadraceError(
            Kind.CONFIG,
            f"the rows of {table} cannot be chosen by {rows!r}: {message}",
            "Correct the condition.",
        ) from error


def _refused(facts: IdentityFacts, why: str, instead: str) -> HeadraceError:
    return HeadraceError(Kind.REPLICA_IDENTITY, f"the table {facts.table} {why}", f"Ask for {instead}.")
