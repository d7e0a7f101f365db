"""Let a Spark session's own Delta do a table's heavy work, on its executors.

The driver's `deltalake` reads the tables' logs and makes all other commits. A session writes one `txn` action
with a commit, too few for a position: its commits have that in their `userMetadata` (`delta_commits`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import BooleanType, StructField, StructType

from headrace.errors import HeadraceError, Kind, unexpected
from headrace.mirror.delta_commits import SPARK_VERSION, find_noted, keep_position, note, refused
from headrace.mirror.delta_engine import Merge
from headrace.mirror.lake import POSITIONS
from headrace.mirror.net_changes import Position
from headrace.model.failpoints import reach
from headrace.model.names import TableName
from headrace.model.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = "headrace_rows"
_DELTA = "spark.databricks.delta."
_SETTINGS: Mapping[str, str] = {
    # A conflict is an error: retried, a merge would come after a writer whose rows may be newer.
    _DELTA + "maxCommitAttempts": "0",
    _DELTA + "schema.autoMerge.enabled": "false",
    _DELTA + "write.txnAppId": SPARK_VERSION,
    # A table's log is read by so many tasks; Delta's 50 take seconds.
    _DELTA + "snapshotPartitions": "2",
    # A query's session has it off.
    "spark.sql.adaptive.enabled": "true",
    # Spark's INT96 is read by most as nanoseconds, which end with the year 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.session.timeZone": "UTC",
    # A column may be called ${so}.
    "spark.sql.variable.substitute": "false",
}


class SparkEngine:
    """A session's Delta.

    Args:
        session: stays as it is; the work is done in another session of its Spark, with its settings.

    Raises:
        HeadraceError: DEPENDENCY, where the session has no Delta.
    """

    def __init__(self, session: SparkSession) -> None:
        self._given = session
        self._session = session.newSession()
        conf = self._session.conf
        known = conf.getAll
        for name, value in session.conf.getAll.items():
            # such as an object store's `fs.…`, which no part of Spark declares
            is_free = conf.isModifiable(name) or not name.startswith("spark.")
            if is_free and known.get(name) != value:
                conf.set(name, value)
        for name, value in _SETTINGS.items():
            conf.set(name, value)

    def merge(self, name: TableName, delta: DeltaTable, merge: Merge, position: Position) -> None:
        """Bring rows into a table, in one commit; a second one keeps the position.

        Raises:
            HeadraceError: CONTINUITY, where another program has written the table meanwhile;
                SINK_UNREACHABLE or SPARK, what the session refuses of every table.
            OSError: what it refuses of this one.
        """
        version, text = int(delta.version()), note(position)
        self._session.conf.set(_DELTA + "commitInfo.userMetadata", text)
        # Delta leaves a write out whose txnVersion is not above the last one; a table's version grows.
        self._session.conf.set(_DELTA + "write.txnVersion", str(version + 1))
        reach("mirror_commit")
        failure = None
        try:
            with self._rows(delta, merge.rows):
                self._session.sql(_sql(delta, merge))
        except (PySparkException, Py4JError) as error:
            failure = error
        after = DeltaTable(delta.table_uri)
        # Spark's answer does not count, the log does: an error may hide a commit, and a commit another's.
        made = find_noted(after, text, version)
        if made != version + 1:
            raise self._refusal(name, after, version, failure)
        reach("mirror_committed")
        with contextlib.suppress(CommitFailedError):  # somebody else's commit: the next merge's tells
            keep_position(after, position)

    @contextlib.contextmanager
    def _rows(self, delta: DeltaTable, rows: pa.Table) -> Iterator[None]:
        """Let SQL see rows under the name `_ROWS`."""
        columns = StructType.fromJson(json.loads(delta.schema().to_json())).fields
        kinds = {column.name: column.dataType for column in columns}
        fields = [StructField(name, kinds.get(name, BooleanType())) for name in rows.column_names]
        try:
            frame = self._session.createDataFrame(rows, StructType(fields))
            frame.createOrReplaceTempView(_ROWS)
            yield
        finally:
            self._session.catalog.dropTempView(_ROWS)
            # The session that makes a frame is the active one from then on.
            self._given.createDataFrame(pa.table({"a": pa.array([], pa.int64())}))

    def join_files(self, name: TableName, delta: DeltaTable, target_bytes: int) -> tuple[int, int]:
        """Join small files to such of about `target_bytes`, in one commit; return how many became how many.

        Raises:
            HeadraceError: CONTINUITY where another writer was faster; SINK_UNREACHABLE or SPARK.
            OSError: as of `merge`.
        """
        self._session.conf.set(_DELTA + "optimize.maxFileSize", str(target_bytes))
        self._session.conf.set(_DELTA + "optimize.minFileSize", str(target_bytes // 2))
        # Under the last merge's note this commit would pass for that merge.
        self._session.conf.unset(_DELTA + "commitInfo.userMetadata")
        version = int(delta.version())
        try:
            [done] = self._session.sql(f"OPTIMIZE delta.{quoted(_path(delta))}").collect()
        except (PySparkException, Py4JError) as error:
            raise self._refusal(name, DeltaTable(delta.table_uri), version, error) from error
        return int(done.metrics.numFilesRemoved), int(done.metrics.numFilesAdded)

    def _refusal(
        self, name: TableName, after: DeltaTable, version: int, error: Exception | None
    ) -> HeadraceError | OSError:
        """Return the error of a commit that was not made, or not right after the version before it.

        An OSError, as where files are damaged, where the session reads another table of the lake.
        """
        if error is None:
            error = RuntimeError(f"version {version + 1} is not this mirror's")
            # The commit may have been made after another's, which alone counts.
            following = DeltaTable(after.table_uri, version=min(version + 1, after.version()))
            return refused(name, following, version, error)
        if after.version() > version:
            return refused(name, after, version, _told(error))
        what = f"Spark did not write the lake's table {name}"
        if isinstance(error, AnalysisException):
            failure = unexpected(what, error, Kind.SPARK)
        else:
            failure = unexpected(what, _told(error), Kind.SINK_UNREACHABLE)
        # Each table is in SCHEMA/TABLE.
        positions = f"{_path(after).rsplit('/', 2)[0]}/{POSITIONS.name}"
        with contextlib.suppress(PySparkException, Py4JError):
            self._session.sql(f"SELECT slot FROM delta.{quoted(positions)}").collect()  # noqa: S608 - quoted
            return OSError(failure.cause)
        return failure


def _sql(delta: DeltaTable, merge: Merge) -> str:
    """Return the statement."""
    matched = [(merge.is_deleted, "DELETE")] if merge.is_deleted is not None else []
    for which, values in merge.updates:
        updated = ", ".join(f"old.{quoted(name)} = {value}" for name, value in values.items())
        matched.append((which, f"UPDATE SET {updated}"))
    parts = (
        f"MERGE INTO delta.{quoted(_path(delta))} AS old USING {_ROWS} AS new ON {merge.is_same}",
        *(f"WHEN MATCHED AND {which} THEN {action}" for which, action in matched),
        f"WHEN NOT MATCHED AND {merge.is_inserted}",
        f"THEN INSERT ({', '.join(map(quoted, merge.inserted))})",
        f"VALUES ({', '.join(merge.inserted.values())})",
    )
    return " ".join(parts)


def _path(delta: DeltaTable) -> str:
    """Return a table's place as Spark calls it: without percent signs for other characters."""
    uri = unquote(delta.table_uri.rstrip("/"))
    return f"s3a://{uri.removeprefix('s3://')}" if uri.startswith("s3://") else uri


def _told(error: Exception) -> Exception:
    """Return what Java says: PySpark does not know Delta's errors."""
    text = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    return RuntimeError(text.strip().partition("\n")[0])
