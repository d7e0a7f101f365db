"""Follow the tables of a query: those that a checkpoint names, those that are added, and their publication.

Every offset names the followed tables, so that a restart recognises a table that was added to the options.
Its earlier rows are not in the checkpoint's past, and its changes from before it was published are in no log.
Where its rows are read first, its changes count from the position of their snapshot, which the other tables
have not reached yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.capture import LogOrigin
from headrace.capture.envelope import by_table
from headrace.capture.named_in_log import NamedInLog
from headrace.catalog.differences import CatalogChange, Effect
from headrace.datasources.catalog_watch import CatalogWatch, has_catalog, unlogged_error
from headrace.datasources.initial_snapshot import SnapshotProgress
from headrace.datasources.publication_membership import Published, read_all_published, read_published
from headrace.datasources.query_schema import RowsPlan, named_tables
from headrace.datasources.source_options import CdcOptions
from headrace.errors import HeadraceError, Kind, Retry
from headrace.model.lsn import Lsn, format_lsn, parse_lsn
from headrace.model.names import TableName
from headrace.model.table_pattern import format_table, one_table
from headrace.postgres.connection import connect
from headrace.postgres.provision import ensure_published
from headrace.postgres.publication import read_published_roots
from headrace.postgres.publication_filters import PublicationFilter, PublicationRequirements
from headrace.postgres.session import ReadSession

_LOG = logging.getLogger(__name__)
_KEY, _SINCE = "tables", "since"
_WATCH_SECONDS = 10.0


def table_fields(tables: Iterable[TableName]) -> dict[str, Any]:
    """Return the offset's fields that name the tables; empty where the whole publication is followed."""
    names = [format_table(table) for table in sorted(tables)]
    return {_KEY: names} if names else {}


def tables_of(stored: Mapping[str, Any]) -> tuple[TableName, ...] | None:
    """Return the tables that an offset names; None where it names none."""
    names = stored.get(_KEY)
    return None if names is None else tuple(map(one_table, names))


def since_of(stored: Mapping[str, Any]) -> dict[TableName, Lsn]:
    """Return, by table, the position (bytes) from which its changes count, if later than the offset's."""
    return {one_table(name): parse_lsn(at) for name, at in stored.get(_SINCE, {}).items()}


def since_fields(since: Mapping[TableName, Lsn], reached: Lsn) -> dict[str, Any]:
    """Return the offset's fields for `since`, without positions that are `reached` (bytes)."""
    ahead = {format_table(table): format_lsn(at) for table, at in sorted(since.items()) if at > reached}
    return {_SINCE: ahead} if ahead else {}


def added_tables(
    stored: Mapping[str, Any], now: Sequence[TableName], options: CdcOptions
) -> tuple[TableName, ...]:
    """Return the wanted tables that an offset does not follow.

    Raises:
        HeadraceError: USAGE, where there are some and the options do not say what to do with them.
    """
    known = tables_of(stored)
    followed = frozenset(known or ())
    found = () if known is None else tuple(table for table in now if table not in followed)
    if found and options.form == "rows":
        raise HeadraceError(
            Kind.USAGE,
            f"the checkpoint follows {_join(known or ())}, not {_join(found)}",
            "Give each table a checkpoint and a slot of its own, or follow many by envelope=changes.",
        )
    if found and options.new_tables == "refuse":
        raise HeadraceError(
            Kind.USAGE,
            f"the checkpoint does not follow {_join(found)}: the table is new in the option tables",
            "Set newTables=snapshot to read its rows first, newTables=follow to follow it from now on, or "
            "leave it out.",
        )
    return found


def snapshot_progress(
    progress: SnapshotProgress | None,
    stored: Mapping[str, Any],
    new: Sequence[TableName],
    options: CdcOptions,
) -> SnapshotProgress | None:
    """Return which rows are to be read, after `new` tables were added to an offset's progress."""
    if not new:
        return progress
    if options.new_tables == "snapshot":
        if progress is None:
            return SnapshotProgress(tables=tuple(new))
        return replace(progress, tables=(*progress.tables, *new)) if progress.tables else progress
    if progress is None or progress.tables:
        return progress
    return replace(progress, tables=tables_of(stored) or ())


def exclude_tables(
    batches: Iterable[pa.RecordBatch],
    before: Mapping[TableName, Lsn | None],
    roots: Mapping[TableName, TableName],
) -> list[pa.RecordBatch]:
    """Remove the changes of some tables.

    Args:
        batches: in `CHANGES_SCHEMA`.
        before: the tables; of each only the changes that are committed before a position (bytes), or all
            (None).
        roots: the followed table of each partition that was truncated by itself, under its own name.
    """
    # A leaf that was truncated alone has its own name in the changes.
    places = {**before, **{leaf: before[root] for leaf, root in roots.items() if root in before}}
    found = []
    for batch in batches:
        lsn, kept = batch.column("_commit_lsn").to_numpy(zero_copy_only=False), np.ones(len(batch), np.bool_)
        for table, rows in by_table(batch):
            if table in places:
                place = places[table]
                kept[rows] = False if place is None else lsn[rows] >= place
        found.append(batch.filter(pa.array(kept)))
    return found


class FollowedTables:
    """The tables that a query follows and the publication that sends them; in the planning process.

    Args:
        options: of the query.
        plan: for `envelope=rows`.

    Attributes:
        columns: what the log has named; None where names are not looked at.
    """

    def __init__(self, options: CdcOptions, plan: RowsPlan | None) -> None:
        self._options = options
        self._plan = plan
        self._published: Published | None = None
        self._next_look = 0.0
        columns = {} if plan is None else {plan.shape.table: frozenset(plan.shape.columns)}
        self._watches_catalog = options.on_unlogged_change != "ignore"
        self.columns = NamedInLog(options.publication) if self._watches_catalog else None
        self._catalog = CatalogWatch(self._options.slot_url, options.publication, self.read_all, columns)

    @cached_property
    def named(self) -> tuple[TableName, ...]:
        """The named tables that exist; empty where all of the publication are followed."""
        return named_tables(self._options)

    @property
    def requirements(self) -> dict[TableName, PublicationRequirements]:
        """What the publication has to send of tables of which only a part is wanted."""
        options, plan = self._options, self._plan
        if plan is not None:
            return {plan.shape.table: PublicationRequirements(frozenset(plan.shape.columns), plan.selection)}
        columns, conditions = options.listed_columns, options.conditions
        return {
            table: PublicationRequirements(
                columns.get(table, frozenset()),
                PublicationFilter(columns.get(table), conditions.get(table)),
                only_these=table in columns,
            )
            for table in columns.keys() | conditions.keys()
        }

    def read_all(self) -> tuple[TableName, ...]:
        """Return all followed tables."""
        if self.named:
            return self.named
        with ReadSession(self._options.connection) as session:
            return read_published_roots(session, self._options.publication)

    def fields(self) -> dict[str, Any]:
        """Return the offset's fields for the followed tables and how they are published."""
        if self._published is None:
            self._published = self._read_published(None)
        catalog = self._catalog.fields() if self._watches_catalog else {}
        return table_fields(self.named) | self._published.to_json() | catalog

    def take_up(self, start: Mapping[str, Any], slot_made: int) -> Iterator[str]:
        """Yield how the catalog is not the one of an offset, moved by pg_upgrade; else it is known then."""
        if added := {*self.named} - {*(tables_of(start) or self.named)}:
            yield f"{_join(sorted(added))} is new in the option tables: add it afterwards"
        yield from self._catalog.take_up(start, slot_made)

    def check_published(self, start: Mapping[str, Any]) -> None:
        """Check that the publication sends the followed tables, and has done so since `start` was stored."""
        known = tables_of(start)
        tables = [table for table in self.named if known is None or table in known]
        origin, before = LogOrigin.from_json(start), Published.from_json(start)
        found = self._read_published(before)  # before this process alters it
        # Oids and xids of another server mean nothing here; the reader of the log reports that server.
        is_same_place = origin is None or not found.is_elsewhere(origin)
        if is_same_place:
            self._catalog.restore(start)
        self.publish((), tables)
        if is_same_place and before is not None:
            self._compare(before, found, "since the checkpoint was written")

    def _compare(self, before: Published, now: Published, since: str) -> None:
        """Check that the publication has sent all `since` the moment `before`; else end, or warn.

        Raises:
            HeadraceError: PUBLICATION.
        """
        if (what := before.lost(now)) is None:
            return
        cause = (
            f"the publication {self._options.publication!r} {what} {since}: what was changed meanwhile may "
            "be missing from the log"
        )
        if self._options.fail_on_data_loss:
            raise HeadraceError(
                Kind.PUBLICATION,
                cause,
                "Start with a new checkpoint and slot, and load the tables again; or set "
                "failOnDataLoss=false, which goes on without these changes.",
            )
        _LOG.warning("%s", cause)

    def publish(self, new: Sequence[TableName], tables: Sequence[TableName] = ()) -> None:
        """Make sure that the publication sends `tables`, and add the tables that are `new` to it."""
        options = self._options
        if new or tables:
            ensure_published(
                self._options.slot_url,
                slot=options.slot,
                publication=options.publication,
                tables=[*tables, *new],
                added=new,
                create=options.create_slot,
                requirements=self.requirements,
            )
        # Now, not at the next look: a batch that is repeated first may take long.
        self._published = self._read_published(self._published)

    def watch(self) -> None:
        """Compare how the tables are published with the look before, unless that was a moment ago.

        Raises:
            HeadraceError: PUBLICATION, where an existing table has left the publication since, even if it has
                come back, or the publication itself was altered. While the server is away, the stream
                retries.
        """
        if time.monotonic() < self._next_look:
            return
        # Before the look, so that one that fails is not repeated at every call.
        self._next_look = time.monotonic() + _WATCH_SECONDS
        try:
            now = self._read_published(self._published)
        except HeadraceError as error:
            if error.retry is Retry.NEVER:
                raise
            return  # the stream itself meets a server that stays away
        self._compare(self._published or now, now, "while it was read")
        self._published = now  # offsets have it: a next start does not tell of the same again

    def unlogged(self) -> tuple[TableName, ...]:
        """Return the tables that are to be read again, because rows changed without a change in the log.

        Raises:
            HeadraceError: SCHEMA_CHANGED, where the options do not say to read them again.
        """
        if self.columns is None:
            return ()
        # Before the look, which would take a name that the log has for one of a new column.
        self._catalog.note(self.columns.known, self.columns.leaves)
        found = self._catalog.look()
        if self._options.on_unlogged_change == "keep":
            found = [change for change in found if change.effect is not Effect.DEPARTED]
        altered = self._read_again(found)
        # Only now: a query that ends because of a change must find it again.
        self._catalog.accept()
        return altered

    def forget_names(self, tables: Iterable[TableName]) -> None:
        """Forget what the log has named of tables that are read again."""
        if self.columns is not None:
            self.columns.forget(tables)

    def reused(self) -> tuple[TableName, ...]:
        """Return the tables that are to be read again, because the log has two columns under one name.

        Raises:
            HeadraceError: SCHEMA_CHANGED, where the options do not say to read them again.
        """
        if self.columns is None:
            return ()
        self._catalog.note(self.columns.known, self.columns.leaves)
        # A copy: the reading thread may add another table.
        return self._read_again(CatalogChange(table, what) for table, what in [*self.columns.reused.items()])

    def _read_again(self, changes: Iterable[CatalogChange]) -> tuple[TableName, ...]:
        found = list(changes)
        if found and self._options.on_unlogged_change != "snapshot":
            raise unlogged_error(found)
        return tuple(sorted({change.table for change in found}))

    def note_rows(self, session: ReadSession, tables: Sequence[TableName]) -> None:
        """Note the catalog as the snapshot of a session has it, in which the rows of `tables` are read."""
        if self._watches_catalog:
            self._catalog.read_with(session, tables)

    def is_outdated(self, start: Mapping[str, Any]) -> bool:
        """Tell whether an offset has a fingerprint of the catalog that is not compared any more."""
        return has_catalog(start) and not self._watches_catalog

    def left_out(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[TableName, Lsn | None]:
        """Return the tables whose changes a batch excludes, all of them or those before a position.

        A repeated batch has the tables that it had; what was read as rows is not reported again.
        """
        followed = tables_of(end)
        # A batch that is repeated must not have changes of a table that was added since.
        new = () if followed is None else set(self.named) - set(followed)
        return {**since_of(start), **dict.fromkeys(new)}

    def close(self) -> None:
        """Close the connection of the catalog's watch; forget what was seen of the publication."""
        self._catalog.close()
        self._published, self._next_look = None, 0.0

    def _read_published(self, before: Published | None) -> Published:
        publication = self._options.publication
        with connect(self._options.slot_url, application_name="headrace watch") as connection:
            if self.named:
                return read_published(connection, publication, self.named)
            return read_all_published(connection, publication, before)


def _join(tables: Iterable[TableName]) -> str:
    return ", ".join(map(str, tables))
