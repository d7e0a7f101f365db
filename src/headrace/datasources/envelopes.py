"""In which form do changes of many tables leave a task? And what does the task have to be told for that?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.capture.envelope import ENVELOPE_SCHEMA, by_table, enveloped
from headrace.capture.graph_envelope import ELEMENTS_SCHEMA, elements
from headrace.capture.reread import Reread, lookups
from headrace.capture.unchanged import Look, completed
from headrace.catalog.known import KnownTable, KnownTables, read_known
from headrace.catalog.partitions import read_place
from headrace.datasources.cdc_options import CdcOptions
from headrace.datasources.query_schema import check_conditions
from headrace.datasources.table_selection import check_inheritance_children, named_tables, no_table
from headrace.errors import HeadraceError, Kind, patiently
from headrace.model import CHANGES_SCHEMA, Op, TableName
from headrace.model.suggestion import meant
from headrace.postgres.publication import read_published_roots
from headrace.postgres.session import ReadSession

_OID = """
SELECT c.oid::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2
"""
TABLES = "headrace.tables"
"""The metadata of the column `after`: what each table's values are, for `headrace.spark.table`."""


@dataclass(frozen=True, slots=True)
class Described:
    """What a task is told of the tables in its part."""

    known: Mapping[TableName, KnownTable]
    database: str
    roots: Mapping[TableName, TableName]
    """The followed table of each partition that was truncated by itself."""

    def keys(self) -> dict[TableName, tuple[str, ...]]:
        """The columns of each one's key."""
        return {table: one.key for table, one in self.known.items()}


class Describing:
    """What the tables in a batch are, asked in the process that plans it; the session is kept."""

    def __init__(self, options: CdcOptions) -> None:
        self._options = options
        self._known = KnownTables(options.table_keys, options.publication_name)
        self._session: ReadSession | None = None
        self._database = ""

    def of(self, batches: Iterable[pa.RecordBatch]) -> Described:
        """Of each table in `batches` that there is now; a lost server is waited for.

        Raises:
            HeadraceError: USAGE or REPLICA_IDENTITY, a given key is none; AUTHENTICATION, DATABASE.
        """
        found = [one for batch in batches for one in _tables(batch)]
        emptied = {table for table, is_emptied in found if is_emptied}
        for attempt in patiently():
            with attempt:
                session = self._opened()
                known = self._known.of(session, (table for table, _ in found))
                return Described(known, self._database, self._roots(session, emptied))
        raise AssertionError

    def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _roots(self, session: ReadSession, emptied: Iterable[TableName]) -> dict[TableName, TableName]:
        wanted = [one.exact for one in self._options.tables if one.exact is not None]
        roots: dict[TableName, TableName] = {}
        for table in emptied:
            rows = session.query(_OID, (table.schema, table.name))
            place = read_place(session, rows[0][0], wanted) if rows else None
            if place is not None and place.root != table:
                roots[table] = place.root
        return roots

    def _opened(self) -> ReadSession:
        if self._session is None or self._session.closed:
            self._session = ReadSession(self._options.connection)
            [(self._database,)] = self._session.query("SELECT current_database()::text")
        return self._session


def _tables(batch: pa.RecordBatch) -> Iterator[tuple[TableName, bool]]:
    """Each table in `batch`, and whether it was emptied there."""
    is_truncate = pc.equal(batch.column("op"), Op.TRUNCATE.value).to_numpy(zero_copy_only=False)
    for table, places in by_table(batch):
        yield table, bool(is_truncate[places].any())


def plan_changes(options: CdcOptions) -> StructType:
    """The columns that a query of many tables has; `tableKeys` is checked with the tables that are there.

    Raises:
        HeadraceError: BINDING where a table is missing; USAGE or REPLICA_IDENTITY, a given key is none;
            DATABASE, where the server does not understand a condition; CONNECTION, AUTHENTICATION.
    """
    if options.progress:
        return from_arrow_schema(CHANGES_SCHEMA)
    tables = named_tables(options)
    with ReadSession(options.connection) as session:
        followed = tables or read_published_roots(session, options.publication_name)
        known = read_known(session, followed, options.table_keys, options.publication_name)
        missing = [table for table in tables if table not in known]
        if missing:
            raise no_table(session, missing[0])
        check_inheritance_children(session, followed)
    check_conditions(options)
    known = {table: _narrowed(one, table, options.listed_columns.get(table)) for table, one in known.items()}
    unknown = [one for one in options.table_keys if one is not None and tables and one not in tables]
    if unknown:
        raise HeadraceError(
            Kind.USAGE,
            f"the option tableKeys names {unknown[0]}, which is not followed",
            meant(str(unknown[0]), map(str, tables)),
        )
    if options.form == "elements":
        return from_arrow_schema(ELEMENTS_SCHEMA)
    columns = from_arrow_schema(ENVELOPE_SCHEMA)
    columns["after"].metadata = {
        TABLES: json.dumps({str(table): one.to_text() for table, one in known.items()})
    }
    return columns


def _narrowed(known: KnownTable, table: TableName, wanted: frozenset[str] | None) -> KnownTable:
    """What is known of the columns that are asked for; the publication may have yet to be made."""
    if wanted is None:
        return known
    every = [*known.columns, *sorted(known.left_out)]
    for name in sorted(wanted - set(every)):
        raise HeadraceError(
            Kind.USAGE, f"the option columns: {table} has no column {name!r}", meant(name, every)
        )
    missing = [name for name in known.key if name not in wanted]
    if missing:
        raise HeadraceError(
            Kind.USAGE,
            f"the key of {table} is {', '.join(known.key)}, and {missing[0]} is left out",
            "Ask for the key's columns too.",
        )
    columns = {name: kind for name, kind in known.columns.items() if name in wanted}
    return replace(known, columns=columns, left_out=frozenset(every) - frozenset(columns))


def formed(
    options: CdcOptions, changes: Iterable[pa.RecordBatch], told: Described
) -> Iterator[pa.RecordBatch]:
    """The changes of one part in the form that the query has.

    Args:
        options: of the query.
        changes: in `CHANGES_SCHEMA`.
        told: of every table among them.

    Raises:
        HeadraceError: SCHEMA_CHANGED, a partition alone was truncated, and `elements` cannot say which nodes
            are gone; CONNECTION, PRIVILEGE, DATABASE, where values have to be read again.
    """
    with lookups(options.connection) as look_by:

        def look_of(table: TableName) -> tuple[KnownTable, Look] | None:
            known = told.known.get(table)
            if known is None or not known.key or options.unchanged_toast != "reread":
                return None
            types = dict(zip(known.key, known.key_types, strict=True))
            return known, look_by(Reread(table, types, operators=known.key_operators))

        for batch in changes:
            whole = completed(batch, look_of)
            if options.form == "elements":
                _check_truncated(whole, told.roots)
                yield elements(whole, told.known, options.source_id or options.slot_name)
            else:
                yield enveloped(whole, told.keys(), told.database, told.roots)


def _check_truncated(changes: pa.RecordBatch, roots: Mapping[TableName, TableName]) -> None:
    for table, is_emptied in _tables(changes) if roots else ():
        if is_emptied and table in roots:
            raise HeadraceError(
                Kind.SCHEMA_CHANGED,
                f"the partition {table} of {roots[table]} was truncated: no element says which are gone",
                "Start with a new checkpoint and slot, or follow the table with envelope=changes.",
            )
