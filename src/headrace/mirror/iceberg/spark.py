"""Let a Spark session's own Iceberg merge rows into tables, on its executors.

PyIceberg reads the tables' metadata and makes all other commits. A session's snapshots have the position in
their summaries, as all have.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.typedef import Identifier

from headrace.errors import HeadraceError, Kind
from headrace.mirror.iceberg import commits
from headrace.mirror.iceberg.errors import telling_errors
from headrace.mirror.iceberg.folder_catalog import FolderCatalog
from headrace.mirror.iceberg.schemas import OWN
from headrace.mirror.lake import other_writer, reaching_commit
from headrace.mirror.merge_session import CATALOGS, SPARK_ERRORS, MergeSession, told
from headrace.mirror.merging import Merge
from headrace.mirror.net_changes import Position
from headrace.model.names import TableName
from headrace.model.types import quoted
from headrace.spark.lake_runtimes import ICEBERG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS = "org.apache.iceberg.spark.SparkCatalog"
_NO_CLASS = "plugin class"
"""Stands in what Spark says where the class of a catalog is missing."""
_PLAIN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_RESERVED = frozenset(
    "_file _pos _deleted _spec_id _partition _row_id _last_updated_sequence_number _commit_snapshot_id "
    "_change_type _change_ordinal".split()
)
_SHAPE: Mapping[str, str] = {"write.merge.mode": "copy-on-write", "write.format.default": "parquet"}
"""Properties by which a session would write other files, and what they are where a table has none."""
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
        is_named = not isinstance(catalog, FolderCatalog)
        # Without it Spark would take the name for that of a database.
        if is_named and session.conf.get(name, None) is None:
            raise ICEBERG.missing(session, {name: _CLASS, f"{name}.type": "…"})
        settings = {
            # Kept for a while, a table would be changed as it was before this process changed it.
            f"{name}.cache-enabled": "false",
            # Sessions of our own have one that does not tell its name, which Iceberg asks for.
            f"{name}.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
            f"{name}.hadoop.fs.file.impl.disable.cache": "true",
            # With others of the user's session, Spark refuses a MERGE, or one without all columns.
            "spark.sql.storeAssignmentPolicy": "ANSI",
            "spark.sql.defaultColumn.useNullsForMissingDefaultValues": "true",
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
            if _NO_CLASS in (why := str(told(error))):
                raise ICEBERG.missing(session, {name: _CLASS} if is_named else {}) from error
            raise HeadraceError(
                Kind.SINK_UNREACHABLE,
                f"Spark does not reach the catalog {catalog.name}: {why}",
                f"Correct the settings {name}.… of the session.",
            ) from error

    def can_merge(self, table: Table) -> bool:
        """Tell whether a session leaves the same files as this process."""
        # Java's writer has other names for odd ones, and refuses those that Iceberg has for itself.
        names = table.schema().column_names
        is_plain = all(map(_PLAIN.fullmatch, names)) and _RESERVED.isdisjoint(names)
        return is_plain and all(table.properties.get(key, value) == value for key, value in _SHAPE.items())

    @telling_errors()
    def merge(self, name: TableName, table: Table, merge: Merge, position: Position) -> None:
        """Bring rows into a table, as it was when it was opened, in one commit.

        Raises:
            HeadraceError: CONTINUITY, where another program has written the table meanwhile;
                SINK_UNREACHABLE or SPARK, what the session refuses of every table.
            OSError: what it refuses of this one.
        """
        commits.check_writable(name, table)
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
        # Joined files leave the rows, and Spark has merged into what they left.
        if not commits.were_joined(after, made.parent_snapshot_id, since=table):
            raise other_writer(name, "another snapshot came in between")
        reaching_commit(name, "mirror_committed")
        # A snapshot may be ended by others, the property is not. It also shows the table by its folder.
        with contextlib.suppress(CommitFailedException), after.transaction() as change:
            change.set_properties({OWN: commits.position_text(position)})

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
