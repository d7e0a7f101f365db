"""Under which name do a table's changes go on, and is the table still what the plan was made for?

The log names the leaf that holds a row (`publish_via_partition_root` is off: a truncated leaf is seen so). A
partition's rows go on under the name of the table that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from headrace.capture.rows import Absence
from headrace.capture.visibility import await_visible
from headrace.catalog.needs import ColumnNeed, Needs
from headrace.catalog.partitions import PartitionPlace, PartitionRoots, read_leaves, read_place
from headrace.errors import HeadraceError, Kind
from headrace.model import Lsn, TableName
from headrace.pgoutput import Relation, RelationColumn
from headrace.postgres.session import ReadSession

_PATIENCE_SECONDS = 5.0


class RelationRouting:
    """Every table under its own name."""

    @property
    def absences(self) -> tuple[Absence, ...]:
        """Which of the columns that were asked for the log lacked, and from where on; in order."""
        return ()

    def described(self, relation: Relation, commit_lsn: Lsn, xid: int) -> Relation:  # noqa: ARG002
        """The description of a table as its rows' changes have it.

        Args:
            relation: as the log describes it.
            commit_lsn: where the commit record of the transaction that does begins (bytes).
            xid: that transaction's 32-bit id.

        Raises:
            HeadraceError: where changes of this table must not be used as they are.
        """
        return relation

    def truncated(self, oids: Sequence[int]) -> dict[int, TableName]:  # noqa: ARG002
        """Of which of these tables, described and truncated together, it is said under another name.

        That is, another one than that of its rows.
        """
        return {}

    def close(self) -> None:
        """Close what was opened; it is opened again when needed."""


class RootRouting(RelationRouting):
    """A partition's rows under the name of its root, for programs that see changes.

    A TRUNCATE of a leaf empties no other, so it keeps the leaf's name, unless it empties all of them.

    Args:
        url: the database.
        wanted: the tables that were asked for; a partition stands for the nearest of them above it, else for
            the topmost table.
        planned: the tables that documents are made of, by their oids, instead of `wanted`. Their rows lead
            to something that is read anew: those of a detached partition still count, and a partition stands
            for the topmost of them, from which the plan leads on.
    """

    def __init__(
        self, url: str, wanted: Iterable[TableName] = (), planned: Mapping[int, TableName] | None = None
    ) -> None:
        self._url = url
        self._wanted = frozenset(wanted)
        self._planned = planned or {}
        self._topmost = planned is not None
        self._roots = PartitionRoots(self._read, keep=self._topmost)
        self._own: dict[int, TableName] = {}
        self._session: ReadSession | None = None

    def described(self, relation: Relation, commit_lsn: Lsn, xid: int) -> Relation:  # noqa: ARG002
        """Asked at each description: one comes again only when its table was altered, or attached.

        That may have been in the same transaction, which the catalog shows only when it is visible.
        """
        if not await_visible(self.session(), np.array([xid]), timeout=_PATIENCE_SECONDS):
            raise HeadraceError(
                Kind.CONNECTION,
                f"the transaction {xid} is in the log and not visible, as of a standby that lags",
            )
        root = self._roots.root_of(relation.oid, relation.table)
        if not self._topmost:  # documents are built anew when their tables are called otherwise
            self._check_name(self._own.get(relation.oid), relation.table, root)
        self._own[relation.oid] = relation.table
        return relation if root == relation.table else replace(relation, table=root)

    def _check_name(self, before: TableName | None, now: TableName, root: TableName) -> None:
        """A table that was followed by its name has no other: its changes would be left out in silence."""
        if before in self._wanted and before != now and root not in self._wanted:
            raise HeadraceError(
                Kind.SCHEMA_CHANGED,
                f"the table {before} is called {now} now, and {now} is not followed",
                "Give the table its name again; or start again with the new one in the option tables.",
            )

    def truncated(self, oids: Sequence[int]) -> dict[int, TableName]:
        """The leaf's own name, where rows of others are still there."""
        own = {oid: self._own[oid] for oid in oids if oid in self._own}
        roots = {oid: self._roots.root_of(oid, name) for oid, name in own.items()}
        parts = {root for oid, root in roots.items() if root != own[oid]}
        emptied = {root for root in parts if read_leaves(self.session(), root) <= own.keys()}
        return {oid: name for oid, name in own.items() if roots[oid] not in emptied}

    def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def session(self) -> ReadSession:
        """For the catalog.

        Raises:
            HeadraceError: CONNECTION.
        """
        if self._session is None or self._session.closed:
            self._session = ReadSession(self._url)
        return self._session

    def _read(self, oid: int) -> PartitionPlace | None:
        return read_place(self.session(), oid, self._wanted, planned=self._planned, topmost=self._topmost)


class DocumentRouting(RootRouting):
    """The same for documents, whose plan must fit.

    A table is known by its oid: rows that were written while it was called otherwise count. A TRUNCATE of a
    leaf means the same as one of its root: whatever exists may have changed. Rows of a partition that was
    detached count as long as they come.
    """

    def __init__(self, url: str, needs: Needs) -> None:
        super().__init__(url, planned={one.oid: table for table, one in needs.items()})
        self._needs = {table: one.columns for table, one in needs.items()}

    def described(self, relation: Relation, commit_lsn: Lsn, xid: int) -> Relation:
        """Compared before any of its rows is used."""
        named = super().described(relation, commit_lsn, xid)
        needs = self._needs.get(named.table, {})
        now = {name: one for name, one in needs.items() if commit_lsn >= one.since}
        self._check_columns(relation, now)
        _check_identity(relation, now)
        hidden = [one.name in needs and _has_another_type(one, needs[one.name]) for one in named.columns]
        if not any(hidden):
            return named
        columns = zip(named.columns, hidden, strict=True)
        return replace(named, columns=tuple(_hidden(one) if hide else one for one, hide in columns))

    def truncated(self, oids: Sequence[int]) -> dict[int, TableName]:  # noqa: ARG002
        """None but those of their rows."""
        return {}

    def _check_columns(self, relation: Relation, needs: Mapping[str, ColumnNeed]) -> None:
        columns = {column.name: column for column in relation.columns}
        for name, need in needs.items():
            found = columns.get(name)
            if found is None and (need.type_oid is not None or need.carried):
                has = ", ".join(relation.names)
                raise _changed(f"the table {relation.table} has no column {name} in the log, it has: {has}")
            if found is not None and need.type_oid is not None and not _fits(found, need):
                is_now = self._type(found)
                raise _changed(
                    f"the column {name} of the table {relation.table} was {need.type}, and is {is_now} now"
                )

    def _type(self, column: RelationColumn) -> str:
        asked = "SELECT format_type($1::text::oid, $2)"
        [(name,)] = self.session().query(asked, (str(column.type_oid), column.type_modifier))
        return str(name)


def _fits(column: RelationColumn, need: ColumnNeed) -> bool:
    return (column.type_oid, column.type_modifier) == (need.type_oid, need.modifier)


def _has_another_type(column: RelationColumn, need: ColumnNeed) -> bool:
    return need.type_oid not in {None, column.type_oid}


def _hidden(column: RelationColumn) -> RelationColumn:
    """A column that nothing asks for: its old values need not be values of the type that it has now."""
    return replace(column, name=f"\0{column.name}")


def _check_identity(relation: Relation, needs: Mapping[str, ColumnNeed]) -> None:
    carried = {column.name for column in relation.columns if column.key}
    missing = [name for name, need in needs.items() if need.carried and name not in carried]
    if missing:
        raise HeadraceError(
            Kind.REPLICA_IDENTITY,
            f"the log of the table {relation.table} does not carry the old value of {', '.join(missing)}",
            "Run `headrace setup`, which shows what to alter, then start again.",
        )


def _changed(what: str) -> HeadraceError:
    return HeadraceError(
        Kind.SCHEMA_CHANGED,
        what,
        "Correct the schema file if it names what has changed, then start again: documents are built anew.",
    )
