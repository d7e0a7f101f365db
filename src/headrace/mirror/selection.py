"""Choose which of a database's tables a mirror has, and read what the database says of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.catalog import list_tables
from headrace.catalog.fingerprint import Fingerprint
from headrace.catalog.fingerprint_query import read_once
from headrace.catalog.known import KnownTable, UncarriedKeyError, read_known
from headrace.catalog.types import RowType, read_row_types
from headrace.config.mirror import LakeType, MirrorConfig, MirroredTables, OnValue
from headrace.config.secret import Secret
from headrace.errors import ErrorGroup, HeadraceError, Kind
from headrace.mirror.drift import column_numbers
from headrace.mirror.lake_types import lake_type, read_type, shows_names
from headrace.mirror.masks import Masks
from headrace.mirror.partition_bounds import Bounds, can_tell, parse_bounds
from headrace.mirror.tables import MirroredTable
from headrace.model.names import TableName, name_arrays
from headrace.model.suggestion import meant
from headrace.model.table_pattern import format_table
from headrace.model.value_type import ValueType
from headrace.postgres.publication import read_column_lists, will_send_generated
from headrace.postgres.session import ReadSession
from headrace.postgres.sql_files import read_sql

_COLUMNS = read_sql(__package__, "columns")
_LEAVES = read_sql(__package__, "leaves")
# Whatever has that name, a view or a partition too.
_PRESENT = """
SELECT n.nspname::text, c.relname::text
FROM unnest($1::text[], $2::text[]) AS wanted (nspname, relname)
JOIN pg_namespace n ON n.nspname = wanted.nspname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.relname
"""
_OF_EXTENSIONS = """
SELECT n.nspname::text, c.relname::text
FROM pg_depend d JOIN pg_class c ON c.oid = d.objid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE d.classid = 'pg_class'::regclass AND d.deptype = 'e' AND c.relkind IN ('r', 'p')
ORDER BY 1, 2
"""
_UNLOGGED = """
SELECT n.nspname::text, c.relname::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'u' AND NOT c.relispartition
"""
_UNFIT = {_OF_EXTENSIONS: "an extension owns it", _UNLOGGED: "it is unlogged: its changes are not in the log"}


class Selection:
    """Which tables a mirror has, and what of them.

    Args:
        config: of the mirror; a table belongs to the first part that names it.
    """

    def __init__(self, config: MirrorConfig) -> None:
        self._parts = config.tables
        exact = (pattern.exact for part in config.tables for pattern in part.patterns)
        self._named = {name for name in exact if name is not None}
        self._publication = config.publication
        self._salt = config.mask_salt if isinstance(config.mask_salt, Secret) else None

    def matches(self, table: TableName) -> bool:
        """Tell whether a part of the file mirrors a table of this name."""
        return any(part.matches(table) for part in self._parts)

    def keeps_log(self, table: TableName) -> bool:
        """Tell whether the slot keeps the log for a table while it waits."""
        return self.matches(table) and self._part(table).on_error == "wait"

    def names(self, table: TableName) -> bool:
        """Tell whether the file names a table itself, not by a pattern."""
        return table in self._named

    def find(self, session: ReadSession) -> tuple[TableName, ...]:
        """Return the tables that exist, without those of extensions that only patterns match.

        Raises:
            HeadraceError: BINDING: there is none.
        """
        # An extension writes its tables again itself.
        owned = {TableName(schema, name) for schema, name in session.query(_OF_EXTENSIONS)}
        matched = filter(self.matches, list_tables(session))
        found = tuple(table for table in matched if table not in owned or self.names(table))
        if not found:
            patterns = ", ".join(str(pattern) for part in self._parts for pattern in part.patterns)
            raise HeadraceError(
                Kind.BINDING, f"no table matches {patterns}", "Correct `tables` in [[mirror.tables]]."
            )
        return found

    def find_absent(self, found: Collection[TableName]) -> list[TableName]:
        """Return what the file names itself and is not among the tables that exist."""
        return sorted(self._named.difference(found))

    def check_named(self, session: ReadSession, names: Collection[TableName]) -> None:
        """Make sure that the database has something of these names.

        Raises:
            HeadraceError: BINDING, with the table that was probably meant.
        """
        present = {TableName(*row) for row in session.query(_PRESENT, name_arrays(names))} if names else set()
        problems = [
            HeadraceError(
                Kind.BINDING,
                f"tables in [[mirror.tables]]: there is no table {format_table(name)}",
                meant(format_table(name), map(format_table, list_tables(session))),
            )
            for name in names
            if name not in present
        ]
        if problems:
            raise ErrorGroup(problems)

    def find_left_out(self, session: ReadSession) -> dict[TableName, str]:
        """Return why tables are not mirrored that patterns match, whatever their keys are."""
        excluded = {
            table: "`exclude` takes it out"
            for table in list_tables(session)
            if any(part.excludes(table) for part in self._parts) and not self.matches(table)
        }
        unfit = {TableName(*row): why for sql, why in _UNFIT.items() for row in session.query(sql)}
        matched = {table for table in unfit if self.matches(table) and not self.names(table)}
        return excluded | {table: unfit[table] for table in matched}

    def find_idle_parts(self, session: ReadSession) -> list[str]:
        """Return of which parts of the file the mirror has no table, and why."""
        tables = list_tables(session)
        used = [self._part(table) for table in tables if self.matches(table)]
        idle = [part for part in self._parts if not any(part is other for other in used)]
        found = []
        for part in idle:
            if any(map(part.matches, tables)):
                found.append(f"tables = {json.dumps(part.tables)}: a part above it has all of its tables")
            # Tables that are named themselves are told by their names.
            elif not all(pattern.exact for pattern in part.patterns):
                found.append(f"tables = {json.dumps(part.tables)}: no table matches it")
        return found

    def _read_known(
        self, session: ReadSession, names: Sequence[TableName]
    ) -> tuple[dict[TableName, KnownTable], dict[TableName, HeadraceError]]:
        """Read the facts of tables, and what is wrong with the key of some."""
        problems: dict[TableName, HeadraceError] = {}
        while True:
            try:
                known = read_known(session, names, dict.fromkeys(problems, ()), self._publication)
            except UncarriedKeyError as error:
                # A reading stops at the first bad key: that table goes on without one, all are read again.
                problems[error.table] = error
            else:
                return known, problems

    def read(self, session: ReadSession, tables: Iterable[TableName]) -> dict[TableName, MirroredTable]:
        """Read what the database says of `tables`, at one moment.

        One that it does not have, or that the file does not mirror any more, is left out.

        Raises:
            HeadraceError: CONNECTION, DATABASE.
        """
        # One snapshot for all queries: a column of one moment and a type of another would be a third table.
        with session.one_snapshot():
            return self._read(session, sorted(filter(self.matches, set(tables))))

    def _read(self, session: ReadSession, names: Sequence[TableName]) -> dict[TableName, MirroredTable]:
        known, problems = self._read_known(session, names)
        types = read_row_types(session, names)
        published = read_column_lists(session, self._publication)
        sends_stored = will_send_generated(session, self._publication)
        usage = {name: frozenset(types[name].columns) for name in known}
        # Their text would wait for a lock on one table, and all others with it.
        catalog = read_once(session, usage, self._publication, with_expressions=False)
        found: dict[TableName, MirroredTable] = {}
        for schema, name, defaults, defers_key, stored in session.query(_COLUMNS, name_arrays(names)):
            table = TableName(schema, name)
            if table in catalog.tables:
                key, sent = known[table].key, frozenset(known[table].columns)
                leaves = catalog.tables[table].parts.values()
                has_full_identity = bool(leaves) and all(leaf.identity == "f" for leaf in leaves)
                if defers_key and has_full_identity:
                    key = ()  # two rows may have it within a transaction; only with FULL are there updates
                # What is not published yet will be, before its rows are read: with its stored columns.
                if table not in published and sends_stored:
                    sent = sent.union(stored)
                mirrored = self._mirrored(types[table], key, sent, catalog.part(table))
                found[table] = replace(
                    mirrored,
                    defaults=defaults,
                    has_full_identity=has_full_identity,
                    problem=problems.get(table, mirrored.problem),
                )
        return _with_leaves(session, found)

    def _mirrored(
        self, row_type: RowType, key: tuple[str, ...], sent: frozenset[str], catalog: Fingerprint
    ) -> MirroredTable:
        """Return what is mirrored of a table.

        Args:
            row_type: its columns, in the types that the database's have.
            key: what identifies its rows.
            sent: the columns that the log carries.
            catalog: what its rows depend on.
        """
        part, now = self._part(row_type.table), catalog.tables[row_type.table]
        masks = Masks(part.masks, self._salt)
        told_apart = () if part.mode == "changes" else key
        chosen: dict[str, LakeType | OnValue] = {**part.types, **part.on_value}
        read, kinds = _choose_types(row_type, chosen, masks, told_apart)
        mirrored = [column for column in read if not part.leaves_out(column)]
        as_they_are = (column for column in mirrored if chosen.get(column) != "text")
        # RENAME changes such a text without a change of the row, so that the lake could not follow.
        shown = [column for column in as_they_are if shows_names(row_type.columns[column])]
        return MirroredTable(
            relation=now.oid,
            row_type=RowType(row_type.table, row_type.attributes, read),
            key=key,
            columns=tuple(column for column in mirrored if column in sent),
            numbers=column_numbers(now),
            defaults={},
            part=part,
            catalog=catalog,
            masks=masks,
            sent=sent & read.keys(),
            lake_types=kinds,
            problem=_shows_names(row_type.table, shown[0]) if shown else None,
        )

    def _part(self, table: TableName) -> MirroredTables:
        return next(part for part in self._parts if part.matches(table))


def _with_leaves(
    session: ReadSession, tables: Mapping[TableName, MirroredTable]
) -> dict[TableName, MirroredTable]:
    """Return tables with the bounds of their partitions that hold rows."""
    found: dict[int, dict[int, Bounds | None]] = {}
    columns = {table.relation: table.columns_by_number for table in tables.values()}
    for root, oid, path in session.query(_LEAVES, ([*map(str, columns)],)):
        bounds = parse_bounds([tuple(level) for level in json.loads(path)])
        # The lake notes them, and must not have values of a column that is masked or left out.
        found.setdefault(root, {})[oid] = bounds if can_tell(bounds, columns[root]) else None
    return {name: replace(table, leaves=found.get(table.relation, {})) for name, table in tables.items()}


def _shows_names(table: TableName, column: str) -> HeadraceError:
    return HeadraceError(
        Kind.BINDING,
        f"the column {column} of {table} shows names of catalog objects, which change without their row",
        f'Write types = {{ {column} = "text" }}, to have the names of the time when rows were written, or '
        f'exclude_columns = ["{column}"].',
    )


def _choose_types(
    row_type: RowType, chosen: Mapping[str, LakeType | OnValue], masks: Masks, key: Collection[str]
) -> tuple[dict[str, ValueType], dict[str, ValueType]]:
    """Return the type in which each column is read; and that in the lake, where it is another one."""
    read, kinds = {}, {}
    for column, kind in row_type.columns.items():
        choice = "text" if masks.reads_text(column) else chosen.get(column)
        read[column] = read_type(kind, choice, is_key=column in key)
        in_lake = lake_type(kind, read[column], choice, is_key=column in key)
        if in_lake.arrow != read[column].arrow:
            kinds[column] = in_lake
    return read, kinds
