"""Bring the lake's tables up to date: load them, follow their alterations, apply changes."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.capture.envelope import by_table, unwrapped
from headrace.capture.visibility import await_visible
from headrace.errors import HeadraceError, Kind
from headrace.mirror.delta import DeltaLake, DeltaLakeTable
from headrace.mirror.files import DataFile, write_files
from headrace.mirror.net_changes import DELETED, Position, net_changes
from headrace.mirror.tables import COLUMN, PREFIX, TYPE, MirroredTable, read_mirrored
from headrace.model.changes import Op
from headrace.model.lsn import Lsn
from headrace.model.names import CtidRange, TableName
from headrace.model.values import column_texts
from headrace.postgres.copying import RowSession
from headrace.postgres.session import ReadSession
from headrace.reporter import Reporter
from headrace.snapshot import plan_tables, read_part
from headrace.snapshot.exporting import positioned_snapshot
from headrace.snapshot.reading import RowSelection

_BATCH_BYTES = 8 << 20
_VISIBLE_WITHIN = 60.0
_CONNECTIONS = 2


class LakeWriter:
    """Writes the lake's tables from the database's.

    Args:
        url: the database.
        slot: the slot that is followed.
        publication: the publication that it is read with.
        lake: the tables.
        report: is told what is loaded and altered.

    Attributes:
        tables: each table as the database had it when its changes were last written.
    """

    def __init__(self, url: str, slot: str, publication: str, lake: DeltaLake, report: Reporter) -> None:
        self._url = url
        self._slot = slot
        self._publication = publication
        self._lake = lake
        self._report = report
        self.tables: dict[TableName, MirroredTable] = {}

    def load(self, names: Iterable[TableName]) -> Iterator[tuple[TableName, tuple[MirroredTable, Lsn]]]:
        """Read all rows of tables anew, in one snapshot; yield each with its position (bytes) when done.

        A table that is gone by now is left out.

        Raises:
            HeadraceError: CONTINUITY, a table was rewritten meanwhile; CONNECTION, DATABASE, PRIVILEGE.
        """
        with positioned_snapshot(self._url, self._slot) as (start, snapshot):
            with ReadSession(self._url, snapshot=snapshot) as session:
                tables = read_mirrored(session, names, self._publication)
                parts = plan_tables(session, list(tables), inheritance_children=False)
            for name, table in sorted(tables.items()):
                ranges = [range_ for part in parts[name] for range_ in part.ranges]
                self._report.info(f"loading {name}")
                files = self._write(table, ranges, snapshot)
                self._lake.replace(name, table.schema, files, (start - 1, 0))
                yield name, (table, start)

    def _write(self, table: MirroredTable, ranges: Sequence[CtidRange], snapshot: str) -> list[DataFile]:
        """Write the rows of all ranges to files, with several connections."""
        folder = self._lake.folder(table.name)
        left = queue.SimpleQueue[CtidRange]()
        for range_ in ranges:
            left.put(range_)

        def write_some(_: int) -> list[DataFile]:
            return write_files(folder, table.schema, self._rows(table, left, snapshot))

        with ThreadPoolExecutor(_CONNECTIONS, "headrace load") as threads:
            return [file for files in threads.map(write_some, range(_CONNECTIONS)) for file in files]

    def _rows(
        self, table: MirroredTable, left: queue.SimpleQueue[CtidRange], snapshot: str
    ) -> Iterator[pa.RecordBatch]:
        selection = RowSelection(table.row_type, table.columns)
        with RowSession(self._url, snapshot=snapshot) as session, suppress(queue.Empty):
            while True:
                yield from read_part(session, selection, left.get_nowait(), table.schema, _BATCH_BYTES)

    def follow_alterations(
        self, tables: Mapping[TableName, MirroredTable], files: Mapping[TableName, str]
    ) -> list[TableName]:
        """Give the lake's tables the columns that the database's have; return those that must be loaded.

        Args:
            tables: the database's tables.
            files: the filenodes of each table's files when it was loaded.
        """
        return [name for name, table in tables.items() if not self._follow(table, files.get(name, ""))]

    def _follow(self, table: MirroredTable, files: str) -> bool:
        """Alter one table of the lake; return whether it fits by then."""
        lake = self._lake.open(table.name)
        if lake is None or lake.position is None:
            return False
        old, new = lake.schema, table.schema
        if old.equals(new, check_metadata=True):
            return True
        same = {_identity(field): field.name for field in old}
        kept = {
            field.name
            for field in new
            if _identity(field) in same
            and same[_identity(field)] == field.name
            and old.field(field.name).type == field.type
        }
        added = [field.name for field in new if field.name not in kept]
        dropped = [field.name for field in old if field.name not in kept]
        if (added and dropped) or (added and table.files != files) or not set(table.key) <= kept:
            return False
        self._report.info(
            f"altering {table.name}: {', '.join([*(f'+{n}' for n in added), *(f'-{n}' for n in dropped)])}"
        )
        written = write_files(self._lake.folder(table.name), new, _altered(lake, table, added))
        self._lake.replace(table.name, new, written, lake.position)
        return True

    def apply(
        self, batch: pa.Table, tables: Iterable[TableName], files: Mapping[TableName, str]
    ) -> dict[TableName, tuple[MirroredTable, Lsn]]:
        """Apply a batch of `envelope=changes`; return the tables that were loaded anew, and their positions.

        Args:
            batch: the changes.
            tables: the followed tables.
            files: as of `follow_alterations`.
        """
        truncated_partitions = (
            {
                name.as_py()
                for name in pc.unique(pc.struct_field(batch.column("source"), "partition_of")).drop_null()
            }
            if len(batch)
            else set()
        )
        changes: dict[TableName, list[pa.RecordBatch]] = {}
        for part in map(unwrapped, batch.to_batches()):
            for name, places in by_table(part):
                own = part if len(places) == len(part) else part.take(pa.array(places))
                changes.setdefault(name, []).append(own)
        with ReadSession(self._url) as session:
            self._await_visible(session, batch)
            names = [name for name in tables if name in changes or str(name) in truncated_partitions]
            mirrored = read_mirrored(session, names, self._publication)
        self.tables |= mirrored
        to_load = self.follow_alterations(mirrored, files)
        to_load += [name for name in mirrored if str(name) in truncated_partitions and name not in to_load]
        loaded = dict(self.load(to_load)) if to_load else {}
        for name, table in mirrored.items():
            if name not in loaded and name not in to_load:
                self._apply(table, changes[name])
        return loaded

    def _await_visible(self, session: ReadSession, batch: pa.Table) -> None:
        """Wait until the catalog shows the alterations that committed before these changes."""
        if not len(batch):
            return
        xids = pc.unique(pc.struct_field(batch.column("source"), "xid")).drop_null()
        if not await_visible(session, xids.to_numpy(), timeout=_VISIBLE_WITHIN):
            raise HeadraceError(
                Kind.CONNECTION,
                "transactions that the log has are not visible after a minute",
                "A synchronous standby that does not answer holds them back: see pg_stat_replication.",
            )

    def _apply(self, table: MirroredTable, changes: Iterable[pa.RecordBatch]) -> None:
        lake = self._lake.open(table.name)
        if lake is None or lake.position is None:
            raise HeadraceError(
                Kind.CONTINUITY, f"the lake's table {table.name} is gone", "Start with --reload."
            )
        after = (part.filter(_is_after(part, lake.position)) for part in changes)
        typed = [_typed_rows(table, part) for part in after if len(part)]
        if not typed:
            return
        rows = pa.concat_tables(typed)
        net = net_changes(rows, table.key, lambda keys, columns: lake.look(table.key, keys, columns))
        if net.emptied:
            kept = net.rows.filter(pc.invert(net.rows.column(DELETED)))
            batches = kept.drop_columns([DELETED]).cast(table.schema).to_batches()
            written = write_files(self._lake.folder(table.name), table.schema, batches)
            self._lake.replace(table.name, table.schema, written, net.position)
        else:
            lake.merge(net.rows, table.key, net.position)


def _identity(field: pa.Field) -> tuple[bytes | None, bytes | None]:
    metadata = field.metadata or {}
    return metadata.get(COLUMN), metadata.get(TYPE)


def _altered(lake: DeltaLakeTable, table: MirroredTable, added: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the lake's rows with the table's columns; an added one has what the database's old rows have."""
    defaults = {name: table.default(name) for name in added}
    for batch in lake.rows():
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat(defaults[field.name], len(batch)).cast(field.type)
                if field.name in defaults
                else batch.column(field.name).cast(field.type)
                for field in table.schema
            ],
            schema=table.schema,
        )


def _is_after(changes: pa.RecordBatch, position: Position) -> pa.Array:
    lsn, sequence = changes.column("_commit_lsn").to_numpy(), changes.column("_commit_seq").to_numpy()
    return pa.array((lsn > position[0]) | ((lsn == position[0]) & (sequence > position[1])))


def _typed_rows(table: MirroredTable, changes: pa.RecordBatch) -> pa.Table:
    return _with_defaults(pa.Table.from_batches([table.shape.rows(changes)]), changes, table)


def _with_defaults(rows: pa.Table, changes: pa.RecordBatch, table: MirroredTable) -> pa.Table:
    """Give rows that were inserted before a column was added the default that they have in the database."""
    names = [name for name in table.columns if name in table.defaults]
    if not names:
        return rows
    inserted = pc.equal(changes.column("op"), Op.INSERT.value)
    for name, column in column_texts(changes.column("after"), names).items():
        older = pc.and_not(inserted, column.known).to_numpy(zero_copy_only=False)
        if older.any():
            taken = changes.filter(pa.array(older))
            places = set(
                zip(
                    taken.column("_commit_lsn").to_pylist(),
                    taken.column("_commit_seq").to_pylist(),
                    strict=True,
                )
            )
            positions = zip(
                rows.column(PREFIX + "commit_lsn").to_pylist(),
                rows.column(PREFIX + "commit_seq").to_pylist(),
                strict=True,
            )
            mask = pa.array(np.fromiter((position in places for position in positions), np.bool_, len(rows)))
            filled = pc.if_else(mask, table.default(name), rows.column(name))
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), filled)
    return rows
