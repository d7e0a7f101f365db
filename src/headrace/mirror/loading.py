"""Load tables, or parts of them: read their rows in a snapshot, and write them to the lake."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from headrace.capture.rows import METADATA
from headrace.catalog.fingerprint import Fingerprint
from headrace.errors import HeadraceError
from headrace.mirror.alterations import altered_rows, plan_alteration
from headrace.mirror.columns import PREFIX, fitted, number_of, with_metadata
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.files import DataFile, grouped
from headrace.mirror.keys import equal_keys
from headrace.mirror.lake import known_position, opened
from headrace.mirror.load_units import LoadUnit, UnitLoader, read_rows, reading_rows
from headrace.mirror.modes import LoadMoment, with_fields
from headrace.mirror.partition_bounds import Ahead, Bounds, condition, rows_within
from headrace.mirror.positions import TablePosition
from headrace.mirror.slot_keeping import keep_slot
from headrace.mirror.table_checks import find_problem
from headrace.mirror.tables import LOCK_SECONDS, SNAPSHOT_SECONDS, MirroredTable
from headrace.mirror.units import find_named_otherwise
from headrace.mirror.waiting import WaitingTables
from headrace.model.failpoints import reach
from headrace.model.names import CtidRange, TableName
from headrace.postgres.copying import RowSession
from headrace.postgres.session import ReadSession
from headrace.reporter import Reporter
from headrace.snapshot.exporting import positioned_snapshot
from headrace.snapshot.planning import PlannedPart, plan_tables

_BYTES_OF_TABLE_PER_FILE = 2
"""Parquet takes about half of what rows take in PostgreSQL's blocks, so that a unit makes about one file."""
_BYTES_AT_ONCE, _ROWS_AT_ONCE = 64 << 20, 1 << 18
"""So much of a part, about, is in one commit: of rows, and of keys that are gone."""

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
        show: is told which tables are still to be loaded.
    """

    ends: MirrorEndpoints
    report: Reporter
    waiting: WaitingTables
    stopping: threading.Event
    load_units: UnitLoader
    show: Callable[[Collection[TableName]], None] = lambda _left: None

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
        left = {*names}
        self.show(left)
        with contextlib.ExitStack() as held:
            try:
                source = held.enter_context(self._snapshot())
            except HeadraceError:
                with ReadSession(self.ends.url) as session:
                    tables = self.ends.selection.read(session, left)
                for table in tables.values():
                    with self.waiting.alone(table):
                        raise
                return
            start = source.moment.start
            with self._session(source) as session:
                tables = self.ends.selection.read(session, left)
            for name, table in sorted(tables.items()):
                self._check_stopping()
                self.report.info(f"loading {name}")
                version = None
                with self.waiting.alone(table):
                    version = self._load(table, known.get(name), source)
                if version is not None:
                    yield name, (table, TablePosition(version, start, table.relation, table.part.where))
                left.discard(name)
                self.show(left)

    def _check_stopping(self) -> None:
        if self.stopping.is_set():
            raise LoadStoppedError

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[_Source]:
        """Hold the snapshot in which all is read; its place in the log is known: changes after it follow."""
        # Before the snapshot: what commits after it ends these rows, which must have begun by then.
        with ReadSession(self.ends.url) as session:
            [(now,)] = session.query("SELECT clock_timestamp()")
        with (
            keep_slot(self.ends.url, self.ends.slot, self.report),
            positioned_snapshot(self.ends.url, self.ends.slot, SNAPSHOT_SECONDS) as (start, snapshot),
        ):
            yield _Source(snapshot, LoadMoment(start, now))

    def _session(self, source: _Source) -> ReadSession:
        return ReadSession(self.ends.url, snapshot=source.id, lock_seconds=LOCK_SECONDS)

    def _row_session(self, source: _Source) -> RowSession:
        return RowSession(self.ends.url, snapshot=source.id, lock_seconds=LOCK_SECONDS)

    def _plan(self, table: MirroredTable, source: _Source) -> Sequence[PlannedPart]:
        target = _BYTES_OF_TABLE_PER_FILE * self.ends.lake.file_bytes
        with self._session(source) as session, reading_rows(table.name):
            planned = plan_tables(session, [table.name], target_bytes=target, inheritance_children=False)
        return planned[table.name]

    def _load(self, table: MirroredTable, noted: TablePosition | None, source: _Source) -> int:
        """Replace the lake's table, but for what its mode keeps of its rows; return its new version."""
        # It may have been altered since it was decided to load it: no masked or excluded column comes into
        # the lake under another name.
        problem = find_problem(table) or (None if noted is None else find_named_otherwise(table, noted))
        if problem is not None:
            raise problem
        parts = self._plan(table, source)
        name, mode, lake = table.name, table.rules, self.ends.lake
        schema = table.lake_schema
        existing = lake.open(name)
        stays: Iterable[pa.RecordBatch] = ()
        if existing is not None:
            is_same = noted is not None and noted.relation == table.relation
            own = existing.schema if is_same else _of_another(existing.schema, schema)
            kept = plan_alteration(own, schema, keeps=mode.keeps, highest=0)
            schema = kept.schema
            old = altered_rows(existing.rows(), replace(kept, added=()), table.default, mode)
            # Nothing tells which of the old rows the new keys would be where the key is another.
            key = table.key if kept.has_same_key else ()
            stays = mode.kept(old, source.moment, key, self._read_keys(table, parts, source))
        files = self._read(table, parts, schema, source)
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
        with self._row_session(source) as session:
            yield from read_rows(session, replace(table, columns=table.key), ranges)

    def _read(
        self, table: MirroredTable, parts: Sequence[PlannedPart], schema: pa.Schema, source: _Source
    ) -> list[DataFile]:
        """Write the rows of all ranges to files."""
        plain = replace(table, catalog=Fingerprint({}), leaves={})
        unit = partial(LoadUnit, self.ends.url, source.id, plain, schema, source.moment)
        units = (unit(part.ranges) for part in parts)
        files: list[DataFile] = []
        for loaded in self.load_units(self.ends.lake, units):
            self._check_stopping()
            files += loaded.files
            for text in loaded.told:
                self.report.warning(text)
            reach("mirror_unit")
        return files

    def read_parts(self, table: MirroredTable, parts: Sequence[Bounds]) -> list[Ahead] | None:
        """Make parts of the lake's table as the database's are, in as many rows as the parts have.

        Args:
            table: the table.
            parts: the bounds of the parts.

        Returns:
            Up to where the lake has them now, ahead of the table's position. None: the table was altered
            again meanwhile, and is to be read whole.
        """
        with self._snapshot() as source:
            with self._session(source) as session:
                present = self.ends.selection.read(session, [table.name]).get(table.name)
            # The bounds are those of the catalog that was looked at; of another one they may differ.
            if present is None or present.catalog != table.catalog:
                return None
            with self._row_session(source) as session:
                for bounds in parts:
                    self._read_part(session, table, bounds, source.moment)
        return [Ahead(source.moment.start, bounds) for bounds in parts]

    def _read_part(
        self, session: RowSession, table: MirroredTable, bounds: Bounds, moment: LoadMoment
    ) -> None:
        key = list(table.key)
        gone = equal_keys(self._keys_within(table, bounds))
        # The server leaves the other partitions out.
        within = [condition(bounds, table.columns_by_number)]
        read = (batch.cast(table.schema) for batch in read_rows(session, table, [CtidRange(0, None)], within))
        for rows in grouped(read, table.schema, _BYTES_AT_ONCE):
            gone = gone.join(equal_keys(rows.select(key)), key, join_type="left anti")
            self._write(table, rows, "insert", moment)
        for keys in filter(len, gone.to_batches(max_chunksize=_ROWS_AT_ONCE)):
            rows = pa.Table.from_batches([fitted(keys, table.schema)])
            self._write(table, rows, "delete", moment)

    def _keys_within(self, table: MirroredTable, bounds: Bounds) -> pa.Table:
        """Return the keys of the lake's present rows within bounds."""
        schema = pa.schema([table.schema.field(name) for name in table.key])
        lake = opened(self.ends.lake, table.name)
        present = (batch.filter(table.rules.present(batch)) for batch in lake.rows())
        found = (batch.filter(rows_within(batch, bounds, table.columns_by_number)) for batch in present)
        return pa.Table.from_batches((batch.select(schema.names).cast(schema) for batch in found), schema)

    def _write(self, table: MirroredTable, rows: pa.Table, kind: str, moment: LoadMoment) -> None:
        """Write rows as changes right before the first one that they do not show, in one commit."""
        values = {
            "change_type": kind,
            "commit_lsn": moment.start - 1,
            "commit_seq": 0,
            "commit_timestamp": moment.time,
        }
        fields = [field.with_name(PREFIX + field.name) for field in METADATA]
        changes = with_fields(rows, fields, {PREFIX + name: value for name, value in values.items()})
        lake = opened(self.ends.lake, table.name)
        # The commit leaves the table's position.
        table.rules.apply(self.ends.lake, lake, table.key, changes, known_position(lake))


class LoadStoppedError(Exception):
    """A load was stopped; the next one goes on with the table that it was at."""


def _of_another(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """Return the columns of a lake's table that is read again from what may be another table than before.

    Only what has the number and the name of one of its columns is taken for that column.
    """
    # A table that was dropped and made again counts its columns from 1 again.
    names = {number_of(field): field.name for field in new}
    others = {field for field in old if names.get(number_of(field), field.name) != field.name}
    return pa.schema([with_metadata(field, dropped="true") if field in others else field for field in old])
