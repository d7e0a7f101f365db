"""Let a Spark session's own Iceberg merge rows into tables, on its executors.

PyIceberg reads the tables' metadata and makes all other commits. A session's snapshots have the position in
their summaries, as all have.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.typedef import Identifier

from headrace.errors import HeadraceError
from headrace.mirror.iceberg import commits
from headrace.mirror.iceberg.errors import telling_errors
from headrace.mirror.iceberg.folder_catalog import FolderCatalog
from headrace.mirror.iceberg.schemas import OWN
from headrace.mirror.lake import reaching_commit
from headrace.mirror.merge_session import CATALOGS, SPARK_ERRORS, MergeSession, told
from headrace.mirror.merging import Merge
from headrace.mirror.net_changes import Position
from headrace.model.names import TableName
from headrace.model.types import quoted
from headrace.spark.lake_runtimes import ICEBERG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS = "org.apache.iceberg.spark.SparkCatalog"
_SUMMARY = "spark.sql.iceberg.snapshot-property."
_NOTE = "headrace.commit"
"""Names, in the summary of a session's snapshot, a text that no other has."""


class IcebergSparkEngine:
    """A session's Iceberg.

    Args:
        session: stays as it is; the work is done in another session of its Spark, with its settings.
        catalog: the lake's; a named one is the session's catalog of that name.
        positions: what the mirror's own table is called in it.

    Raises:
        HeadraceError: DEPENDENCY, where the session has no Iceberg, or cannot open the catalog.
    """

    def __init__(self, session: SparkSession, catalog: Catalog, positions: Identifier) -> None:
        name = CATALOGS + catalog.name
        settings = {
            # Kept for a while, a table would be changed as it was before this process changed it.
            f"{name}.cache-enabled": "false",
            # Sessions of our own have one that does not tell its name, which Iceberg asks for.
            f"{name}.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
            f"{name}.hadoop.fs.file.impl.disable.cache": "true",
        }
        if isinstance(catalog, FolderCatalog):
            file, folder = catalog.file, str(catalog.file.parent)
            parts = {"type": "jdbc", "uri": f"jdbc:sqlite:{file}", "warehouse": folder}
            settings |= {name: _CLASS} | {f"{name}.{part}": value for part, value in parts.items()}
        self._session = MergeSession(session, settings)
        self._catalog = catalog
        self._positions = positions
        try:
            self._session.spark.sql(f"SHOW NAMESPACES IN {quoted(catalog.name)}").collect()
        except SPARK_ERRORS as error:
            needed = {} if isinstance(catalog, FolderCatalog) else {name: _CLASS, f"{name}.type": "…"}
            raise ICEBERG.missing(session, needed, str(told(error))) from error

    @telling_errors()
    def merge(self, name: TableName, table: Table, merge: Merge, position: Position) -> None:
        """Bring rows into a table, as it was when it was opened, in one commit.

        Raises:
            HeadraceError: CONTINUITY, where another program has written the table meanwhile;
                SINK_UNREACHABLE or SPARK, what the session refuses of every table.
            OSError: what it refuses of this one.
        """
        text = uuid.uuid4().hex
        for key, value in ((OWN, commits.position_text(position)), (_NOTE, text)):
            self._session.spark.conf.set(_SUMMARY + key, value)
        target = self._sql_name(table.name())
        reaching_commit(name, "mirror_commit")
        try:
            columns = self._session.spark.table(target).schema
            failure = self._session.merge(target, columns, merge)
        except SPARK_ERRORS as error:
            failure = error
        # Spark's answer does not count, the table does: an error may hide a commit, and a commit another's.
        after = commits.present_table(table)
        made = None if after is None else _find_noted(after, text)
        if after is None or made is None:
            raise self._refusal(name, table, after, failure) from failure
        if made.parent_snapshot_id != commits.snapshot_id(table):
            raise commits.refused(name, table, RuntimeError("another snapshot came in between"))
        if isinstance(self._catalog, FolderCatalog):
            self._catalog.show(Path(after.metadata_location))
        reaching_commit(name, "mirror_committed")

    def _refusal(
        self, name: TableName, table: Table, after: Table | None, failure: Exception | None
    ) -> HeadraceError | OSError:
        """Return the error of a commit that was not made, or not found where it was made."""
        is_unchanged = after is not None and commits.snapshot_id(after) == commits.snapshot_id(table)
        if failure is not None and is_unchanged:
            return self._session.failure(name, failure, self._sql_name(self._positions))
        error = RuntimeError("the snapshot is not this mirror's") if failure is None else told(failure)
        return commits.refused(name, table, error)

    def _sql_name(self, table: Identifier) -> str:
        return ".".join(map(quoted, (self._catalog.name, *table)))


def _find_noted(table: Table, text: str) -> Snapshot | None:
    """Return the snapshot of a table's history that has a text as its note; None: there is none."""
    history = ancestors_of(table.current_snapshot(), table.metadata)
    return next(
        (found for found in history if found.summary is not None and found.summary[_NOTE] == text), None
    )
