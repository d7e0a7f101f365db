"""Check whether an existing publication sends the required part of each table.

A publication that filters rows or hides columns shows no sign of it in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.postgres.connection import Connection, query
from headrace.postgres.identity import IdentityFacts
from headrace.postgres.publication import PublicationFacts, in_one_transaction, publication_problems
from headrace.postgres.publication_filters import (
    PARTS_SINCE,
    WHOLE,
    PublicationFilter,
    stored_condition,
    table_clause,
)
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted

_FILTERS = """
SELECT schemaname::text, tablename::text, rowfilter
FROM pg_publication_tables WHERE pubname = $1 AND rowfilter IS NOT NULL
"""


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


def read_filters(connection: Connection, publication: str) -> dict[TableName, str]:
    """Read the condition of each table whose rows the publication filters, as the server stores it.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    if connection.info.server_version < PARTS_SINCE:
        return {}
    rows = query(connection, _FILTERS, (publication,))
    return {TableName(schema, table): condition for schema, table, condition in rows}


def check_requirements(
    connection: Connection,
    existing: PublicationFacts,
    tables: Iterable[IdentityFacts],
    asked: Mapping[TableName, PublicationRequirements],
) -> None:
    """Check that `existing` sends what is required of the tables that it has.

    Raises:
        HeadraceError: PUBLICATION, where it filters rows in another way, or hides a column, an operation or
            truncated partitions; CONFIG, for a condition that no publication could have; CONNECTION,
            DATABASE.
    """
    for problem in publication_problems(existing, {}):
        raise problem
    filters = read_filters(connection, existing.name)
    for facts in tables:
        published = existing.tables.get(facts.table)
        if published is None:
            continue
        requirements = asked.get(facts.root, NOTHING_SPECIAL)
        selection, condition = requirements.sent(facts), filters.get(facts.table)
        if not _is_same_condition(connection, facts.table, selection.rows, condition):
            raise _other_rows(existing, facts.table, selection, condition)
        sends = frozenset(facts.columns) if published.columns is None else published.columns
        if requirements.needed - sends:
            raise _other_columns(existing, facts.table, selection, "hides", requirements.needed - sends)
        if requirements.only_these and sends - (selection.columns or sends):
            excess = sends - (selection.columns or sends)
            raise _other_columns(existing, facts.table, selection, "sends also the", excess)


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


def _other_rows(
    existing: PublicationFacts, table: TableName, selection: PublicationFilter, existing_condition: str | None
) -> HeadraceError:
    named = identifier(existing.name)
    if selection.rows is None:
        return HeadraceError(
            Kind.PUBLICATION,
            f"the publication {named} sends only the rows of {table} where {existing_condition}",
            "Say the same by the option where, or name another publication by publicationName.",
        )
    sends = "all rows" if existing_condition is None else f"the rows where {existing_condition}"
    run = _publish_again(named, table, selection)
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
        f"{_publish_again(named, table, selection)}",
    )


def _publish_again(publication: str, table: TableName, selection: PublicationFilter) -> str:
    """Return the advice to publish the table anew; an open transaction loses nothing (decision 0009)."""
    statements = (
        f"LOCK TABLE {quoted(table)} IN SHARE ROW EXCLUSIVE MODE",
        f"ALTER PUBLICATION {publication} DROP TABLE {quoted(table)}",
        f"ALTER PUBLICATION {publication} ADD TABLE {table_clause(table, selection)}",
    )
    return f"run, before a new slot is made: {in_one_transaction(statements)}"
