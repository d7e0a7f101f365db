"""Under which name do a table's changes go on? A partition's rows under that of the table that was asked for.

The log names the leaf that holds a row (`publish_via_partition_root` is off: a truncated leaf is seen so).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.catalog.partitions import PartitionPlace, PartitionRoots, Roots, read_place
from headrace.model import Lsn, TableName
from headrace.pgoutput import Relation
from headrace.postgres.session import ReadSession


class Names:
    """Every table under its own name."""

    def described(self, relation: Relation, commit_lsn: Lsn) -> Relation:  # noqa: ARG002
        """The description of a table as its rows' changes have it.

        Args:
            relation: as the log describes it, in a transaction whose commit record begins at `commit_lsn`.

        Raises:
            HeadraceError: where changes of this table must not be used as they are.
        """
        return relation

    def truncated(self, oid: int) -> TableName | None:  # noqa: ARG002
        """The table that a TRUNCATE of a described one is said of; None: that of its rows."""
        return None

    def close(self) -> None:
        """Close what was opened; it is opened again when needed."""


class RootNames(Names):
    """A partition's rows under the name of its root.

    A TRUNCATE of a leaf empties no other: for programs that see changes it keeps the leaf's name. For
    documents (`truncated_as_root`) it means the same as one of the root: whatever exists may have changed.

    Args:
        url: the database.
        wanted: the tables that were asked for; a partition stands for the nearest of them above it, else for
            the topmost table.
        known: by oid, what partitions stood for that may be gone now.
    """

    def __init__(
        self,
        url: str,
        wanted: Iterable[TableName],
        *,
        truncated_as_root: bool,
        known: Roots | None = None,
    ) -> None:
        self._url = url
        self._wanted = frozenset(wanted)
        self._truncated_as_root = truncated_as_root
        self._roots = PartitionRoots(self._read, known or {}, keep=truncated_as_root)
        self._own: dict[int, TableName] = {}
        self._session: ReadSession | None = None

    def described(self, relation: Relation, commit_lsn: Lsn) -> Relation:  # noqa: ARG002
        """Asked at each description: one comes again only when its table was altered, or attached."""
        root = self._roots.root_of(relation.oid, relation.table)
        if not self._truncated_as_root:
            self._own[relation.oid] = relation.table
        return relation if root == relation.table else replace(relation, table=root)

    def truncated(self, oid: int) -> TableName | None:
        """A leaf's own name, for programs."""
        return self._own.get(oid)

    def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _read(self, oid: int) -> PartitionPlace | None:
        if self._session is None or self._session.closed:
            self._session = ReadSession(self._url)
        return read_place(self._session, oid, self._wanted)
