"""How does a stream begin with the rows that are there already? Its first batches are read, not followed.

The rows are those of one moment, in a snapshot that the planning process holds, and the stream goes on from
the place in the log that this snapshot fits exactly: what it shows is not told again. The snapshot dies with
the process. A start that finds the reading unfinished begins it again with a greater attempt, in a snapshot
of its own, which fits a later place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.capture.rows import RowShape, SnapshotPlace, emptied, snapshot_changes
from headrace.catalog.known import read_known
from headrace.catalog.types import RowType, read_row_types
from headrace.datasources.bootstrap import ProvidedPart, provider
from headrace.datasources.cdc_options import CdcOptions
from headrace.datasources.envelopes import Described
from headrace.errors import HeadraceError, Kind
from headrace.model import CtidRange, Lsn, TableName
from headrace.model.table_pattern import parse_tables, written
from headrace.postgres.address import for_slot
from headrace.postgres.printing import printed
from headrace.postgres.quoting import identifier
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import ExportedSlot
from headrace.snapshot import PlannedPart, plan_tables
from headrace.snapshot.exporting import exported_snapshot, positioned_snapshot
from headrace.snapshot.ranges import check_filenode
from headrace.snapshot.reading import RowSelection, read_part, select

if TYPE_CHECKING:
    from headrace.postgres.rows import RowSession

_KEY = "snapshot"
_MOST_PART_BYTES = 16 << 20
_BATCH_BYTES = 8 << 20
_BLOCK_BYTES = 8 << 10
_MOST_TABLES = 100
"""In one transaction, which locks each and its indexes: the server's room for locks is limited."""


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """How far the reading has come: `parts` of the parts of one attempt; attempt 0 has not begun.

    Attributes:
        tables: whose rows are read; empty: of all that are followed.
    """

    attempt: int = 0
    parts: int = 0
    tables: tuple[TableName, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What stands in an offset besides the place in the log."""
        some = {"tables": [written(table) for table in self.tables]} if self.tables else {}
        return {_KEY: {"attempt": self.attempt, "parts": self.parts, **some}}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SnapshotProgress | None:
        """What an offset says; None where the reading is over."""
        found = stored.get(_KEY)
        if found is None:
            return None
        exact = (one.exact for name in found.get("tables", ()) for one in parse_tables(str(name)))
        tables = tuple(table for table in exact if table is not None)
        return cls(int(found["attempt"]), int(found["parts"]), tables)


@dataclass(frozen=True, slots=True)
class TableRows:
    """Some ranges of one table."""

    selection: RowSelection
    ranges: tuple[CtidRange, ...]


@dataclass
class RowsPart(InputPartition):
    """What one task reads: some ranges of one table or of a few small ones, in one snapshot.

    Attributes:
        told: of these tables, and no others: there may be thousands.
    """

    tables: tuple[TableRows, ...]
    snapshot: str
    place: SnapshotPlace
    told: Described

    def read(self, url: str, shape: RowShape | None) -> Iterator[pa.RecordBatch]:
        """The rows; typed where there is a shape, else in the `changes` envelope.

        Raises:
            HeadraceError: CONTINUITY, a table was rewritten meanwhile or the snapshot has gone; VALUE,
                PRIVILEGE, CONNECTION, DATABASE.
        """
        from headrace.postgres.rows import RowSession  # noqa: PLC0415 - loads slowly; planning needs none

        wanted = [(table.selection, one) for table in self.tables for one in table.ranges]
        for at in range(0, len(wanted), _MOST_TABLES):
            # ADBC reads the whole catalog when it connects: seconds, where there are thousands of tables
            with RowSession(url, snapshot=self.snapshot) as session:
                for selection, one in wanted[at : at + _MOST_TABLES]:
                    yield from self._rows(session, selection, one, shape)

    def _rows(
        self, session: RowSession, selection: RowSelection, one: CtidRange, shape: RowShape | None
    ) -> Iterator[pa.RecordBatch]:
        columns = selection.columns
        if shape is not None and not shape.rescues:
            own = pa.schema([shape.schema.field(name) for name in columns])
            for batch in read_part(session, selection, one, own, _BATCH_BYTES):
                yield shape.snapshot(batch, self.place)
            return
        texts = [f"{printed(identifier(name))} AS {identifier(name)}" for name in columns]
        for batch in session.read(select(selection, texts, one), _BATCH_BYTES):
            if shape is not None:
                yield shape.snapshot_of_texts(batch, self.place)
            else:
                yield snapshot_changes(selection.table, batch, self.place)
        check_filenode(session, one)


class InitialRows:
    """The reading, in the process that holds the snapshot.

    Args:
        options: of the query.
        begin: behind which the stream would go on (bytes).
        attempt: from 1.
        exported: the slot that was made a moment ago, whose snapshot is read; None: one of its own. A
            temporary one is left open: it would end with its connection.

    Attributes:
        told: what tasks have to be told of the tables, once they are planned.

    Raises:
        HeadraceError: SLOT_WAIT, a transaction that writes stays open; NO_FREE_SLOT, PRIVILEGE, CONNECTION,
            DATABASE.
    """

    def __init__(self, options: CdcOptions, begin: Lsn, attempt: int, exported: ExportedSlot | None) -> None:
        self._opened = contextlib.ExitStack()
        self._options = options
        url = options.connection
        if exported is not None:
            if not exported.temporary:
                self._opened.enter_context(exported)
            start, self._snapshot = exported.consistent_point, exported.snapshot_name
        elif provider(options.bootstrap) is not None:
            start, self._snapshot = begin, self._opened.enter_context(exported_snapshot(url))
        else:
            source = positioned_snapshot(for_slot(url, options.slot_name), options.slot_name)
            start, self._snapshot = self._opened.enter_context(source)
        self._place = SnapshotPlace(start, attempt)
        self._tables: tuple[TableName, ...] = ()
        self.told: Described | None = None
        self._parts: list[RowsPart | ProvidedPart] = []
        self._per_batch = 1

    @property
    def start(self) -> Lsn:
        """Whatever is committed before here (bytes) is in the rows, and nothing else."""
        return self._place.start

    @property
    def attempt(self) -> int:
        """From 1."""
        return self._place.attempt

    @property
    def count(self) -> int:
        """How many parts there are."""
        return len(self._parts)

    def plan(
        self,
        tables: Sequence[TableName],
        shape: RowShape | None,
        followed: Sequence[TableName] = (),
    ) -> None:
        """Cut `tables` into parts.

        Args:
            tables: what is read.
            followed: these and others, whose first rows were read before.
            shape: of the one table; None: of each all that the log has of it.

        Raises:
            HeadraceError: BINDING where there is no such table; SCHEMA_CHANGED where it was altered since the
                query was planned; USAGE or REPLICA_IDENTITY, a given key is none; CONTINUITY, CONNECTION,
                DATABASE.
        """
        options = self._options
        batch_bytes = options.max_bytes_per_trigger
        size = min(_MOST_PART_BYTES, max(1, batch_bytes // 4))
        with ReadSession(options.connection, snapshot=self._snapshot) as session:
            types = read_row_types(session, tables)
            [(database,)] = session.query("SELECT current_database()::text")
            told = Described(
                read_known(session, tables, options.table_keys, options.publication_name), database, {}
            )
            for table in tables:
                if table not in told.known:
                    raise HeadraceError(
                        Kind.BINDING, f"there is no table {table}", "Correct the option tables."
                    )
                if shape is not None:
                    _check_alike(shape, types[table])
            self._tables, self.told = tuple(tables), told
            source = provider(options.bootstrap)
            if source is not None:
                others = tuple(set(followed).difference(tables))
                self._parts = [
                    ProvidedPart(source, one, tuple(tables), others, self._place, told)
                    for one in source.parts([str(table) for table in tables])
                ]
            if source is None:
                planned = plan_tables(session, tables, target_bytes=size, inheritance_children=False)
                parts = [(table, part) for table in tables for part in planned[table]]
                blocks = max(1, size // _BLOCK_BYTES)
                self._parts = [self._part(some, types, shape, told) for some in together(parts, blocks)]
        self._per_batch = max(1, batch_bytes // size)

    def _part(
        self,
        some: Sequence[tuple[TableName, PlannedPart]],
        types: Mapping[TableName, RowType],
        shape: RowShape | None,
        told: Described,
    ) -> RowsPart:
        rows = []
        for table, part in some:
            columns = tuple(told.known[table].columns if shape is None else shape.columns)
            condition = self._options.conditions.get(table)
            selection = RowSelection(types[table], columns, () if condition is None else (condition,))
            rows.append(TableRows(selection, part.ranges))
        known = {table: told.known[table] for table, _ in some}
        return RowsPart(tuple(rows), self._snapshot, self._place, replace(told, known=known))

    def next(self, done: int) -> SnapshotProgress:
        """Where a batch ends that begins behind `done` parts."""
        return SnapshotProgress(self.attempt, min(self.count, done + self._per_batch))

    def parts(self, begin: int, end: int) -> list[RowsPart | ProvidedPart]:
        """Those from `begin` up to before `end`."""
        return self._parts[begin:end]

    def emptied(self) -> list[pa.RecordBatch]:
        """What stands before the first part: that what earlier attempts showed counts no more."""
        return [emptied(self._tables, self._place)] if self.attempt > 1 else []

    def close(self) -> None:
        """Let the snapshot go; idempotent."""
        self._opened.close()


def together(
    parts: Iterable[tuple[TableName, PlannedPart]], blocks: int
) -> Iterator[list[tuple[TableName, PlannedPart]]]:
    """What one task reads each: about `blocks` blocks, of few tables (pure)."""
    waiting: list[tuple[TableName, PlannedPart]] = []
    room, left = blocks, _MOST_TABLES
    for table, part in parts:
        size = blocks if part.blocks is None else max(1, part.blocks)
        if waiting and (size > room or len(part.ranges) > left):
            yield waiting
            waiting, room, left = [], blocks, _MOST_TABLES
        waiting.append((table, part))
        room, left = room - size, left - len(part.ranges)
    if waiting:
        yield waiting


def _check_alike(shape: RowShape, row_type: RowType) -> None:
    for name, kind in shape.columns.items():
        if row_type.columns.get(name) != kind:
            raise HeadraceError(
                Kind.SCHEMA_CHANGED,
                f"the column {name} of {shape.table} was altered since the query was planned",
                "Load the table again, and start the query.",
            )
