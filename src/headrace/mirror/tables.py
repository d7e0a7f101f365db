"""Read what the database says of mirrored tables: columns, key, defaults of added columns, files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.capture.rows import RowShape
from headrace.catalog import list_tables
from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.fingerprint_query import read_once
from headrace.catalog.known import read_known
from headrace.catalog.types import RowType, read_row_types
from headrace.config.mirror import MirroredTables, Mode
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.mirror.columns import COLUMN, KEY, PREFIX, TYPE
from headrace.mirror.modes import MODES
from headrace.mirror.modes import Mode as LakeMode
from headrace.model.names import TableName
from headrace.model.table_pattern import match_tables
from headrace.model.value_type import ValueType
from headrace.model.values import convert_all
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession

_NOTHING = Fingerprint()

# PostgreSQL keeps the default of an added column beside the table, of a partitioned one beside each of its
# partitions: rows that were there before have it, and the log says nothing of them. A rewrite of the table
# (another filenode) puts it into the rows.
_COLUMNS = """
SELECT n.nspname::text, c.relname::text, c.oid::bigint,
       array_agg(a.attname::text ORDER BY a.attnum), array_agg(a.attnum::int ORDER BY a.attnum),
       array_agg(coalesce(
           (a.attmissingval::text::text[])[1],
           (SELECT max((own.attmissingval::text::text[])[1])
            FROM pg_partition_tree(c.oid) AS leaf
            JOIN pg_attribute own ON own.attrelid = leaf.relid AND own.attname = a.attname
            WHERE leaf.isleaf)) ORDER BY a.attnum),
       coalesce((SELECT string_agg(pg_relation_filenode(leaf.relid)::text, ' ' ORDER BY leaf.relid)
                 FROM pg_partition_tree(c.oid) AS leaf WHERE leaf.isleaf), pg_relation_filenode(c.oid)::text),
       coalesce((SELECT bool_and(part.relreplident = 'f')
                 FROM pg_partition_tree(c.oid) AS leaf JOIN pg_class part ON part.oid = leaf.relid
                 WHERE leaf.isleaf), c.relreplident = 'f')
FROM unnest($1::text[], $2::text[]) AS wanted (nspname, relname)
JOIN pg_namespace n ON n.nspname = wanted.nspname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.relname
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
GROUP BY c.oid, n.nspname, c.relname
"""


@dataclass(frozen=True, slots=True)
class MirroredTable:
    """A table as the database has it now.

    Attributes:
        relation: its oid; a table that is dropped and created again has another.
        row_type: its columns; types that no lake has are read as text.
        key: the columns that identify its rows.
        columns: the mirrored columns: those that the log carries and the file does not leave out.
        numbers: the database's number of each column, which no later column gets.
        defaults: for a column that was added with a default, the text of the value of older rows.
        files: the filenodes of its files.
        has_full_identity: whether the log has whole rows before their change (REPLICA IDENTITY FULL).
        mode: what the lake holds of it.
        where: SQL that its mirrored rows satisfy; None: all are mirrored.
        catalog: what its rows' values depend on besides: its partitions, labels of enums, rewrites.
    """

    relation: int
    row_type: RowType
    key: tuple[str, ...]
    columns: tuple[str, ...]
    numbers: Mapping[str, int]
    defaults: Mapping[str, str]
    files: str
    has_full_identity: bool = False
    mode: Mode = "current"
    where: str | None = None
    catalog: Fingerprint = _NOTHING

    @property
    def highest(self) -> int:
        """The highest number of its columns, mirrored or not; one that is added later has a higher one."""
        return max(self.numbers.values(), default=0)

    @property
    def name(self) -> TableName:
        """The table's name."""
        return self.row_type.table

    @property
    def schema(self) -> pa.Schema:
        """Its mirrored columns, with the metadata that identifies them."""
        return pa.schema([self._field(name) for name in self.columns])

    def _field(self, name: str) -> pa.Field:
        kind = self.row_type.columns[name]
        known = {COLUMN: str(self.numbers[name]).encode(), TYPE: kind.name.encode()}
        if name in self.key and self.mode != "changes":
            known[KEY] = str(self.key.index(name)).encode()
        return pa.field(name, kind.arrow, metadata=known)

    @property
    def is_known_by_content(self) -> bool:
        """Whether its rows are told apart by all of their values, because it has no key."""
        return self.mode == "current" and not self.key

    @property
    def rules(self) -> LakeMode:
        """What the lake holds of it, as code."""
        return MODES["content" if self.is_known_by_content else self.mode]

    @property
    def lake_schema(self) -> pa.Schema:
        """The lake table's columns: its own, then those of the mode."""
        return pa.schema([*self.schema, *self.rules.fields])

    @property
    def shape(self) -> RowShape:
        """How changes become rows."""
        left_out = frozenset(attribute.name for attribute in self.row_type.attributes) - set(self.columns)
        kinds = {name: self.row_type.columns[name] for name in self.columns}
        return RowShape(
            self.name, kinds, self.key, PREFIX, pre_images=self.is_known_by_content, left_out=left_out
        )

    def default(self, column: str) -> pa.Scalar:
        """Return the value of `column` in rows that are older than it."""
        kind = self.row_type.columns[column]
        texts = pa.array([self.defaults.get(column)], pa.string())
        return convert_all(kind, texts, f"{self.name}.{column}")[0]


class Selection:
    """Which tables a mirror has, and what of them.

    Args:
        parts: those of the file; a table belongs to the first that names it.
        publication: the publication that sends them.
    """

    def __init__(self, parts: Sequence[MirroredTables], publication: str) -> None:
        self._parts = parts
        self._publication = publication

    def find(self, session: ReadSession) -> tuple[TableName, ...]:
        """Return the tables that exist.

        Raises:
            HeadraceError: BINDING: there is none.
        """
        patterns = [pattern for part in self._parts for pattern in part.patterns]
        found = match_tables(patterns, list_tables(session))
        if not found:
            raise HeadraceError(
                Kind.BINDING,
                f"no table is called like {', '.join(map(str, patterns))}",
                "Correct `tables` in [[mirror.tables]].",
            )
        return found

    def read(self, session: ReadSession, tables: Iterable[TableName]) -> dict[TableName, MirroredTable]:
        """Read what the database says of `tables`; one that it does not have is absent.

        Raises:
            HeadraceError: REPLICA_IDENTITY, where the log does not carry the key of deleted rows; CONNECTION,
                DATABASE.
        """
        names = sorted(set(tables))
        known = read_known(session, names, {}, self._publication)
        types = read_row_types(session, names)
        parameters = ([name.schema for name in names], [name.name for name in names])
        found: dict[TableName, MirroredTable] = {}
        for schema, name, relation, columns, numbers, defaults, files, is_full in session.query(
            _COLUMNS, parameters
        ):
            table = TableName(schema, name)
            if table not in known or table not in types:
                continue
            part = self._part(table)
            told_apart = () if part.mode == "changes" else known[table].key
            kinds = {
                column: _lake_type(kind, is_key=column in told_apart)
                for column, kind in types[table].columns.items()
            }
            found[table] = MirroredTable(
                relation=relation,
                row_type=RowType(table, types[table].attributes, kinds),
                key=known[table].key,
                columns=tuple(
                    column
                    for column in kinds
                    if column in known[table].columns and not part.leaves_out(column)
                ),
                numbers=dict(zip(columns, numbers, strict=True)),
                defaults={
                    column: text for column, text in zip(columns, defaults, strict=True) if text is not None
                },
                files=files or "",
                has_full_identity=is_full,
                mode=part.mode,
                where=part.where,
            )
        usage = {name: frozenset(table.columns) for name, table in found.items()}
        catalog = read_once(session, usage, self._publication)
        return {
            name: replace(table, catalog=catalog.part(name))
            for name, table in found.items()
            if name in catalog.tables
        }

    def _part(self, table: TableName) -> MirroredTables:
        return next(part for part in self._parts if any(pattern.matches(table) for pattern in part.patterns))


def check_tables(tables: Iterable[MirroredTable]) -> None:
    """Refuse tables that cannot be mirrored as the file wants it.

    Raises:
        ErrorGroup: REPLICA_IDENTITY, for each table whose rows nothing identifies; BINDING, for each whose
            key is left out, or that has a column with the name of one of the mirror's own.
    """
    problems = [problem for table in tables for problem in _problems(table)]
    if problems:
        raise ErrorGroup(problems)


def _problems(table: MirroredTable) -> Iterator[HeadraceError]:
    taken = [name for name in table.columns if name in table.rules.names]
    if taken:
        yield HeadraceError(
            Kind.BINDING,
            f"the table {table.name} has a column {taken[0]}, as the mirror's mode {table.mode!r} has",
            f'Write exclude_columns = ["{taken[0]}"] in its [[mirror.tables]], or choose another mode.',
        )
    for name, other in _alike(table.columns):
        yield HeadraceError(
            Kind.BINDING,
            f"columns {name} and {other} of {table.name} differ in case alone, which readers of lakes ignore",
            f'Write exclude_columns = ["{other}"] in its [[mirror.tables]].',
        )
    if table.mode == "changes":
        return
    if not table.key and (table.mode == "history" or not table.has_full_identity):
        yield HeadraceError(
            Kind.REPLICA_IDENTITY,
            f"the table {table.name} has no key: the log does not say which row of it was changed",
            f"Run: ALTER TABLE {quoted(table.name)} ADD PRIMARY KEY (…). Or, but not for mode history: ALTER "
            f"TABLE {quoted(table.name)} REPLICA IDENTITY FULL.",
        )
    absent = [name for name in table.key if name not in table.columns]
    if absent:
        yield HeadraceError(
            Kind.BINDING,
            f"the column {absent[0]} of {table.name} is left out, but it belongs to the key",
            'Mirror it, or choose mode = "changes".',
        )


def _alike(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that is another one before it in other case, with that one first."""
    first: dict[str, str] = {}
    for name in names:
        known = first.setdefault(name.casefold(), name)
        if known != name:
            yield known, name


def _lake_type(kind: ValueType, *, is_key: bool) -> ValueType:
    """Return the type of a lake column; intervals and times of day have none in Delta and are texts.

    So are arrays and ranges of a key: rows are looked up by it, which no engine does by nested values.
    """
    is_fit = _is_in_lakes(kind.arrow) and not (is_key and pa.types.is_nested(kind.arrow))
    return kind if is_fit else kind.as_text


def _is_in_lakes(arrow: pa.DataType) -> bool:
    if pa.types.is_nested(arrow):
        return all(_is_in_lakes(arrow.field(index).type) for index in range(arrow.num_fields))
    return not (pa.types.is_time(arrow) or pa.types.is_duration(arrow) or pa.types.is_interval(arrow))
