"""Load tables: read all their rows in a snapshot, and write them to the lake."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from headrace.errors import HeadraceError, Kind
from headrace.mirror.alterations import altered_rows, plan_alteration
from headrace.mirror.columns import all_fitted, fitted, number_of, with_metadata
from headrace.mirror.files import DataFile
from headrace.mirror.lake import Lake, LakeTable
from headrace.mirror.modes import LoadMoment
from headrace.mirror.tables import MirroredTable, Selection
from headrace.model.lsn import Lsn
from headrace.model.names import CtidRange, TableName
from headrace.postgres.copying import RowSession
from headrace.postgres.session import ReadSession
from headrace.reporter import Reporter
from headrace.snapshot import plan_tables, read_part
from headrace.snapshot.exporting import positioned_snapshot
from headrace.snapshot.reading import RowSelection

_BATCH_BYTES = 8 << 20
_CONNECTIONS = 2


class LakeLoader:
    """Loads the lake's tables from the database's.

    Args:
        url: the database.
        slot: the slot that is followed.
        selection: which tables, and what of them.
        lake: the tables.
        report: is told what is loaded.
    """

    def __init__(self, url: str, slot: str, selection: Selection, lake: Lake, report: Reporter) -> None:
        self._url = url
        self._slot = slot
        self._selection = selection
        self._lake = lake
        self._report = report

    def load(self, names: Iterable[TableName]) -> Iterator[tuple[TableName, tuple[MirroredTable, Lsn]]]:
        """Read all rows of tables anew, in one snapshot; yield each with its position (bytes) when done.

        A table that is gone by now is left out.

        Raises:
            HeadraceError: CONTINUITY, a table was rewritten meanwhile; CONNECTION, DATABASE.
        """
        with ReadSession(self._url) as session:
            [(now,)] = session.query("SELECT clock_timestamp()")
        with positioned_snapshot(self._url, self._slot) as (start, snapshot):
            moment = LoadMoment(start, now)
            with ReadSession(self._url, snapshot=snapshot) as session:
                tables = self._selection.read(session, names)
                parts = plan_tables(session, list(tables), inheritance_children=False)
            for name, table in sorted(tables.items()):
                ranges = [range_ for part in parts[name] for range_ in part.ranges]
                self._report.info(f"loading {name}")
                self._load(table, ranges, snapshot, moment)
                yield name, (table, start)

    def _load(
        self, table: MirroredTable, ranges: Sequence[CtidRange], snapshot: str, moment: LoadMoment
    ) -> None:
        """Replace the lake's table, but for what its mode keeps of the rows that it has."""
        mode = table.rules
        schema = table.lake_schema
        files = []
        existing = open_mirrored(self._lake, table)
        if existing is not None and mode.keeps:
            alteration = plan_alteration(
                existing.schema,
                table.lake_schema,
                keeps=True,
                is_rewritten=True,
                complete=0,
                now=0,
                highest=0,
            )
            schema = pa.schema(
                [with_metadata(field, former=None, altered=None) for field in alteration.schema]
            )
            old = altered_rows(existing.rows(), replace(alteration, added=()), table.default, mode)
            files += self._lake.write(table.name, schema, all_fitted(mode.kept(old, moment), schema))
        loaded = self._read(table, ranges, snapshot, lambda batch: fitted(mode.loaded(batch, moment), schema))
        if existing is not None and mode.keeps_gone:
            files += self._keep_gone(table, existing, loaded, moment)
        files += loaded
        self._lake.replace(table.name, schema, files, (moment.start - 1, 0))

    def _keep_gone(
        self, table: MirroredTable, existing: LakeTable, loaded: Sequence[DataFile], moment: LoadMoment
    ) -> list[DataFile]:
        """Write what stays of the lake's rows that the database does not have any more."""
        schema = table.lake_schema
        alteration = plan_alteration(
            existing.schema, schema, keeps=False, is_rewritten=True, complete=0, now=0, highest=0
        )
        if not alteration.has_same_key:
            return []  # nothing tells which of them the new keys would be
        old = altered_rows(existing.rows(), replace(alteration, added=()), table.default, table.rules)
        keys = self._lake.read(table.name, pa.schema([schema.field(name) for name in table.key]), loaded)
        gone = table.rules.gone(old, table.key, keys, moment)
        return self._lake.write(table.name, schema, all_fitted(gone, schema))

    def _read(
        self,
        table: MirroredTable,
        ranges: Sequence[CtidRange],
        snapshot: str,
        complete: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> list[DataFile]:
        """Write the rows of all ranges to files, with several connections."""
        schema = complete(pa.RecordBatch.from_pylist([], table.schema)).schema
        left = queue.SimpleQueue[CtidRange]()
        for range_ in ranges:
            left.put(range_)

        def write_some(_: int) -> list[DataFile]:
            return self._lake.write(table.name, schema, map(complete, self._rows(table, left, snapshot)))

        with ThreadPoolExecutor(_CONNECTIONS, "headrace load") as threads:
            return [file for files in threads.map(write_some, range(_CONNECTIONS)) for file in files]

    def _rows(
        self, table: MirroredTable, left: queue.SimpleQueue[CtidRange], snapshot: str
    ) -> Iterator[pa.RecordBatch]:
        conditions = () if table.where is None else (table.where,)
        selection = RowSelection(table.row_type, table.columns, conditions)
        with RowSession(self._url, snapshot=snapshot) as session, suppress(queue.Empty):
            while True:
                rows = read_part(session, selection, left.get_nowait(), table.schema, _BATCH_BYTES)
                yield from map(table.masks.apply, rows)


def open_mirrored(lake: Lake, table: MirroredTable) -> LakeTable | None:
    """Open the lake's table; None where there is none.

    Raises:
        HeadraceError: CONFIG: it was written by another program, or in another mode.
    """
    found = lake.open(table.name)
    if found is None:
        return None
    if found.position is None:
        raise HeadraceError(
            Kind.CONFIG,
            f"{lake.path(table.name)} is a table that no mirror wrote",
            "Remove it, or give the mirror another location.",
        )
    added = {field.name for field in found.schema if number_of(field) is None}
    if added != table.rules.names:
        raise HeadraceError(
            Kind.CONFIG,
            f"the lake's table {table.name} was not written in the mode {table.mode!r}"
            f"{' with soft_delete' if table.soft_delete else ''}",
            f"Give its [[mirror.tables]] what it had, or remove {lake.path(table.name)}.",
        )
    return found
