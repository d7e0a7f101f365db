"""Run a mirror: bring its lake into shape, and follow the log into it by a Spark query of its own."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyspark
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from headrace.capture import Offset
from headrace.capture.signals import SignalFiles
from headrace.config.deployment import Deployment
from headrace.config.resolve import resolve_mirror
from headrace.errors import POLICIES, HeadraceError, Kind, Patience, Retry
from headrace.mirror.lake import reaching
from headrace.mirror.loading import LoadStoppedError
from headrace.mirror.mirrored_lake import WATCH_SECONDS, MirroredLake
from headrace.mirror.source_log import remedy_of_mirrors
from headrace.model.names import TableName
from headrace.model.table_pattern import format_table
from headrace.model.units import quantity
from headrace.postgres.address import for_slot
from headrace.postgres.connection import connect
from headrace.postgres.ddl_plan import LockTimeoutError
from headrace.postgres.lock_holders import LockedError
from headrace.postgres.locks import SlotLock
from headrace.postgres.session import ReadSession
from headrace.postgres.slot import drop_slot, read_slot, slot_problem
from headrace.postgres.wal_position import end_of_commits
from headrace.reporter import Reporter
from headrace.spark import register
from headrace.spark.environment import passes_position
from headrace.spark.failures import spark_failures
from headrace.spark.lake_runtimes import DELTA, ICEBERG
from headrace.spark.query_folders import make_folder
from headrace.spark.session import LocalSpark
from headrace.status.phases import Phase

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_BATCH_BYTES = 64 << 20
_POLL_SECONDS = 0.2
_QUIET_SECONDS = 60.0
_LONGEST_WAIT = 30.0
_MOST_FAILURES = 3
# A start finds the tables that these concern: it reads them again, or they wait alone.
_OF_TABLES = frozenset({Kind.PUBLICATION, Kind.REPLICA_IDENTITY})
_STOP_SECONDS = 8.0
"""So long a mirror that is asked to end waits for a batch; the next start repeats it."""
_OTHER_ENDS_WITHIN = 60.0
"""So long (seconds) a start waits for another mirror of its slot that ends."""


def end_query(query: StreamingQuery, stopping: threading.Event) -> None:
    """End a query once the batch that is being written is done.

    Spark gives a batch some seconds and raises an error then, though nothing has failed: a large table, or a
    lake far away, takes longer.
    """
    began = time.monotonic()
    while query.isActive:
        try:
            query.stop()
        except (PySparkException, Py4JJavaError):
            if stopping.is_set() and time.monotonic() > began + _STOP_SECONDS:
                return


def open_mirror(deployment: Deployment, report: Reporter, stopping: threading.Event) -> MirrorRun:
    """Return the mirror of a deployment file; nothing is opened yet.

    Raises:
        HeadraceError: CONFIG: the file has no `[mirror]`, or a variable is not set.
    """
    if deployment.mirror is None:
        remedy = "Say which tables go where: see docs/guides/mirror.md."
        raise HeadraceError(Kind.CONFIG, f"{deployment.file}: there is no [mirror]", remedy)
    database, config = resolve_mirror(deployment)
    url = for_slot(database.reveal(), config.slot, tuple(deployment.source.password_command or ()))
    lake = MirroredLake(url, config, report, stopping, deployment.source.wal_budget)
    return MirrorRun(lake, report, stopping)


class MirrorRun:
    """The query that follows the log into a lake.

    Args:
        mirrored: the lake's tables.
        report: is told what happens.
        stopping: ends `run`.

    Attributes:
        mirrored: the lake's tables.
    """

    def __init__(self, mirrored: MirroredLake, report: Reporter, stopping: threading.Event) -> None:
        self.mirrored = mirrored
        self._config = mirrored.config
        self._url = mirrored.url
        self._report = report
        self._stopping = stopping
        self._must_reload = False

    def session_settings(self, given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a session of Headrace's own: `given`, and what the engine needs.

        Raises:
            HeadraceError: DEPENDENCY, where it does not run on this PySpark; DISK or DOWNLOAD.
        """
        if self._config.engine == "local":
            return dict(given)
        runtime = ICEBERG if self._config.format == "iceberg" else DELTA
        return runtime.with_settings(given, environ)

    def run(self, spark: LocalSpark, *, once: bool = False, reload: bool = False) -> None:
        """Load what is not loaded, then follow until stopped; with `once` up to the log's present end.

        Args:
            spark: the session.
            once: end when everything is written that was committed before.
            reload: read all tables again first.

        Raises:
            HeadraceError: what the database, the lake or Spark refuse; with `once` also why tables wait,
                after all others are written, and BEHIND where it was stopped before that.
        """
        register(spark.session)
        self.mirrored.waiting.tries_again = not once
        lock = SlotLock(self._url, self._config.slot)
        with contextlib.ExitStack() as held:
            # Not entered: `_hold` takes it, and waits for another mirror that is ending.
            held.push(lock)
            self._must_reload = reload
            self._run(spark, lock, once=once)
        if once and self._stopping.is_set():
            cause = "the mirror was stopped before everything that was committed was in the lake"
            raise HeadraceError(Kind.BEHIND, cause, "Start it again: it goes on where it ended.")

    def _run(self, spark: LocalSpark, lock: SlotLock, *, once: bool) -> None:
        failures, patience = 0, Patience()
        while True:
            began = time.monotonic()
            try:
                self._try(spark, lock, once=once)
            except LoadStoppedError:
                return
            except HeadraceError as failure:
                is_calm = time.monotonic() > began + _QUIET_SECONDS
                if is_calm:
                    patience.forget()
                error = patience.judge(failure)
                if once or not self._can_go_on(error, failures):
                    error.remedy = remedy_of_mirrors(error.remedy)
                    raise error from failure.__cause__
                failures = 1 if is_calm else failures + 1
                seconds = min(_LONGEST_WAIT, 2.0**failures)
                self._report.warning(f"trying again in {seconds:.0f} s: {error}")
                self.mirrored.board.show(Phase.DEGRADED, error=error)
                self._stopping.wait(seconds)
            if once or self._stopping.is_set():
                return

    def _try(self, spark: LocalSpark, lock: SlotLock, *, once: bool) -> None:
        """Do what `run` says, until something fails that concerns all tables."""
        self._hold(lock)
        self.mirrored.use(spark.session)
        if self._must_reload:
            self._forget_all()
            # Once: a later try would read again what was loaded.
            self._must_reload = False
        self.mirrored.set_up()
        with reaching(self.mirrored.lake):
            tables = self.mirrored.prepare()
        if tables:
            try:
                self._follow(spark, tables, once=once)
            except HeadraceError as error:
                if error.kind not in {Kind.BINDING, Kind.SCHEMA_CHANGED}:
                    raise
                # A table was dropped since they were looked at, or renamed.
                remedy = "The next start looks at the tables again."
                raise HeadraceError(Kind.PUBLICATION, error.cause, remedy) from error
        elif not once:
            self._watch(lambda: False)
        waiting = self.mirrored.waiting.error()
        if once and waiting is not None:
            raise waiting

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
        """Tell whether a new start may help."""
        is_passing = POLICIES[error.kind].retry is Retry.BACK_OFF or isinstance(error, LockTimeoutError)
        return is_passing or (error.kind in _OF_TABLES and failures < _MOST_FAILURES)

    def _forget_all(self) -> None:
        """Forget up to where the tables have the log, and drop the slot: all are read after a new one."""
        # In this order: positions of a slot that is gone would be a gap in the log.
        with reaching(self.mirrored.lake):
            self.mirrored.notes.forget()
        with connect(self._url) as connection:
            facts = read_slot(connection, self._config.slot)
            problem = None if facts is None else slot_problem(facts, connection.info.dbname)
            # Another problem says that it is not the mirror's own.
            if problem is None or problem.kind is Kind.SLOT_LOST:
                drop_slot(connection, self._config.slot)

    @spark_failures()
    def _follow(self, spark: LocalSpark, tables: Sequence[TableName], *, once: bool) -> None:
        """Follow the log until stopped, or until tables were added, dropped or altered."""
        config, notes = self._config, self.mirrored.notes
        # Each query has a new checkpoint: the position stands in the lake, and nowhere else.
        folder = make_folder(spark.scratch)
        ending = threading.Event()
        signals = SignalFiles(folder)
        notes.limit_confirmation = signals.set_confirm_limit
        # Where no limit is set, nothing may be confirmed.
        notes.limit_confirmation(notes.find_limit(0))

        def write(batch: DataFrame, _number: int) -> None:
            arrow = batch.toArrow()
            # Spark plans the next batch only once this one is written.
            end = signals.planned_end()
            assert end is not None, "its rows were read, so it was planned"
            notes.check_published(end)
            with reaching(self.mirrored.lake):
                self.mirrored.write(arrow, end, tables)
            if once and len(arrow):
                self._report.info(f"{quantity(len(arrow), 'change')} read from the log")
            # After a large batch more is waiting; after a small one a pause saves commits.
            if arrow.nbytes < _BATCH_BYTES // 4 and not once:
                ending.wait(config.interval_seconds)

        where = self.mirrored.conditions
        changes = (
            spark.session.readStream.format("postgres_cdc")
            .options(
                url=self._url,
                slot=config.slot,
                publication=config.publication,
                tables=", ".join(map(format_table, tables)),
                envelope="changes",
                # From the slot's position: what the lake has already is known by the position in its tables.
                startingOffsets="earliest",
                unchangedToast="mark",
                onUnloggedChange="ignore",  # it reads tables again itself
                maxBytesPerTrigger=str(_BATCH_BYTES),
                confirmFolder=str(signals.folder),
                **({"where": json.dumps(where)} if where else {}),
            )
            .load()
        )
        checkpoint = str(folder / "checkpoint")
        writer = changes.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        # On a slow machine nothing more is said for half a minute.
        up_to = "catching up: Spark starts, then reads the log of" if once else "following"
        self._report.info(f"{up_to} {quantity(len(tables), 'table')}")
        try:
            for query in self._start_up_to_end(writer, signals) if once else [writer.start()]:
                self._await_end(query, ending, looks=not once)
        finally:
            notes.limit_confirmation = lambda _: None  # its folder is removed

    def _await_end(self, query: StreamingQuery, ending: threading.Event, *, looks: bool) -> None:
        """Wait as `_watch` does until a query has ended, or end it."""
        try:
            self._watch(lambda: not query.isActive, looks=looks)
            if not query.isActive and not self._stopping.is_set():
                query.awaitTermination()  # raises what ended it
        finally:
            ending.set()
            end_query(query, self._stopping)

    def _start_up_to_end(self, writer: DataStreamWriter, signals: SignalFiles) -> Iterator[StreamingQuery]:
        """Start the query that reads up to the log's present end; on an older PySpark one for each batch."""
        if passes_position(pyspark.__version__):
            yield writer.trigger(availableNow=True).start()
            return
        with ReadSession(self._url) as session:
            end = end_of_commits(session.query)
        before = None
        # A query confirms what the one before has read, so there is one more after the end.
        while not self._stopping.is_set():
            yield writer.trigger(once=True).start()
            planned = signals.planned_end()
            if planned == before or (before is not None and Offset.from_json(before).order[0] >= end):
                return
            before = planned

    def _watch(self, has_ended: Callable[[], bool], *, looks: bool = True) -> None:
        """Return once stopped or `has_ended`; where it `looks`, also once tables must be prepared again."""
        watched = time.monotonic()
        while not self._stopping.wait(_POLL_SECONDS) and not has_ended():
            if looks and time.monotonic() > watched + WATCH_SECONDS:
                watched = time.monotonic()
                try:
                    if self.mirrored.is_altered():
                        return
                except LockedError as error:  # what was committed is followed all the same
                    self._report.warning(f"{error.cause}; looking again in {WATCH_SECONDS:.0f} s")
