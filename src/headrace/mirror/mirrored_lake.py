"""Keep a lake that holds some of a database's tables: load what is not loaded, write what was changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.capture.upgrade import PlannedAdoption
from headrace.config.mirror import MirrorConfig
from headrace.errors import ErrorGroup, HeadraceError
from headrace.mirror.choosing import TableChooser
from headrace.mirror.drift import may_have_drifted
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.formats import open_lake
from headrace.mirror.lake import Lake, reaching
from headrace.mirror.load_units import UnitLoader, load_in_threads
from headrace.mirror.loading import LakeLoader
from headrace.mirror.noting import LakeNotes
from headrace.mirror.observing import decide_each
from headrace.mirror.plan import MirrorPlan, find_missing, plan_tables, read_sizes, total
from headrace.mirror.positions import LakePositions, TablePosition
from headrace.mirror.selection import Selection
from headrace.mirror.source_log import (
    check_log,
    check_slot_exists,
    find_risk,
    find_start,
    find_unsent,
    read_sent,
)
from headrace.mirror.spark_loading import ExecutorLoader
from headrace.mirror.tables import LOCK_SECONDS, MirroredTable
from headrace.mirror.units import Wait
from headrace.mirror.upgrade import plan_adoption
from headrace.mirror.upkeep import LakeUpkeep
from headrace.mirror.verify import LakeComparer
from headrace.mirror.waiting import WaitingTables, concerns_table
from headrace.mirror.writing import LakeWriter
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.model.table_pattern import format_table
from headrace.postgres.provision import find_reading_problems, prepare_slot, try_publishing
from headrace.postgres.publication_filters import PublicationFilter, PublicationRequirements
from headrace.postgres.session import ReadSession
from headrace.reporter import Reporter, SilentReporter
from headrace.status.mirror_board import MirrorBoard, TableStatus
from headrace.status.phases import Phase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WATCH_SECONDS = 10.0
"""How often a mirror looks whether tables were created, dropped or altered."""
_LOOK_SECONDS = 0.5
"""So long the sizes of tables are waited for, which are shown alone."""


class MirroredLake:
    """A lake that holds some of a database's tables.

    Args:
        url: the database.
        config: what is mirrored, and where to.
        report: is told what happens.
        stopping: ends a load between two tables, or two units of one; None: nothing does.
        wal_budget: how much log (bytes) the slot may keep for tables that wait; None: as much as it takes.

    Attributes:
        url: the database.
        config: what is mirrored, and where to.
        board: shows what is done with each table.
        lake: the lake.
        notes: up to where its tables have the log.
        waiting: the tables that cannot be written for now.
    """

    def __init__(
        self,
        url: str,
        config: MirrorConfig,
        report: Reporter,
        stopping: threading.Event | None = None,
        wal_budget: int | None = None,
    ) -> None:
        self.url = url
        self._stopping = threading.Event() if stopping is None else stopping
        self.config = config
        self._report = report
        self._selection = Selection(config)
        self._tended: Collection[TableName] = ()
        self.waiting = WaitingTables(report)
        self._budget = wal_budget
        self._was_set_up = False
        self._session: SparkSession | None = None
        self.board = MirrorBoard(config.slot)
        self._write_to(open_lake(config), load_in_threads)

    def _write_to(self, lake: Lake, load_units: UnitLoader) -> None:
        config = self.config
        self.lake = self.waiting.lake = lake
        self._ends = MirrorEndpoints(self.url, config.slot, config.publication, self._selection, lake)
        self._chooser = TableChooser(self._ends, self.waiting, self._report)
        self.notes = LakeNotes(self._ends, self.waiting, self._budget)
        show = partial(self._show, Phase.BACKFILLING)
        self._loader = LakeLoader(self._ends, self._report, self.waiting, self._stopping, load_units, show)
        self._writer = LakeWriter(self._ends, self._report, self.waiting, self._loader)
        self._upkeep = LakeUpkeep(lake, config, self._report)

    def use(self, session: SparkSession) -> None:
        """Let a session do the heavy work from now on, where the file says `engine = "spark"`.

        Raises:
            HeadraceError: DEPENDENCY, where it cannot; SINK_UNREACHABLE, where the catalog does not answer.
        """
        if self.config.engine == "local" or session is self._session:
            return
        with reaching(self.lake):
            # Files of an Iceberg table need its catalog, which executors do not have.
            is_iceberg = self.config.format == "iceberg"
            load_units = load_in_threads if is_iceberg else ExecutorLoader(session)
            self._write_to(open_lake(self.config, session), load_units)
        self._session = session

    def comparer(self) -> LakeComparer:
        """Return what compares the lake with the database."""
        # A chooser of its own: what it finds wrong is nothing to the mirror, which may run meanwhile.
        waiting = WaitingTables(SilentReporter())
        chooser = TableChooser(self._ends, waiting, SilentReporter())
        return LakeComparer(self._ends, self.notes, self._loader, chooser)

    def follow_only(self, tables: Collection[TableName] | None) -> None:
        """Leave out tables that a query of one's own does not follow; None: it follows all."""
        self._chooser.followed = tables

    def plan_adoption(self) -> AbstractContextManager[PlannedAdoption]:
        """Plan to go on with a server that pg_upgrade has made, see `headrace.mirror.upgrade`."""
        return plan_adoption(self._ends)

    def set_up(self) -> None:
        """Make publication and slot, where they are missing.

        A table that cannot be published waits, unless the file names it and the lake does not have it.
        """
        with reaching(self.lake):
            positions = self.notes.table.read()
            tables = self._chooser.read(positions.tables)
        check_slot_exists(self._ends, positions)
        # Later the slot is the mirror's own, also while nothing is loaded yet.
        risk = None if self._was_set_up else find_risk(self._ends, positions)
        self._was_set_up = True
        if risk is not None:
            self._report.warning(risk)
        self._publish(tables, positions.tables, partial(prepare_slot, create=True))

    def _publish(
        self,
        tables: Mapping[TableName, MirroredTable],
        known: Collection[TableName],
        publish: Callable[..., object],
    ) -> None:
        """Publish tables, or try to; where not all can be, only those wait that cannot.

        Args:
            tables: the tables.
            known: those that the lake has.
            publish: `prepare_slot` or `try_publishing`.
        """
        filters = {name: PublicationFilter(rows=table.part.where) for name, table in tables.items()}
        requirements = {name: PublicationRequirements(selection=own) for name, own in filters.items()}
        names = {"slot": self.config.slot, "publication": self.config.publication}
        publish = partial(publish, self.url, **names, requirements=requirements)
        problems: dict[TableName, HeadraceError] = {}
        try:
            if tables:
                publish(tables=[*tables])
        except HeadraceError as error:
            if len(tables) == 1 or not concerns_table(error):
                raise
            problems = _find_unpublishable(tables, publish)
            if len(problems) == len(tables):
                raise  # it is nothing of theirs
        self._chooser.let_wait(problems, tables, known)

    def plan(self) -> MirrorPlan:
        """Return what a start would do; nothing is changed.

        Raises:
            HeadraceError: what keeps it from starting; every mistake at once.
        """
        with reaching(self.lake), ReadSession(self.url, lock_seconds=_LOOK_SECONDS) as session:
            positions = self.notes.table.read()
            known = positions.tables
            tables = self._chooser.read(known)
            warnings = self._chooser.check_file(session, tables, positions)
            check_log(self._ends, positions)
            problems = find_reading_problems(self.url, self.config.slot)
            if problems:
                raise ErrorGroup(problems)
            self._publish(tables, known, try_publishing)
            tables = {name: table for name, table in tables.items() if self._is_free(table)}
            published = read_sent(self._ends, [*tables])
            unsent = find_unsent(known, published, tables)
            actions, _ = decide_each(self._ends, self.waiting, tables, known, unsent=unsent)
            publication, slot = find_missing(session, self.config.publication, self.config.slot)
            plans = plan_tables(session, tables, known, actions, has_slot=slot is None)
            left_out = self._chooser.left_out | self._selection.find_left_out(session)
        waiting = {name: table.error for name, table in self.waiting.tables.items()}
        waiting |= {name: action.error for name, action in actions.items() if isinstance(action, Wait)}
        risk = find_risk(self._ends, positions)
        warnings += [] if risk is None else [risk]
        return MirrorPlan(plans, publication, slot, waiting, left_out, tuple(warnings))

    def _is_free(self, table: MirroredTable) -> bool:
        """Tell whether a table neither waits nor is left out."""
        return table.name not in self.waiting and not self._chooser.is_left_out(table)

    def prepare(self) -> list[TableName]:
        """Check that the log goes on, and bring the lake's tables into shape.

        Returns:
            The tables that are followed.

        Raises:
            HeadraceError: CONTINUITY, where the log has a gap; what the database or the lake refuse.
        """
        known = self.notes.table.read()
        tables = self._chooser.read(known.tables)
        if not tables:
            self.notes.positions, self._writer.tables = known, {}
            self._show(Phase.LIVE)
            return []
        stream, confirmed = find_start(self._ends, known)
        with ReadSession(self.url, lock_seconds=_LOOK_SECONDS) as session:
            self._chooser.warn_of_file(session, tables, known)
        published = read_sent(self._ends, [*tables])
        notes, waited = dict(known.tables), dict(self.waiting.tables)
        # One that was created since the others were published: what is written to it is in no log yet. The
        # next look finds it, and the start after that publishes it.
        silent = {name for name in tables if not published.members.get(format_table(name))}
        sent = {name: table for name, table in tables.items() if name not in silent}
        missing = self._writer.bring_up(sent, notes, find_unsent(notes, published, sent), confirmed)
        # Who was tried and failed has a new entry, whose pause may be over before the others are ready.
        failed = {name for name, entry in self.waiting.tables.items() if entry is not waited.get(name)}
        tables = {name: table for name, table in tables.items() if name not in failed}
        stream = dict(stream) | published.to_json()
        self._follow(tables, silent.union(missing), notes, stream)
        self._load_missing(missing, len(tables), stream, confirmed)
        self.notes.note(stream, self._writer.tables, {}, read_from=confirmed)
        self._show(Phase.LIVE)
        return list(self._writer.tables)

    def _follow(
        self,
        tables: Mapping[TableName, MirroredTable],
        missing: Collection[TableName],
        notes: Mapping[TableName, TablePosition],
        stream: Mapping[str, Any],
    ) -> None:
        """Follow the tables that can take changes; note that the others must be read again first."""
        followed = [name for name in tables if name not in missing]
        # The mark is written with the first load: a start after a kill finds it, whatever was loaded.
        again = {
            name: replace(position, waits_for=position.waits_for or "it must be read again")
            for name, position in notes.items()
            if name in tables or name in self.waiting
        }
        for name in followed:
            if notes[name].waits_for is not None or name in self.waiting:
                self._report.info(f"the table {name} goes on from where it was: the slot has kept the log")
                self.waiting.remove(name)
            again[name] = replace(notes[name], waits_for=None)
        self.notes.positions = LakePositions(again, stream)
        self._writer.tables = {name: tables[name] for name in followed}

    def _load_missing(
        self, missing: Sequence[TableName], of: int, stream: Mapping[str, Any], read_from: Lsn | None
    ) -> None:
        """Load tables, and note each: a killed load goes on with the next one."""
        if not missing:
            return
        with ReadSession(self.url, lock_seconds=_LOOK_SECONDS) as session:
            sizes = read_sizes(session, missing)
        self._report.info(f"{len(missing)} of {of} tables to load: {total(sizes.values())}")
        for name, loaded in self._loader.load(missing, self.notes.positions.tables):
            self.waiting.remove(name)
            self._writer.tables[name], _ = loaded
            self.notes.note(stream, self._writer.tables, {name: loaded}, only={name}, read_from=read_from)

    def write(self, batch: pa.Table, end: Mapping[str, Any], tables: Iterable[TableName]) -> None:
        """Write one batch to every table, then the positions.

        Args:
            batch: rows of `envelope=changes`.
            end: the offset at which it ends.
            tables: what `prepare` returned.
        """
        before = self.notes.positions.tables
        notes = dict(before)
        loaded = self._writer.apply(batch, tables, notes)
        # A table that waits stays as it was noted: its next try finds once more what was altered.
        waiting = {name: before[name] for name in self.waiting.tables if name in before}
        self.notes.positions = replace(self.notes.positions, tables=notes | waiting)
        for name in self.waiting.tables:
            self._writer.tables.pop(name, None)
        # Those of the batch before have new versions, too: their files were joined after its note.
        only = {*loaded, *self._writer.written, *self._tended}
        self.notes.note(end, self._writer.tables, loaded, only)
        self._show(Phase.LIVE)
        self._tended = self._writer.written if len(batch) else ()
        # Former files of the others are old by now: of one that was read again, or that waits.
        noted = self.notes.positions.tables.items()
        self._upkeep.tend(self._tended, {name: position.version for name, position in noted})

    def is_altered(self) -> bool:
        """Tell whether the database's tables are not those, or not as, the lake's are."""
        with ReadSession(self.url, lock_seconds=LOCK_SECONDS) as session:
            found = self._selection.read(session, self._selection.find(session))
        self.waiting.try_altered(found)
        followed = {**self._writer.tables}  # a batch may take tables out meanwhile
        now = {name: table for name, table in found.items() if self._is_free(table)}
        return (
            self.waiting.is_due
            or not self.waiting.tables.keys() <= found.keys()
            or now.keys() != followed.keys()
            or any(_differs(followed[name], table) for name, table in now.items())
        )

    @property
    def conditions(self) -> dict[str, str]:
        """The SQL that says which rows of some followed tables are mirrored."""
        parts = {name: table.part for name, table in self._writer.tables.items()}
        return {format_table(name): part.where for name, part in parts.items() if part.where}

    def _show(self, phase: Phase, loading: Collection[TableName] = ()) -> None:
        """Show what is done with each table."""
        positions, waiting = self.notes.positions.tables, self.waiting.tables
        shown: dict[str, TableStatus] = {}
        for name in {*positions, *self._writer.tables, *waiting, *loading}:
            complete = positions[name].complete if name in positions else None
            if name in waiting:
                error, due = waiting[name].error, waiting[name].next_try - time.monotonic()
                next_try = time.time() + max(0.0, due)
                shown[str(name)] = TableStatus("waiting", complete, error.cause, error.remedy, next_try)
            else:
                shown[str(name)] = TableStatus("loading" if name in loading else "live", complete)
        self.board.show(phase, shown)


def _find_unpublishable(
    tables: Iterable[TableName], publish: Callable[..., object]
) -> dict[TableName, HeadraceError]:
    """Publish tables one by one; return why some cannot be."""
    problems = {}
    for name in tables:
        try:
            publish(tables=[name])
        except HeadraceError as problem:
            if not concerns_table(problem):
                raise
            problems[name] = problem
    return problems


def _differs(before: MirroredTable, now: MirroredTable) -> bool:
    """Tell whether a followed table must be prepared again."""
    is_same = (before.relation, before.schema) == (now.relation, now.schema)
    return not is_same or may_have_drifted(before.catalog, now.catalog, now.columns)
