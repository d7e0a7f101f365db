"""Run a mirror: find the tables, load what is not loaded, follow the log."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.capture import LogOrigin, Offset
from headrace.capture.continuity import LogPositions, check_continuity, read_positions
from headrace.config.deployment import Deployment
from headrace.config.mirror import MirrorConfig, is_folder
from headrace.config.resolve import resolve_mirror
from headrace.datasources.publication_membership import Published, read_published
from headrace.errors import BACKFILL_AGAIN, POLICIES, HeadraceError, Kind, Retry
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
from headrace.postgres.address import for_slot
from headrace.postgres.connection import connect
from headrace.postgres.ddl_plan import LockTimeoutError
from headrace.postgres.locks import SlotLock
from headrace.postgres.provision import prepare_slot
from headrace.postgres.publication_filters import PublicationFilter, PublicationRequirements
from headrace.postgres.replication import replication_connection
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import drop_slot, read_slot, slot_problem
from headrace.reporter import Reporter, SilentReporter
from headrace.spark import register
from headrace.spark.delta import with_delta
from headrace.spark.failures import spark_failures
from headrace.spark.session import LocalSpark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_BYTES = 64 << 20
WATCH_SECONDS = 10.0
"""How often a mirror looks whether tables were created, dropped or altered."""
_POLL_SECONDS = 0.2
_QUIET_SECONDS = 60.0
_LONGEST_WAIT = 30.0
_MOST_FAILURES = 3
_RELOAD = (
    "Run `headrace mirror --reload`, or remove the lake's table headrace_positions before the next start: "
    "all tables are read anew then."
)
_OTHER_ENDS_WITHIN = 60.0
"""So long (seconds) a start waits for another mirror of its slot that ends."""


def open_mirror(deployment: Deployment, report: Reporter, stopping: threading.Event) -> MirrorRun:
    """Return the mirror of a deployment file; nothing is opened yet.

    Raises:
        HeadraceError: CONFIG: the file has no `[mirror]`, or a variable is not set.
    """
    if deployment.mirror is None:
        raise HeadraceError(
            Kind.CONFIG,
            f"{deployment.file}: there is no [mirror]",
            "Say which tables go where: see docs/mirror.md.",
        )
    database, config = resolve_mirror(deployment)
    password_command = tuple(deployment.source.password_command or ())
    return MirrorRun(for_slot(database.reveal(), config.slot, password_command), config, report, stopping)


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


def open_comparer(deployment: Deployment) -> LakeComparer:
    """Return what compares the lake of a deployment file with its database.

    Raises:
        HeadraceError: as for `open_mirror`.
    """
    return open_mirror(deployment, SilentReporter(), threading.Event()).comparer()


class MirrorRun:
    """A lake that holds some of a database's tables.

    Args:
        url: the database.
        config: what is mirrored, and where to.
        report: is told what happens.
        stopping: ends `run`.
    """

    def __init__(self, url: str, config: MirrorConfig, report: Reporter, stopping: threading.Event) -> None:
        self._url = url
        self._config = config
        self._report = report
        self._stopping = stopping
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

    def session_settings(self, given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a session of Headrace's own: `given`, and what the engine needs.

        Raises:
            HeadraceError: DEPENDENCY, where it does not run on this PySpark; DISK or DOWNLOAD.
        """
        return with_delta(given, environ) if self._config.engine == "spark" else dict(given)

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

    def run(self, spark: LocalSpark, *, once: bool = False, reload: bool = False) -> None:
        """Load what is not loaded, then follow until stopped; with `once` up to the log's present end.

        Args:
            spark: the session.
            once: end when everything is written that was committed before.
            reload: read all tables anew first.

        Raises:
            HeadraceError: what the database, the lake or Spark refuse.
        """
        register(spark.session)
        self.use(spark.session)
        lock = SlotLock(self._url, self._config.slot)
        with contextlib.ExitStack() as held:
            held.push(lock)
            self._run(spark, lock, once=once, reload=reload)

    def _run(self, spark: LocalSpark, lock: SlotLock, *, once: bool, reload: bool) -> None:
        failures = 0
        for start in itertools.count(1):
            began = time.monotonic()
            try:
                self._hold(lock)
                if reload:
                    self._drop_lost_slot()
                self.set_up()
                with reaching(self.lake):
                    tables = self.prepare(reload=reload)
                reload = False
                self._follow(spark, tables, spark.scratch / f"mirror-{start}", once=once)
            except HeadraceError as error:
                if once or not self._can_go_on(error, failures):
                    raise self._with_own_advice(error) from error.__cause__
                failures = 1 if time.monotonic() > began + _QUIET_SECONDS else failures + 1
                seconds = min(_LONGEST_WAIT, 2.0**failures)
                self._report.warning(f"{error.cause}; trying again in {seconds:.0f} s")
                self._stopping.wait(seconds)
            if once or self._stopping.is_set():
                return

    def _hold(self, lock: SlotLock) -> None:
        """Keep other mirrors of the slot away, which nobody reads while tables are loaded.

        Raises:
            HeadraceError: SLOT_IN_USE; CONNECTION, DATABASE.
        """
        end = time.monotonic() + _OTHER_ENDS_WITHIN
        while (other := lock.lost_to()) is not None:
            if time.monotonic() > end or self._stopping.wait(_POLL_SECONDS):
                raise other

    @staticmethod
    def _can_go_on(error: HeadraceError, failures: int) -> bool:
        """Tell whether a new start may help; it loads tables that were made anew, or left the publication."""
        is_passing = POLICIES[error.kind].retry is Retry.BACK_OFF or isinstance(error, LockTimeoutError)
        return is_passing or (error.kind is Kind.PUBLICATION and failures < _MOST_FAILURES)

    def _with_own_advice(self, error: HeadraceError) -> HeadraceError:
        """Return an error that says what to do with a mirror, where it says so of documents."""
        text = str(error).removeprefix(f"[{error.code}] ")
        if BACKFILL_AGAIN not in text:
            return error
        remedy = _RELOAD
        if error.kind is Kind.PUBLICATION:  # the slot is older than any publication that is made now
            remedy = f"Run `headrace slots drop {self.slot}`, then `headrace mirror --reload`."
        return HeadraceError(error.kind, text.replace(BACKFILL_AGAIN, remedy).rstrip("."))

    def _drop_lost_slot(self) -> None:
        """Drop the slot where the server has removed its log, so that it can be made again."""
        with connect(self._url) as connection:
            facts = read_slot(connection, self.slot)
            problem = None if facts is None else slot_problem(facts, connection.info.dbname)
            if problem is not None and problem.kind is Kind.SLOT_LOST:
                drop_slot(connection, self.slot)

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
            raise HeadraceError(error.kind, error.cause, _RELOAD) from error

    def _read_reached(self, name: TableName, position: TablePosition) -> Lsn:
        """Return up to where (bytes) a table has the log; a killed batch may have written it alone.

        A promoted standby may lack just what that batch had.
        """
        lake = self.lake.open(name)
        written = None if lake is None else lake.position
        return position.complete if written is None else max(position.complete, written[0] + 1)

    @spark_failures()
    def _follow(
        self, spark: LocalSpark, tables: Sequence[TableName], checkpoint: Path, *, once: bool
    ) -> None:
        """Follow the log until stopped, or until tables were added, dropped or altered."""
        config = self._config
        ending = threading.Event()

        def write(batch: DataFrame, number: int) -> None:
            arrow = batch.toArrow()
            end = json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[-1])
            self.check_published(end)
            with reaching(self.lake):
                self.write(arrow, end, tables)
            if arrow.nbytes < _BATCH_BYTES // 4 and not once:
                self._pause(ending, config.interval_seconds)

        changes = (
            spark.session.readStream.format("postgres_cdc")
            .options(
                url=self._url,
                slotName=config.slot,
                publicationName=config.publication,
                tables=", ".join(map(format_table, tables)),
                envelope="changes",
                startingOffsets="earliest",
                unchangedToast="mark",
                maxBytesPerTrigger=str(_BATCH_BYTES),
                **self._conditions(),
            )
            .load()
        )
        writer = changes.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        query = (writer.trigger(availableNow=True) if once else writer).start()
        self._report.info(f"following {len(tables)} tables")
        try:
            watched = time.monotonic()
            while not self._stopping.wait(_POLL_SECONDS) and query.isActive:
                if not once and time.monotonic() > watched + WATCH_SECONDS:
                    watched = time.monotonic()
                    if self.is_altered():
                        break
            if not query.isActive:
                query.awaitTermination()  # raises what ended it
        finally:
            ending.set()
            query.stop()

    def _conditions(self) -> dict[str, str]:
        """Return the option that says which rows are followed, where not all are."""
        chosen = {
            format_table(name): table.where for name, table in self._writer.tables.items() if table.where
        }
        return {"where": json.dumps(chosen)} if chosen else {}

    def _pause(self, ending: threading.Event, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not ending.wait(_POLL_SECONDS) and not self._stopping.is_set():
            pass

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
                _RELOAD,
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
