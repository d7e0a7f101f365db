"""Load tables: read all their rows in a snapshot, and write them to the lake."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.catalog.fingerprint import Fingerprint
from headrace.errors import HeadraceError
from headrace.mirror.alterations import altered_rows, plan_alteration
from headrace.mirror.columns import fitted, number_of, with_metadata
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.files import DataFile
from headrace.mirror.lake import opened
from headrace.mirror.load_units import LoadUnit, UnitLoader, read_rows, reading_rows
from headrace.mirror.modes import LoadMoment
from headrace.mirror.positions import TablePosition
from headrace.mirror.slot_keeping import keep_slot
from headrace.mirror.table_checks import find_problem
from headrace.mirror.tables import LOCK_SECONDS, SNAPSHOT_SECONDS, MirroredTable
from headrace.mirror.units import find_named_otherwise
from headrace.mirror.waiting import WaitingTables
from headrace.model.failpoints import reach
from headrace.model.names import TableName
from headrace.postgres.copying import RowSession
from headrace.postgres.session import ReadSession
from headrace.reporter import Reporter
from headrace.snapshot.exporting import positioned_snapshot
from headrace.snapshot.planning import PlannedPart, plan_tables

_BYTES_OF_TABLE_PER_FILE = 2
"""Parquet takes about half of what rows take in PostgreSQL's blocks, so that a unit makes about one file."""

LoadedTable = tuple[MirroredTable, TablePosition]
"""A table that was read again, and its position."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the rows of a load are read.

    Attributes:
        id: of the exported snapshot.
        moment: when it was taken.
    """

    id: str
    moment: LoadMoment


@dataclass(frozen=True, slots=True)
class LakeLoader:
    """Loads the lake's tables from the database's.

    Attributes:
        ends: where tables are read and written.
        report: is told what is loaded.
        waiting: where a table waits that cannot be loaded.
        stopping: ends a load between two tables, or two units of one, with `LoadStoppedError`.
        load_units: reads units of a table.
    """

    ends: MirrorEndpoints
    report: Reporter
    waiting: WaitingTables
    stopping: threading.Event
    load_units: UnitLoader

    def load(
        self, names: Iterable[TableName], known: Mapping[TableName, TablePosition]
    ) -> Iterator[tuple[TableName, LoadedTable]]:
        """Read all rows of tables again, in one snapshot; yield each with its position when done.

        A table that is gone by now, or that has to wait, is left out: all wait where open transactions or a
        lack of slots keep the server from taking a snapshot, and one that is truncated or rewritten while
        it is read.

        Args:
            names: the tables.
            known: what is noted of each.

        Raises:
            HeadraceError: CONNECTION, DATABASE.
        """
        with ReadSession(self.ends.url) as session:
            [(now,)] = session.query("SELECT clock_timestamp()")
        with keep_slot(self.ends.url, self.ends.slot, self.report), contextlib.ExitStack() as held:
            try:
                taken = positioned_snapshot(self.ends.url, self.ends.slot, SNAPSHOT_SECONDS)
                # All is read in this one snapshot, whose place in the log is known: changes behind it follow.
                start, snapshot = held.enter_context(taken)
            except HeadraceError:
                with ReadSession(self.ends.url) as session:
                    tables = self.ends.selection.read(session, names)
                for table in tables.values():
                    with self.waiting.alone(table):
                        raise
                return
            with ReadSession(self.ends.url, snapshot=snapshot, lock_seconds=LOCK_SECONDS) as session:
                tables = self.ends.selection.read(session, names)
            source = _Source(snapshot, LoadMoment(start, now))
            for name, table in sorted(tables.items()):
                self._check_stopping()
                self.report.info(f"loading {name}")
                version = None
                with self.waiting.alone(table):
                    # It may have been altered since it was decided to load it.
                    noted = known.get(name)
                    _check_names(table, noted)
                    is_same = noted is not None and noted.relation == table.relation
                    version = self._load(table, self._plan(table, source), source, is_same=is_same)
                if version is not None:
                    yield name, (table, TablePosition(version, start, table.relation, table.part.where))

    def _check_stopping(self) -> None:
        if self.stopping.is_set():
            raise LoadStoppedError

    def _plan(self, table: MirroredTable, source: _Source) -> Sequence[PlannedPart]:
        target = _BYTES_OF_TABLE_PER_FILE * self.ends.lake.file_bytes
        with ReadSession(self.ends.url, snapshot=source.id, lock_seconds=LOCK_SECONDS) as session:
            with reading_rows(table.name):
                planned = plan_tables(session, [table.name], target_bytes=target, inheritance_children=False)
            return planned[table.name]

    def _load(
        self, table: MirroredTable, parts: Sequence[PlannedPart], source: _Source, *, is_same: bool
    ) -> int:
        """Replace the lake's table, but for what its mode keeps of its rows; return its new version.

        Where it `is_same`, the lake's rows are of the table that the database has now.
        """
        name, mode, lake = table.name, table.rules, self.ends.lake
        schema = table.lake_schema
        existing = lake.open(name)
        kept = None
        if existing is not None:
            own = existing.schema if is_same else _of_another(existing.schema, schema)
            kept = plan_alteration(own, schema, keeps=mode.keeps, highest=0)
            schema = kept.schema
        files = self._read(table, parts, schema, source)
        if existing is not None and kept is not None:
            old = altered_rows(existing.rows(), replace(kept, added=()), table.default, mode)
            # Nothing tells which of the old rows the new keys would be where the key is another.
            key = table.key if kept.has_same_key else ()
            stays = mode.kept(old, source.moment, key, self._read_keys(table, parts, source))
            try:
                files += lake.write(name, schema, (fitted(batch, schema) for batch in stays))
            except BaseException:
                lake.remove(name, files)
                raise
        # Readers have the old rows until this one commit.
        # The position right before the first commit that the snapshot does not show.
        lake.commit(name, schema, files, (source.moment.start - 1, 0), existing)
        return opened(lake, name).version

    def _read_keys(
        self, table: MirroredTable, parts: Sequence[PlannedPart], source: _Source
    ) -> Iterator[pa.RecordBatch]:
        """Yield the keys of the rows that are loaded."""
        ranges = [range_ for part in parts for range_ in part.ranges]
        with RowSession(self.ends.url, snapshot=source.id, lock_seconds=LOCK_SECONDS) as session:
            yield from read_rows(session, replace(table, columns=table.key), ranges)

    def _read(
        self, table: MirroredTable, parts: Sequence[PlannedPart], schema: pa.Schema, source: _Source
    ) -> list[DataFile]:
        """Write the rows of all ranges to files."""
        plain = replace(table, catalog=Fingerprint({}), leaves={})
        units = (
            LoadUnit(self.ends.url, source.id, plain, schema, source.moment, part.ranges) for part in parts
        )
        files: list[DataFile] = []
        for loaded in self.load_units(self.ends.lake, units):
            self._check_stopping()
            files += loaded.files
            for text in loaded.told:
                self.report.warning(text)
            reach("mirror_unit")
        return files


def _check_names(table: MirroredTable, noted: TablePosition | None) -> None:
    """Make sure that no masked or excluded column comes into the lake under another name."""
    problem = find_problem(table) or (None if noted is None else find_named_otherwise(table, noted))
    if problem is not None:
        raise problem


class LoadStoppedError(Exception):
    """A load was stopped; the next one goes on with the table that it was at."""


def _of_another(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """Return the columns of a lake's table that is read again from what may be another table than before.

    Only what has the number and the name of one of its columns is taken for that column.
    """
    # A table that was dropped and made again counts its columns from 1 again.
    names = {number_of(field): field.name for field in new}
    marked = [
        field
        if names.get(number_of(field), field.name) == field.name
        else with_metadata(field, dropped="true")
        for field in old
    ]
    return pa.schema(marked)
