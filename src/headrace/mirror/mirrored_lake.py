"""Keep a lake that holds some of a database's tables: load what is not loaded, write what was changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.capture import LogOrigin, Offset
from headrace.capture.continuity import LogPositions, check_continuity, read_positions
from headrace.config.mirror import MirrorConfig, is_folder
from headrace.datasources.publication_membership import Published, read_published
from headrace.errors import HeadraceError, Kind
from headrace.mirror.drift import may_have_drifted
from headrace.mirror.files import flush
from headrace.mirror.formats import open_lake
from headrace.mirror.lake import Lake, known_position, reaching
from headrace.mirror.load_units import UnitLoader, load_in_threads
from headrace.mirror.plan import MirrorPlan, make_plan, read_sizes, total
from headrace.mirror.positions import LakePositions, PositionsTable, TablePosition
from headrace.mirror.spark_loading import ExecutorLoader
from headrace.mirror.table_checks import check_columns, check_excluded, check_tables
from headrace.mirror.tables import MirroredTable, Selection
from headrace.mirror.upkeep import LakeUpkeep
from headrace.mirror.verify import LakeComparer
from headrace.mirror.writing import LakeWriter
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.model.table_pattern import format_table
from headrace.postgres.connection import connect
from headrace.postgres.provision import prepare_slot
from headrace.postgres.publication_filters import PublicationFilter, PublicationRequirements
from headrace.postgres.replication import replication_connection
from headrace.postgres.session import ReadSession
from headrace.reporter import Reporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RELOAD = (
    "Run `headrace mirror --reload`, or remove the lake's table headrace_positions before the next start: "
    "all tables are read anew then."
)
WATCH_SECONDS = 10.0
"""How often a mirror looks whether tables were created, dropped or altered."""


def _sent_ever_since(stream: Mapping[str, Any], now: Published) -> Callable[[TableName], bool]:
    """Return what tells whether the publication has sent a table all the time since an offset was stored."""
    before = Published.from_json(stream)
    if before is None:
        return lambda _: True
    if before.altered != now.altered:
        return lambda _: False
    members = before.members

    def is_sent(name: TableName) -> bool:
        text = format_table(name)
        return text not in members or now.members.get(text) == members[text]

    return is_sent


class MirroredLake:
    """A lake that holds some of a database's tables.

    Args:
        url: the database.
        config: what is mirrored, and where to.
        report: is told what happens.
    """

    def __init__(self, url: str, config: MirrorConfig, report: Reporter) -> None:
        self._url = url
        self._config = config
        self._report = report
        self._selection = Selection(config)
        self._positions = LakePositions()
        self._tended: Collection[TableName] = ()
        self._ahead: set[TableName] = set()
        self._write_to(open_lake(config), load_in_threads)

    def _write_to(self, lake: Lake, load_units: UnitLoader) -> None:
        config = self._config
        self.lake = lake
        self._table = PositionsTable(lake, config.slot)
        self._writer = LakeWriter(
            self._url, config.slot, self._selection, lake, self._report, load_units=load_units
        )
        self._upkeep = LakeUpkeep(lake, config, self._report)

    def use(self, session: SparkSession) -> None:
        """Let a session do the heavy work from now on, where the file says `engine = "spark"`.

        Raises:
            HeadraceError: DEPENDENCY, where it cannot.
        """
        if self._config.engine == "spark":
            self._write_to(open_lake(self._config, session), ExecutorLoader(session))

    @property
    def slot(self) -> str:
        """The name of the replication slot."""
        return self._config.slot

    def comparer(self) -> LakeComparer:
        """Return what compares the lake with the database."""
        return LakeComparer(
            self._url,
            slot=self._config.slot,
            publication=self._config.publication,
            selection=self._selection,
            lake=self.lake,
            positions=self._table,
        )

    def set_up(self) -> None:
        """Make publication and slot, where they are missing."""
        config = self._config
        tables = self._read_tables()
        requirements = {
            name: PublicationRequirements(selection=PublicationFilter(rows=table.where))
            for name, table in tables.items()
            if table.where is not None
        }
        prepare_slot(
            self._url,
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
        tables = self._read_tables()
        with reaching(self.lake), ReadSession(self._url) as session:
            known = self._table.read().tables
            check_excluded(tables, known)
            return make_plan(
                session, tables, known, publication=self._config.publication, slot=self._config.slot
            )

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
        now = self._read_log()
        stream = known.stream
        if stream is None:
            assert now.confirmed is not None
            stream = Offset(now.confirmed).to_json() | now.origin.to_json()
        else:
            self._check_log(now, stream, known)
        tables = self._read_tables()
        check_excluded(tables, known.tables)
        published = self._read_published([*tables])
        sent = _sent_ever_since(stream, published)
        same = {
            name: position
            for name, position in known.tables.items()
            if name in tables and position.relation == tables[name].relation and sent(name)
        }
        stream = dict(stream) | published.to_json()
        fitting = {name: table for name, table in tables.items() if name in same}
        again = self._writer.follow_alterations(fitting, same)
        missing = [name for name in tables if name not in same or name in again]
        self._positions = LakePositions(same, stream)
        self._writer.tables = {name: tables[name] for name in same if name not in again}
        if missing:
            with ReadSession(self._url) as session:
                sizes = read_sizes(session, missing)
            self._report.info(f"{len(missing)} of {len(tables)} tables to load: {total(sizes.values())}")
        for name, loaded in self._writer.loader.load(missing) if missing else ():
            self._writer.tables[name], _ = loaded
            self._note(stream, {name: loaded}, only={name})  # a killed load goes on with the next table
        self._note(stream, {})
        return list(self._writer.tables)

    def _read_tables(self) -> dict[TableName, MirroredTable]:
        with ReadSession(self._url) as session:
            tables = self._selection.read(session, self._selection.find(session))
        check_tables(tables.values())
        check_columns(tables.values())
        return tables

    def _read_published(self, names: Sequence[TableName]) -> Published:
        with connect(self._url) as connection:
            return read_published(connection, self._config.publication, names)

    def _read_log(self) -> LogPositions:
        with replication_connection(self._url, "headrace look") as connection:
            return read_positions(connection, self._config.slot, self._config.publication)

    def _check_log(self, now: LogPositions, stream: Mapping[str, Any], known: LakePositions) -> None:
        offset = Offset.from_json(stream)
        highest = max((self._read_reached(name, known.tables[name]) for name in known.tables), default=0)
        try:
            check_continuity(now, self._config.slot, offset.lsn, LogOrigin.from_json(stream), known=highest)
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
        with ReadSession(self._url) as session:
            now = self._selection.read(session, self._selection.find(session))
        followed = self._writer.tables
        return {name: (one.relation, one.schema) for name, one in now.items()} != {
            name: (one.relation, one.schema) for name, one in followed.items()
        } or any(may_have_drifted(followed[name].catalog, table.catalog) for name, table in now.items())

    def check_reached(self, start: Mapping[str, Any]) -> None:
        """Make sure that the lake has all that lies before an offset, at which the next batch begins.

        Raises:
            HeadraceError: CONTINUITY: it was put back from an older copy than the query's checkpoint.
        """
        wanted, stream = Offset.from_json(start), self._positions.stream
        if stream is not None and Offset.from_json(stream).order >= wanted.order:
            return
        behind = [name for name, one in self._positions.tables.items() if one.complete < wanted.version]
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
                f"the publication {self._config.publication!r} {what} while tables were loaded: what was "
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
        loaded = self._writer.apply(batch, tables, self._positions.tables)
        self._note(end, loaded, only={*loaded, *self._writer.written, *self._tended})
        self._tended = self._writer.written if len(batch) else ()
        self._upkeep.tend(self._tended)

    def _note(
        self,
        stream: Mapping[str, Any],
        loaded: Mapping[TableName, tuple[MirroredTable, Lsn]],
        only: Collection[TableName] | None = None,
    ) -> None:
        """Write down that all tables have reached an offset; only those of `only` may have new versions."""
        offset = Offset.from_json(stream)
        tables_now = self._writer.tables
        tables: dict[TableName, TablePosition] = dict(self._positions.tables)
        for name, (table, start) in loaded.items():
            tables[name] = TablePosition(0, start, table.relation, table.files, table.where)
        for name, position in tables.items():
            is_new = only is None or name in only or name in self._ahead
            lake = self.lake.open(name) if is_new else None
            complete = max(position.complete, offset.lsn)
            version = position.version if lake is None else lake.version
            is_ahead = lake is not None and known_position(lake)[0] >= complete
            if is_ahead:  # a killed mirror wrote it, and not the others: readers have the version before
                complete, version = position.complete, position.version
                self._ahead.add(name)
            else:
                self._ahead.discard(name)
            tables[name] = replace(
                position,
                version=version,
                complete=complete,
                is_whole=offset.transaction is None or position.complete >= offset.order[0],
                highest=tables_now[name].highest if name in tables_now else position.highest,
                catalog=tables_now[name].catalog if name in tables_now else position.catalog,
            )
        self._positions = LakePositions(tables, dict(stream))
        self._table.write(self._positions)
        if is_folder(self.lake.location):
            flush(self.lake.location)  # the slot may be confirmed behind this
