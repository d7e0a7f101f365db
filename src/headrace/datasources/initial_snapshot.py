"""Begin a stream with the rows that exist already: its first batches read the tables, not the log.

The rows are those of one moment, in a snapshot that the planning process holds. The stream continues at the
log position that matches this snapshot exactly, so no change is reported twice. The snapshot ends with the
process. A start that finds an unfinished read begins it again with a higher attempt, in a new snapshot, which
matches a later position.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.capture.rows import RowShape, SnapshotPlace, emptied, snapshot_changes
from headrace.catalog.known import read_known
from headrace.catalog.types import RowType, read_row_types
from headrace.datasources.bootstrap import ProvidedPart, provider
from headrace.datasources.envelopes import TableDescriptions
from headrace.datasources.query_schema import no_table
from headrace.datasources.source_options import CdcOptions
from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.model.names import CtidRange, TableName
from headrace.model.table_pattern import format_table, one_table
from headrace.postgres.copying import RowSession
from headrace.postgres.quoting import identifier, output_text
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import ExportedSlot
from headrace.snapshot.exporting import exported_snapshot, positioned_snapshot
from headrace.snapshot.planning import PlannedPart, plan_tables
from headrace.snapshot.ranges import check_filenode
from headrace.snapshot.reading import RowSelection, read_part, select

_KEY = "snapshot"
_MAX_PART_BYTES = 16 << 20
_BATCH_BYTES = 8 << 20
_BLOCK_BYTES = 8 << 10
_MAX_TABLES = 100
"""Tables in one transaction, which locks each with its indexes: the server's lock table is limited."""


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """How far the read has come.

    Attributes:
        attempt: number of the attempt; 0 has not begun.
        parts: how many parts of the attempt are done.
        tables: whose rows are read; empty: of all followed tables.
    """

    attempt: int = 0
    parts: int = 0
    tables: tuple[TableName, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the offset's fields for the progress."""
        names = {"tables": [format_table(table) for table in self.tables]} if self.tables else {}
        return {_KEY: {"attempt": self.attempt, "parts": self.parts, **names}}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SnapshotProgress | None:
        """Read the progress from an offset; None where the read is complete."""
        found = stored.get(_KEY)
        if found is None:
            return None
        tables = tuple(map(one_table, found.get("tables", ())))
        return cls(int(found["attempt"]), int(found["parts"]), tables)


@dataclass
class RowsPart(InputPartition):
    """What one task reads: some ranges of one table or of a few small ones, in one snapshot.

    Attributes:
        ranges: the ranges, each with what is read of its table.
        snapshot: the exported snapshot's name.
        place: of the rows in the log.
        descriptions: of these tables only: there may be thousands.
    """

    ranges: list[tuple[RowSelection, CtidRange]]
    snapshot: str
    place: SnapshotPlace
    descriptions: TableDescriptions

    def read(self, url: str, shape: RowShape | None) -> Iterator[pa.RecordBatch]:
        """Read the rows; typed where there is a shape, else in the `changes` envelope.

        Raises:
            HeadraceError: CONTINUITY, a table was rewritten meanwhile or the snapshot has gone; VALUE,
                PRIVILEGE, CONNECTION, DATABASE.
        """
        for at in range(0, len(self.ranges), _MAX_TABLES):
            # One transaction for many ranges: the lock on each table holds until the last check of its file.
            with RowSession(url, snapshot=self.snapshot) as session:
                for selection, range_ in self.ranges[at : at + _MAX_TABLES]:
                    yield from self._rows(session, selection, range_, shape)

    def _rows(
        self, session: RowSession, selection: RowSelection, range_: CtidRange, shape: RowShape | None
    ) -> Iterator[pa.RecordBatch]:
        columns = selection.columns
        if shape is not None and not shape.rescues:
            own = pa.schema([shape.schema.field(name) for name in columns])
            for batch in read_part(session, selection, range_, own, _BATCH_BYTES):
                yield shape.snapshot(batch, self.place)
            return
        texts = [f"{output_text(identifier(name))} AS {identifier(name)}" for name in columns]
        for batch in session.read(select(selection, texts, range_), _BATCH_BYTES):
            changes = snapshot_changes(selection.table, batch, self.place)
            yield changes if shape is None else shape.rows(changes)
        # After the rows: to the snapshot a table that was rewritten looks empty.
        check_filenode(session, range_)


class InitialRows:
    """Plans the read, in the process that holds the snapshot.

    Args:
        options: of the query.
        begin: the position after which the stream would continue (bytes).
        attempt: from 1.
        exported: a slot that was just created, whose snapshot is read; None: a snapshot of its own. A
            temporary slot is left open: it would end with its connection.

    Attributes:
        place: the attempt, and the position (bytes) before which all commits, and no others, are in the rows.
        descriptions: of the tables, once they are planned.

    Raises:
        HeadraceError: SLOT_WAIT, a transaction that writes stays open; NO_FREE_SLOT, PRIVILEGE, CONNECTION,
            DATABASE.
    """

    def __init__(self, options: CdcOptions, begin: Lsn, attempt: int, exported: ExportedSlot | None) -> None:
        self._opened = contextlib.ExitStack()
        self._options = options
        self._source = provider(options.bootstrap)
        if exported is not None:
            # Closing the connection of a temporary slot would drop the slot.
            if not exported.temporary:
                self._opened.enter_context(exported)
            start, self._snapshot = exported.consistent_point, exported.snapshot_name
        elif self._source is not None:
            # The rows come from elsewhere; the snapshot is only for the catalog.
            start, self._snapshot = begin, self._opened.enter_context(exported_snapshot(options.connection))
        else:
            positioned = positioned_snapshot(options.slot_url, options.slot)
            start, self._snapshot = self._opened.enter_context(positioned)
        self.place = SnapshotPlace(start, attempt)
        self._tables: tuple[TableName, ...] = ()
        self.descriptions: TableDescriptions | None = None
        self._parts: list[RowsPart | ProvidedPart] = []
        self._per_batch = 1

    @property
    def count(self) -> int:
        """Count the parts."""
        return len(self._parts)

    def plan(
        self,
        tables: Sequence[TableName],
        shape: RowShape | None,
        followed: Sequence[TableName],
        note: Callable[[ReadSession, Sequence[TableName]], None],
    ) -> None:
        """Cut `tables` into parts.

        Args:
            tables: what is read.
            shape: of the one table; None: all columns that the log has of each table.
            followed: these and other tables, whose first rows were read before.
            note: is given a session that sees the snapshot, and `tables`.

        Raises:
            HeadraceError: BINDING where there is no such table; SCHEMA_CHANGED where it was altered since the
                query was planned; USAGE or REPLICA_IDENTITY, where `tableKeys` does not name a key;
                CONTINUITY, CONNECTION, DATABASE.
        """
        options = self._options
        batch_bytes = options.max_bytes_per_trigger
        # Four parts make a batch, so that a batch has tasks for several cores.
        size = min(_MAX_PART_BYTES, max(1, batch_bytes // 4))
        with ReadSession(options.connection, snapshot=self._snapshot) as session:
            # In the snapshot: what is altered after it is found by the next look.
            note(session, tables)
            types = read_row_types(session, tables)
            [(database,)] = session.query("SELECT current_database()::text")
            descriptions = TableDescriptions(
                read_known(session, tables, options.table_keys, options.publication), database, {}
            )
            for table in tables:
                if table not in descriptions.known:
                    raise no_table(session, table)
                if shape is not None:
                    _check_types(shape, types[table])
            self._tables, self.descriptions = tuple(tables), descriptions
            if (source := self._source) is not None:
                others = tuple(set(followed).difference(tables))
                self._parts = [
                    ProvidedPart(source, part, others, self.place, descriptions, options.conditions)
                    for part in source.parts([str(table) for table in tables])
                ]
            else:
                planned = plan_tables(session, tables, target_bytes=size, inheritance_children=False)
                parts = [(table, part) for table in tables for part in planned[table]]
                groups = group_parts(parts, max(1, size // _BLOCK_BYTES))
                self._parts = [self._part(group, types, shape, descriptions) for group in groups]
        self._per_batch = max(1, batch_bytes // size)

    def _part(
        self,
        group: Sequence[tuple[TableName, PlannedPart]],
        types: Mapping[TableName, RowType],
        shape: RowShape | None,
        descriptions: TableDescriptions,
    ) -> RowsPart:
        ranges: list[tuple[RowSelection, CtidRange]] = []
        for table, part in group:
            columns = tuple(descriptions.known[table].columns if shape is None else shape.columns)
            condition = self._options.conditions.get(table)
            selection = RowSelection(types[table], columns, () if condition is None else (condition,))
            ranges += [(selection, range_) for range_ in part.ranges]
        known = {table: descriptions.known[table] for table, _ in group}
        return RowsPart(ranges, self._snapshot, self.place, replace(descriptions, known=known))

    def next(self, done: int) -> SnapshotProgress:
        """Return the progress after a batch that begins with part `done`."""
        return SnapshotProgress(self.place.attempt, min(self.count, done + self._per_batch))

    def parts(self, begin: int, end: int) -> list[RowsPart | ProvidedPart]:
        """Return the parts from `begin` up to before `end`."""
        return self._parts[begin:end]

    def emptied(self) -> list[pa.RecordBatch]:
        """Return a truncation before the first part, which cancels the rows of earlier attempts."""
        # The first attempt has nothing before it.
        return [emptied(self._tables, self.place)] if self.place.attempt > 1 else []

    def close(self) -> None:
        """Release the snapshot; idempotent."""
        self._opened.close()


def group_parts(
    parts: Iterable[tuple[TableName, PlannedPart]], blocks: int
) -> Iterator[list[tuple[TableName, PlannedPart]]]:
    """Group parts into tasks of about `blocks` blocks and a limited number of tables. Pure."""
    group: list[tuple[TableName, PlannedPart]] = []
    blocks_left, ranges_left = blocks, _MAX_TABLES
    for table, part in parts:
        size = blocks if part.blocks is None else max(1, part.blocks)
        if group and (size > blocks_left or len(part.ranges) > ranges_left):
            yield group
            group, blocks_left, ranges_left = [], blocks, _MAX_TABLES
        group.append((table, part))
        blocks_left, ranges_left = blocks_left - size, ranges_left - len(part.ranges)
    if group:
        yield group


def _check_types(shape: RowShape, row_type: RowType) -> None:
    for name, kind in shape.columns.items():
        if row_type.columns.get(name) != kind:
            cause = f"the column {name} of {shape.table} was altered since the query was planned"
            raise HeadraceError(Kind.SCHEMA_CHANGED, cause, "Load the table again, and start the query.")
