"""Publish a part of a table (some columns, some rows), and check that an existing publication sends it.

A narrow publication saves decoding and sending. It also affects the application: a column list or a row
filter that does not fit the replica identity makes every UPDATE and DELETE of the table fail. So it is
refused before. A publication that filters rows or hides columns shows no sign of it in the log. So an
existing one is compared with what is required.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import psycopg

from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName, name_arrays
from headrace.postgres.connection import Connection, execute, query
from headrace.postgres.error_classes import ErrorClass, classify
from headrace.postgres.identity import IdentityFacts
from headrace.postgres.lock_holders import lock_error
from headrace.postgres.publication import (
    PARTS_SINCE,
    PublicationFacts,
    in_one_transaction,
    publication_problems,
    publish_again,
)
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from headrace.postgres.server_errors import database_error, whole_message
from headrace.postgres.sql_files import read_sql


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
_CONDITION_COLUMNS = read_sql(__package__, "condition_columns")
_FILTERS = read_sql(__package__, "filters")

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
    if (problem := _column_problem(facts, selection.columns or frozenset())) is not None:
        return problem
    if facts.root != facts.table or facts.kind == "p":
        return HeadraceError(
            Kind.CONFIG,
            f"{facts.root} is partitioned, and a part of such a table cannot be published by its leaves",
            "Ask for all of it.",
        )
    # PostgreSQL lets UPDATE and DELETE of a published table fail then, and not ALTER PUBLICATION.
    if selection.columns is not None and facts.current.kind == "full":
        return _refused(
            facts,
            "has replica identity FULL, and with a list of columns its writers would fail",
            "all columns",
        )
    sent = facts.identity_columns if selection.columns is None else selection.columns
    if named := ", ".join(sorted(facts.identity_columns - sent)):
        return _refused(
            facts,
            f"is identified by {named}: without them its writers would fail",
            f"the columns {named} too",
        )
    if named := ", ".join(sorted(selection.row_columns - facts.identity_columns)):
        return _refused(
            facts,
            f"is to be filtered by {named}, which its replica identity does not hold: its writers would fail",
            f"other rows, or give it an identity with {named}",
        )
    return None


def _column_problem(facts: IdentityFacts, columns: frozenset[str]) -> HeadraceError | None:
    """Return why no publication could list these columns; None where one could."""
    if absent := ", ".join(sorted(columns - frozenset(facts.columns))):
        return HeadraceError(Kind.CONFIG, f"{facts.table} has no column {absent}", "Correct the columns.")
    if computed := ", ".join(sorted(columns & (facts.generated - facts.stored))):
        return HeadraceError(
            Kind.CONFIG,
            f"{facts.table} computes {computed}, which this server never sends",
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
        if connection.info.server_version < PARTS_SINCE:
            raise HeadraceError(
                Kind.SERVER_VERSION,
                f"{table} would be published in part, which needs PostgreSQL 15 or later",
                "Ask for the whole table.",
            )
        read = frozenset() if selection.rows is None else row_columns(connection, table, selection.rows)
        result[table] = replace(selection, row_columns=read)
    return result


def row_columns(connection: Connection, table: TableName, rows: str) -> frozenset[str]:
    """Return the columns that a condition reads, as PostgreSQL understands it; nothing stays in the database.

    Raises:
        HeadraceError: CONFIG, with the server's message, for a condition that no publication may have;
            PRIVILEGE, CONNECTION, DATABASE.
    """
    found = _query_rolled_back_publication(connection, table, rows, _CONDITION_COLUMNS)
    return frozenset(column for (column,) in found)


def stored_condition(connection: Connection, table: TableName, rows: str) -> str:
    """Return a condition as PostgreSQL stores it; nothing stays in the database.

    Raises:
        HeadraceError: as `row_columns`.
    """
    sql = "SELECT rowfilter FROM pg_publication_tables WHERE pubname = $1"
    [(stored,)] = _query_rolled_back_publication(connection, table, rows, sql)
    return str(stored)


def _query_rolled_back_publication(
    connection: Connection, table: TableName, rows: str, sql: str
) -> list[tuple[Any, ...]]:
    """Create a publication with the condition, run `sql` with its name ($1), and roll both back."""
    name = f"headrace_look_{secrets.token_hex(8)}"
    try:
        # Only the server parses a condition as it will apply it.
        with connection.transaction(force_rollback=True):
            execute(connection, f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}")
            clause = table_clause(table, PublicationFilter(rows=rows))
            execute(connection, f"CREATE PUBLICATION {identifier(name)} FOR TABLE {clause}")
            return execute(connection, sql, (name,))
    except psycopg.Error as error:
        message = whole_message(error)
        # Others say nothing about the condition.
        is_refused = classify(error.sqlstate or "", message) is ErrorClass.REFUSED
        if not is_refused or error.sqlstate == "42501":
            raise database_error(error, connection.info.dsn) from error
        raise HeadraceError(
            Kind.CONFIG,
            f"the rows of {table} cannot be chosen by {rows!r}: {message}",
            "Correct the condition.",
        ) from error


def _refused(facts: IdentityFacts, why: str, instead: str) -> HeadraceError:
    return HeadraceError(Kind.REPLICA_IDENTITY, f"the table {facts.table} {why}", f"Ask for {instead}.")


@dataclass(frozen=True, slots=True)
class PublicationRequirements:
    """What is required of a publication for one table.

    Attributes:
        needed: the columns that must be sent; empty: no requirement.
        selection: the part that is sent where the table is added to a publication. An existing publication
            must have the same condition, and may send more columns.
        only_these: whether only the selected columns, and the replica identity's, may be sent, because no
            later step drops other columns.
    """

    needed: frozenset[str] = frozenset()
    selection: PublicationFilter = WHOLE
    only_these: bool = False

    def sent(self, facts: IdentityFacts) -> PublicationFilter:
        """Return the part to publish; where only columns are chosen, the identity's columns too."""
        columns = self.selection.columns
        if columns is None or not self.only_these or facts.current.kind == "full":
            return self.selection
        return replace(self.selection, columns=columns | facts.identity_columns)


NOTHING_SPECIAL = PublicationRequirements()


def read_filters(
    connection: Connection, publication: str, tables: Collection[TableName]
) -> dict[TableName, str]:
    """Read the condition of each of these tables whose rows the publication filters, as the server stores it.

    Raises:
        LockedError: somebody has locked such a table for longer than some seconds.
        HeadraceError: CONNECTION, DATABASE.
    """
    if connection.info.server_version < PARTS_SINCE:
        return {}
    try:
        with connection.transaction():
            # pg_get_expr waits for whoever alters a table.
            execute(connection, f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}")
            rows = execute(connection, _FILTERS, (publication, *name_arrays(tables)))
    except psycopg.errors.LockNotAvailable as error:
        raise lock_error(partial(query, connection), _LOCK_MILLISECONDS / 1000) from error
    return {TableName(schema, table): condition for schema, table, condition in rows}


def check_requirements(
    connection: Connection,
    existing: PublicationFacts,
    tables: Iterable[IdentityFacts],
    requirements: Mapping[TableName, PublicationRequirements],
) -> None:
    """Check that `existing` sends what is required of the tables that it has.

    Raises:
        HeadraceError: PUBLICATION, where it filters rows in another way, or hides a column, an operation or
            truncated partitions; CONFIG, for a condition that no publication could have; CONNECTION,
            DATABASE.
    """
    for problem in publication_problems(existing, {}):
        raise problem
    checked = list(tables)
    filters = read_filters(connection, existing.name, [facts.table for facts in checked])
    for facts in checked:
        published = existing.tables.get(facts.table)
        if published is None:
            continue
        required = requirements.get(facts.root, NOTHING_SPECIAL)
        selection, condition = required.sent(facts), filters.get(facts.table)
        if not _is_same_condition(connection, facts.table, selection.rows, condition):
            sends = "all rows" if condition is None else f"the rows where {condition}"
            rows = "all" if selection.rows is None else f"those where {selection.rows}"
            what = f"sends {sends} of {facts.table}, required are {rows}"
            raise _unfit_publication(existing, facts.table, selection, what, "Say the same by where")
        sends_columns = frozenset(facts.columns) if published.columns is None else published.columns
        hidden = required.needed - sends_columns
        excess = sends_columns - (selection.columns or sends_columns) if required.only_these else frozenset()
        if hidden or excess:
            does = "hides" if hidden else "sends also the"
            what = f"{does} columns of {facts.table}: {', '.join(sorted(hidden or excess))}"
            raise _unfit_publication(existing, facts.table, selection, what, "Ask for other columns")


def _is_same_condition(
    connection: Connection, table: TableName, condition: str | None, existing_condition: str | None
) -> bool:
    if condition is None or existing_condition is None:
        return condition is existing_condition
    if _normalized(condition) == _normalized(existing_condition):
        return True
    try:
        return stored_condition(connection, table, condition) == existing_condition
    except HeadraceError as error:
        if error.kind is not Kind.PRIVILEGE:
            raise
        return False  # only a role that may create a publication can ask how the server stores a condition


def _normalized(condition: str) -> str:
    """Remove white space, and the pair of parentheses that the server puts around a condition."""
    text = "".join(condition.split())
    return text[1:-1] if text.startswith("(") and text.endswith(")") and text.count("(") == 1 else text


def _unfit_publication(
    existing: PublicationFacts, table: TableName, selection: PublicationFilter, what: str, instead: str
) -> HeadraceError:
    statements = publish_again(existing.name, table, table_clause(table, selection))
    return HeadraceError(
        Kind.PUBLICATION,
        f"the publication {identifier(existing.name)} {what}",
        f"{instead}; or name another publication, and a new slot; or run, before a new slot is made: "
        f"{in_one_transaction(statements)}",
    )
