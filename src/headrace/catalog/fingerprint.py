"""Read what documents depend on in the catalog at one moment, as a small value to keep and compare.

For each table: its oid, the columns that are read with their types (an enum's labels, a composite type's
attributes), the relations that hold its rows with their replica identities, and how it is published.

An alteration that is taken back leaves these as they were. So the fingerprint also has the transaction that
last wrote a row of the catalog (its raw xmin), for those rows that GRANT, VACUUM, ANALYZE and CREATE INDEX do
not write: of the publication, of a partition's place in its tree, of a table's row type (which has the
table's name), of enum labels and attributes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

from headrace.catalog.enums import without_labels
from headrace.catalog.usage import Usage
from headrace.errors import BACKFILL_AGAIN, HeadraceError, Kind
from headrace.model import Lsn, TableName
from headrace.postgres.session import ReadSession


@dataclass(frozen=True, slots=True)
class ColumnPrint:
    """A column that documents read.

    Attributes:
        number: pg_attribute.attnum; it differs where the column was dropped and added again.
        type_oid, modifier: the type, as the log describes it too.
        type: the type's name for people, with its modifier.
        inside: the definition of its values: enum labels and attributes, domains and arrays followed; the
            expression of a generated column; a collation of its own.
        touched: the transaction that defined the column last (raw xid).
        versions: each label, attribute and expression of `inside`, with the transaction that last wrote it.
    """

    number: int
    type_oid: int
    modifier: int
    type: str
    inside: str
    touched: int
    versions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PartPrint:
    """A relation that holds rows: the table itself, or a leaf partition.

    Attributes:
        name: its current name.
        identity: pg_class.relreplident.
        carried: the columns of its old rows in the log; None is all of them.
        file: pg_class.relfilenode; it differs where the relation was rewritten, or emptied by TRUNCATE.
        persistence: pg_class.relpersistence; `f` for a foreign table, which is not in the log either.
        toast: the oid of its TOAST table, 0 where it has none; VACUUM FULL, CLUSTER and TRUNCATE keep it, an
            ALTER TABLE that rewrites the table does not.
        listings: the oids of its own entries in any publication: while it has one, it cannot be unlogged.
        edges: each partition on the path from the root to it, with the transaction that attached it.
        moved: the transaction that set its schema.
    """

    name: TableName
    identity: str
    carried: frozenset[str] | None
    file: int
    persistence: str
    toast: int = 0
    listings: frozenset[int] = frozenset()
    edges: frozenset[tuple[int, int]] = frozenset()
    moved: int = 0


@dataclass(frozen=True, slots=True)
class TablePrint:
    """A table that documents name.

    Attributes:
        columns: the columns that are read and exist, by name.
        parts: the relations that hold its rows, by oid.
        names: the names of all columns, by number; for messages, not compared.
        members: each membership of the table, its leaves or their schemas in the publication, and what it
            hides: (oid, column list or None, whether rows are filtered).
        named: the transaction that set its name, schema or owner.
        owner: its owner's oid.
        inherited: whether an ordinary table has, or had before its last VACUUM, children by INHERITS.
    """

    oid: int
    columns: Mapping[str, ColumnPrint]
    parts: Mapping[int, PartPrint]
    members: frozenset[tuple[int, tuple[str, ...] | None, bool]] = frozenset()
    names: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    named: int = 0
    owner: int = 0
    inherited: bool = False


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What documents depend on in the catalog, at one moment.

    Attributes:
        tables: the tables by name; an absent one does not exist.
        publication: its oid, whether it holds all tables, its operations, whether it publishes via the root,
            and the transaction that altered it last; None where it does not exist.
        as_of: a position in the log (bytes): every earlier change of a table with another definition was
            visible when this was read.
        ended: every transaction before this one had ended when this was read (64 bits); 0: not known.
    """

    tables: Mapping[TableName, TablePrint] = field(default_factory=lambda: MappingProxyType({}))
    publication: tuple[int, bool, str, bool, int] | None = None
    as_of: Lsn = 0
    ended: int = field(default=0, compare=False)

    def altered_like(self, other: Fingerprint) -> Fingerprint:
        """Return a copy whose publication was last altered as in `other`; Headrace altered it since."""
        if self.publication is None or other.publication is None:
            return self
        return replace(self, publication=(*self.publication[:4], other.publication[4]))

    def to_text(self) -> str:
        """Render the text that the state of a deployment stores: some kilobytes for a hundred tables."""
        content = {
            "publication": self.publication,
            "tables": [[name.schema, name.name, _table_json(table)] for name, table in self.tables.items()],
            "ended": self.ended,
        }
        return base64.b64encode(zlib.compress(json.dumps(content).encode())).decode("ascii")

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse what `to_text` wrote; `as_of` is not stored. Empty text: an empty fingerprint.

        Raises:
            HeadraceError: CONTINUITY, where the text has another form.
        """
        if not text:
            return cls()
        try:
            content = json.loads(zlib.decompress(base64.b64decode(text)))
            return cls(
                {TableName(schema, name): _table(table) for schema, name, table in content["tables"]},
                None if content["publication"] is None else tuple(content["publication"]),
                ended=content["ended"],
            )
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise HeadraceError(
                Kind.CONTINUITY,
                f"the catalog as it was cannot be read from the deployment's state: {error!r}",
                f"Use the version that wrote it; or backfill again. {BACKFILL_AGAIN}",
            ) from error


def determining(found: Fingerprint, usage: Usage) -> list[object]:
    """Return what determines documents that read `usage`, as JSON values: types and their definitions."""
    return [
        [table.schema, table.name, name, column.type, without_labels(column.inside)]
        for table in sorted(usage)
        if table in found.tables
        for name, column in sorted(found.tables[table].columns.items())
        if name in usage[table]
    ]


def read_fingerprint(session: ReadSession, usage: Usage, publication: str) -> Fingerprint:
    """Read what `usage` depends on now.

    The query runs before and after the log's position is read, until both results are the same.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    before = _read(session, usage, publication)
    while True:
        [(position,)] = session.query(_POSITION)
        after = _read(session, usage, publication)
        if after == before:
            return Fingerprint(after.tables, after.publication, int(position), before.ended)
        before = after


def _read(session: ReadSession, usage: Usage, publication: str) -> Fingerprint:
    names = sorted(usage)
    columns = [(name, column) for name in names for column in sorted(usage[name])]
    [(version, ended)] = session.query(_BEFORE)
    sql = _TABLES.replace("/*schemas*/", _SCHEMA_MEMBERS if version >= _SCHEMAS_SINCE else "")
    rows = session.query(
        sql,
        (
            [name.schema for name in names],
            [name.name for name in names],
            [name.schema for name, _ in columns],
            [name.name for name, _ in columns],
            [column for _, column in columns],
            publication,
        ),
    )
    publications = session.query(_PUBLICATION, (publication,))
    return Fingerprint(
        {TableName(schema, name): _table(table) for schema, name, table in rows},
        tuple(publications[0]) if publications else None,
        ended=int(ended),
    )


def _table(content: Mapping[str, Any]) -> TablePrint:
    return TablePrint(
        content["oid"],
        {name: ColumnPrint(*(*shape, frozenset(versions))) for name, *shape, versions in content["columns"]},
        {oid: _part(*part) for oid, *part in content["parts"]},
        frozenset(
            (oid, None if listed is None else tuple(sorted(listed)), filtered)
            for oid, listed, filtered in content["members"]
        ),
        {int(number): name for number, name in content.get("names", {}).items()},
        content["named"],
        content["owner"],
        content["inherited"],
    )


def _part(  # noqa: PLR0917 - a row
    schema: str,
    name: str,
    identity: str,
    carried: Sequence[str] | None,
    file: int,
    persistence: str,
    toast: int,
    listings: Sequence[int],
    edges: Sequence[tuple[int, int]],
    moved: int,
) -> PartPrint:
    return PartPrint(
        TableName(schema, name),
        identity,
        None if carried is None else frozenset(carried),
        file,
        persistence,
        toast,
        frozenset(listings),
        frozenset((oid, attached) for oid, attached in edges),
        moved,
    )


def _table_json(table: TablePrint) -> dict[str, Any]:
    return {
        "oid": table.oid,
        "columns": [
            [
                name,
                column.number,
                column.type_oid,
                column.modifier,
                column.type,
                column.inside,
                column.touched,
                sorted(column.versions),
            ]
            for name, column in table.columns.items()
        ],
        "parts": [
            [
                *(oid, part.name.schema, part.name.name, part.identity),
                None if part.carried is None else sorted(part.carried),
                *(part.file, part.persistence, part.toast),
                *(sorted(part.listings), sorted(part.edges), part.moved),
            ]
            for oid, part in table.parts.items()
        ],
        "members": [[oid, listed, filtered] for oid, listed, filtered in sorted(table.members, key=_by_oid)],
        "named": table.named,
        "owner": table.owner,
        "inherited": table.inherited,
    }


def _by_oid(member: tuple[int, tuple[str, ...] | None, bool]) -> int:
    return member[0]


_SCHEMAS_SINCE = 150000

_POSITION = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END
        - '0/0')::bigint
"""

_BEFORE = """
SELECT current_setting('server_version_num')::int, pg_snapshot_xmin(pg_current_snapshot())::text::bigint
"""

_PUBLICATION = """
SELECT oid::bigint, puballtables,
       concat_ws(', ', CASE WHEN pubinsert THEN 'insert' END, CASE WHEN pubupdate THEN 'update' END,
                 CASE WHEN pubdelete THEN 'delete' END, CASE WHEN pubtruncate THEN 'truncate' END),
       pubviaroot, xmin::text::bigint
FROM pg_publication WHERE pubname = $1
"""

_SCHEMA_MEMBERS = """
    UNION ALL
    SELECT s.oid::bigint, NULL, false
    FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid
    WHERE p.pubname = $6 AND s.pnnspid IN (SELECT i.relnamespace FROM tree t JOIN pg_class i ON i.oid = t.oid
                                           WHERE t.root = r.oid)
"""

# to_jsonb: PostgreSQL 14 has neither column lists nor row filters.
_TABLES = """
WITH RECURSIVE named AS (
    SELECT c.oid, c.relkind, n.nspname, c.relname, c.relowner, c.relhassubclass, t.xmin AS named
    FROM unnest($1::text[], $2::text[]) AS wanted (nspname, relname)
    JOIN pg_namespace n ON n.nspname = wanted.nspname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.relname
    JOIN pg_type t ON t.oid = c.reltype
    WHERE c.relkind IN ('r', 'p')
),
attribute AS (
    SELECT a.attrelid, a.attname, a.attnum, a.atttypid, a.atttypmod, a.attgenerated, a.attcollation, a.xmin
    FROM unnest($3::text[], $4::text[], $5::text[]) AS used (nspname, relname, attname)
    JOIN named r ON r.nspname = used.nspname AND r.relname = used.relname
    JOIN pg_attribute a ON a.attrelid = r.oid AND a.attname = used.attname
    WHERE a.attnum > 0 AND NOT a.attisdropped
),
inside (declared, reached) AS (
    SELECT DISTINCT atttypid, atttypid FROM attribute
    UNION
    SELECT inside.declared, step.oid
    FROM inside JOIN pg_type t ON t.oid = inside.reached
    CROSS JOIN LATERAL (
        SELECT t.typbasetype WHERE t.typtype = 'd'
        UNION ALL SELECT t.typelem WHERE t.typcategory = 'A' AND t.typelem <> 0
        UNION ALL SELECT a.atttypid FROM pg_attribute a
                  WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS step (oid)
),
tree AS (
    SELECT oid AS root, oid, ARRAY[]::bigint[] AS edges FROM named
    UNION
    SELECT tree.root, i.inhrelid, tree.edges || ARRAY[[i.inhrelid::bigint, i.xmin::text::bigint]]
    FROM tree JOIN pg_class c ON c.oid = tree.oid AND c.relkind = 'p'
    JOIN pg_inherits i ON i.inhparent = tree.oid AND NOT i.inhdetachpending
)
SELECT r.nspname::text, r.relname::text, json_build_object(
    'oid', r.oid::bigint,
    'columns', (SELECT coalesce(json_agg(json_build_array(
            a.attname, a.attnum, a.atttypid::bigint, a.atttypmod, format_type(a.atttypid, a.atttypmod),
            (SELECT coalesce(string_agg(made.of, '; ' ORDER BY made.of), '') FROM (
                SELECT format_type(e.enumtypid, NULL) || ': '
                       || string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder)
                FROM inside JOIN pg_enum e ON e.enumtypid = inside.reached
                WHERE inside.declared = a.atttypid GROUP BY e.enumtypid
                UNION ALL
                SELECT format_type(t.oid, NULL) || ': '
                       || string_agg(quote_ident(b.attname) || ' ' || format_type(b.atttypid, b.atttypmod),
                                     ', ' ORDER BY b.attnum)
                FROM inside JOIN pg_type t ON t.oid = inside.reached AND t.typtype = 'c'
                JOIN pg_attribute b ON b.attrelid = t.typrelid AND b.attnum > 0 AND NOT b.attisdropped
                WHERE inside.declared = a.atttypid GROUP BY t.oid
                UNION ALL
                SELECT 'generated: ' || pg_get_expr(d.adbin, d.adrelid)
                FROM pg_attrdef d
                WHERE a.attgenerated <> '' AND d.adrelid = a.attrelid AND d.adnum = a.attnum
                UNION ALL
                SELECT 'collation: ' || quote_ident(k.collname)
                FROM pg_collation k
                WHERE k.oid = a.attcollation AND k.oid <> 'pg_catalog."default"'::regcollation) AS made (of)),
            a.xmin::text::bigint,
            (SELECT coalesce(json_agg(made.by), '[]') FROM (
                SELECT e.oid || ' ' || e.xmin
                FROM inside JOIN pg_enum e ON e.enumtypid = inside.reached WHERE inside.declared = a.atttypid
                UNION ALL
                SELECT b.attrelid || '.' || b.attnum || ' ' || b.xmin
                FROM inside JOIN pg_type t ON t.oid = inside.reached AND t.typtype = 'c'
                JOIN pg_attribute b ON b.attrelid = t.typrelid AND b.attnum > 0 AND NOT b.attisdropped
                WHERE inside.declared = a.atttypid
                UNION ALL
                SELECT 'generated ' || d.oid || ' ' || d.xmin
                FROM pg_attrdef d
                WHERE a.attgenerated <> '' AND d.adrelid = a.attrelid AND d.adnum = a.attnum) AS made (by)))
            ORDER BY a.attnum), '[]')
        FROM attribute a WHERE a.attrelid = r.oid),
    'names', (SELECT json_object_agg(b.attnum, b.attname) FROM pg_attribute b
              WHERE b.attrelid = r.oid AND b.attnum > 0 AND NOT b.attisdropped),
    'parts', (SELECT coalesce(json_agg(json_build_array(
            c.oid::bigint, n.nspname, c.relname, c.relreplident,
            CASE WHEN c.relreplident <> 'f' THEN
                (SELECT coalesce(json_agg(b.attname), '[]')
                 FROM pg_index x JOIN pg_attribute b ON b.attrelid = c.oid
                      AND b.attnum = ANY ((x.indkey::int2[])[0:x.indnkeyatts - 1])
                 WHERE x.indrelid = c.oid AND x.indisvalid AND x.indimmediate
                   AND CASE c.relreplident WHEN 'd' THEN x.indisprimary WHEN 'i' THEN x.indisreplident END)
            END,
            c.relfilenode::bigint, CASE c.relkind WHEN 'f' THEN 'f' ELSE c.relpersistence END,
            c.reltoastrelid::bigint,
            (SELECT coalesce(json_agg(l.oid::bigint), '[]')
             FROM pg_publication_rel l WHERE l.prrelid = c.oid),
            t.edges,
            (SELECT coalesce(max(d.xmin::text::bigint), 0) FROM pg_depend d
             WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
               AND d.refclassid = 'pg_namespace'::regclass)) ORDER BY c.oid), '[]')
        FROM tree t JOIN pg_class c ON c.oid = t.oid AND c.relkind <> 'p'
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE t.root = r.oid),
    'members', (SELECT coalesce(json_agg(json_build_array(member, listed, filtered)), '[]') FROM (
        SELECT m.oid::bigint,
               (SELECT json_agg(b.attname) FROM pg_attribute b
                WHERE b.attrelid = m.prrelid AND to_jsonb(m) -> 'prattrs' @> to_jsonb(b.attnum)),
               to_jsonb(m) ->> 'prqual' IS NOT NULL
        FROM pg_publication_rel m JOIN pg_publication p ON p.oid = m.prpubid
        WHERE p.pubname = $6 AND (m.prrelid IN (SELECT t.oid FROM tree t WHERE t.root = r.oid)
                                  OR m.prrelid IN (SELECT relid FROM pg_partition_ancestors(r.oid)))
        /*schemas*/
        ) AS found (member, listed, filtered)),
    'named', r.named::text::bigint,
    'owner', r.relowner::bigint,
    'inherited', r.relkind = 'r' AND r.relhassubclass
)
FROM named r
"""
