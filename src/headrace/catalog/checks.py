"""Check by queries what the catalog alone does not show: ids, functions, values, labels, nested objects.

`access` checks privileges, `binding` all that needs no query.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from headrace.catalog.binding import BindingFinding
from headrace.catalog.table import Catalog, Column, Table
from headrace.errors import HeadraceError, Kind, LocatedError, Place
from headrace.model.names import TableName, name_arrays
from headrace.model.suggestion import meant
from headrace.postgres.quoting import identifier, literal
from headrace.postgres.quoting import table as quoted
from headrace.postgres.session import ReadSession
from headrace.schema.raw import RAW_REMEDY, called_functions
from headrace.schema.tree import ColumnField, Field, Filter, IndexSpec, JoinField, ObjectField

ID_LIMIT_BYTES = 512
"""The most bytes of an `_id` in OpenSearch, which refuses an empty one too."""

_TEXTS = frozenset({"text", "varchar", "bpchar", "citext", "name"})
_SHORT = frozenset(
    "int2 int4 int8 oid numeric float4 float8 money bool uuid date time timetz timestamp timestamptz "
    "interval inet cidr macaddr macaddr8 pg_lsn xid xid8 char".split()
)
_SHORT_BYTES = 64
"""The most bytes of such a value's text; a numeric may be longer, but not as a key in practice."""
_NAME_BYTES = 63
_CHARACTER_BYTES = 4

_CHECKS = """
SELECT k.conrelid::bigint, a.attname::text, pg_get_expr(k.conbin, k.conrelid)
FROM unnest($1::text[]::oid[], $2::text[]) AS wanted (relation, name)
JOIN pg_constraint k ON k.conrelid = wanted.relation AND k.contype = 'c' AND k.convalidated
JOIN pg_attribute a ON a.attrelid = k.conrelid AND k.conkey = ARRAY[a.attnum] AND a.attname = wanted.name
"""
_LISTED = re.compile(r"'((?:[^']|'')*)'::")
"""A text that a CHECK compares with, as the server prints it."""


def id_findings(session: ReadSession, spec: IndexSpec, catalog: Catalog) -> list[BindingFinding]:
    """Warn where a row can have a key that is no valid id; a CHECK on the column is evaluated.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    table = catalog.tables.get(spec.table)
    if table is None:
        return []
    columns = [column for name in spec.primary_key if (column := table.column(name)) is not None]
    if not columns or len(columns) < len(spec.primary_key):
        return []
    defects = _id_defects(session, table, columns)
    if not defects:
        return []
    names = ", ".join(column.name for column in columns)
    problem = (
        f"the id of a document is {names} of {table.name}, which may be {' or '.join(defects)}: "
        "OpenSearch takes no such id"
    )
    remedy, sql = _remedy(table, columns)
    return [_warning(spec.place, problem, remedy, sql)]


def _id_defects(session: ReadSession, table: Table, key: Sequence[Column]) -> list[str]:
    """Return what an id of `key` may be that OpenSearch refuses."""
    bound = max_id_bytes(key)
    values = {}
    # An id of several parts has at least the colons between them.
    if len(key) == 1 and key[0].base_type in _TEXTS:
        values["empty"] = ""
    if bound is None or bound > ID_LIMIT_BYTES:
        values[f"longer than {ID_LIMIT_BYTES} bytes"] = "x" * (ID_LIMIT_BYTES + 1)
    if len(key) > 1:
        return list(values)
    checks = _read_checks(session, [(table, key[0])]).get((table.oid, key[0].name), [])
    return [defect for defect, value in values.items() if _admits(session, checks, key[0], value)]


def max_text_bytes(column: Column) -> int | None:
    """Return the most bytes that a value's text has; None without a bound."""
    if column.base_type in {"varchar", "bpchar"}:
        return column.length * _CHARACTER_BYTES or None
    if column.base_type == "name" or column.category == "E":
        return _NAME_BYTES
    return _SHORT_BYTES if column.base_type in _SHORT else None


def max_id_bytes(key: Sequence[Column]) -> int | None:
    """Return the most bytes of an id of `key`; with several parts `%` and `:` become three bytes each."""
    total = len(key) - 1
    for column in key:
        bound = max_text_bytes(column)
        if bound is None:
            return None
        total += bound * (3 if len(key) > 1 and column.base_type in _TEXTS else 1)
    return total


def _read_checks(
    session: ReadSession, columns: Sequence[tuple[Table, Column]]
) -> dict[tuple[int, str], list[str]]:
    """Read the conditions of the CHECKs on single columns, by the table's OID and the column's name."""
    found: dict[tuple[int, str], list[str]] = {}
    wanted = sorted({(str(table.oid), column.name) for table, column in columns})
    if wanted:
        for oid, name, check in session.query(_CHECKS, tuple(map(list, zip(*wanted, strict=True)))):
            found.setdefault((oid, name), []).append(check)
    return found


def _admits(session: ReadSession, checks: Sequence[str], column: Column, text: str) -> bool:
    """Return whether the checks on a column allow this value; True without checks."""
    if not checks:
        return True
    # A CHECK refuses FALSE alone: NULL passes in the server too.
    tested = " AND ".join(f"({check}) IS NOT FALSE" for check in checks)
    # A cast to varchar(n) would cut the tried value silently.
    kind = "text" if column.base_type in ("varchar", "bpchar", "name") else column.type
    try:
        [(admitted,)] = session.query(
            f"SELECT {tested} FROM (SELECT {literal(text)}::{kind}) AS row ({identifier(column.name)})"  # noqa: S608
        )
    except HeadraceError as error:
        # A check that fails on the tried value proves nothing: the value counts as allowed.
        if error.kind is not Kind.DATABASE:
            raise
        return True
    return bool(admitted)


def _remedy(table: Table, columns: Sequence[Column]) -> tuple[str, tuple[str, ...]]:
    if len(columns) > 1 or columns[0].base_type not in _TEXTS:
        return "Such a row is refused by the index; `on_error` says what happens then.", ()
    [column] = columns
    name = identifier(f"{column.name}_is_an_id"[:63])
    check = f"CHECK (octet_length({identifier(column.name)}::text) BETWEEN 1 AND {ID_LIMIT_BYTES})"
    sql = (
        f"ALTER TABLE {quoted(table.name)} ADD CONSTRAINT {name} {check} NOT VALID;",
        f"ALTER TABLE {quoted(table.name)} VALIDATE CONSTRAINT {name};",
    )
    return f"If there is no such row, let the database keep it so: {' '.join(sql)}", sql


_OWN_SCHEMA = "pg_catalog"
"""The schema in which a reading session looks up names without a schema."""

# Of several functions with one name the most volatile counts: the types decide which one is called.
_VOLATILITY = """
SELECT n.nspname::text, p.proname::text, bool_or(p.provolatile = 'v'), bool_or(p.provolatile = 's')
FROM unnest($1::text[], $2::text[]) AS called (nspname, proname)
JOIN pg_namespace n ON n.nspname = called.nspname
JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = called.proname
WHERE p.prokind = 'f'
GROUP BY 1, 2
"""

Function = tuple[str, str]
"""Schema and name."""


def function_findings(session: ReadSession, specs: Iterable[IndexSpec]) -> list[BindingFinding]:
    """Warn of functions in raw filters that may not give the same value at every reading; at most one query.

    Only the declaration of a user's function is known: one that is declared IMMUTABLE is believed, even if it
    reads a table.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    filters = {
        condition: _functions_of(condition)
        for spec in specs
        for _, condition in spec.conditions()
        if condition.raw and not condition.unsafe
    }
    names = sorted(set(chain.from_iterable(filters.values())))
    if not names:
        return []
    levels = _read_levels(session, names)
    return [
        _function_finding(levels[function], condition, function)
        for condition, called in filters.items()
        for function in called
        if function in levels
    ]


def _read_levels(
    session: ReadSession, names: Sequence[Function]
) -> dict[Function, Literal["error", "warning"]]:
    """Read how bad it is to call each of these functions; those that are harmless are absent."""
    levels: dict[Function, Literal["error", "warning"]] = {}
    rows = session.query(_VOLATILITY, tuple(map(list, zip(*names, strict=True))))
    for schema, name, is_volatile, is_stable in rows:
        if is_volatile:
            levels[schema, name] = "error"
        elif is_stable and schema != _OWN_SCHEMA:
            # PostgreSQL's own stable functions depend on settings that a reading session pins.
            levels[schema, name] = "warning"
    return levels


def _functions_of(condition: Filter) -> tuple[Function, ...]:
    names = ((schema or _OWN_SCHEMA, name) for schema, name in called_functions(condition.raw or ""))
    return tuple(dict.fromkeys(names))


def _function_finding(
    level: Literal["error", "warning"], condition: Filter, name: Function
) -> BindingFinding:
    shown = name[1] if name[0] == _OWN_SCHEMA else ".".join(name)
    if level == "error":
        problem = f"the function {shown} is VOLATILE: it may give another value at every reading"
        remedy = f"If it does not, declare it IMMUTABLE. {RAW_REMEDY}"
    else:
        problem = f"the function {shown} is STABLE: what else it reads leads to no document when it changes"
        remedy = (
            "If it reads nothing else, declare it IMMUTABLE; `unsafe: true` beside the filter accepts it."
        )
    return BindingFinding(level, LocatedError(Kind.BINDING, condition.place, problem, remedy))


_EQUALITIES = ("eq", "neq", "in", "not_in")


def value_findings(
    session: ReadSession, specs: Iterable[IndexSpec], catalog: Catalog
) -> list[BindingFinding]:
    """Warn of values in filters that a CHECK keeps every row from having.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    compared = list(_comparisons(specs, catalog))
    checks = _read_checks(session, [(table, column) for table, column, _ in compared])
    findings = []
    for table, column, condition in compared:
        on_column = checks.get((table.oid, column.name), [])
        findings += [
            _value_finding(table, column, condition, str(value), on_column)
            for value in condition.values
            if not _admits(session, on_column, column, str(value))
        ]
    return findings


def _comparisons(specs: Iterable[IndexSpec], catalog: Catalog) -> Iterator[tuple[Table, Column, Filter]]:
    """Yield the filters that compare an existing column with values."""
    for spec in specs:
        for name, condition in spec.conditions():
            if condition.op in _EQUALITIES and name in catalog:
                column = catalog[name].column(condition.column or "")
                if column is not None:
                    yield catalog[name], column, condition


def _value_finding(
    table: Table, column: Column, condition: Filter, value: str, checks: Sequence[str]
) -> BindingFinding:
    listed = [text.replace("''", "'") for check in checks for text in _LISTED.findall(check)]
    remedy = meant(value, listed) or f"The CHECK is {' AND '.join(checks)}."
    problem = f"a CHECK keeps {table.name}.{column.name} from being {value!r}: no row has this value"
    return _warning(condition.place, problem, remedy)


_LABELS = """
SELECT wanted.name, array_agg(e.enumlabel::text ORDER BY e.enumsortorder)
FROM unnest($1::text[]) AS wanted (name)
JOIN (pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace)
  ON t.typtype = 'e' AND quote_ident(n.nspname) || '.' || quote_ident(t.typname) = wanted.name
JOIN pg_enum e ON e.enumtypid = t.oid
GROUP BY 1
"""


def read_labels(session: ReadSession, enums: Iterable[str]) -> dict[str, list[str]]:
    """Read the labels of enums in their order, by `Column.base_type`.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    return dict(session.query(_LABELS, (sorted(enums),)))


def label_findings(
    session: ReadSession, specs: Iterable[IndexSpec], catalog: Catalog
) -> list[BindingFinding]:
    """Warn of variants that no row can have, and of labels that are missing in the order; one query.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    wanted: list[tuple[ColumnField, str]] = []
    for spec in specs:
        if spec.table in catalog:
            wanted += _enum_fields(catalog[spec.table], spec.fields, catalog)
    if not wanted:
        return []
    labels = read_labels(session, {name for _, name in wanted})
    return [finding for field, name in wanted for finding in _compare_labels(field, labels.get(name, []))]


def _enum_fields(
    table: Table, fields: Iterable[Field], catalog: Catalog
) -> Iterator[tuple[ColumnField, str]]:
    for field in fields:
        if isinstance(field, ColumnField) and field.variants and not field.transforms:
            column = table.column(field.column)
            if column is not None and column.category == "E":
                yield field, column.base_type
        elif isinstance(field, ObjectField):
            yield from _enum_fields(table, field.fields, catalog)
        elif isinstance(field, JoinField) and field.table in catalog:
            yield from _enum_fields(catalog[field.table], field.fields, catalog)


def _compare_labels(field: ColumnField, labels: list[str]) -> Iterator[BindingFinding]:
    unknown = [variant for variant in field.variants if variant not in labels]
    if unknown:
        problem = f"the enum has no label {unknown[0]!r}, which the variants name"
        yield _warning(field.place, problem, meant(unknown[0], labels))
    left_out = [label for label in labels if label not in field.variants]
    if left_out:
        problem = f"the variants leave out {', '.join(map(repr, left_out))}: no place in their order"
        yield _warning(field.place, problem, "Name every label, the lowest first.")


Link = tuple[TableName, str]
"""A table, and its column that refers to the parent row."""

# A column that was never analysed has no row. Of a partitioned table there are rows for the whole tree.
_STATISTICS = """
SELECT s.schemaname::text, s.tablename::text, s.attname::text, greatest(c.reltuples, 0)::float8, s.n_distinct,
       coalesce(s.most_common_freqs[1], 0)::float8
FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (schema, name, attribute)
JOIN pg_stats s ON s.schemaname = wanted.schema AND s.tablename = wanted.name AND s.attname = wanted.attribute
JOIN pg_namespace n ON n.nspname = s.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = s.tablename
WHERE s.inherited = (c.relkind = 'p')
"""


@dataclass(frozen=True, slots=True)
class Fanout:
    """How many rows refer to one parent row.

    Attributes:
        usual: the average over all parents.
        most: the number at the most common parent.
    """

    usual: float
    most: float


def nested_findings(
    session: ReadSession, specs: Iterable[IndexSpec], catalog: Catalog, limits: Mapping[str, int]
) -> list[BindingFinding]:
    """Warn of documents that may hold more nested objects than the cluster accepts in one.

    Args:
        limits: `mapping.nested_objects.limit` of each index, by its name.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    known = [spec for spec in specs if spec.table in catalog]
    fanouts = read_fanouts(session, {link for spec in known for link in _links(spec.fields)})
    findings = []
    for spec in known:
        counted = list(_count_rows(spec.fields, 1, fanouts, top=True))
        total = sum(count for _, count in counted)
        if total > limits[spec.name]:
            findings.append(
                _nested_finding(spec, total, limits[spec.name], max(counted, key=lambda pair: pair[1]))
            )
    return findings


def _nested_finding(
    spec: IndexSpec, total: float, limit: int, largest: tuple[JoinField, float]
) -> BindingFinding:
    join, count = largest
    problem = (
        f"a document of {spec.name} may hold about {total:,.0f} nested objects ({count:,.0f} of them "
        f"{join.key}, by the statistics of {join.table}); the cluster refuses one with more than {limit:,}"
    )
    remedy = (
        "Add a `limit` to the join, make its list plain objects with `options: {type: object}`, or raise "
        "mapping.nested_objects.limit in the index's settings_file."
    )
    return _warning(join.place, problem, remedy)


def _link(join: JoinField) -> Link:
    """Return the column that refers to the parent row; of several, the first."""
    if join.through is not None:
        return join.through.table, join.through.left_key
    return join.table, join.foreign_key[0]


def _links(fields: Iterable[Field]) -> Iterator[Link]:
    for field in fields:
        if isinstance(field, JoinField | ObjectField):
            yield from _links(field.fields)
        if isinstance(field, JoinField) and field.to_many:
            yield _link(field)


def _count_rows(
    fields: Iterable[Field], parents: float, fanouts: Mapping[Link, Fanout], *, top: bool
) -> Iterator[tuple[JoinField, float]]:
    """Yield each list, and how many of its rows a large document holds.

    At the top level that is the number at the most common parent, below it the average.
    """
    for field in fields:
        if isinstance(field, ObjectField):
            yield from _count_rows(field.fields, parents, fanouts, top=top)
        if not isinstance(field, JoinField):
            continue
        rows = parents
        if field.to_many:
            fanout = fanouts.get(_link(field), Fanout(0, 0))
            rows_each = fanout.most if top else fanout.usual
            rows = parents * (rows_each if field.limit is None else min(rows_each, field.limit))
            # Plain objects are no documents of their own in the index.
            if not field.scalar and dict(field.options).get("type", "nested") == "nested":
                yield field, rows
        yield from _count_rows(field.fields, rows, fanouts, top=top and not field.to_many)


def read_fanouts(session: ReadSession, links: set[Link]) -> dict[Link, Fanout]:
    """Read from the statistics how many rows refer to one parent row; nothing of columns without any.

    Raises:
        HeadraceError: CONNECTION, DATABASE.
    """
    if not links:
        return {}
    ordered = sorted(links)
    columns = (
        *name_arrays([table for table, _ in ordered]),
        [column for _, column in ordered],
    )
    fanouts = {}
    for schema, name, column, rows, distinct, top_share in session.query(_STATISTICS, columns):
        # Negative: a share of the rows, so that it stays right while the table grows.
        values = distinct if distinct > 0 else -distinct * rows
        usual = rows / values if values else 0.0
        fanouts[TableName(schema, name), column] = Fanout(usual, max(usual, top_share * rows))
    return fanouts


def _warning(place: Place, problem: str, remedy: str, sql: tuple[str, ...] = ()) -> BindingFinding:
    return BindingFinding("warning", LocatedError(Kind.BINDING, place, problem, remedy), sql)
