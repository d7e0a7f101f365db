"""Map relations of the log to the tables that their changes are reported under, and check their columns.

The log names the leaf partition that holds a row (`publish_via_partition_root` is off, so that the TRUNCATE
of one leaf is visible). Its rows are reported under the table that was requested. The columns are compared
with those of the documents' plan, or with those that a query was started with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from headrace.capture.settings import PlannedTable, StreamSettings
from headrace.capture.visibility import await_visible
from headrace.catalog.known import uncarried_key
from headrace.catalog.needs import ColumnNeed
from headrace.catalog.partitions import PartitionPlace, PartitionRoots, read_leaves, read_place
from headrace.catalog.read import list_tables
from headrace.errors import HeadraceError, Kind
from headrace.model.lsn import Lsn
from headrace.model.names import TableName
from headrace.pgoutput.messages import Relation, RelationColumn
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import KeptSession, ReadSession

_LOOK_SECONDS = 0.5

OnInvisible = Callable[[str], None]
"""Called while a transaction is awaited, with the `server_mark` of the session that does not see it yet.

It ends the wait by an error.
"""


class RelationRouting:
    """Reports every table under its own name.

    Attributes:
        truncated_partitions: the table of each partition that was truncated by itself, by the partition's
            name in the log. It may have another name by now, so that the catalog would not find it.
    """

    def __init__(self) -> None:
        self.truncated_partitions: Mapping[TableName, TableName] = {}

    def route(self, relation: Relation, commit_lsn: Lsn, xid: int) -> Relation:  # noqa: ARG002
        """Return the relation under the name that its changes are reported under.

        Args:
            relation: the relation as the log describes it.
            commit_lsn: the address of the commit record of the describing transaction (bytes).
            xid: that transaction's 32-bit id.

        Raises:
            HeadraceError: changes of this table must not be used as they are.
        """
        return relation

    def old_row_error(self, relation: Relation, commit_lsn: Lsn) -> HeadraceError | None:  # noqa: ARG002
        """Return why an UPDATE or DELETE of a relation must not be used; None where it may be.

        Args:
            relation: the relation as `route` has returned it.
            commit_lsn: as for `route`.
        """
        return None

    def truncate_names(self, oids: Sequence[int]) -> dict[int, TableName]:  # noqa: ARG002
        """Return other names for the TRUNCATE of these relations, by oid.

        That is, another one than that of its rows.
        """
        return {}

    def close(self) -> None:
        """Close the database session, if any; it is opened again when needed."""


class RootRouting(RelationRouting):
    """Reports a partition's rows under the name of its root table.

    A TRUNCATE of a leaf empties no other leaf, so it keeps the leaf's name, unless all leaves are truncated.

    A partition is reported under the nearest requested table above it, else under the topmost one. For
    documents it is the topmost of their tables, where the plan begins; rows of a detached partition still
    count, because they only lead to rows that are read again.

    Args:
        settings: of the stream.
        on_invisible: called about twice a second while a transaction that describes a table is not visible.
    """

    def __init__(self, settings: StreamSettings, on_invisible: OnInvisible) -> None:
        super().__init__()
        self._settings = settings
        self._on_invisible = on_invisible
        needs = settings.documents
        self._topmost = needs is not None
        self._planned = {need.oid: table for table, need in (needs or {}).items()}
        self._wanted = frozenset() if self._topmost else frozenset(settings.expected or settings.tables)
        self._roots = PartitionRoots(self._read, keep=self._topmost)
        self._own: dict[int, TableName] = {}
        self._session = KeptSession(settings.url)

    def route(self, relation: Relation, commit_lsn: Lsn, xid: int) -> Relation:
        """Return the relation under its root's name, which is read from the catalog.

        A description comes again only when its table was altered or attached. That may have happened in the
        same transaction, so this waits until the transaction is visible, however long its commit waits for a
        synchronous standby.
        """
        # The catalog is read as of now: before the description's own transaction is visible it shows the
        # table as it was.
        while not await_visible(self.session(), np.array([xid]), timeout=_LOOK_SECONDS):
            self._on_invisible(self.session().server_mark)
        root = self._roots.root_of(relation.oid, relation.table)
        if not self._topmost:  # documents are rebuilt when their tables are renamed
            self._check_name(self._own.get(relation.oid), relation.table, root)
        self._own[relation.oid] = relation.table
        # What was read as rows counts from its snapshot on; earlier names do not matter.
        if (columns := self._settings.columns) is not None and self._is_used(root, commit_lsn):
            columns.take(self.session(), relation, root, xid)
        return relation if root == relation.table else replace(relation, table=root)

    def _is_used(self, table: TableName, commit_lsn: Lsn) -> bool:
        return commit_lsn >= self._settings.since.get(table, 0)

    def _check_name(self, before: TableName | None, now: TableName, root: TableName) -> None:
        """Raise an error if a followed table was renamed: its changes would be left out silently."""
        if before not in self._wanted or before == now or root in self._wanted:
            return
        # Another table that has its name is the followed one by now, and the catalog's look finds that. The
        # log would have the renaming at each start that reads it again.
        if before not in list_tables(self.session()):
            raise HeadraceError(
                Kind.SCHEMA_CHANGED,
                f"the table {before} was renamed to {now}, and {now} is not followed",
                "Rename the table back; or start again with the new name in the option tables.",
            )

    def truncate_names(self, oids: Sequence[int]) -> dict[int, TableName]:
        """Return the leaf's own name, unless all leaves of its root are truncated together."""
        own = {oid: self._own[oid] for oid in oids if oid in self._own}
        roots = {oid: self._roots.root_of(oid, name) for oid, name in own.items()}
        emptied = self._whole_trees(own, roots)
        names = {oid: name for oid, name in own.items() if roots[oid] not in emptied}
        alone = {name: roots[oid] for oid, name in names.items() if name != roots[oid]}
        # A new mapping: another thread reads the former one.
        self.truncated_partitions = {**self.truncated_partitions, **alone}
        return names

    def _whole_trees(self, own: Mapping[int, TableName], roots: Mapping[int, TableName]) -> set[TableName]:
        """Return the roots of partitions of which all leaves that have reported rows are in `own`."""
        parts = {root for oid, root in roots.items() if root != own[oid]}
        return {root for root in parts if self._reported(read_leaves(self.session(), root)) <= own.keys()}

    def _reported(self, leaves: set[int]) -> set[int]:
        """Return those leaves of which rows may have been reported.

        The catalog is read as of now: it has leaves, too, that were attached after a TRUNCATE of all.
        """
        parts = self._settings.parts
        return leaves if parts is None else leaves & (parts | self._own.keys())

    def close(self) -> None:
        """Close the session, if any."""
        self._session.close()

    def session(self) -> ReadSession:
        """Return the session that reads the catalog; open it if needed.

        Raises:
            HeadraceError: CONNECTION.
        """
        return self._session.get()

    def _read(self, oid: int) -> PartitionPlace | None:
        return read_place(self.session(), oid, self._wanted, planned=self._planned, topmost=self._topmost)


class DocumentRouting(RootRouting):
    """Reports a partition's rows under its root table, and checks that the columns fit the documents' plan.

    A table is identified by its oid: rows that were written under an earlier name count. A TRUNCATE of a leaf
    counts as one of its root: any row may have changed. Rows of a detached partition count as long as they
    come.
    """

    def __init__(self, settings: StreamSettings, on_invisible: OnInvisible) -> None:
        super().__init__(settings, on_invisible)
        self._needs = {table: need.columns for table, need in (settings.documents or {}).items()}

    def route(self, relation: Relation, commit_lsn: Lsn, xid: int) -> Relation:
        """Return the relation under its root's name; its columns are checked before any row is used."""
        named = super().route(relation, commit_lsn, xid)
        needs = self._needs.get(named.table, {})
        try:
            self._check_columns(relation, self._needs_at(named.table, commit_lsn))
        except HeadraceError as error:
            # The topmost table, as schema files name it: a failure is charged to its readers (decision 0127).
            raise error.concerning(tables=[named.table]) from None
        columns = tuple(_hide_altered(column, needs.get(column.name)) for column in named.columns)
        return named if columns == named.columns else replace(named, columns=columns)

    def old_row_error(self, relation: Relation, commit_lsn: Lsn) -> HeadraceError | None:
        """Return the error where old rows do not carry a column that leads to documents.

        An INSERT needs no old row: a new partition may have some before its replica identity is set.
        """
        # The log marks the columns of the identity as they were when the row was written.
        carried = {column.name for column in relation.columns if column.key}
        needs = self._needs_at(relation.table, commit_lsn)
        missing = [name for name, need in needs.items() if need.carried and name not in carried]
        if not missing:
            return None
        return HeadraceError(
            Kind.REPLICA_IDENTITY,
            f"the log of the table {self._own[relation.oid]} does not carry the old value of "
            f"{', '.join(missing)}",
            "Run `headrace setup`, which shows what to alter, then start again.",
        ).concerning(tables=[relation.table])

    def truncate_names(self, oids: Sequence[int]) -> dict[int, TableName]:  # noqa: ARG002
        """Return no other names: a TRUNCATE is reported under the name of the rows."""
        return {}

    def _needs_at(self, table: TableName, commit_lsn: Lsn) -> dict[str, ColumnNeed]:
        """Return what changes of a commit must carry of a table."""
        needs = self._needs.get(table, {})
        return {name: need for name, need in needs.items() if commit_lsn >= need.since}

    def _check_columns(self, relation: Relation, needs: Mapping[str, ColumnNeed]) -> None:
        columns = {column.name: column for column in relation.columns}
        for name, need in needs.items():
            column = columns.get(name)
            if column is None and (need.type_oid is not None or need.carried):
                has = ", ".join(relation.names)
                raise _changed(f"the table {relation.table} has no column {name} in the log, it has: {has}")
            if column is None or need.type_oid is None:
                continue
            if (column.type_oid, column.type_modifier) != (need.type_oid, need.modifier):
                is_now = f"was {need.type}, and is {self._type(column)} now"
                raise _changed(f"the column {name} of the table {relation.table} {is_now}")

    def _type(self, column: RelationColumn) -> str:
        query = "SELECT format_type($1::text::oid, $2)"
        [(name,)] = self.session().query(query, (str(column.type_oid), column.type_modifier))
        return str(name)


def _hide_altered(column: RelationColumn, need: ColumnNeed | None) -> RelationColumn:
    """Rename a column that has another type than in the plan: nothing may read its old values."""
    if need is None or need.type_oid in {None, column.type_oid}:
        return column
    return replace(column, name=f"\0{column.name}")


def _changed(what: str) -> HeadraceError:
    return HeadraceError(
        Kind.SCHEMA_CHANGED,
        what,
        "Correct the schema file if it names what has changed, then reload it: documents are rebuilt.",
    )


_COLUMNS = """
SELECT attname::text FROM pg_attribute WHERE attrelid = $1::text::oid AND attnum > 0 AND NOT attisdropped
"""
_NEWER_TABLE = (
    "Load the table again, and start the query: it takes the columns that the table has then. Its checkpoint "
    "stays good; its sink may have to be altered too."
)
_OLDER_ROWS = (
    "The log still holds rows of before the table was altered, which loading it again does not change. Start "
    "the query once with onSchemaChange=rescue or ignore, which take such rows, until it has caught up."
)


class GuardedRouting(RootRouting):
    """Reports root names for a query with typed columns; refuses rows of a table that was altered."""

    def route(self, relation: Relation, commit_lsn: Lsn, xid: int) -> Relation:
        """Return the relation under its root's name; its columns are checked before any row is used."""
        named = super().route(relation, commit_lsn, xid)
        expected = self._settings.expected.get(named.table)
        if expected is None or not self._is_used(named.table, commit_lsn):
            return named
        difference = _difference(relation, expected)
        if difference is None and named.table == relation.table:
            # A partition may have the columns in another order than its table.
            difference = _moved(relation, expected)
        if difference is not None:
            raise HeadraceError(
                Kind.SCHEMA_CHANGED,
                f"the table {named.table} was altered: {difference}",
                _OLDER_ROWS if self._is_unaltered(relation.oid, expected) else _NEWER_TABLE,
            )
        if expected.old_rows and not all(column.key for column in relation.columns):
            raise HeadraceError(
                Kind.REPLICA_IDENTITY,
                f"the query needs the old rows of {named.table}, which the log does not carry any more",
                f"Run: ALTER TABLE {quoted(named.table)} REPLICA IDENTITY FULL. Then start again with a new "
                "checkpoint, or without preImages and unchangedToast=old.",
            )
        _check_key(relation, named.table, expected.key)
        return named

    def _is_unaltered(self, oid: int, expected: PlannedTable) -> bool:
        """Return whether the table has the columns of the query's start, so that only the log is older."""
        names = [name for (name,) in self.session().query(_COLUMNS, (str(oid),))]
        return set(names) == set(expected.order)


def _moved(relation: Relation, expected: PlannedTable) -> str | None:
    """Describe the first column that was renamed or recreated; None where there is none."""
    if expected.may_change:
        return None
    names = [name for name in relation.names if name in expected.order]
    before = [name for name in expected.order if name in relation.names]
    for name, other in zip(names, before, strict=True):
        if name != other:
            return f"the column {name} stands where {other} stood: one of them was renamed, or recreated"
    return None


def _check_key(relation: Relation, table: TableName, key: frozenset[str]) -> None:
    """Raise an error if deleted rows lack a key column; where the log has no old rows there is no check."""
    carried = [column.name for column in relation.columns if column.key]
    missing = [name for name in sorted(key) if name not in carried]
    if carried and missing:
        raise uncarried_key(table, missing[0], carried)


def _difference(relation: Relation, expected: PlannedTable) -> str | None:
    """Describe the first difference that the query would see; None where there is none."""
    logged = {column.name: (column.type_oid, column.type_modifier) for column in relation.columns}
    for name, kind in expected.columns.items():
        if expected.may_change and name not in expected.key:
            continue
        if name not in logged:
            return f"the log has no column {name}, it has {', '.join(logged)}"
        if logged[name] != kind:
            return f"the column {name} has another type in the log"
    if expected.may_change or expected.chosen:
        return None
    new = next((name for name in logged if name not in expected.order), None)
    return None if new is None else f"it has a column {new} that the query does not have"
