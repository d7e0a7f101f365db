"""Keep a lake that holds some of a database's tables: load what is not loaded, write what was changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.capture import LogOrigin, Offset
from headrace.capture.continuity import LogPositions, check_continuity, read_positions
from headrace.catalog.fingerprint import Fingerprint
from headrace.config.mirror import MirrorConfig, is_folder
from headrace.datasources.publication_membership import Published, read_published
from headrace.errors import HeadraceError, Kind
from headrace.mirror.choosing import TableChooser
from headrace.mirror.drift import may_have_drifted
from headrace.mirror.endpoints import MirrorEndpoints
from headrace.mirror.files import flush
from headrace.mirror.formats import open_lake
from headrace.mirror.lake import Lake, LakeTable, known_position, reaching
from headrace.mirror.load_units import UnitLoader, load_in_threads
from headrace.mirror.observing import IsSent, sent_ever_since
from headrace.mirror.plan import MirrorPlan, make_plan, read_sizes, total
from headrace.mirror.positions import LakePositions, PositionsTable, TablePosition
from headrace.mirror.slot_keeping import SlotKeeper
from headrace.mirror.spark_loading import ExecutorLoader
from headrace.mirror.table_checks import check_named_columns
from headrace.mirror.tables import LOCK_SECONDS, MirroredTable, Selection
from headrace.mirror.upkeep import LakeUpkeep
from headrace.mirror.verify import LakeComparer
from headrace.mirror.waiting import WaitingTables, concerns_table
from headrace.mirror.writing import LakeWriter
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.model.table_pattern import format_table
from headrace.postgres.connection import connect
from headrace.postgres.provision import prepare_slot
from headrace.postgres.publication import read_publication
from headrace.postgres.publication_filters import PublicationFilter, PublicationRequirements
from headrace.postgres.replication import replication_connection
from headrace.postgres.session import ReadSession
from headrace.postgres.setup import publication_too_young
from headrace.postgres.slot import read_slot, slot_problem
from headrace.reporter import Reporter
from headrace.status.mirror_board import MirrorBoard, TableStatus
from headrace.status.phases import Phase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RELOAD = (
    "Run `headrace mirror --reload`, or remove the lake's table headrace_positions before the next start: "
    "all tables are read anew then."
)
WATCH_SECONDS = 10.0
"""How often a mirror looks whether tables were created, dropped or altered."""
_NO_LIMIT = (1 << 64) - 1
_LOOK_SECONDS = 0.5
"""So long the sizes of tables are waited for, which are shown alone."""


def _sent_since(stream: Mapping[str, Any], now: Published) -> IsSent:
    """Return what tells whether the publication has sent a table all the time since an offset was stored."""
    before = Published.from_json(stream)
    if before is None:
        return sent_ever_since
    if before.altered != now.altered:
        return lambda _: False
    members = before.members

    def is_sent(name: TableName) -> bool:
        text = format_table(name)
        return text not in members or now.members.get(text) == members[text]

    return is_sent


def _to_be_read(position: TablePosition) -> TablePosition:
    return replace(position, waits_for=position.waits_for or "it must be read again")


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
        limit_confirmation: is told up to where (bytes) the slot may be confirmed.
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
        self._positions = LakePositions()
        self._tended: Collection[TableName] = ()
        self._waiting = WaitingTables(report)
        self._budget = wal_budget
        self.board = MirrorBoard(config.slot)
        self.limit_confirmation: Callable[[Lsn], object] = lambda _: None
        self._ahead: set[TableName] = set()
        self._relations: frozenset[int] | None = None
        self._chooser = TableChooser(url, self._selection, config.location, self._waiting, report)
        self._write_to(open_lake(config), load_in_threads)

    def _write_to(self, lake: Lake, load_units: UnitLoader) -> None:
        config = self.config
        self.lake = lake
        self._table = PositionsTable(lake, config.slot)
        self._ends = MirrorEndpoints(self.url, config.slot, config.publication, self._selection, lake)
        self._writer = LakeWriter(self._ends, self._report, self._waiting, load_units=load_units)
        self._writer.loader.stopping = self._stopping
        self._upkeep = LakeUpkeep(lake, config, self._report)

    def use(self, session: SparkSession) -> None:
        """Let a session do the heavy work from now on, where the file says `engine = "spark"`.

        Raises:
            HeadraceError: DEPENDENCY, where it cannot.
        """
        if self.config.engine == "spark":
            self._write_to(open_lake(self.config, session), ExecutorLoader(session))

    @property
    def slot(self) -> str:
        """The name of the replication slot."""
        return self.config.slot

    def comparer(self) -> LakeComparer:
        """Return what compares the lake with the database."""
        return LakeComparer(self._ends, self._table)

    def set_up(self) -> None:
        """Make publication and slot, where they are missing.

        A table that cannot be published waits, unless the file names it and the lake does not have it.
        """
        with reaching(self.lake):
            known = self._table.read().tables
        tables, _ = self._chooser.read(known)
        if not tables:
            return
        try:
            self._prepare_slot(tables)
        except HeadraceError as error:
            if not concerns_table(error) or len(tables) <= 1:
                raise
            self._publish_alone(tables, known)

    def _publish_alone(self, tables: Mapping[TableName, MirroredTable], known: Collection[TableName]) -> None:
        """Publish one table after the other, so that only those wait that cannot be."""
        problems: dict[TableName, HeadraceError] = {}
        for name, table in tables.items():
            try:
                self._prepare_slot({name: table})
            except HeadraceError as error:
                if not concerns_table(error):
                    raise
                problems[name] = error
        if len(problems) == len(tables):
            raise next(iter(problems.values()))  # it is nothing of theirs
        self._chooser.let_wait(problems, tables, known)

    def _prepare_slot(self, tables: Mapping[TableName, MirroredTable]) -> None:
        config = self.config
        requirements = {
            name: PublicationRequirements(selection=PublicationFilter(rows=table.where))
            for name, table in tables.items()
            if table.where is not None
        }
        prepare_slot(
            self.url,
            slot=config.slot,
            publication=config.publication,
            tables=[*tables],
            create=True,
            requirements=requirements,
        )

    def plan(self) -> MirrorPlan:
        """Return what a start would do; nothing is changed.

        Raises:
            HeadraceError: what keeps it from starting; every mistake at once.
        """
        with reaching(self.lake), ReadSession(self.url, lock_seconds=_LOOK_SECONDS) as session:
            positions = self._table.read()
            known = positions.tables
            tables, _ = self._chooser.read(known)
            check_named_columns(tables, known)
            self._check_goes_on(positions)
            is_sent: IsSent = sent_ever_since
            if positions.stream is not None:
                is_sent = _sent_since(positions.stream, self._read_published([*tables]))
            actions, _ = self._writer.observer.decide(tables, known, is_sent)
            publication, slot = self.config.publication, self.config.slot
            plan = make_plan(session, tables, known, actions, publication=publication, slot=slot)
        waiting = {name: table.error for name, table in self._waiting.tables.items()}
        return replace(
            plan,
            waiting=waiting | {**plan.waiting},
            left_out={name: table.why for name, table in self._chooser.left_out.items()},
        )

    def _check_goes_on(self, known: LakePositions) -> None:
        """Make sure that the log goes on where the lake is, where there is a lake.

        Raises:
            HeadraceError: SLOT_LOST, PUBLICATION, CONTINUITY, where it does not.
        """
        if known.stream is None:
            return
        config = self.config
        with connect(self.url) as connection:
            facts = read_slot(connection, config.slot)
            if facts is None:
                raise HeadraceError(
                    Kind.CONTINUITY,
                    f"the slot {config.slot}, which the lake at {self.lake.location} is written from, is "
                    "gone: what was changed since is in no log",
                    RELOAD,
                )
            problem = slot_problem(facts, connection.info.dbname)
            if problem is None and read_publication(connection, config.publication) is None:
                problem = publication_too_young(config.publication, facts)
            if problem is not None:
                raise problem
        self._check_log(self._read_log(), known.stream, known)

    def prepare(self, *, reload: bool = False) -> list[TableName]:
        """Check that the log goes on, and bring the lake's tables into shape.

        Args:
            reload: read all tables anew.

        Returns:
            The tables that are followed.

        Raises:
            HeadraceError: CONTINUITY, where the log has a gap; what the database or the lake refuse.
        """
        known = self._table.read()  # refuses the location of another slot, also to be read anew
        if reload:
            known = LakePositions()
        tables, self._relations = self._chooser.read(known.tables)
        if not tables:
            self._positions, self._writer.tables = known, {}
            self._show(Phase.LIVE)
            return []
        stream, confirmed = self._find_start(known)
        check_named_columns(tables, known.tables)
        published = self._read_published([*tables])
        notes = dict(known.tables)
        missing = self._writer.bring_up(tables, notes, _sent_since(stream, published), confirmed)
        stream = dict(stream) | published.to_json()
        followed = [name for name in tables if name not in missing and not self._waiting.is_held(name)]
        again = {
            name: replace(position, waits_for=None) if name in followed else _to_be_read(position)
            for name, position in notes.items()
            if name in tables or name in self._waiting
        }
        self._positions = LakePositions(again, stream)
        self._writer.tables = {name: tables[name] for name in followed}
        self._tell_kept(followed, known)
        self._load_missing(missing, len(tables), stream)
        self._note(stream, {})
        self._relations = None  # from now on, what is noted knows of tables that this look did not see
        self._show(Phase.LIVE)
        return list(self._writer.tables)

    def _show(self, phase: Phase, loading: Collection[TableName] = ()) -> None:
        """Show what is done with each table."""
        positions, waiting = self._positions.tables, self._waiting.tables
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

    def _find_start(self, known: LakePositions) -> tuple[Mapping[str, Any], Lsn | None]:
        """Return the offset that the tables have reached, and from where (bytes) the log is read again."""
        now = self._read_log()
        if known.stream is not None:
            self._check_log(now, known.stream, known)
            return known.stream, now.confirmed
        assert now.confirmed is not None
        return Offset(now.confirmed).to_json() | now.origin.to_json(), now.confirmed

    def _tell_kept(self, followed: Sequence[TableName], known: LakePositions) -> None:
        """Let tables go on for which the slot has kept the log."""
        for name in followed:
            if known.tables[name].waits_for is not None or name in self._waiting:
                self._report.info(f"the table {name} goes on from where it was: the slot has kept the log")
                self._waiting.forget(name)

    def _load_missing(self, missing: Sequence[TableName], of: int, stream: Mapping[str, Any]) -> None:
        """Load tables, and note each: a killed load goes on with the next one."""
        if not missing:
            return
        with ReadSession(self.url, lock_seconds=_LOOK_SECONDS) as session:
            sizes = read_sizes(session, missing)
        self._report.info(f"{len(missing)} of {of} tables to load: {total(sizes.values())}")
        left = {*missing}
        self._show(Phase.BACKFILLING, left)
        with SlotKeeper(self.url, self.slot, self._report):
            for name, loaded in self._writer.loader.load(missing, others_go_on=bool(self._writer.tables)):
                self._waiting.remove(name)
                self._writer.tables[name], _ = loaded
                self._note(stream, {name: loaded}, only={name})
                left.discard(name)
                self._show(Phase.BACKFILLING, left)

    def _read_published(self, names: Sequence[TableName]) -> Published:
        with connect(self.url) as connection:
            return read_published(connection, self.config.publication, names)

    def _read_log(self) -> LogPositions:
        with replication_connection(self.url, "headrace look") as connection:
            return read_positions(connection, self.config.slot, self.config.publication)

    def _check_log(self, now: LogPositions, stream: Mapping[str, Any], known: LakePositions) -> None:
        offset = Offset.from_json(stream)
        highest = max((self._read_reached(name, known.tables[name]) for name in known.tables), default=0)
        try:
            check_continuity(now, self.config.slot, offset.lsn, LogOrigin.from_json(stream), known=highest)
        except HeadraceError as error:
            if error.kind is Kind.CONNECTION:
                raise
            raise HeadraceError(error.kind, error.cause, RELOAD) from error

    def _read_reached(self, name: TableName, position: TablePosition) -> Lsn:
        """Return up to where (bytes) a table has the log; a killed batch may have written it alone.

        A promoted standby may lack just what that batch had.
        """
        lake = self.lake.open(name)
        written = None if lake is None else lake.position
        return position.complete if written is None else max(position.complete, written[0] + 1)

    def is_altered(self) -> bool:
        """Tell whether the database's tables are not those, or not as, the lake's are."""
        with ReadSession(self.url, lock_seconds=LOCK_SECONDS) as session:
            known = self._positions.tables
            found = self._selection.read(session, self._selection.find(session, known))
        followed = self._writer.tables
        for name, waiting in self._waiting.tables.items():
            if name in found and waiting.differs(found[name]):
                self._waiting.try_now(name)
        now = {
            name: table
            for name, table in found.items()
            if name not in self._waiting and not self._chooser.is_left_out(table)
        }
        return (
            self._waiting.is_due
            or any(name not in found for name in self._waiting.tables)
            or {name: (table.relation, table.schema) for name, table in now.items()}
            != {name: (table.relation, table.schema) for name, table in followed.items()}
            or any(
                may_have_drifted(followed[name].catalog, table.catalog, table.columns)
                for name, table in now.items()
            )
        )

    def waiting_error(self) -> HeadraceError | None:
        """Return what says which tables were not written, and why; None: all were."""
        return self._waiting.error()

    @property
    def conditions(self) -> dict[TableName, str]:
        """The SQL that says which rows of some followed tables are mirrored."""
        return {name: table.where for name, table in self._writer.tables.items() if table.where}

    def check_reached(self, start: Mapping[str, Any]) -> None:
        """Make sure that the lake has all that lies before an offset, at which the next batch begins.

        Raises:
            HeadraceError: CONTINUITY: it was put back from an older copy than the query's checkpoint.
        """
        wanted, stream = Offset.from_json(start), self._positions.stream
        if stream is not None and Offset.from_json(stream).order >= wanted.order:
            return
        behind = [
            name
            for name, position in self._positions.tables.items()
            if position.complete < wanted.version and position.waits_for is None
        ]
        if behind:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the lake's table {behind[0]} lacks changes that the query's checkpoint counts as written",
                RELOAD,
            )

    def check_published(self, end: Mapping[str, Any]) -> None:
        """Make sure that the publication was as it is in an offset already when tables were looked at last.

        Tables are loaded in between, which may take hours.

        Raises:
            HeadraceError: PUBLICATION.
        """
        before, now = Published.from_json(self._positions.stream or {}), Published.from_json(end)
        what = None if before is None or now is None else before.lost(now)
        if what is not None:
            raise HeadraceError(
                Kind.PUBLICATION,
                f"the publication {self.config.publication!r} {what} while tables were loaded: what was "
                "written meanwhile is not in the log",
                "Start again: tables that may lack something are read anew.",
            )

    def write(self, batch: pa.Table, end: Mapping[str, Any], tables: Iterable[TableName]) -> None:
        """Write one batch to every table, then the positions.

        Args:
            batch: rows of `envelope=changes`.
            end: the offset at which it ends.
            tables: what `prepare` returned.
        """
        notes = dict(self._positions.tables)
        loaded = self._writer.apply(batch, tables, notes)
        self._positions = replace(self._positions, tables=notes)
        for name in self._waiting.tables:
            self._writer.tables.pop(name, None)
        self._note(end, loaded, only={*loaded, *self._writer.written, *self._tended})
        self._show(Phase.LIVE)
        self._tended = self._writer.written if len(batch) else ()
        self._upkeep.tend(self._tended)

    def _note(
        self,
        stream: Mapping[str, Any],
        loaded: Mapping[TableName, tuple[MirroredTable, Lsn]],
        only: Collection[TableName] | None = None,
    ) -> None:
        """Write down that all tables have reached an offset; only those of `only` may have new versions.

        One that waits stays where it was.
        """
        offset = Offset.from_json(stream)
        tables: dict[TableName, TablePosition] = dict(self._positions.tables)
        for name, (table, start) in loaded.items():
            leaves = table.leaves.after(tables[name].leaves, None) if name in tables else table.leaves
            tables[name] = TablePosition(0, start, table.relation, table.where, leaves=leaves)
        for name, position in tables.items():
            if name in self._waiting:
                tables[name] = replace(position, waits_for=self._waiting.tables[name].error.cause)
            elif position.waits_for is None:
                is_new = only is None or name in only or name in self._ahead
                tables[name] = self._reached(position, offset, self.lake.open(name) if is_new else None)
                tables[name] = self._described(tables[name], name)
        self._positions = LakePositions(tables, dict(stream))
        self._table.write(self._positions)
        if is_folder(self.lake.location):
            flush(self.lake.location)  # the slot may be confirmed behind this
        self.limit_confirmation(self.find_limit(offset.lsn))

    def _reached(self, position: TablePosition, offset: Offset, lake: LakeTable | None) -> TablePosition:
        """Return the position of a table that has reached an offset.

        Args:
            position: what was noted of it.
            offset: the offset.
            lake: the lake's table; None: it has no new version.
        """
        complete = max(position.complete, offset.lsn)
        is_whole = offset.transaction is None or position.complete >= offset.order[0]
        if lake is None:
            return replace(position, complete=complete, is_whole=is_whole)
        if known_position(lake)[0] >= complete:
            # a killed mirror wrote it, and not the others: readers have the version before
            self._ahead.add(lake.name)
            return replace(position, is_whole=is_whole)
        self._ahead.discard(lake.name)
        return replace(position, complete=complete, version=lake.version, is_whole=is_whole)

    def _described(self, position: TablePosition, name: TableName) -> TablePosition:
        """Return the position of a table with what is known of its columns and of parts ahead of it."""
        complete = position.complete
        ahead = tuple(part for part in position.ahead if part.start > complete)
        described = replace(
            position,
            # behind it, no change of the time before the alteration can come any more
            altered=position.altered if position.altered > complete else 0,
            former=position.former if position.altered > complete else Fingerprint(),
            ahead=ahead,
            is_whole=position.is_whole and not ahead,
        )
        table = self._writer.tables.get(name)
        if table is None:
            return described
        leaves = table.leaves.after(position.leaves, self._relations)
        return replace(described, leaves=leaves, catalog=table.catalog)

    def find_limit(self, reached: Lsn) -> Lsn:
        """Return up to where (bytes) the slot may be confirmed: not behind what waiting tables lack."""
        kept = [
            position.complete
            for name, position in self._positions.tables.items()
            if position.waits_for is not None
            and self._selection.keeps_log(name)
            and (self._budget is None or reached - position.complete <= self._budget)
        ]
        return min(kept, default=_NO_LIMIT)
