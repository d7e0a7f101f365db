"""Load tables: read all their rows in a snapshot, and write them to the lake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.capture.continuity import read_positions
from headrace.catalog.fingerprint import Fingerprint
from headrace.errors import HeadraceError, Kind
from headrace.mirror.alterations import Alteration, altered_rows, plan_alteration
from headrace.mirror.columns import all_fitted, number_of, with_metadata
from headrace.mirror.files import DataFile
from headrace.mirror.lake import Lake, LakeTable, other_writer
from headrace.mirror.load_journal import LoadJournal, LoadSnapshot
from headrace.mirror.load_plan import UnitPlan
from headrace.mirror.load_units import LoadUnit, UnitLoader, load_in_threads
from headrace.mirror.modes import LoadMoment
from headrace.mirror.tables import MirroredTable, Selection
from headrace.model.failpoints import reach
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.postgres.replication import replication_connection
from headrace.postgres.session import ReadSession
from headrace.reporter import Reporter
from headrace.snapshot import PlannedPart, RangesDone, plan_tables
from headrace.snapshot.exporting import positioned_snapshot
from headrace.snapshot.planning import PARTITION_BYTES
from headrace.snapshot.unchanged import read_bounds


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the rows of a load are read.

    Attributes:
        id: of the exported snapshot.
        snapshot: what it sees.
        moment: when it was taken.
    """

    id: str
    snapshot: LoadSnapshot
    moment: LoadMoment


class LakeLoader:
    """Loads the lake's tables from the database's.

    Args:
        url: the database.
        slot: the slot that is followed.
        selection: which tables, and what of them.
        lake: the tables.
        report: is told what is loaded.
        load_units: reads units of a table; this process does by default.
    """

    def __init__(
        self,
        url: str,
        slot: str,
        selection: Selection,
        lake: Lake,
        report: Reporter,
        *,
        load_units: UnitLoader = load_in_threads,
    ) -> None:
        self._url = url
        self._slot = slot
        self._selection = selection
        self._lake = lake
        self._report = report
        self._load_units = load_units

    def load(self, names: Iterable[TableName]) -> Iterator[tuple[TableName, tuple[MirroredTable, Lsn]]]:
        """Read all rows of tables anew, in one snapshot; yield each with its position (bytes) when done.

        A table that is gone by now is left out.

        Raises:
            HeadraceError: CONTINUITY, a table was rewritten meanwhile; CONNECTION, DATABASE.
        """
        with ReadSession(self._url) as session:
            [(now,)] = session.query("SELECT clock_timestamp()")
        target = min(PARTITION_BYTES, self._lake.file_bytes)
        with positioned_snapshot(self._url, self._slot) as (start, snapshot):
            with ReadSession(self._url, snapshot=snapshot) as session:
                tables = self._selection.read(session, names)
                parts = plan_tables(session, list(tables), target_bytes=target, inheritance_children=False)
                bounds = read_bounds(session)
            with replication_connection(self._url, "headrace load") as connection:
                origin = read_positions(connection, self._slot).origin.to_json()
            source = _Source(snapshot, LoadSnapshot(start, bounds, origin), LoadMoment(start, now))
            for name, table in sorted(tables.items()):
                self._report.info(f"loading {name}")
                self._load(table, parts[name], source)
                yield name, (table, start)

    def _load(self, table: MirroredTable, parts: Sequence[PlannedPart], source: _Source) -> None:
        """Replace the lake's table, but for what its mode keeps of the rows that it has."""
        mode = table.rules
        moment = source.moment
        schema = table.lake_schema
        files: list[DataFile] = []
        existing = open_mirrored(self._lake, table)
        if existing is not None and mode.keeps:
            alteration = _plan_kept(existing.schema, schema, keeps=True)
            schema = pa.schema(
                [with_metadata(field, former=None, altered=None, added=None) for field in alteration.schema]
            )
            old = altered_rows(existing.rows(), replace(alteration, added=()), table.default, mode)
            files += self._lake.write(table.name, schema, all_fitted(mode.kept(old, moment), schema))
        journal = None if mode.keeps else LoadJournal(self._lake, table, source.snapshot)
        loaded = self._read(table, parts, schema, source, journal)
        if existing is not None and mode.keeps_gone:
            files += self._keep_gone(table, existing, loaded, moment)
        files += loaded
        self._lake.replace(table.name, schema, files, (moment.start - 1, 0), existing)
        if journal is not None:
            journal.clear()

    def _keep_gone(
        self, table: MirroredTable, existing: LakeTable, loaded: Sequence[DataFile], moment: LoadMoment
    ) -> list[DataFile]:
        """Write what stays of the lake's rows that the database does not have any more."""
        schema = table.lake_schema
        alteration = _plan_kept(existing.schema, schema, keeps=False)
        if not alteration.has_same_key:
            return []  # nothing tells which of them the new keys would be
        old = altered_rows(existing.rows(), replace(alteration, added=()), table.default, table.rules)
        keys = self._lake.read(table.name, pa.schema([schema.field(name) for name in table.key]), loaded)
        gone = table.rules.gone(old, table.key, keys, moment)
        return self._lake.write(table.name, schema, all_fitted(gone, schema))

    def _read(
        self,
        table: MirroredTable,
        parts: Sequence[PlannedPart],
        schema: pa.Schema,
        source: _Source,
        journal: LoadJournal | None,
    ) -> list[DataFile]:
        """Write the rows of all ranges to files; those that an earlier load wrote are taken."""
        planned = [range_ for part in parts for range_ in part.ranges]
        noted = [] if journal is None else journal.find_units(planned, self._position_of(table.name))
        done = RangesDone()
        for range_ in (range_ for unit in noted for range_ in unit.ranges):
            done = done.done(range_)
        plan = UnitPlan(parts, done, self._lake.file_bytes)
        plain = replace(table, catalog=Fingerprint({}))
        unit = LoadUnit(self._url, source.id, plain, schema, source.moment, ())

        def units() -> Iterator[LoadUnit]:
            for one in noted:
                yield replace(unit, ranges=one.ranges, noted=one)
            for ranges in plan:
                yield replace(unit, ranges=ranges)

        files: list[DataFile] = []
        taken = 0
        for loaded in self._load_units(self._lake, units()):
            plan.learn(loaded.unit.ranges, loaded.files)
            files += loaded.files
            if loaded.is_taken:
                taken += sum(file.rows for file in loaded.files)
            elif journal is not None:
                journal.note(loaded)
            reach("mirror_unit")
        if taken:
            self._report.info(f"{taken:,} rows of {table.name} were read before")
            self._check_not_loaded(table.name, min(one.start for one in noted))
        return files

    def _position_of(self, name: TableName) -> Lsn:
        """Return up to where (bytes) the lake's table has the log, 0 where there is none."""
        found = self._lake.open(name)
        return 0 if found is None or found.position is None else found.position[0]

    def _check_not_loaded(self, name: TableName, start: Lsn) -> None:
        """Make sure that no other program has loaded a table with the files that are taken over.

        Raises:
            HeadraceError: CONTINUITY.
        """
        if self._position_of(name) >= start - 1:
            raise other_writer(name, "a load that was broken off is complete")


def _plan_kept(old: pa.Schema, new: pa.Schema, *, keeps: bool) -> Alteration:
    """Plan which columns of a lake's old rows become columns of a table that is read anew.

    Those that have the number and the name of one: the table may be another one than before, whose columns
    have the same numbers.
    """
    names = {number_of(field): field.name for field in new}
    marked = [
        field
        if names.get(number_of(field), field.name) == field.name
        else with_metadata(field, dropped="true")
        for field in old
    ]
    return plan_alteration(
        pa.schema(marked), new, keeps=keeps, is_rewritten=True, complete=0, now=0, highest=0
    )


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
