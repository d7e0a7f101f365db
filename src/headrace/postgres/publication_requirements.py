"""Does a publication that exists send the part of each table that somebody asks for?

One that filters rows, or hides columns, does so in silence: nobody who reads the log can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import psycopg

from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.postgres.connection import Connection, execute
from headrace.postgres.identity import IdentityFacts
from headrace.postgres.publication import PublicationFacts, in_one_transaction, publication_problems
from headrace.postgres.publication_filters import (
    PARTS_SINCE,
    WHOLE,
    PublicationFilter,
    as_stored,
    table_clause,
)
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import database_error

_FILTERS = """
SELECT schemaname::text, tablename::text, rowfilter
FROM pg_publication_tables WHERE pubname = $1 AND rowfilter IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class PublicationRequirements:
    """What somebody wants of a table.

    Attributes:
        needed: the columns that must be sent; empty: whatever is.
        selection: which part is sent where the table is added to a publication. An existing one has to have
            its condition, and may send more columns.
        only_these: nobody leaves other columns out later: only those that are selected, and the replica
            identity's, may be sent.
    """

    needed: frozenset[str] = frozenset()
    selection: PublicationFilter = WHOLE
    only_these: bool = False

    def sent(self, facts: IdentityFacts) -> PublicationFilter:
        """The part; of a mere choice of columns with those that identify a row, or nobody could write."""
        columns = self.selection.columns
        if columns is None or not self.only_these or facts.current.kind == "full":
            return self.selection
        return replace(self.selection, columns=columns | facts.identity_columns)


NOTHING_SPECIAL = PublicationRequirements()


def read_filters(connection: Connection, publication: str) -> dict[TableName, str]:
    """The condition of each table whose rows the publication filters, in the server's words.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    if connection.info.server_version < PARTS_SINCE:
        return {}
    try:
        rows = execute(connection, _FILTERS, (publication,))
    except psycopg.Error as error:
        raise database_error(error, connection.info.dsn) from error
    return {TableName(schema, table): condition for schema, table, condition in rows}


def check_asked(
    connection: Connection,
    existing: PublicationFacts,
    found: Iterable[IdentityFacts],
    asked: Mapping[TableName, PublicationRequirements],
) -> None:
    """Compare what `existing` sends of the tables that it has with what is asked for.

    Raises:
        HeadraceError: PUBLICATION, where it filters rows in another way, or hides a column, an operation or
            truncated partitions; CONFIG, for a condition that no publication could have; CONNECTION,
            DATABASE.
    """
    for problem in publication_problems(existing, {}):
        raise problem
    filters = read_filters(connection, existing.name)
    for one in found:
        published = existing.tables.get(one.table)
        if published is None:
            continue
        wanted = asked.get(one.root, NOTHING_SPECIAL)
        selection, has = wanted.sent(one), filters.get(one.table)
        if not _is_same(connection, one.table, selection.rows, has):
            raise _other_rows(existing, one.table, selection, has)
        sends = frozenset(one.columns) if published.columns is None else published.columns
        if wanted.needed - sends:
            raise _other_columns(existing, one.table, selection, "hides", wanted.needed - sends)
        if wanted.only_these and sends - (selection.columns or sends):
            more = sends - (selection.columns or sends)
            raise _other_columns(existing, one.table, selection, "sends also the", more)


def _is_same(connection: Connection, table: TableName, condition: str | None, has: str | None) -> bool:
    if condition is None or has is None:
        return condition is has
    if _plain(condition) == _plain(has):
        return True
    try:
        return as_stored(connection, table, condition) == has
    except HeadraceError as error:
        if error.kind is not Kind.PRIVILEGE:
            raise
        return False  # only who may make a publication is told how the server understands a condition


def _plain(condition: str) -> str:
    """Without the white space, and the pair of parentheses that the server puts around it."""
    text = "".join(condition.split())
    return text[1:-1] if text.startswith("(") and text.endswith(")") and text.count("(") == 1 else text


def _other_rows(
    existing: PublicationFacts, table: TableName, selection: PublicationFilter, has: str | None
) -> HeadraceError:
    named = identifier(existing.name)
    if selection.rows is None:
        return HeadraceError(
            Kind.PUBLICATION,
            f"the publication {named} sends only the rows of {table} where {has}",
            "Say the same by the option where, or name another publication by publicationName.",
        )
    sends = "all rows" if has is None else f"the rows where {has}"
    run = _republished(named, table, selection)
    return HeadraceError(
        Kind.PUBLICATION,
        f"the publication {named} sends {sends} of {table}, asked for are those where {selection.rows}",
        f"Name another publication by publicationName, and a new slot; or {run}",
    )


def _other_columns(
    existing: PublicationFacts,
    table: TableName,
    selection: PublicationFilter,
    does: str,
    columns: frozenset[str],
) -> HeadraceError:
    named = identifier(existing.name)
    return HeadraceError(
        Kind.PUBLICATION,
        f"the publication {named} {does} columns of {table}: {', '.join(sorted(columns))}",
        "Ask for other columns; or name another publication by publicationName, and a new slot; or "
        f"{_republished(named, table, selection)}",
    )


def _republished(publication: str, table: TableName, selection: PublicationFilter) -> str:
    """What changes a publication, and loses nothing of an open transaction (decision 0009)."""
    statements = (
        f"LOCK TABLE {quoted(table)} IN SHARE ROW EXCLUSIVE MODE",
        f"ALTER PUBLICATION {publication} DROP TABLE {quoted(table)}",
        f"ALTER PUBLICATION {publication} ADD TABLE {table_clause(table, selection)}",
    )
    return f"run, before a new slot is made: {in_one_transaction(statements)}"
