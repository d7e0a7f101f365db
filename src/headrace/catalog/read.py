"""Read tables from the catalog in five set-based queries; one more for views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

from headrace.catalog.table import Catalog, Column, ForeignKey, ReplicaIdentity, Table, UniqueKey
from headrace.model.names import TableName, name_arrays
from headrace.postgres.session import ReadSession
from headrace.postgres.sql_files import read_sql

_TABLES = read_sql(__package__, "tables")
_LEAVES = read_sql(__package__, "leaf_partitions")
_COLUMNS = read_sql(__package__, "columns")
_INDEXES = read_sql(__package__, "indexes")
_FOREIGN_KEYS = read_sql(__package__, "foreign_keys")
_READ_BY_VIEWS = read_sql(__package__, "read_by_views")
_ALL = read_sql(__package__, "all_tables")

_IDENTITIES: dict[str, ReplicaIdentity] = {"d": "default", "n": "nothing", "f": "full", "i": "index"}
_EQUALITY = ("btree", "hash")
_Row = TypeVar("_Row")


class _Index(NamedTuple):
    name: str
    method: str
    unique: bool
    primary: bool
    immediate: bool
    identity: bool
    partial: bool
    columns: list[str | None]
    """In index order; None stands for an expression."""

    @property
    def leading(self) -> tuple[str, ...]:
        """The columns before the first expression."""
        return tuple(filter(None, takewhile(lambda column: column is not None, self.columns)))


@dataclass(frozen=True, slots=True)
class _Identity:
    kind: ReplicaIdentity
    columns: tuple[str, ...]


class _Leaf(NamedTuple):
    schema: str
    name: str
    oid: int
    identity: str
    rows: int
    pages: int


@dataclass(frozen=True, slots=True)
class _Details:
    """What the queries beside the first one say of relations, by OID."""

    leaves: Mapping[int, list[_Leaf]]
    columns: Mapping[int, list[Column]]
    indexes: Mapping[int, list[_Index]]
    foreign_keys: Mapping[int, list[ForeignKey]]
    read_by_view: Mapping[int, list[TableName]]

    def identity(self, oid: int, letter: str) -> _Identity:
        """Return what an old tuple of a table that holds rows carries."""
        return _identity(letter, self.columns.get(oid, ()), self.indexes.get(oid, ()))


def list_tables(session: ReadSession) -> list[TableName]:
    """List every permanent table of the users, without partitions, in order.

    Raises:
        HeadraceError: CONNECTION or DATABASE.
    """
    return [TableName(schema, name) for schema, name in session.query(_ALL)]


def read_catalog(session: ReadSession, tables: Iterable[TableName]) -> Catalog:
    """Read `tables` from the catalog; those that the database does not have are absent.

    Raises:
        HeadraceError: CONNECTION or DATABASE.
    """
    wanted = sorted(set(tables))
    found = session.query(_TABLES, name_arrays(wanted))
    details = _read_details(session, {row[2]: row[3] for row in found})
    result = {TableName(*row[:2]): _table(row, details) for row in found}
    missing = not result.keys() >= set(wanted)
    # Only a message about a missing table names the others: the list costs a scan of pg_class.
    return Catalog(result, tuple(list_tables(session)) if missing else ())


def _read_details(session: ReadSession, kinds: Mapping[int, str]) -> _Details:
    """Read what belongs to the relations with these OIDs, and to their leaf partitions."""
    partitioned = [oid for oid, kind in kinds.items() if kind == "p"]
    views = [oid for oid, kind in kinds.items() if kind in {"v", "m"}]
    leaves = _read(session, _LEAVES, partitioned, lambda row: _Leaf(*row))
    # Each leaf has an identity of its own: an update is logged with that of the leaf that holds the row.
    all_oids = [*kinds, *(leaf.oid for of_table in leaves.values() for leaf in of_table)]
    return _Details(
        leaves,
        _read(session, _COLUMNS, all_oids, lambda row: Column(*row)),
        _read(session, _INDEXES, all_oids, lambda row: _Index(*row)),
        _read(session, _FOREIGN_KEYS, kinds, _foreign_key),
        _read(session, _READ_BY_VIEWS, views, lambda row: TableName(*row)) if views else {},
    )


def _read(
    session: ReadSession, sql: str, oids: Iterable[int], make: Callable[[tuple[Any, ...]], _Row]
) -> dict[int, list[_Row]]:
    """Query what belongs to relations, by the OID in the first column; `make` gets the others."""
    found: dict[int, list[_Row]] = {}
    for oid, *row in session.query(sql, ([str(oid) for oid in oids],)):
        found.setdefault(oid, []).append(make(tuple(row)))
    return found


def _table(row: tuple[Any, ...], details: _Details) -> Table:
    schema, name, oid, kind, letter, rows, pages, inherited = row
    columns, indexes = tuple(details.columns.get(oid, ())), details.indexes.get(oid, [])
    leaves = details.leaves.get(oid, [])
    if leaves:
        # The partitioned table itself holds no rows: neither its identity nor its estimates count.
        identity = _common([details.identity(leaf.oid, leaf.identity) for leaf in leaves], columns)
        rows, pages = sum(leaf.rows for leaf in leaves), sum(leaf.pages for leaf in leaves)
    else:
        identity = details.identity(oid, letter)
    return Table(
        name=TableName(schema, name),
        oid=oid,
        kind=kind,
        columns=columns,
        unique_keys=_unique_keys(indexes, columns),
        foreign_keys=tuple(dict.fromkeys(details.foreign_keys.get(oid, ()))),
        indexed=_indexed(indexes),
        replica_identity=identity.kind,
        identity_columns=identity.columns,
        row_estimate=rows,
        partitions=tuple(TableName(leaf.schema, leaf.name) for leaf in leaves),
        page_estimate=pages,
        inherited=inherited,
        reads=tuple(details.read_by_view.get(oid, ())),
    )


def _unique_keys(indexes: Sequence[_Index], columns: Sequence[Column]) -> tuple[UniqueKey, ...]:
    not_null = {column.name for column in columns if column.not_null}
    return tuple(
        UniqueKey(
            index.name, index.leading, index.primary, not_null.issuperset(index.leading), index.immediate
        )
        for index in indexes
        if index.unique and not index.partial and None not in index.columns
    )


def _indexed(indexes: Sequence[_Index]) -> tuple[tuple[str, ...], ...]:
    """Return the leading columns of the indexes that serve an equality."""
    return tuple(
        index.leading
        for index in indexes
        if not index.partial and index.method in _EQUALITY and index.leading
    )


def _foreign_key(row: tuple[Any, ...]) -> ForeignKey:
    schema, name, own, other, holds = row
    return ForeignKey(tuple(own), TableName(schema, name), tuple(other), holds)


def _identity(letter: str, columns: Sequence[Column], indexes: Sequence[_Index]) -> _Identity:
    """Return what an old tuple of a table that holds rows carries; a deferrable key does not count."""
    kind = _IDENTITIES[letter]
    if kind == "full":
        return _Identity(kind, tuple(column.name for column in columns if not column.generated))
    for index in indexes:
        is_identity = index.primary if kind == "default" else index.identity
        if kind != "nothing" and index.immediate and is_identity:
            return _Identity(kind, index.leading)
    return _Identity(kind, ())


def _common(leaves: Sequence[_Identity], columns: Sequence[Column]) -> _Identity:
    """Return what the old tuples of every leaf carry."""
    kinds = {leaf.kind for leaf in leaves}
    carried = tuple(column.name for column in columns if all(column.name in leaf.columns for leaf in leaves))
    if kinds == {"default"}:  # the primary key's order
        carried = tuple(column for column in leaves[0].columns if column in carried)
    mixed: ReplicaIdentity = "index" if carried else "nothing"
    return _Identity(leaves[0].kind if len(kinds) == 1 else mixed, carried)
