"""Read what a publication publishes, and report what the documents need and it does not carry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Literal

from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName
from headrace.postgres.connection import Connection, query
from headrace.postgres.quoting import identifier, literal
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession
from headrace.postgres.sql_files import read_sql

OWN_COMMENT = "made by headrace"
"""The comment on a publication that Headrace created; a teardown drops only a publication with it."""
OPERATIONS = ("insert", "update", "delete", "truncate")
"""The operations that must be published."""
PARTS_SINCE = 150000
"""PostgreSQL 15, as `server_version_num` counts: the first whose publications can send a part of a table."""
_MEMBERSHIPS = read_sql(__package__, "memberships")
_SENT_TABLES = read_sql(__package__, "sent_tables")
_WILL_SEND_GENERATED = """
SELECT current_setting('server_version_num')::int >= 180000
       AND NOT EXISTS (SELECT FROM pg_publication p
                       WHERE p.pubname = $1 AND to_jsonb(p) ->> 'pubgencols' IS DISTINCT FROM 's')
"""

IdentityKind = Literal["default", "nothing", "full", "index"]


@dataclass(frozen=True, slots=True)
class RecordedIdentity:
    """A replica identity; `index` is the index's name where `kind` is `index`."""

    kind: IdentityKind
    index: str | None = None


@dataclass(frozen=True, slots=True)
class SetupRecord:
    """What Headrace changed besides the publication; kept in the publication's comment.

    Attributes:
        identities: for each altered table the identity before, and the one that was set.
        indexes: the indexes that Headrace created, as (schema, name) in a TableName.
    """

    identities: Mapping[TableName, tuple[RecordedIdentity, RecordedIdentity]]
    indexes: frozenset[TableName] = frozenset()

    def comment(self) -> str:
        """Return the publication's comment that holds this record."""
        rows = [
            [table.schema, table.name, before.kind, before.index, after.kind, after.index]
            for table, (before, after) in sorted(self.identities.items())
        ]
        indexes = [[index.schema, index.name] for index in sorted(self.indexes)]
        return f"{OWN_COMMENT} {json.dumps({'identities': rows, 'indexes': indexes})}"


NOTHING_CHANGED = SetupRecord({})


def parse_record(comment: str | None) -> SetupRecord | None:
    """Parse the record in a publication's comment; None where Headrace did not create the publication."""
    if comment is None or not comment.startswith(OWN_COMMENT):
        return None
    try:
        parsed = json.loads(comment.removeprefix(OWN_COMMENT))
        identities = {
            TableName(schema, name): (
                RecordedIdentity(before, before_index),
                RecordedIdentity(after, after_index),
            )
            for schema, name, before, before_index, after, after_index in parsed["identities"]
        }
        return SetupRecord(identities, frozenset(TableName(*index) for index in parsed["indexes"]))
    except (ValueError, TypeError, KeyError):
        # A comment that somebody has edited: the publication is ours, and what it recorded is not undone.
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
        operations: those of `OPERATIONS` that it publishes.
        via_root: whether partitions' changes carry the partitioned table's name.
        tables: the published tables, leaf partitions instead of partitioned tables unless `via_root`.
        members: the tables that are named or whose schema is, or all tables; partitioned tables as such.
        record: what Headrace changed; None where another role created the publication.
        sends_generated: whether stored generated columns are sent (PostgreSQL 18).
    """

    name: str
    operations: frozenset[str]
    via_root: bool
    tables: Mapping[TableName, PublishedTable]
    members: frozenset[TableName]
    record: SetupRecord | None
    sends_generated: bool = False

    @property
    def own(self) -> bool:
        """Whether Headrace created it."""
        return self.record is not None

    def publishes(self, table: TableName, leaves: frozenset[TableName]) -> bool:
        """Return whether all of `table` is published, its future partitions too.

        `leaves`: its present partitions.
        """
        # A leaf that is listed by itself says nothing of partitions to come.
        return table in self.members or (leaves == {table} and table in self.tables)


def read_publication(connection: Connection, name: str) -> PublicationFacts | None:
    """Read the publication called `name`; None where it does not exist.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    settings_sql = """
        SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot,
               obj_description(oid, 'pg_publication'), coalesce(to_jsonb(p) ->> 'pubgencols' = 's', false)
        FROM pg_publication p WHERE pubname = $1
    """
    has_lists = connection.info.server_version >= PARTS_SINCE
    rows = query(connection, settings_sql, (name,))
    if not rows:
        return None
    tables = query(connection, _SENT_TABLES, (name,))
    [(*operations, via_root, comment, sends_generated)] = rows
    return PublicationFacts(
        name=name,
        operations=frozenset(compress(OPERATIONS, operations)),
        via_root=via_root,
        tables={
            TableName(schema, table): PublishedTable(
                frozenset(columns or ()) if has_lists else None, filtered
            )
            for schema, table, _, _, columns, filtered in tables
        },
        members=frozenset(read_memberships(connection, name)),
        record=parse_record(comment),
        sends_generated=sends_generated,
    )


def read_memberships(
    connection: Connection, name: str, *, of_all_tables: bool = True
) -> dict[TableName, int]:
    """Read the server's OID of each table's membership in the publication.

    It differs if the table ever left the publication. One `FOR ALL TABLES` can lose none; `of_all_tables`:
    whether to read its tables too.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    rows = query(connection, _MEMBERSHIPS, (name, of_all_tables))
    return {TableName(schema, table): member for schema, table, member in rows}


def read_last_alteration(connection: Connection, name: str) -> int | None:
    """Return the transaction (raw xid) that last altered the publication itself; None where there is none.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    rows = query(connection, "SELECT xmin::text::bigint FROM pg_publication WHERE pubname = $1", (name,))
    return rows[0][0] if rows else None


@dataclass(frozen=True, slots=True)
class Gap:
    """A change or column that the documents need and the publication hides.

    Attributes:
        table: the table whose changes are hidden; None for all tables.
        what: the description for people, which follows "the publication … ".
        remedy: the SQL that mends it, in one transaction.
    """

    table: TableName | None
    what: str
    remedy: tuple[str, ...]


def read_published_roots(session: ReadSession, name: str) -> tuple[TableName, ...]:
    """Read the tables that the publication sends, in order; a partition by its topmost table.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    return tuple(sorted(read_column_lists(session, name)))


def read_column_lists(session: ReadSession, name: str) -> dict[TableName, frozenset[str]]:
    """Read the columns that the publication sends of each table; a partition by its topmost table.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    lists: dict[TableName, frozenset[str]] = {}
    for _, _, schema, table, columns, _ in session.query(_SENT_TABLES, (name,)):
        key = TableName(schema, table)
        # Leaves may have lists of their own.
        lists[key] = lists.get(key, frozenset()) | frozenset(columns or ())
    return lists


def will_send_generated(session: ReadSession, name: str) -> bool:
    """Tell whether stored generated columns of a table are sent once the publication has it.

    One that does not exist yet is created so that it does, from PostgreSQL 18 on.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    [(sends,)] = session.query(_WILL_SEND_GENERATED, (name,))
    return bool(sends)


def publication_gaps(
    facts: PublicationFacts,
    read: Mapping[TableName, frozenset[str]],
    roots: Mapping[TableName, TableName] | None = None,
) -> tuple[Gap, ...]:
    """Return what this publication hides of what the documents need.

    Missing tables are no gap: they can be added.

    Args:
        facts: the publication.
        read: for each table (a leaf, where it is partitioned) the columns that must be in the stream.
        roots: for each of them the table that the documents name.
    """
    named = identifier(facts.name)
    gaps = []
    missing = [operation for operation in OPERATIONS if operation not in facts.operations]
    if missing:
        setting = f"ALTER PUBLICATION {named} SET (publish = {literal(', '.join(OPERATIONS))})"
        gaps.append(Gap(None, f"does not publish {', '.join(missing)}", (setting,)))
    # With it the log names the root, and TRUNCATE of one leaf is not sent at all.
    if facts.via_root:
        setting = f"ALTER PUBLICATION {named} SET (publish_via_partition_root = false)"
        what = "has publish_via_partition_root on: a truncated partition would not be seen"
        gaps.append(Gap(None, what, (setting,)))
    for table, columns in read.items():
        root = (roots or {}).get(table, table)
        published = facts.tables.get(table)
        if published is not None:
            gaps.extend(_table_gaps(facts, table, root, published, columns))
    return tuple(gaps)


def publication_problems(
    facts: PublicationFacts,
    read: Mapping[TableName, frozenset[str]],
    roots: Mapping[TableName, TableName] | None = None,
) -> tuple[HeadraceError, ...]:
    """Return the errors of `publication_gaps`, with their remedies."""
    return tuple(
        HeadraceError(
            Kind.PUBLICATION,
            f"the publication {identifier(facts.name)} {gap.what}",
            f"Run: {in_one_transaction(gap.remedy)} Or name another publication.",
        ).mended_by([in_one_transaction(gap.remedy)])
        for gap in publication_gaps(facts, read, roots)
    )


def in_one_transaction(statements: Sequence[str]) -> str:
    """Join the statements into one line that runs them in one transaction."""
    joined = "; ".join(statements)
    return f"{joined};" if len(statements) == 1 else f"BEGIN; {joined}; COMMIT;"


def _table_gaps(
    facts: PublicationFacts,
    table: TableName,
    root: TableName,
    published: PublishedTable,
    columns: frozenset[str],
) -> list[Gap]:
    listed = root if root in facts.members else table
    remedy = publish_again(facts.name, listed, quoted(listed))
    gaps = []
    if published.row_filter:
        gaps.append(Gap(table, f"filters the rows of {table} (WHERE)", remedy))
    if published.columns is not None and not columns <= published.columns:
        hidden = ", ".join(sorted(columns - published.columns))
        gaps.append(Gap(table, f"hides columns of {table}: {hidden}", remedy))
    return gaps


def publish_again(publication: str, table: TableName, clause: str) -> tuple[str, ...]:
    """Return the SQL that publishes the table again, as `clause` names it and its part.

    The lock waits for open transactions, so that an existing slot loses nothing of them (decision 0009).
    """
    named, listed = identifier(publication), quoted(table)
    return (
        f"LOCK TABLE {listed} IN SHARE ROW EXCLUSIVE MODE",
        f"ALTER PUBLICATION {named} DROP TABLE {listed}",
        f"ALTER PUBLICATION {named} ADD TABLE {clause}",
    )
