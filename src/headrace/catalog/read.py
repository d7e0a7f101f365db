"""Read tables from the catalog in five set-based queries; one more for views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from headrace.catalog.table import Catalog, Column, ForeignKey, ReplicaIdentity, Table, UniqueKey
from headrace.model.names import TableName, name_arrays
from headrace.postgres.session import ReadSession

# reltuples is -1 as long as nobody has analysed a table.
_TABLES = """
SELECT n.nspname::text, c.relname::text, c.oid::bigint, c.relkind::text, c.relreplident::text,
       greatest(c.reltuples, 0)::bigint, greatest(c.relpages, 0)::bigint,
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid)
FROM unnest($1::text[], $2::text[]) AS wanted (nspname, relname)
JOIN pg_namespace n ON n.nspname = wanted.nspname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.relname
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""

# pg_partition_tree would wait for a lock on each partition that somebody alters.
_LEAVES = """
WITH RECURSIVE part (root, oid, relkind) AS (
    SELECT root.oid, root.oid, 'p'::"char" FROM unnest($1::text[]::oid[]) AS root (oid)
    UNION ALL
    SELECT part.root, c.oid, c.relkind
    FROM part JOIN pg_inherits i ON i.inhparent = part.oid AND NOT i.inhdetachpending
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE part.relkind = 'p'
)
SELECT part.root::bigint, n.nspname::text, c.relname::text, c.oid::bigint, c.relreplident::text,
       greatest(c.reltuples, 0)::bigint, greatest(c.relpages, 0)::bigint
FROM part JOIN pg_class c ON c.oid = part.oid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE part.relkind <> 'p'
ORDER BY 1, 2, 3
"""

# A domain is followed to its base, also as an array's element. Only base types have bare names: any role may
# call an enum `date`, but only a superuser can create a base type. A NOT NULL that was added NOT VALID
# (PostgreSQL 18) does not hold for the existing rows.
_COLUMNS = """
WITH RECURSIVE attribute AS (
    SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attgenerated, a.attcollation,
           a.attnotnull AND NOT EXISTS (
               SELECT FROM pg_constraint k
               WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND NOT k.convalidated
                 AND a.attnum = ANY (k.conkey)
           ) AS not_null
    FROM pg_attribute a
    WHERE a.attrelid = ANY ($1::text[]::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
),
chain (declared, reached, prefix, modifier) AS (
    SELECT DISTINCT atttypid, atttypid, '', -1 FROM attribute
    UNION ALL
    SELECT chain.declared,
           CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END,
           CASE t.typtype WHEN 'd' THEN chain.prefix ELSE chain.prefix || '_' END,
           CASE WHEN t.typtype = 'd' AND t.typtypmod <> -1 THEN t.typtypmod ELSE chain.modifier END
    FROM chain JOIN pg_type t ON t.oid = chain.reached
    WHERE t.typtype = 'd' OR (t.typcategory = 'A' AND t.typelem <> 0)
)
SELECT a.attrelid::bigint, a.attname::text, format_type(a.atttypid, a.atttypmod),
       chain.prefix || CASE WHEN base.typtype = 'b' OR base.typnamespace = 'pg_catalog'::regnamespace
                            THEN base.typname::text
                            ELSE (SELECT quote_ident(nspname) FROM pg_namespace WHERE oid = base.typnamespace)
                                 || '.' || quote_ident(base.typname) END,
       n.nspname::text,
       CASE WHEN chain.prefix = '' THEN base.typcategory ELSE 'A' END::text,
       a.not_null, a.attgenerated <> '',
       CASE WHEN chain.prefix = '' AND base.oid IN ('varchar'::regtype, 'bpchar'::regtype)
            THEN greatest(coalesce(nullif(a.atttypmod, -1), chain.modifier) - 4, 0) ELSE 0 END,
       (SELECT nspname::text FROM pg_namespace WHERE oid = base.typnamespace), declared.typtype = 'd',
       coalesce((SELECT quote_ident(s.nspname) || '.' || quote_ident(k.collname)
                 FROM pg_collation k JOIN pg_namespace s ON s.oid = k.collnamespace
                 WHERE k.oid = a.attcollation AND k.oid <> 'pg_catalog."default"'::regcollation), ''),
       CASE WHEN chain.prefix = '' THEN '' ELSE base.typcategory END::text,
       EXISTS (SELECT FROM pg_collation k WHERE k.oid = a.attcollation AND NOT k.collisdeterministic)
FROM attribute a
JOIN pg_type declared ON declared.oid = a.atttypid
JOIN pg_namespace n ON n.oid = declared.typnamespace
JOIN chain ON chain.declared = a.atttypid
JOIN pg_type base ON base.oid = chain.reached
WHERE base.typtype <> 'd' AND NOT (base.typcategory = 'A' AND base.typelem <> 0)
ORDER BY a.attrelid, a.attnum
"""

_INDEXES = """
SELECT i.indrelid::bigint, c.relname::text, m.amname::text,
       i.indisunique, i.indisprimary, i.indimmediate, i.indisreplident, i.indpred IS NOT NULL,
       ARRAY(SELECT a.attname::text
             FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, position)
             LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum <> 0
             WHERE k.position <= i.indnkeyatts ORDER BY k.position)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_am m ON m.oid = c.relam
WHERE i.indrelid = ANY ($1::text[]::oid[]) AND i.indisvalid AND i.indislive
ORDER BY i.indrelid, i.indisprimary DESC, c.relname
"""

# A constraint that repeats another one of the same table, for a partition of its target, is left out.
_FOREIGN_KEYS = """
SELECT k.conrelid::bigint, n.nspname::text, c.relname::text,
       ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u (attnum, position)
             JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum ORDER BY u.position),
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u (attnum, position)
             JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.attnum ORDER BY u.position),
       k.convalidated AND coalesce((to_jsonb(k) ->> 'conenforced')::boolean, true)
FROM pg_constraint k
JOIN pg_class c ON c.oid = k.confrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_constraint parent ON parent.oid = k.conparentid
WHERE k.contype = 'f' AND k.conrelid = ANY ($1::text[]::oid[])
  -- A key with PERIOD (PostgreSQL 18) finds its row by ranges that contain others.
  AND NOT coalesce((to_jsonb(k) ->> 'conperiod')::boolean, false)
  AND parent.conrelid IS DISTINCT FROM k.conrelid
ORDER BY k.conrelid, k.conname
"""

_READ_BY_VIEWS = """
SELECT DISTINCT r.ev_class::bigint, n.nspname::text, c.relname::text
FROM pg_rewrite r
JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
     AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> r.ev_class
JOIN pg_class c ON c.oid = d.refobjid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE r.ev_class = ANY ($1::text[]::oid[])
ORDER BY 1, 2, 3
"""

_ALL = """
SELECT n.nspname::text, c.relname::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
ORDER BY 1, 2
"""

_IDENTITIES: dict[str, ReplicaIdentity] = {"d": "default", "n": "nothing", "f": "full", "i": "index"}
_EQUALITY = ("btree", "hash")
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class _Index:
    name: str
    method: str
    unique: bool
    primary: bool
    immediate: bool
    identity: bool
    partial: bool
    columns: tuple[str | None, ...]
    """In index order; None stands for an expression."""

    @property
    def leading(self) -> tuple[str, ...]:
        """The columns before the first expression."""
        result: list[str] = []
        for column in self.columns:
            if column is None:
                break
            result.append(column)
        return tuple(result)


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
    foreign_keys: Mapping[int, list[tuple[Any, ...]]]
    read_by_view: Mapping[int, list[tuple[Any, ...]]]

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
        _read(session, _INDEXES, all_oids, _index),
        _read(session, _FOREIGN_KEYS, kinds, lambda row: row),
        _read(session, _READ_BY_VIEWS, views, lambda row: row) if views else {},
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
        foreign_keys=_foreign_keys(details.foreign_keys.get(oid, [])),
        indexed=_indexed(indexes),
        replica_identity=identity.kind,
        identity_columns=identity.columns,
        row_estimate=rows,
        partitions=tuple(TableName(leaf.schema, leaf.name) for leaf in leaves),
        page_estimate=pages,
        inherited=inherited,
        reads=tuple(TableName(*read) for read in details.read_by_view.get(oid, [])),
    )


def _index(row: tuple[Any, ...]) -> _Index:
    *facts, columns = row
    return _Index(*facts, tuple(columns))  # type: ignore[call-arg]  # mypy does not count a starred list


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


def _foreign_keys(rows: Sequence[tuple[Any, ...]]) -> tuple[ForeignKey, ...]:
    keys = [
        ForeignKey(tuple(own), TableName(schema, name), tuple(other), holds)
        for schema, name, own, other, holds in rows
    ]
    return tuple(dict.fromkeys(keys))


def _identity(letter: str, columns: Sequence[Column], indexes: Sequence[_Index]) -> _Identity:
    """Return what an old tuple of a table that holds rows carries; a deferrable key does not count."""
    kind = _IDENTITIES[letter]
    if kind == "full":
        return _Identity(kind, tuple(column.name for column in columns if not column.generated))
    if kind == "nothing":
        return _Identity(kind, ())
    for index in indexes:
        if index.immediate and (index.primary if kind == "default" else index.identity):
            return _Identity(kind, index.leading)
    return _Identity(kind, ())


def _common(leaves: Sequence[_Identity], columns: Sequence[Column]) -> _Identity:
    """Return what the old tuples of every leaf carry."""
    kinds = {leaf.kind for leaf in leaves}
    carried = tuple(column.name for column in columns if all(column.name in leaf.columns for leaf in leaves))
    if len(kinds) == 1:
        return _Identity(leaves[0].kind, carried if kinds != {"default"} else _ordered(leaves, carried))
    return _Identity("index" if carried else "nothing", carried)


def _ordered(leaves: Sequence[_Identity], carried: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(column for column in leaves[0].columns if column in carried)
