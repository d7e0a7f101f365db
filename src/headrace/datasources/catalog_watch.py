"""Watch the catalog of followed tables for changes of rows that the log does not tell.

Every offset stores the catalog's fingerprint, so that what happened while no query ran is found too. Decision
0139.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headrace.catalog.differences import CatalogChange
from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.fingerprint_query import read_once
from headrace.catalog.moved import find_differences
from headrace.catalog.unlogged import find_unlogged, following, with_named
from headrace.datasources.query_schema import check_inheritance_children
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.names import TableName, name_arrays
from headrace.postgres.publication import read_column_lists, will_send_generated
from headrace.postgres.session import KeptSession, ReadSession
from headrace.postgres.sql_files import read_sql

_SECONDS = 10.0
_SHARE = 20
"""A look takes at most one part in so many of the time: the catalog may have thousands of tables."""
_LOCK_SECONDS = 2.0
_KEY = "catalog"
_SENDABLE_COLUMNS = read_sql(__package__, "sendable_columns")


def has_catalog(stored: Mapping[str, Any]) -> bool:
    """Tell whether an offset has a fingerprint of the catalog."""
    return _KEY in stored


def known_parts(stored: Mapping[str, Any]) -> frozenset[int] | None:
    """Return the relations (oids) with rows that an offset knows; None where it has no fingerprint."""
    if not stored.get(_KEY):
        return None
    return frozenset().union(*(table.parts for table in _fingerprint(stored).tables.values()))


def _fingerprint(stored: Mapping[str, Any]) -> Fingerprint:
    return Fingerprint.from_text(str(stored[_KEY]))


class CatalogWatch:
    """Compares the catalog with the fingerprint of a checkpoint, from time to time; used from one thread.

    Args:
        url: the database.
        publication: its name.
        tables: returns the followed tables.
        columns: the columns that the query has of a table; of others all that the publication sends.
    """

    def __init__(
        self,
        url: str,
        publication: str,
        tables: Callable[[], Sequence[TableName]],
        columns: Mapping[TableName, frozenset[str]],
    ) -> None:
        self._publication = publication
        self._tables = tables
        self._columns = columns
        self._baseline: Fingerprint | None = None
        self._text = ""
        self._seen: Fingerprint | None = None
        self._named: Mapping[TableName, Mapping[str, int]] = {}
        self._session = KeptSession(url, lock_seconds=_LOCK_SECONDS)
        self._next = 0.0

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Compare with the catalog as an offset has it, unless this has looked already."""
        if not self._next and stored.get(_KEY):
            self._text, self._baseline = str(stored[_KEY]), _fingerprint(stored)

    def take_up(self, stored: Mapping[str, Any], slot_made: int) -> Sequence[str]:
        """Know the catalog of a server that pg_upgrade has made; return how it is not that of an offset.

        `slot_made`: see `find_differences`.

        Raises:
            HeadraceError: CONNECTION, DATABASE.
        """
        if not has_catalog(stored):
            return ("the checkpoint has no catalog to compare with, because of onUnloggedChange=ignore",)
        now = self._read(self._session.get(), self._tables())
        found = [*find_differences(_fingerprint(stored), now, slot_made)]
        if not found:
            self._keep(now)
        return found

    def fields(self) -> dict[str, Any]:
        """Return the offset's fields; the catalog of now where nothing was compared yet.

        Raises:
            HeadraceError: CONNECTION, DATABASE.
        """
        if self._baseline is None:
            self._keep(self._read(self._session.get(), self._tables()))
        return {_KEY: self._text}

    def look(self) -> list[CatalogChange]:
        """Return what changed rows since the last look; nothing if called again too soon.

        It is found again until `accept`. While the server is away, or a table is locked, the next look
        compares again.

        Raises:
            HeadraceError: BINDING where a table that is not followed inherits from a followed one; PRIVILEGE
                where a partition's rows may not be read; DATABASE.
        """
        begun = time.monotonic()
        if begun < self._next:
            return []
        self._next = begun + _SECONDS
        try:
            session = self._session.get()
            tables = self._tables()
            # CREATE TABLE … INHERITS may come at any time, and its rows would be missed.
            check_inheritance_children(session, tables)
            now = self._read(session, tables)
            found = [] if self._baseline is None else find_unlogged(session, self._baseline, now)
        except HeadraceError as error:
            self.close()
            if error.retry is Retry.NEVER:
                raise
            return []
        self._seen = now
        if not found:
            self.accept()
        ended = time.monotonic()
        self._next = max(self._next, ended + _SHARE * (ended - begun))
        return found

    def accept(self) -> None:
        """Compare with what the last look saw from now on."""
        # Once for each look: the log may have named more since, which must not be forgotten.
        if self._seen is not None:
            self._keep(self._seen)
            self._seen = None

    def note(
        self,
        columns: Mapping[TableName, Mapping[str, int]],
        leaves: Mapping[TableName, Mapping[int, TableName]],
    ) -> None:
        """Know what the log has named, which may be younger than the last look, or gone."""
        # `NamedInLog` makes a new mapping for each change, so that identity is enough.
        if self._baseline is not None and columns is not self._named:
            self._named = columns
            before = self._baseline
            self._baseline = with_named(before, columns, leaves, self._columns)
            if self._baseline is not before:
                self._text = self._baseline.to_text()

    def read_with(self, session: ReadSession, tables: Sequence[TableName]) -> None:
        """Know these tables as a session sees them, whose snapshot their rows are read in.

        Raises:
            HeadraceError: CONNECTION, DATABASE.
        """
        self._keep(self._read(session, tables))

    def close(self) -> None:
        """Close the session; a later look opens another."""
        self._session.close()

    def _keep(self, now: Fingerprint) -> None:
        self._baseline = now if self._baseline is None else following(now, self._baseline)
        self._text = self._baseline.to_text()

    def _read(self, session: ReadSession, tables: Sequence[TableName]) -> Fingerprint:
        names = sorted(tables)
        sends_stored = will_send_generated(session, self._publication)
        parameters = (*name_arrays(names), sends_stored)
        sent = {
            TableName(schema, name): frozenset(columns or ())
            for schema, name, columns in session.query(_SENDABLE_COLUMNS, parameters)
        }
        sent |= {
            table: listed & sent[table]
            for table, listed in read_column_lists(session, self._publication).items()
            if table in sent
        }
        usage = {table: self._columns.get(table, columns) for table, columns in sent.items()}
        found = read_once(session, usage, self._publication)
        # Without the publication, see `headrace.datasources.publication_membership`.
        return Fingerprint(found.tables, ended=found.ended)


def unlogged_error(changes: Iterable[CatalogChange]) -> HeadraceError:
    """Return the error that ends a query because of these changes."""
    what = "; ".join(dict.fromkeys(change.what for change in changes))
    return HeadraceError(
        Kind.SCHEMA_CHANGED,
        f"rows changed, and the log does not say so: {what}",
        "Start the query again with onUnloggedChange=snapshot and the same checkpoint: it reads the table "
        "again, a truncate and then every row. onUnloggedChange=ignore goes on with what the log says; read "
        "the table by postgres_snapshot once it has caught up.",
    )
