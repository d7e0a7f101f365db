"""Decide which replica identity makes a table's old rows carry what the documents need.

One query reads the facts; the decision needs no database.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import HeadraceError, Kind
from headrace.model.names import TableName, name_arrays
from headrace.postgres.connection import Connection, query
from headrace.postgres.publication import IdentityKind, RecordedIdentity
from headrace.postgres.quoting import identifier
from headrace.postgres.quoting import table as quoted
from headrace.postgres.sql_files import read_sql

_KINDS: dict[str, IdentityKind] = {"d": "default", "n": "nothing", "f": "full", "i": "index"}
SENDS_GENERATED_SINCE = 180000
"""From here on a publication can send stored generated columns; an identity must hold no unsent one."""
_MAX_NAME_BYTES = 63
_FACTS = read_sql(__package__, "identity_facts")


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A valid, immediate unique index without predicate or expression."""

    name: str
    columns: tuple[str, ...]
    primary: bool = False


@dataclass(frozen=True, slots=True)
class IdentityFacts:
    """A table that holds rows (a leaf, where `root` is partitioned), its keys and its replica identity.

    Attributes:
        root: the table that the documents name; `table` itself unless it is a partition.
        kind: pg_class.relkind.
        logged: whether its changes are in the log at all (not unlogged, not temporary).
        current: the current replica identity.
        identity_columns: the columns that an old row carries now; all under full, none without a usable key.
        columns: all columns in table order.
        column_lists: for each publication with a column list for the table, the listed columns.
        owned: whether this role may alter the table.
        generated: the columns that the server computes; before PostgreSQL 18 the log carries none of them.
        stored: those of them that a publication can send; PostgreSQL 18 lets writers write only where an
            identity holds none, or every publication of the table sends them. Empty before 18.
        virtual: those that no publication can send; an identity must hold none. Empty before 18.
        silent: the publications of the table's updates or deletes that do not send `stored`.
    """

    table: TableName
    root: TableName
    kind: str
    logged: bool
    current: RecordedIdentity
    identity_columns: frozenset[str]
    columns: tuple[str, ...]
    not_null: frozenset[str]
    unique_indexes: tuple[UniqueIndex, ...]
    column_lists: tuple[tuple[str, frozenset[str]], ...] = ()
    owned: bool = True
    generated: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    virtual: frozenset[str] = frozenset()
    silent: tuple[str, ...] = ()

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key's columns; empty where there is none."""
        return next((index.columns for index in self.unique_indexes if index.primary), ())

    def has_index(self, name: str) -> bool:
        """Tell whether a unique index of this name can be the identity."""
        return any(index.name == name for index in self.unique_indexes)

    @property
    def writable_when_published(self) -> bool:
        """Whether UPDATE and DELETE can work once the table is published: whether there is an identity.

        Generated columns in the identity are checked by `headrace.postgres.generated`.
        """
        return self.current.kind == "full" or bool(self.identity_columns)


@dataclass(frozen=True, slots=True)
class IdentityChange:
    """A stronger replica identity for a table.

    Attributes:
        needed: the columns that the old row must carry.
        index_columns: the columns of an index to be created first, named `identity.index`; empty for none.
    """

    table: TableName
    before: RecordedIdentity
    identity: RecordedIdentity
    needed: frozenset[str]
    index_columns: tuple[str, ...] = ()

    @property
    def new_index(self) -> TableName | None:
        """The index to be created first, if there is one."""
        name = self.identity.index
        return TableName(self.table.schema, name) if self.index_columns and name is not None else None


def whole_old_rows(tables: Iterable[IdentityFacts]) -> frozenset[TableName]:
    """Return the tables whose old rows are whole in the log; of partitions, the partitioned table."""
    return frozenset(facts.root for facts in tables if facts.current.kind == "full")


def needed_columns(facts: IdentityFacts, required: Iterable[str]) -> frozenset[str]:
    """Return the columns that an old row must carry: the required ones and the primary key.

    The key is needed because an identity without it hides a changed key.
    """
    return frozenset(required) | frozenset(facts.primary_key)


def covers(facts: IdentityFacts, needed: frozenset[str]) -> bool:
    """Return whether the current identity carries the needed columns, and lets writers write."""
    # Without any identity an UPDATE fails once the table is published.
    return facts.writable_when_published and (
        facts.current.kind == "full" or needed <= facts.identity_columns
    )


def stronger_identity(facts: IdentityFacts, required: Iterable[str]) -> IdentityChange | None:
    """Return the cheapest identity that covers `required` and the present columns; None where it is set.

    That is an existing unique index over exactly the needed columns; else one that can be created, because
    the columns are not null and hold a unique key; else an existing one that holds more; else FULL.
    """
    needed = needed_columns(facts, required)
    if covers(facts, needed):
        return None
    # What other readers of the log get now stays in it.
    wanted = needed | facts.identity_columns
    # PostgreSQL takes only an index of NOT NULL columns; one more generated column might be one that is not
    # sent, and then writers fail.
    allowed = facts.not_null - (facts.generated - wanted)
    usable = [index for index in facts.unique_indexes if wanted <= set(index.columns) <= allowed]
    smallest = min(usable, key=lambda index: len(index.columns), default=None)
    if smallest is not None and wanted.issuperset(smallest.columns):
        return IdentityChange(facts.table, facts.current, RecordedIdentity("index", smallest.name), needed)
    if wanted <= facts.not_null and any(wanted >= set(index.columns) for index in facts.unique_indexes):
        columns = tuple(column for column in facts.columns if column in wanted)
        name = index_name(facts.table, columns)
        return IdentityChange(facts.table, facts.current, RecordedIdentity("index", name), needed, columns)
    identity = RecordedIdentity("full") if smallest is None else RecordedIdentity("index", smallest.name)
    return IdentityChange(facts.table, facts.current, identity, needed)


def identity_after(facts: IdentityFacts, change: IdentityChange | None) -> frozenset[str]:
    """Return the columns of the identity after `change`; of the present one where `change` is None."""
    if change is None:
        return facts.identity_columns
    if change.index_columns:
        return frozenset(change.index_columns)
    return _carried(change.identity, facts.columns, facts.unique_indexes)


def change_problem(facts: IdentityFacts, change: IdentityChange) -> HeadraceError | None:
    """Return why the change would make the table's writers fail; None where it would not."""
    covered = None if change.identity.kind == "full" else identity_after(facts, change)
    # PostgreSQL refuses UPDATE and DELETE where a list lacks a column of the identity.
    for publication, listed in facts.column_lists:
        if covered is None or not covered <= listed:
            return HeadraceError(
                Kind.REPLICA_IDENTITY,
                f"the table {facts.table} needs a stronger replica identity, but the publication "
                f"{identifier(publication)} has a column list on it: its writers would fail",
                f"Publish the table there without a column list: ALTER PUBLICATION {identifier(publication)} "
                f"SET TABLE … {quoted(facts.table)} …",
            )
    return None


def identity_statements(change: IdentityChange) -> tuple[str, ...]:
    """Return the SQL of the change: its index, where one is to be created, and the identity."""
    altering = alter_identity(change.table, change.identity)
    return (create_index(change), altering) if change.index_columns else (altering,)


def create_index(change: IdentityChange) -> str:
    """Return the statement that creates the change's index without blocking writers."""
    columns = ", ".join(identifier(column) for column in change.index_columns)
    return (
        f"CREATE UNIQUE INDEX CONCURRENTLY {identifier(change.identity.index or '')} "
        f"ON {quoted(change.table)} ({columns})"
    )


def alter_identity(table: TableName, identity: RecordedIdentity) -> str:
    """Return the statement that sets a replica identity."""
    if identity.index is not None:
        return f"ALTER TABLE {quoted(table)} REPLICA IDENTITY USING INDEX {identifier(identity.index)}"
    return f"ALTER TABLE {quoted(table)} REPLICA IDENTITY {identity.kind.upper()}"


def index_name(table: TableName, columns: tuple[str, ...]) -> str:
    """Return the name of the index that Headrace creates for these columns; the same every time."""
    text = "\0".join((table.schema, table.name, *columns))
    # From table and columns alone: a set-up that was killed finds its own index again.
    end = "_headrace_" + hashlib.sha256(text.encode()).hexdigest()[:8]
    return table.name.encode()[: _MAX_NAME_BYTES - len(end)].decode(errors="ignore") + end


def read_identities(connection: Connection, tables: Iterable[TableName]) -> tuple[IdentityFacts, ...]:
    """Read the facts of each table and of each leaf of a partitioned one; absent tables are left out.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    version = connection.info.server_version
    rows = query(connection, _FACTS, name_arrays(sorted(set(tables))))
    return tuple(_facts(row, version) for row in rows)


def _recorded(letter: str, indexes: Sequence[tuple[Any, ...]]) -> RecordedIdentity:
    kind = _KINDS[letter]
    chosen = next((index for index, _, _, is_identity in indexes if is_identity), None)
    # Where its index was dropped, the server still says `index`, and old rows carry nothing.
    return RecordedIdentity("nothing" if kind == "index" and chosen is None else kind, chosen)


def _computed(columns: Sequence[tuple[Any, ...]], letter: str) -> frozenset[str]:
    """Return the columns that are generated so: `s`tored or `v`irtual."""
    return frozenset(name for name, _, how in columns if how == letter)


def _facts(row: tuple[Any, ...], version: int) -> IdentityFacts:
    root_schema, root, schema, name, kind, persistence, identity, owned, columns, indexes, lists, silent = row
    usable = tuple(
        UniqueIndex(index, tuple(keys), primary) for index, keys, primary, _ in indexes if keys is not None
    )
    names = tuple(column for column, _, _ in columns)
    current = _recorded(identity, indexes)
    stored, virtual = _computed(columns, "s"), _computed(columns, "v")
    ruled = version >= SENDS_GENERATED_SINCE
    return IdentityFacts(
        table=TableName(schema, name),
        root=TableName(root_schema, root),
        kind=kind,
        logged=persistence == "p",
        current=current,
        identity_columns=_carried(current, names, usable),
        columns=names,
        not_null=frozenset(column for column, not_null, _ in columns if not_null),
        unique_indexes=usable,
        column_lists=tuple((publication, frozenset(listed)) for publication, listed in lists),
        owned=owned,
        generated=stored | virtual,
        stored=stored if ruled else frozenset(),
        virtual=virtual if ruled else frozenset(),
        silent=tuple(silent),
    )


def _carried(
    identity: RecordedIdentity, columns: Sequence[str], indexes: Sequence[UniqueIndex]
) -> frozenset[str]:
    """Return the columns that an old row carries in the log."""
    if identity.kind == "full":
        return frozenset(columns)
    is_default = identity.kind == "default"
    chosen = (index for index in indexes if (index.primary if is_default else index.name == identity.index))
    return frozenset(next((index.columns for index in chosen), ()))
