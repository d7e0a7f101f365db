"""Convert changes of many tables to the query's envelope, and describe the tables to its tasks."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.capture.envelope import ENVELOPE_SCHEMA, by_table, check_truncated, enveloped
from headrace.capture.graph_envelope import ELEMENTS_SCHEMA, elements
from headrace.capture.toast import Reread, completed, lookups
from headrace.catalog.known import KnownTable, KnownTables, read_known
from headrace.datasources.query_schema import (
    check_conditions,
    check_inheritance_children,
    check_key_kept,
    named_tables,
    no_table,
)
from headrace.datasources.source_options import CdcOptions
from headrace.errors import HeadraceError, Kind, retrying
from headrace.model.names import TableName
from headrace.model.suggestion import meant
from headrace.postgres.publication import read_published_roots
from headrace.postgres.session import KeptSession, ReadSession

TABLES = "headrace.tables"
"""Key of the metadata of the column `after`: descriptions of the tables, for `headrace.spark.table`."""


@dataclass(frozen=True, slots=True)
class TableDescriptions:
    """What a task needs to know about the tables in its part.

    Attributes:
        known: the catalog's facts.
        database: the database's name.
        roots: the followed table of each partition that was truncated by itself.
    """

    known: Mapping[TableName, KnownTable]
    database: str
    roots: Mapping[TableName, TableName]

    def keys(self) -> dict[TableName, tuple[str, ...]]:
        """Return the key columns by table."""
        return {table: known.key for table, known in self.known.items()}


class TableDescriber:
    """Describes the tables in a batch, in the process that plans it; keeps its session."""

    def __init__(self, options: CdcOptions) -> None:
        self._known = KnownTables(options.table_keys, options.publication)
        self._session = KeptSession(options.connection)
        self._database = ""

    def of(
        self, batches: Iterable[pa.RecordBatch], roots: Mapping[TableName, TableName]
    ) -> TableDescriptions:
        """Describe every existing table in `batches`; retries while the server is away.

        Args:
            batches: in `CHANGES_SCHEMA`.
            roots: the followed table of each partition that was truncated by itself.

        Raises:
            HeadraceError: USAGE or REPLICA_IDENTITY, where `tableKeys` does not name a key; AUTHENTICATION,
                DATABASE.
        """
        found = {table for batch in batches for table, _ in by_table(batch)}
        return retrying()(self._describe, found, roots)

    def _describe(self, tables: set[TableName], roots: Mapping[TableName, TableName]) -> TableDescriptions:
        session = self._session.get()
        if not self._database:
            [(self._database,)] = session.query("SELECT current_database()::text")
        return TableDescriptions(self._known.of(session, tables), self._database, roots)

    def close(self) -> None:
        """Close the session."""
        self._session.close()


def changes_schema(options: CdcOptions) -> StructType:
    """Return the columns of a query of many tables; checks `tableKeys` against the existing tables.

    Raises:
        HeadraceError: BINDING where a table is missing; USAGE or REPLICA_IDENTITY, where `tableKeys` does not
            name a key; DATABASE, where the server does not understand a condition; CONNECTION,
            AUTHENTICATION.
    """
    tables = named_tables(options)
    with ReadSession(options.connection) as session:
        followed = tables or read_published_roots(session, options.publication)
        known = read_known(session, followed, options.table_keys, options.publication)
        missing = [table for table in tables if table not in known]
        if missing:
            raise no_table(session, missing[0])
        if options.on_unlogged_change != "ignore":
            check_inheritance_children(session, followed)
        check_conditions(session, options)
    known = {
        table: _restrict_columns(table_facts, table, options.listed_columns.get(table))
        for table, table_facts in known.items()
    }
    if tables:
        _check_keys_followed(options, tables)
    if options.form == "elements":
        return from_arrow_schema(ELEMENTS_SCHEMA)
    columns = from_arrow_schema(ENVELOPE_SCHEMA)
    # The driver's facts travel with the schema: `headrace.spark.table` needs no connection.
    columns["after"].metadata = {
        TABLES: json.dumps({str(table): table_facts.to_text() for table, table_facts in known.items()})
    }
    return columns


def _check_keys_followed(options: CdcOptions, tables: Collection[TableName]) -> None:
    for table in options.table_keys:
        if table is not None and table not in tables:
            raise HeadraceError(
                Kind.USAGE,
                f"the option tableKeys names {table}, which is not followed",
                meant(str(table), map(str, tables)),
            )


def _restrict_columns(known: KnownTable, table: TableName, wanted: frozenset[str] | None) -> KnownTable:
    """Restrict a table's facts to the wanted columns; the publication may not exist yet."""
    if wanted is None:
        return known
    all_columns = [*known.columns, *sorted(known.left_out)]
    for name in sorted(wanted - set(all_columns)):
        raise HeadraceError(
            Kind.USAGE, f"the option columns: {table} has no column {name!r}", meant(name, all_columns)
        )
    check_key_kept(table, known.key, wanted)
    columns = {name: kind for name, kind in known.columns.items() if name in wanted}
    return replace(known, columns=columns, left_out=frozenset(all_columns) - frozenset(columns))


def to_envelope(
    options: CdcOptions, changes: Iterable[pa.RecordBatch], descriptions: TableDescriptions
) -> Iterator[pa.RecordBatch]:
    """Convert the changes of one part to the query's envelope.

    Args:
        options: of the query.
        changes: in `CHANGES_SCHEMA`.
        descriptions: of every table among them.

    Raises:
        HeadraceError: SCHEMA_CHANGED, a partition alone was truncated, and `elements` cannot say which nodes
            are gone; CONNECTION, PRIVILEGE, DATABASE, where values have to be read again.
    """

    def reread_of(table: TableName) -> Reread | None:
        known = descriptions.known.get(table)
        # Without a key nothing tells which row is to be read again.
        if known is None or not known.key or options.unchanged_toast != "reread":
            return None
        types = dict(zip(known.key, known.key_types, strict=True))
        return Reread(table, types, tuple(known.columns), operators=known.key_operators)

    # Who has unknown values marked sees by `source.identity` that the log lacks a key, and may read the rows
    # again: a mirror does, and only that table's.
    checks_keys = options.unchanged_toast != "mark"
    with lookups(options.connection) as look:
        for batch in changes:
            complete = completed(batch, reread_of, look)
            if options.form == "elements":
                check_truncated(complete, descriptions.roots.get)
                yield elements(complete, descriptions.known, options.source_id or options.slot)
            else:
                keys, roots = descriptions.keys(), descriptions.roots
                yield enveloped(complete, keys, descriptions.database, roots, checks_keys=checks_keys)
