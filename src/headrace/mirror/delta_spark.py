"""Let a Spark session's own Delta do a table's heavy work, on its executors.

The driver's `deltalake` reads the tables' logs and makes all other commits. A session writes one `txn` action
with a commit, too few for a position: its commits have that in their `userMetadata` (`delta_commits`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import StructType

from headrace.errors import HeadraceError
from headrace.mirror.delta_commits import SPARK_VERSION, find_noted, keep_position, note, refused
from headrace.mirror.lake import POSITIONS, reaching_commit
from headrace.mirror.merge_session import SPARK_ERRORS, MergeSession, told
from headrace.mirror.merging import Merge
from headrace.mirror.net_changes import Position
from headrace.model.names import TableName
from headrace.model.types import quoted
from headrace.spark.lake_runtimes import DELTA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELTA = "spark.databricks.delta."
_SETTINGS: Mapping[str, str] = {
    # A conflict is an error: retried, a merge would come after a writer whose rows may be newer.
    _DELTA + "maxCommitAttempts": "0",
    _DELTA + "schema.autoMerge.enabled": "false",
    _DELTA + "write.txnAppId": SPARK_VERSION,
    # A table's log is read by so many tasks; Delta's 50 take seconds.
    _DELTA + "snapshotPartitions": "2",
}


class DeltaSparkEngine:
    """A session's Delta.

    Args:
        session: stays as it is; the work is done in another session of its Spark, with its settings.

    Raises:
        HeadraceError: DEPENDENCY, where the session has no Delta.
    """

    def __init__(self, session: SparkSession) -> None:
        DELTA.check(session)
        self._session = MergeSession(session, _SETTINGS)
        self._conf = self._session.spark.conf

    def merge(self, name: TableName, delta: DeltaTable, merge: Merge, position: Position) -> None:
        """Bring rows into a table, in one commit; a second one keeps the position.

        Raises:
            HeadraceError: CONTINUITY, where another program has written the table meanwhile;
                SINK_UNREACHABLE or SPARK, what the session refuses of every table.
            OSError: what it refuses of this one.
        """
        version, text = int(delta.version()), note(position)
        self._conf.set(_DELTA + "commitInfo.userMetadata", text)
        # Delta leaves a write out whose txnVersion is not above the last one; a table's version grows.
        self._conf.set(_DELTA + "write.txnVersion", str(version + 1))
        reaching_commit(name, "mirror_commit")
        columns = StructType.fromJson(json.loads(delta.schema().to_json()))
        failure = self._session.merge(_sql_name(_path(delta)), columns, merge)
        after = DeltaTable(delta.table_uri)
        # Spark's answer does not count, the log does: an error may hide a commit, and a commit another's.
        made = find_noted(after, text, version)
        if made != version + 1:
            raise self._refusal(name, after, version, failure) from failure
        reaching_commit(name, "mirror_committed")
        with contextlib.suppress(CommitFailedError):  # somebody else's commit: the next merge's tells
            keep_position(after, position)

    def join_files(self, name: TableName, delta: DeltaTable, target_bytes: int) -> tuple[int, int]:
        """Join small files to such of about `target_bytes`, in one commit; return how many became how many.

        Raises:
            HeadraceError: CONTINUITY where another writer was faster; SINK_UNREACHABLE or SPARK.
            OSError: as of `merge`.
        """
        self._conf.set(_DELTA + "optimize.maxFileSize", str(target_bytes))
        self._conf.set(_DELTA + "optimize.minFileSize", str(target_bytes // 2))
        # Under the last merge's note this commit would pass for that merge.
        self._conf.unset(_DELTA + "commitInfo.userMetadata")
        version = int(delta.version())
        try:
            [done] = self._session.spark.sql(f"OPTIMIZE {_sql_name(_path(delta))}").collect()
        except SPARK_ERRORS as error:
            raise self._refusal(name, DeltaTable(delta.table_uri), version, error) from error
        return int(done.metrics.numFilesRemoved), int(done.metrics.numFilesAdded)

    def _refusal(
        self, name: TableName, after: DeltaTable, version: int, error: Exception | None
    ) -> HeadraceError | OSError:
        """Return the error of a commit that was not made, or not right after the version before it."""
        if error is None:
            error = RuntimeError(f"version {version + 1} is not this mirror's")
            # The commit may have been made after another's, which alone counts.
            following = DeltaTable(after.table_uri, version=min(version + 1, after.version()))
            return refused(name, following, version, error)
        if after.version() > version:
            return refused(name, after, version, told(error))
        # Each table is in SCHEMA/TABLE.
        positions = f"{_path(after).rsplit('/', 2)[0]}/{POSITIONS.name}"
        return self._session.failure(name, error, _sql_name(positions))


def _sql_name(path: str) -> str:
    return f"delta.{quoted(path)}"


def _path(delta: DeltaTable) -> str:
    """Return a table's place as Spark calls it: without percent signs for other characters."""
    uri = unquote(delta.table_uri.rstrip("/"))
    return f"s3a://{uri.removeprefix('s3://')}" if uri.startswith("s3://") else uri
