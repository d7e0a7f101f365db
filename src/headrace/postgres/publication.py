"""What does a publication publish, and does it carry what the documents need?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import psycopg

from headrace.errors import HeadraceError, Kind
from headrace.model import TableName
from headrace.postgres.connection import Connection, execute
from headrace.postgres.quoting import identifier, literal
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession, database_error

OWN_COMMENT = "made by headrace"
"""The comment on a publication that Headrace made; only such a one is dropped by a teardown."""
OPERATIONS = ("insert", "update", "delete", "truncate")
"""What must be published."""
_LISTS_SINCE = 150000
_MEMBERS = """
SELECT n.nspname::text, c.relname::text
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = $1
"""
_BY_SCHEMA = """
UNION
SELECT n.nspname, c.relname
FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid
JOIN pg_class c ON c.relnamespace = s.pnnspid AND c.relkind IN ('r', 'p')
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = $1
"""

_MEMBERSHIPS = """
SELECT n.nspname::text, c.relname::text, r.oid::bigint AS member
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = $1
UNION ALL
SELECT n.nspname::text, c.relname::text, p.oid::bigint
FROM pg_publication p, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = $1 AND p.puballtables AND c.relkind IN ('r', 'p')
"""
_MEMBERSHIPS_BY_SCHEMA = """
UNION ALL
SELECT n.nspname::text, c.relname::text, s.oid::bigint
FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid
JOIN pg_class c ON c.relnamespace = s.pnnspid AND c.relkind IN ('r', 'p')
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = $1
"""

_ROOTS = """
SELECT DISTINCT n.nspname::text, c.relname::text
FROM pg_publication_tables t
JOIN pg_namespace ln ON ln.nspname = t.schemaname
JOIN pg_class leaf ON leaf.relnamespace = ln.oid AND leaf.relname = t.tablename
JOIN pg_class c ON c.oid = coalesce(pg_partition_root(leaf.oid), leaf.oid)
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.pubname = $1
ORDER BY 1, 2
"""

_COLUMN_LISTS = """
SELECT DISTINCT n.nspname::text, c.relname::text, to_jsonb(t) -> 'attnames'
FROM pg_publication_tables t
JOIN pg_namespace ln ON ln.nspname = t.schemaname
JOIN pg_class leaf ON leaf.relnamespace = ln.oid AND leaf.relname = t.tablename
JOIN pg_class c ON c.oid = coalesce(pg_partition_root(leaf.oid), leaf.oid)
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.pubname = $1
"""

IdentityKind = Literal["default", "nothing", "full", "index"]


@dataclass(frozen=True, slots=True)
class RecordedIdentity:
    """A replica identity; `index` is the index's name where `kind` is `index`."""

    kind: IdentityKind
    index: str | None = None


@dataclass(frozen=True, slots=True)
class SetupRecord:
    """What Headrace changed beside the publication; kept in the publication's comment.

    Attributes:
        identities: for each altered table the identity before and the one that was set.
        indexes: the indexes that were made, as (schema, name) in a TableName.
    """

    identities: Mapping[TableName, tuple[RecordedIdentity, RecordedIdentity]]
    indexes: frozenset[TableName] = frozenset()

    def comment(self) -> str:
        """The publication's comment that holds this record."""
        rows = [
            [table.schema, table.name, before.kind, before.index, after.kind, after.index]
            for table, (before, after) in sorted(self.identities.items())
        ]
        indexes = [[index.schema, index.name] for index in sorted(self.indexes)]
        return f"{OWN_COMMENT} {json.dumps({'identities': rows, 'indexes': indexes})}"


NOTHING_CHANGED = SetupRecord({})


def parse_record(comment: str | None) -> SetupRecord | None:
    """The record in a publication's comment; None where Headrace did not make the publication."""
    if comment is None or not comment.startswith(OWN_COMMENT):
        return None
    try:
        found = json.loads(comment.removeprefix(OWN_COMMENT))
        identities = {
            TableName(schema, name): (
                RecordedIdentity(before, before_index),
                RecordedIdentity(after, after_index),
            )
            for schema, name, before, before_index, after, after_index in found["identities"]
        }
        return SetupRecord(identities, frozenset(TableName(*index) for index in found["indexes"]))
    except (ValueError, TypeError, KeyError):
        return NOTHING_CHANGED


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table as one publication lists it.

    Attributes:
        columns: the column list; None is all columns.
        row_filter: whether rows are filtered.
    """

    columns: frozenset[str] | None = None
    row_filter: bool = False


@dataclass(frozen=True, slots=True)
class PublicationFacts:
    """A publication that exists.

    Attributes:
        operations: those of insert, update, delete, truncate that it publishes.
        via_root: whether partitions' changes carry the partitioned table's name.
        tables: what is published, leaf partitions instead of partitioned tables unless `via_root`.
        members: the tables that are named or whose schema is; partitioned tables as such.
        record: what Headrace changed; None where someone else made the publication.
        sends_generated: whether stored generated columns are sent (PostgreSQL 18).
    """

    name: str
    all_tables: bool
    operations: frozenset[str]
    via_root: bool
    tables: Mapping[TableName, PublishedTable]
    members: frozenset[TableName]
    record: SetupRecord | None
    sends_generated: bool = False

    @property
    def own(self) -> bool:
        """Whether Headrace made it."""
        return self.record is not None

    def publishes(self, table: TableName, leaves: frozenset[TableName]) -> bool:
        """Whether all of `table` is published, its future partitions too (`leaves`: its present ones)."""
        return self.all_tables or table in self.members or (leaves == {table} and table in self.tables)


def read_publication(connection: Connection, name: str) -> PublicationFacts | None:
    """The publication called `name`, or None.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    about = """
        SELECT puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot,
               obj_description(oid, 'pg_publication'), coalesce(to_jsonb(p) ->> 'pubgencols' = 's', false)
        FROM pg_publication p WHERE pubname = $1
    """
    # pg_publication_tables has columns and filters from PostgreSQL 15 on; before, there were neither.
    details = "attnames::text[], rowfilter IS NOT NULL" if _knows_lists(connection) else "NULL, false"
    listed = f"SELECT schemaname, tablename, {details} FROM pg_publication_tables WHERE pubname = $1"  # noqa: S608
    by_schema = _BY_SCHEMA if _knows_lists(connection) else ""
    try:
        rows = execute(connection, about, (name,))
        if not rows:
            return None
        tables = execute(connection, listed, (name,))
        members = execute(connection, _MEMBERS + by_schema, (name,))
    except psycopg.Error as error:
        raise database_error(error, connection.info.dsn) from error
    [(every, *operations, via_root, comment, sends_generated)] = rows
    return PublicationFacts(
        name=name,
        all_tables=every,
        operations=frozenset(op for op, on in zip(OPERATIONS, operations, strict=True) if on),
        via_root=via_root,
        tables={
            TableName(schema, table): PublishedTable(
                None if columns is None else frozenset(columns), filtered
            )
            for schema, table, columns, filtered in tables
        },
        members=frozenset(TableName(*member) for member in members),
        record=parse_record(comment),
        sends_generated=sends_generated,
    )


def read_memberships(connection: Connection, name: str) -> dict[TableName, int]:
    """What the server calls each table's membership in the publication: another one if it ever left it.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    by_schema = _MEMBERSHIPS_BY_SCHEMA if _knows_lists(connection) else ""
    listed = f"SELECT nspname, relname, max(member) FROM ({_MEMBERSHIPS}{by_schema}) m GROUP BY 1, 2"  # noqa: S608
    try:
        rows = execute(connection, listed, (name,))
    except psycopg.Error as error:
        raise database_error(error, connection.info.dsn) from error
    return {TableName(schema, table): member for schema, table, member in rows}


def read_altered(connection: Connection, name: str) -> int | None:
    """The transaction that altered the publication itself last (raw xid); None where there is none.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    try:
        rows = execute(
            connection, "SELECT xmin::text::bigint FROM pg_publication WHERE pubname = $1", (name,)
        )
    except psycopg.Error as error:
        raise database_error(error, connection.info.dsn) from error
    return rows[0][0] if rows else None


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that a publication hides.

    Attributes:
        table: the table whose changes are hidden; None where it is all of them.
        what: for people, behind "the publication … ".
        remedy: the SQL that mends it, in one transaction.
    """

    table: TableName | None
    what: str
    remedy: tuple[str, ...]


def read_published_roots(session: ReadSession, name: str) -> tuple[TableName, ...]:
    """What the publication sends, a partition by the topmost table above it, in order.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    return tuple(TableName(schema, table) for schema, table in session.query(_ROOTS, (name,)))


def read_column_lists(session: ReadSession, name: str) -> dict[TableName, frozenset[str]]:
    """The columns that the publication sends of each table, a partition by the topmost table above it.

    Empty before PostgreSQL 15, which sends all that are not generated.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    found: dict[TableName, frozenset[str]] = {}
    for schema, table, columns in session.query(_COLUMN_LISTS, (name,)):
        if columns is not None:
            key = TableName(schema, table)
            found[key] = found.get(key, frozenset()) | frozenset(columns)
    return found


def publication_gaps(
    facts: PublicationFacts,
    read: Mapping[TableName, frozenset[str]],
    roots: Mapping[TableName, TableName] | None = None,
) -> tuple[Gap, ...]:
    """What this publication hides of what the documents need; missing tables are no gap, they can be added.

    Args:
        facts: the publication.
        read: for each table (a leaf, where it is partitioned) the columns that must be in the stream.
        roots: for each of them the table that the documents name.
    """
    named = identifier(facts.name)
    found = []
    missing = [op for op in OPERATIONS if op not in facts.operations]
    if missing:
        setting = f"ALTER PUBLICATION {named} SET (publish = {literal(', '.join(OPERATIONS))})"
        found.append(Gap(None, f"does not publish {', '.join(missing)}", (setting,)))
    if facts.via_root:
        setting = f"ALTER PUBLICATION {named} SET (publish_via_partition_root = false)"
        what = "has publish_via_partition_root on: a truncated partition would not be seen"
        found.append(Gap(None, what, (setting,)))
    for table, columns in read.items():
        root = (roots or {}).get(table, table)
        published = facts.tables.get(table)
        if published is not None:
            found.extend(_hidden(facts, table, root, published, columns))
    return tuple(found)


def publication_problems(
    facts: PublicationFacts,
    read: Mapping[TableName, frozenset[str]],
    roots: Mapping[TableName, TableName] | None = None,
) -> tuple[HeadraceError, ...]:
    """`publication_gaps` as errors with their remedy."""
    return tuple(
        HeadraceError(
            Kind.PUBLICATION,
            f"the publication {identifier(facts.name)} {gap.what}",
            f"Run: {in_one_transaction(gap.remedy)} Or name another publication.",
        )
        for gap in publication_gaps(facts, read, roots)
    )


def in_one_transaction(statements: Sequence[str]) -> str:
    """The statements in one line that can be run as it is."""
    joined = "; ".join(statements)
    return f"{joined};" if len(statements) == 1 else f"BEGIN; {joined}; COMMIT;"


def _hidden(
    facts: PublicationFacts,
    table: TableName,
    root: TableName,
    published: PublishedTable,
    columns: frozenset[str],
) -> list[Gap]:
    listed = root if root in facts.members else table
    remedy = _republished(facts.name, listed)
    found = []
    if published.row_filter:
        found.append(Gap(table, f"filters the rows of {table} (WHERE)", remedy))
    if published.columns is not None and not columns <= published.columns:
        hidden = ", ".join(sorted(columns - published.columns))
        found.append(Gap(table, f"hides columns of {table}: {hidden}", remedy))
    return found


def _republished(publication: str, table: TableName) -> tuple[str, ...]:
    """The table as a whole, and nothing of an open transaction lost to a slot that lives (decision 0009)."""
    named, listed = identifier(publication), quoted(table)
    return (
        f"LOCK TABLE {listed} IN SHARE ROW EXCLUSIVE MODE",
        f"ALTER PUBLICATION {named} DROP TABLE {listed}",
        f"ALTER PUBLICATION {named} ADD TABLE {listed}",
    )


def _knows_lists(connection: Connection) -> bool:
    return connection.info.server_version >= _LISTS_SINCE
